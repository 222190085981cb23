//! What an upload's bytes are.

use incrowd_protocol::{ProtocolError, ReportId, split_reports};

use crate::problem::{Kind, Problem};

/// One report.
pub const PLAIN: &str = "application/vnd.incrowd.report";
/// One sealed report.
pub const SEALED: &str = "application/vnd.incrowd.sealed-report";
/// Many reports, each with its length in front.
pub const PLAIN_MANY: &str = "application/vnd.incrowd.reports";
/// Many sealed reports, each with its length in front.
pub const SEALED_MANY: &str = "application/vnd.incrowd.sealed-reports";

/// The reports of a body.
pub(super) fn reports(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    split_reports(body).map_err(|error| {
        let too_many = error == ProtocolError::BulkLimit;
        Problem::new(if too_many { Kind::TooLarge } else { Kind::BadRequest }, error.to_string())
    })
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
