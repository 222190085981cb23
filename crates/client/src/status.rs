use crate::Group;

/// What a client is doing about reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The last report may still be counted: decisions are not reported until its round, or its
    /// grace window, is over.
    Waiting,
    /// The next decision will be reported.
    Open,
    /// A decision's report is pending or being made; where batches close by count, or being sent.
    /// No other decision is reported meanwhile.
    Busy,
    /// All reports of this device are made, or the task is over. Ranking goes on.
    Done,
}

/// How a client is doing.
///
/// # Privacy
/// Nothing here depends on a context or a reward.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// What it does about a comparison, and so which task it reports to. `phase`, `uploads`,
    /// `round` and `reports_sent` are about that task.
    pub group: Group,
    /// What it is doing about reports.
    pub phase: Phase,
    /// Version of the model it ranks with.
    pub model_version: Option<u64>,
    /// Reports that are made and that the shuffler has not decided yet.
    pub uploads: usize,
    /// The newest round it has seen; where batches close by time, the one that is open.
    pub round: Option<u32>,
    /// Reports the shuffler acknowledged since the client connected.
    pub reports_sent: u64,
    /// The last thing that went wrong in the background, without addresses and ids.
    pub last_error: Option<String>,
}
