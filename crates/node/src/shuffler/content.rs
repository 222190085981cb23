//! What an upload's bytes are.

use incrowd_protocol::ReportId;

use crate::problem::{Kind, Problem};

/// One report.
pub const PLAIN: &str = "application/vnd.incrowd.report";
/// One sealed report.
pub const SEALED: &str = "application/vnd.incrowd.sealed-report";
/// Many reports, each with its length in front.
pub const PLAIN_MANY: &str = "application/vnd.incrowd.reports";
/// Many sealed reports, each with its length in front.
pub const SEALED_MANY: &str = "application/vnd.incrowd.sealed-reports";

/// Most reports in one request.
pub const BULK_LIMIT: usize = 4096;

/// The parts of a body in which every report has its length in front, as a u32, big-endian.
pub fn split_reports(mut bytes: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let broken =
        || Problem::new(Kind::BadRequest, "a report is shorter than the length in front of it");
    let mut reports = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (report, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
        if reports.len() == BULK_LIMIT {
            let rule = format!("a request must have at most {BULK_LIMIT} reports");
            return Err(Problem::new(Kind::TooLarge, rule));
        }
        reports.push(report);
        bytes = rest;
    }
    Ok(reports)
}

/// The id of a path: 32 lower-case hex digits.
pub(super) fn report_id(text: &str) -> Result<ReportId, Problem> {
    let mut id = [0; 16];
    let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
    match hex::decode_to_slice(text, &mut id) {
        Ok(()) if lower => Ok(ReportId(id)),
        _ => Err(Problem::new(Kind::NotFound, "a report id has 32 lower-case hex digits")),
    }
}
