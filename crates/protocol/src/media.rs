use std::fmt;

/// Name of the header with the signature of a document.
pub const SIGNATURE_HEADER: &str = "incrowd-signature";

/// What the bytes of a body are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// A document: a notice, a round, a release, a model.
    Json,
    /// A [problem](crate::ProblemDocument).
    Problem,
    /// One report.
    Report,
    /// One sealed report.
    SealedReport,
    /// Many reports, each with its length in front.
    Reports,
    /// Many sealed reports, each with its length in front.
    SealedReports,
    /// An encapsulated request (RFC 9458).
    ObliviousRequest,
    /// An encapsulated answer (RFC 9458).
    ObliviousAnswer,
    /// Key configurations of a gateway (RFC 9458).
    ObliviousKeys,
}

impl MediaType {
    /// One report, sealed or not.
    pub const fn report(sealed: bool) -> Self {
        if sealed { Self::SealedReport } else { Self::Report }
    }

    /// Many reports, sealed or not.
    pub const fn reports(sealed: bool) -> Self {
        if sealed { Self::SealedReports } else { Self::Reports }
    }

    /// The value of a header `content-type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Problem => "application/problem+json",
            Self::Report => "application/vnd.incrowd.report",
            Self::SealedReport => "application/vnd.incrowd.sealed-report",
            Self::Reports => "application/vnd.incrowd.reports",
            Self::SealedReports => "application/vnd.incrowd.sealed-reports",
            Self::ObliviousRequest => "message/ohttp-req",
            Self::ObliviousAnswer => "message/ohttp-res",
            Self::ObliviousKeys => "application/ohttp-keys",
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
