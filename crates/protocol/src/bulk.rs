//! Many reports in one body: each with its length in front, as a u32, big-endian.

use serde::{Deserialize, Serialize};

use crate::{ProblemKind, ProtocolError};

/// Most reports in one body.
pub const BULK_LIMIT: usize = 4096;

/// Adds a report, sealed or not, to a body.
pub fn push_report(body: &mut Vec<u8>, report: &[u8]) {
    body.extend((report.len() as u32).to_be_bytes());
    body.extend(report);
}

/// The reports of a body.
pub fn split_reports(mut body: &[u8]) -> Result<Vec<&[u8]>, ProtocolError> {
    let mut reports = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<4>().ok_or(ProtocolError::Bulk)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (report, rest) = rest.split_at_checked(length).ok_or(ProtocolError::Bulk)?;
        if reports.len() == BULK_LIMIT {
            return Err(ProtocolError::BulkLimit);
        }
        reports.push(report);
        body = rest;
    }
    Ok(reports)
}

/// The outcomes of many reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// Reports that count, now or before.
    pub accepted: usize,
    /// The others, by their place in the request.
    pub refused: Vec<RefusedReport>,
}

/// A report that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedReport {
    /// Place in the request, from 0.
    pub index: usize,
    /// The problem's type.
    pub r#type: String,
    /// The violated rule.
    pub detail: String,
}

impl RefusedReport {
    /// A report that does not count, and why.
    pub fn new(index: usize, kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { index, r#type: kind.uri(), detail: detail.into() }
    }

    /// The kind of its problem, if it is one of incrowd's.
    pub fn kind(&self) -> Option<ProblemKind> {
        ProblemKind::of(&self.r#type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_split() {
        let reports: [&[u8]; 3] = [b"one", b"", b"three"];
        let mut body = Vec::new();
        reports.iter().for_each(|report| push_report(&mut body, report));
        assert_eq!(split_reports(&body).unwrap(), reports);
        assert!(split_reports(b"").unwrap().is_empty());
        for length in [1, 3, 5, 6, 10, body.len() - 1] {
            assert_eq!(split_reports(&body[..length]), Err(ProtocolError::Bulk), "{length}");
        }
        let full = vec![0; 4 * BULK_LIMIT];
        assert_eq!(split_reports(&full).unwrap().len(), BULK_LIMIT);
        assert_eq!(split_reports(&vec![0; 4 * BULK_LIMIT + 4]), Err(ProtocolError::BulkLimit));
    }
}
