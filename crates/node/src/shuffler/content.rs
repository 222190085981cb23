//! What an upload's bytes are.

use incrowd_protocol::{ProtocolError, ReportId, split_reports};

use crate::problem::{Kind, Problem};

/// The reports of a body.
pub(super) fn reports(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    split_reports(body).map_err(|error| {
        let too_many = error == ProtocolError::BulkLimit;
        Problem::new(if too_many { Kind::TooLarge } else { Kind::BadRequest }, error.to_string())
    })
}

/// The id of a path.
pub(super) fn report_id(text: &str) -> Result<ReportId, Problem> {
    text.parse().map_err(|error: ProtocolError| Problem::new(Kind::NotFound, error.to_string()))
}
