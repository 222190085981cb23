//! What is newest where other nodes act too: a model, or how far a task is.

use std::time::Instant;

use tokio::sync::Mutex;

/// Asks the store, once for all who wait for the answer.
///
/// No answer is older than its question: whoever was told of a round or a model by one node is
/// never told of an earlier one by another.
#[derive(Default)]
pub(super) struct Newest {
    /// When the last reading began, and whether it worked.
    last: Mutex<Option<(Instant, bool)>>,
}

impl Newest {
    /// Reads, unless a reading that began after this was called is over by then. Whether it worked.
    pub async fn read(&self, read: impl AsyncFnOnce() -> bool) -> bool {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((_, worked)) = last.filter(|(began, _)| *began >= asked) {
            return worked;
        }
        let began = Instant::now();
        let worked = read().await;
        *last = Some((began, worked));
        worked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_not_older_than_the_question_and_many_share_it() {
        let (newest, reads, gate) = (Newest::default(), AtomicU32::new(0), Semaphore::new(0));
        let read = async || {
            reads.fetch_add(1, SeqCst);
            gate.acquire().await.unwrap().forget();
            true
        };
        let ask = || newest.read(read);
        // The first reads. The others came after it began: one of them reads for all of them.
        let all = async { tokio::join!(ask(), ask(), ask(), ask(), ask()) };
        let open = async {
            tokio::task::yield_now().await;
            assert_eq!(reads.load(SeqCst), 1);
            gate.add_permits(2);
        };
        let (answers, ()) = tokio::join!(all, open);
        assert_eq!(answers, (true, true, true, true, true));
        assert_eq!(reads.load(SeqCst), 2);
        gate.add_permits(1);
        assert!(ask().await);
        assert_eq!(reads.load(SeqCst), 3, "an answer from before the question is none");
    }
}
