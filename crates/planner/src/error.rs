use std::fmt;

use incrowd_bandit::BanditError;
use incrowd_privacy::PrivacyError;
use incrowd_protocol::{ProtocolError, UnitError, format_number};
use thiserror::Error;

/// What keeps batches from being larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BatchLimit {
    /// The horizon.
    Horizon(u64),
    /// The latency limit, in days.
    Latency(f64),
    /// The longest window.
    Window,
    /// The batch size was given.
    Fixed(u32),
}

impl fmt::Display for BatchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Horizon(horizon) => write!(f, "the horizon of {horizon}"),
            Self::Latency(days) => write!(f, "the latency limit of {days} days"),
            Self::Window => write!(f, "the longest window of 49.7 days"),
            Self::Fixed(size) => write!(f, "the batch size of {size}"),
        }
    }
}

/// Why there is no plan: the rule or the constraint, and what would be possible.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number that must be positive.
    #[error("{what} is {}, must be above 0 and finite", format_number(*value))]
    NotPositive {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// `horizon` is out of range.
    #[error("horizon is {0}, must be from 1 to 1000000000000")]
    Horizon(u64),
    /// Neither a horizon nor users and days.
    #[error("the number of people is missing: give a horizon, or users per day and days")]
    NoHorizon,
    /// Both a horizon and days.
    #[error("horizon and days are both given, must be one of them")]
    TwoHorizons,
    /// Local epsilon unlimited and no central epsilon.
    #[error("there is no privacy limit: a local epsilon that is unlimited needs a central epsilon")]
    NoLimit,
    /// Bits of a codebook.
    #[error("bits is {0}, must be left out with the encoding codebook")]
    BitsOfCodebook(u32),
    /// `grace` is out of range.
    #[error("grace is {0}, must be from 0 to 1000")]
    Grace(u32),
    /// `grace` where batches close by time.
    #[error(
        "grace is {0}, must be left out where rounds close by time: a report belongs to the round that is open when it is due"
    )]
    GraceWithTime(u32),
    /// A number about time where batches close by count.
    #[error(
        "{0} is given, but batches close by count: it needs users per day and rounds that close by time"
    )]
    NeedsTime(&'static str),
    /// Rounds that close by time without a rate.
    #[error("rounds that close by time need the number of users per day")]
    TimeNeedsRate,
    /// Rounds that close by time without a beginning.
    #[error("the time at which round 1 opens is missing")]
    NoOpens,
    /// A preset with rounds that close by time.
    #[error("preset {0} closes batches by count, as the paper does: leave the closing rule out")]
    PresetClosesByCount(&'static str),
    /// The peak is out of range.
    #[error("peak is {}, must be at least 1 and finite: it is the peak rate over the mean rate", format_number(*.0))]
    Peak(f64),
    /// The busiest day is out of range.
    #[error(
        "busiest day is {busiest_day}, must be from 1 to the peak of {peak}: it is the reports of the \
         busiest day over those of the mean day"
    )]
    BusiestDay {
        /// The factor asked for.
        busiest_day: f64,
        /// The peak rate over the mean rate.
        peak: f64,
    },
    /// The upload time is out of range.
    #[error("upload time is {} seconds, must be at least 0 and finite", format_number(*.0))]
    UploadSeconds(f64),
    /// The reward window is out of range.
    #[error("reward window is {} hours, must be at least 0 and finite", format_number(*.0))]
    RewardWindow(f64),
    /// A latency limit without a rate.
    #[error("a latency limit needs the number of users per day")]
    LatencyNeedsRate,
    /// The batch is larger than everybody.
    #[error("batch size is {size}, must be at most the horizon of {horizon}")]
    BatchAboveHorizon {
        /// The batch size asked for.
        size: u32,
        /// The horizon.
        horizon: u64,
    },
    /// The batch takes longer than a round may be open.
    #[error("batch size is {size}, must be at most {most}: a round is open for at most 49.7 days")]
    BatchAboveWindow {
        /// The batch size asked for.
        size: u32,
        /// Reports expected in the longest window.
        most: u32,
    },
    /// The latency limit leaves no batch.
    #[error(
        "the latency limit of {days} days allows at most {allowed} reports in a batch, but a batch has at least {wanted}: {needed_days:.3} days are enough"
    )]
    Latency {
        /// The limit in days.
        days: f64,
        /// Reports that arrive in this time.
        allowed: u32,
        /// Reports needed.
        wanted: u32,
        /// The smallest limit that is enough.
        needed_days: f64,
    },
    /// The local epsilon leaves no signal.
    #[error(
        "local epsilon {} at dimension {dimension} keeps less than {keep} of the signal: the smallest feasible local epsilon is {smallest:.3}",
        format_number(*epsilon)
    )]
    LocalTooSmall {
        /// The local epsilon asked for.
        epsilon: f64,
        /// d.
        dimension: u32,
        /// The smallest useful keep probability.
        keep: f64,
        /// The smallest feasible local epsilon.
        smallest: f64,
    },
    /// The central epsilon leaves no signal in the batches that are allowed.
    #[error(
        "central epsilon {} needs batches of at least {needed} at dimension {dimension}, but {limit} allows at most {allowed}: the smallest feasible central epsilon is {smallest:.1e}",
        format_number(*epsilon)
    )]
    CentralTooSmall {
        /// The central epsilon asked for.
        epsilon: f64,
        /// d.
        dimension: u32,
        /// Smallest batch that would do (a guess, not certified).
        needed: u64,
        /// What keeps batches small.
        limit: BatchLimit,
        /// Largest batch allowed.
        allowed: u32,
        /// The smallest feasible central epsilon for it (a guess, not certified).
        smallest: f64,
    },
    /// The guess of the search was too far from what can be certified.
    #[error(
        "no certified plan was found near central epsilon {}: the certified value is {certified}",
        format_number(*target)
    )]
    NotCertified {
        /// The limit.
        target: f64,
        /// What was certified last.
        certified: f64,
    },
    /// A preset whose parameters exceed the cap on the local epsilon.
    #[error(
        "preset {preset} has a certified local epsilon of {epsilon:.4}, above the cap of {cap}: raise it by name (--local-epsilon), or lift it with 'unlimited'"
    )]
    PresetAboveCap {
        /// Name of the preset.
        preset: &'static str,
        /// Its certified local epsilon.
        epsilon: f64,
        /// The request's cap.
        cap: f64,
    },
    /// A preset without the number it starts from.
    #[error("preset {preset} needs {needs}")]
    PresetNeeds {
        /// The preset.
        preset: &'static str,
        /// What is missing.
        needs: &'static str,
    },
    /// Nothing to choose.
    #[error("actions is {0}, must be from 2 to 100000")]
    Actions(u32),
    /// Means outside of 0 to 1, or nothing to learn.
    #[error("gap is {}, must be above 0 and at most 0.5", format_number(*.0))]
    Gap(f64),
    /// The paper does not forget.
    #[error("preset {0} cannot have a half-life: the paper's bandit forgets nothing")]
    PresetForgets(&'static str),
    /// The paper's model has no slots.
    #[error("preset {0} needs one set of weights for all actions: leave out the slots")]
    PresetLayout(&'static str),
    /// Growing batches with forgetting: an old batch would count for less than its size says.
    #[error(
        "growing batches cannot have a half-life: earlier, smaller batches would soon not count"
    )]
    GrowingForgets,
    /// A comparison of something else than two mean rewards.
    #[error(
        "a comparison must have 1 feature, 2 slots and equal batches, and neither a half-life nor a preset"
    )]
    Comparison,
    /// A rule of the bandit.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// A quantity is outside of its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A rule of the privacy crate, or a theorem outside its regime.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// A rule of the mechanism.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}
