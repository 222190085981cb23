use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use csv::{ReaderBuilder, StringRecord};

use super::{DataError, Place};

/// A CSV file: a header and rows of as many fields. Spaces around fields are ignored, and so are a
/// byte order mark and empty lines.
#[derive(Debug)]
pub(crate) struct Table {
    file: PathBuf,
    header: u64,
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    line: u64,
    fields: StringRecord,
}

/// All bytes of a file.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, DataError> {
    let at = || Place { file: file.to_path_buf(), line: None, column: None };
    fs::read(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DataError::Missing(at()),
        _ => DataError::Unreadable { at: at(), reason: error.to_string() },
    })
}

impl Table {
    /// The table in a file's bytes.
    pub(crate) fn parse(file: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        let place = |line| Place { file: file.to_path_buf(), line, column: None };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            DataError::NotUtf8(place(Some(1 + breaks(&bytes[..error.valid_up_to()]))))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rows = rows(text).map_err(|error| DataError::Unreadable {
            at: place(None),
            reason: error.to_string(),
        })?;
        if rows.is_empty() {
            return Err(DataError::Empty(place(None)));
        }
        let header = rows.remove(0);
        let columns = header.fields.iter().map(str::to_owned).collect();
        let table = Self { file: file.to_path_buf(), header: header.line, columns, rows };
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), DataError> {
        let mut seen = HashSet::new();
        for column in self.columns.iter().filter(|name| !name.is_empty()) {
            if !seen.insert(column) {
                return Err(DataError::RepeatedColumn(self.column_place(column)));
            }
        }
        if self.rows.is_empty() {
            return Err(DataError::NoRows(self.place()));
        }
        let expected = self.columns.len();
        match self.rows.iter().find(|row| row.fields.len() != expected) {
            Some(row) => Err(DataError::Ragged {
                at: Place { line: Some(row.line), ..self.place() },
                found: row.fields.len(),
                expected,
            }),
            None => Ok(()),
        }
    }

    /// The rows of another file below its own, which must have every named column.
    pub(super) fn stack(mut self, other: &Self) -> Result<Self, DataError> {
        let column =
            |name: &String| if name.is_empty() { Ok(None) } else { other.find(name).map(Some) };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        for row in &other.rows {
            let field = |column: &Option<usize>| column.map_or("", |column| &row.fields[column]);
            let fields = columns.iter().map(field).collect();
            self.rows.push(Row { line: row.line, fields });
        }
        Ok(self)
    }

    /// The names of the columns. A name may be empty (the row numbers that some programs write).
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Rows after the header.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The index of the column with this name.
    pub(crate) fn find(&self, column: &str) -> Result<usize, DataError> {
        let position = self.columns.iter().position(|name| name == column);
        position.ok_or_else(|| DataError::UnknownColumn {
            at: self.header_place(),
            column: column.to_owned(),
            known: self.columns.iter().filter(|name| !name.is_empty()).cloned().collect(),
        })
    }

    /// A field's text.
    pub(crate) fn text(&self, row: usize, column: usize) -> &str {
        &self.rows[row].fields[column]
    }

    /// A field's number.
    pub(crate) fn number(&self, row: usize, column: usize) -> Result<f64, DataError> {
        let text = self.text(row, column);
        let field = || (self.field_place(row, column), text.to_owned());
        let number: f64 = text.parse().map_err(|_| {
            let (at, found) = field();
            DataError::NotNumber { at, found }
        })?;
        if number.is_finite() {
            Ok(number)
        } else {
            let (at, found) = field();
            Err(DataError::NotFinite { at, found })
        }
    }

    /// All numbers of a column.
    pub(crate) fn numbers(&self, column: usize) -> Result<Vec<f64>, DataError> {
        (0..self.rows()).map(|row| self.number(row, column)).collect()
    }

    /// The whole file.
    pub(crate) fn place(&self) -> Place {
        Place { file: self.file.clone(), line: None, column: None }
    }

    /// The header.
    pub(crate) fn header_place(&self) -> Place {
        Place { line: Some(self.header), ..self.place() }
    }

    /// A column's name in the header.
    pub(crate) fn column_place(&self, column: &str) -> Place {
        Place { column: Some(column.to_owned()), ..self.header_place() }
    }

    /// One field.
    pub(crate) fn field_place(&self, row: usize, column: usize) -> Place {
        Place {
            line: Some(self.rows[row].line),
            column: Some(self.columns[column].clone()),
            ..self.place()
        }
    }
}

/// All records, the header too, with the lines on which they begin.
fn rows(text: &str) -> Result<Vec<Row>, csv::Error> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut rows = Vec::new();
    let (mut byte, mut line) = (0, 1);
    for record in reader.records() {
        let mut fields = record?;
        // The reader's own position is that of the empty lines before the record.
        let mut start = fields.position().map_or(0, csv::Position::byte) as usize;
        start += text[start..].bytes().take_while(|byte| b"\r\n".contains(byte)).count();
        line += breaks(&text.as_bytes()[byte..start]);
        byte = start;
        fields.trim();
        if fields.len() > 1 || fields.iter().any(|field| !field.is_empty()) {
            rows.push(Row { line, fields });
        }
    }
    Ok(rows)
}

fn breaks(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').skip(1).count() as u64
}
