use serde::{Deserialize, Serialize};

/// Largest time that a schedule may reach: the end of the year 9999, in milliseconds since 1970.
pub(crate) const LATEST: u64 = 253_402_300_800_000;

/// What closes a batch.
///
/// # Privacy
/// With [`Closes::Time`] the guarantee also covers whether and when a person reports; with
/// [`Closes::Count`] it assumes that this does not depend on their data, because one report more or
/// less moves every later boundary (`docs/privacy-proofs.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closes {
    /// The last report that it takes: the paper's rule.
    Count {
        /// Rounds a report may be late, 0 to 1000.
        grace: u32,
    },
    /// The clock. The shuffler fills the batch with reports of the zero vector.
    Time {
        /// When round 1 opens, in milliseconds since 1970-01-01T00:00:00Z.
        opens: u64,
    },
}

/// What closes a batch, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClosesBy {
    Count,
    Time,
}

/// When a round is open: from `opens` until just before `closes`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first millisecond of the round.
    pub opens: u64,
    /// The first millisecond after it.
    pub closes: u64,
}

/// What a clock says about the rounds of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenRound {
    /// Round 1 has not opened yet.
    NotYet,
    /// The round with this number is open.
    Open(u32),
    /// The last round has closed.
    Over,
}
