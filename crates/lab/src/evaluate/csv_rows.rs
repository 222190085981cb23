//! Rows of a CSV file with the lines on which they begin.

use std::{collections::HashSet, path::Path};

use csv::{ReaderBuilder, StringRecord};
use incrowd_sim::Place;

use super::{EvaluateError, log::place};

/// The first row.
pub(super) struct Header {
    pub(super) line: u64,
    /// A name may be empty: the row numbers that some programs write.
    pub(super) columns: Vec<String>,
}

/// The first row that is not empty; no columns if there is none.
pub(super) fn header(file: &Path, text: &str) -> Result<Header, EvaluateError> {
    let mut rows = Rows::new(file, text);
    let Some((line, fields)) = rows.next()? else {
        return Ok(Header { line: 1, columns: Vec::new() });
    };
    let columns: Vec<String> = fields.iter().map(str::to_owned).collect();
    let mut seen = HashSet::new();
    match columns.iter().find(|name| !name.is_empty() && !seen.insert(name.as_str())) {
        Some(repeated) => Err(EvaluateError::RepeatedColumn(Place {
            column: Some(repeated.clone()),
            ..place(file, Some(line))
        })),
        None => Ok(Header { line, columns }),
    }
}

/// All rows after the header, each with as many fields.
pub(super) fn for_each(
    file: &Path,
    text: &str,
    mut each: impl FnMut(u64, &StringRecord) -> Result<(), EvaluateError>,
) -> Result<(), EvaluateError> {
    let mut rows = Rows::new(file, text);
    let Some((_, header)) = rows.next()? else {
        return Ok(());
    };
    let expected = header.len();
    while let Some((line, fields)) = rows.next()? {
        if fields.len() != expected {
            let (at, found) = (place(file, Some(line)), fields.len());
            return Err(EvaluateError::Ragged { at, found, expected });
        }
        each(line, &fields)?;
    }
    Ok(())
}

/// Line breaks in these bytes.
pub(super) fn breaks(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').skip(1).count() as u64
}

/// Rows that are not empty, with spaces around fields removed.
struct Rows<'a> {
    file: &'a Path,
    text: &'a str,
    reader: csv::Reader<&'a [u8]>,
    byte: usize,
    line: u64,
}

impl<'a> Rows<'a> {
    fn new(file: &'a Path, text: &'a str) -> Self {
        let reader =
            ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        Self { file, text, reader, byte: 0, line: 1 }
    }

    fn next(&mut self) -> Result<Option<(u64, StringRecord)>, EvaluateError> {
        let mut fields = StringRecord::new();
        loop {
            let more = self.reader.read_record(&mut fields).map_err(|error| {
                EvaluateError::Unreadable { at: place(self.file, None), reason: error.to_string() }
            })?;
            if !more {
                return Ok(None);
            }
            // The reader's own position is that of the empty lines before the row.
            let mut start = fields.position().map_or(0, csv::Position::byte) as usize;
            let rest = &self.text.as_bytes()[start..];
            start += rest.iter().take_while(|byte| b"\r\n".contains(byte)).count();
            self.line += breaks(&self.text.as_bytes()[self.byte..start]);
            self.byte = start;
            fields.trim();
            if fields.len() > 1 || fields.iter().any(|field| !field.is_empty()) {
                return Ok(Some((self.line, fields)));
            }
        }
    }
}
