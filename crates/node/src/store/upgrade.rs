//! How a shuffler's file of version 2 becomes a log: each commit's ids are an entry, the unfinished
//! batch is a snapshot after them.

use incrowd_protocol::ReportId;
use incrowd_shuffler::{Entry, IdsEntry, PartialSums};
use rusqlite::{Transaction, params};

use super::{
    Seq, StoreError,
    sqlite::checked,
    sqlite_shuffler::{TaskRow, append},
};

const BEFORE: &str = "
    ALTER TABLE release ADD COLUMN signature BLOB;
    ALTER TABLE task ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE task ADD COLUMN round INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE task ADD COLUMN last BLOB;
    UPDATE task SET round = 1 + coalesce((SELECT max(round) FROM release WHERE task = number), 0);
    DROP INDEX ids_by_round;
    ALTER TABLE ids RENAME TO old_ids;
    CREATE TABLE ids (task INTEGER NOT NULL, seq INTEGER NOT NULL, round INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE UNIQUE INDEX ids_by_seq ON ids (task, seq, round);
    CREATE TABLE sums (task INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, seq)) WITHOUT ROWID;";
const AFTER: &str = "
    DROP TABLE old_ids;
    ALTER TABLE task DROP COLUMN batch;";

/// Version 2 to 3. The releases get their signatures later, when the node opens the task with its
/// key.
pub(super) fn to_log(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.execute_batch(BEFORE)?;
    let mut tasks =
        transaction.prepare("SELECT number, id, round, batch FROM task WHERE NOT closed")?;
    let mut rows = tasks.query([])?;
    while let Some(row) = rows.next()? {
        let task = TaskRow { number: row.get(0)?, id: row.get(1)? };
        let seq = copy_ids(transaction, &task)?.next();
        let batch = checked(row.get(3)?, "a batch")?;
        append(transaction, &task, seq, snapshot(&batch, row.get(2)?)?)?;
        let sql = "UPDATE task SET seq = ?2 WHERE number = ?1";
        transaction.execute(sql, params![task.number, seq.0 as i64])?;
    }
    drop(rows);
    drop(tasks);
    transaction.execute_batch(AFTER)?;
    Ok(())
}

/// An entry for each row of ids; the number of the last one.
fn copy_ids(transaction: &Transaction<'_>, task: &TaskRow) -> Result<Seq, StoreError> {
    let mut seq = Seq(0);
    let mut old =
        transaction.prepare("SELECT round, ids FROM old_ids WHERE task = ?1 ORDER BY rowid")?;
    let mut rows = old.query([task.number])?;
    while let Some(row) = rows.next()? {
        let blob = checked(row.get(1)?, "ids")?;
        let (ids, []) = blob.as_chunks::<16>() else {
            return Err(StoreError::Damaged("half an id".into()));
        };
        let mut entry = IdsEntry::default();
        ids.iter().for_each(|id| entry.push(ReportId(*id)));
        seq = seq.next();
        append(transaction, task, seq, entry.into_entry(row.get(0)?))?;
    }
    Ok(seq)
}

/// The unfinished batch of a task whose releases end before `round`.
fn snapshot(batch: &[u8], round: u32) -> Result<Entry, StoreError> {
    let (found, sums) = PartialSums::decode_words(batch)?;
    // A finished task had no round.
    if found != round && found != 0 {
        return Err(StoreError::Damaged(format!("the batch of round {found} instead of {round}")));
    }
    Ok(sums.into_snapshot(round))
}
