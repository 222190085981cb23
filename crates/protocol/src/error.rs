use thiserror::Error;

use crate::{OutsideProbability, UnitError};

/// A rule of `docs/formats.md` that an input violates, with the value and what is allowed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A quantity is outside of its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// `context_bound` is out of range.
    #[error("context_bound is {0}, must be from 1e-20 to 1e20")]
    ContextBound(f64),
    /// The fields of a layout are not its own.
    #[error("layout \"{0}\" takes {1}")]
    LayoutFields(&'static str, &'static str),
    /// `slots` is out of range.
    #[error("slots is {0}, must be from 1 to {1}")]
    Slots(u32, u32),
    /// `shared` leaves a hybrid model no shared features, or no others.
    #[error("shared is {0}, must be at least 1 and below the dimension, {1}")]
    SharedFeatures(u32, u32),
    /// A hybrid model is too large.
    #[error("a hybrid model has {0} parameters, must have at most {1}")]
    JointParameters(u64, u32),
    /// Reports would be too long.
    #[error("a report has {found} coordinates, must have at most {most}")]
    Coordinates {
        /// Of this layout.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// The schedule has too few or too many stages, or two equal neighbours.
    #[error("schedule {0}")]
    Schedule(&'static str),
    /// A stage has no rounds, or all stages together have too many.
    #[error("rounds are {0}, must be at least 1 in each stage and at most 4294967294 in all")]
    Rounds(u64),
    /// A batch smaller than the policy allows.
    #[error(
        "size in mechanism.schedule is {smallest}, must be at least {policy}, which is policy.smallest_batch of the same task"
    )]
    BelowPolicy {
        /// The smallest batch of the schedule.
        smallest: u32,
        /// What the policy says.
        policy: u32,
    },
    /// A batch smaller than one report.
    #[error("size is {0}, must be from {1} to 4294967295")]
    Size(u32, u32),
    /// `bits` is out of range for the dimension.
    #[error(
        "bits is {0}, must be from 1 to 4095, with at most 2^24 coins in a report of {1} coordinates"
    )]
    Bits(u32, usize),
    /// The flip probability is no fraction in lowest terms strictly between 0 and 1.
    #[error(
        "flip is {0:?}, must be \"numerator/denominator\" in lowest terms, above 0 and below 1, denominator at most 4294967295"
    )]
    Flip(String),
    /// The fields of a stage are not those of its encoding.
    #[error("encoding \"{0}\" takes the fields {1}, and none of another encoding")]
    Encoding(&'static str, &'static str),
    /// `words` is out of range.
    #[error("words is {0}, must be from 2 to 256")]
    Words(u32),
    /// `chosen` is out of range for the words.
    #[error("chosen is {0}, must be from 1 to {1}, half of the words")]
    Chosen(u32, u32),
    /// `outside` is no fraction in lowest terms strictly between 0 and 1.
    #[error(
        "outside is {0:?}, must be \"numerator/denominator\" in lowest terms, above 0 and below 1, denominator at most 4294967295"
    )]
    Outside(String),
    /// `outside` is so large that the chosen words are sent no more often than others.
    #[error("outside is {outside}, must be below 1 - chosen/words = 1 - {chosen}/{words}")]
    OutsideTooLarge {
        /// The fraction.
        outside: OutsideProbability,
        /// Words that the statistic picks.
        chosen: u32,
        /// All words.
        words: u32,
    },
    /// `moment_weight` is out of range.
    #[error("moment_weight is {0}, must be from 1 to 255 (in 256ths)")]
    MomentWeight(u32),
    /// `grace` is out of range.
    #[error("grace is {0}, must be from 0 to 1000, and 0 where batches close by time")]
    Grace(u32),
    /// A `window` is out of range, missing, or given where batches close by count.
    #[error("window {0}")]
    Window(&'static str),
    /// `opens` is given where batches close by count, or the schedule ends too late.
    #[error(
        "opens is {0}, must be left out where batches close by count, and the schedule must end before the year 10000"
    )]
    Opens(u64),
    /// `opens` is missing.
    #[error(
        "opens must be given where batches close by time: milliseconds since 1970, as a string"
    )]
    NoOpens,

    /// `parameter_bound` (S) is not positive and finite.
    #[error("parameter_bound is {0}, must be from 1e-20 to 1e20")]
    ParameterBound(f64),
    /// `reward_noise` (sigma) is not positive and finite.
    #[error("reward_noise is {0}, must be from 1e-20 to 1e20")]
    RewardNoise(f64),
    /// `failure_probability` is no probability.
    #[error("failure_probability is {0}, must be above 0 and below 1")]
    FailureProbability(f64),
    /// `exploration` is out of range.
    #[error("exploration is {0}, must be from 0 to 100")]
    Exploration(f64),
    /// The paper's widths with another encoding than its own.
    #[error("confidence mode \"paper\" needs the encoding \"bits\" in every stage")]
    PaperWidths,
    /// `ridge` is not positive and finite.
    #[error("ridge is {0}, must be from 1e-20 to 1e20")]
    Ridge(f64),
    /// The determinant rule's `growth` is not positive and finite.
    #[error("growth of the determinant is {0}, must be from 1e-20 to 1e20")]
    DeterminantGrowth(f64),
    /// The scale of the `sampled` selection is out of range.
    #[error("scale is {0}, must be from 0 to 100")]
    Scale(f64),

    /// `discount` is out of range.
    #[error("discount is {0}, must be above 0 and at most 1")]
    Discount(f64),
    /// Forgetting where a result needs every report to count alike.
    #[error("discount is {discount}, must be 1 with {with}")]
    DiscountWith {
        /// The discount.
        discount: f64,
        /// The setting that it does not go with.
        with: &'static str,
    },
    /// The paper's widths with another model than its own.
    #[error("confidence mode \"paper\" needs the layout \"shared\" and no prior")]
    PaperLayout,
    /// Proven widths with assumptions that nobody has proved.
    #[error("confidence mode \"proven\" needs a task without prior: nothing is proved about it")]
    ProvenPrior,
    /// The weight of a prior is out of range.
    #[error("people of the prior is {0}, must be above 0 and at most 1e12")]
    PriorPeople(f64),
    /// A value of a prior is no mean of a statistic.
    #[error("value {index} of the prior is {value}, must be {allowed}")]
    PriorValue {
        /// Its place.
        index: usize,
        /// The value.
        value: f64,
        /// The range.
        allowed: &'static str,
    },
    /// A list of actions for another number of slots.
    #[error("actions has {found} entries, must have one for each of the {slots} slots")]
    Actions {
        /// Entries.
        found: usize,
        /// Slots of the layout.
        slots: usize,
    },
    /// An action's name is too short or too long.
    #[error("an action's name has {found} bytes, must have from 1 to {most}")]
    ActionName {
        /// Bytes.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// Two slots with one action.
    #[error("action {0:?} must be in one slot only")]
    DuplicateAction(String),

    /// Fewer bytes than the format needs.
    #[error("report has {found} bytes, must have {needed}")]
    Short {
        /// Bytes found.
        found: usize,
        /// Bytes needed (the header alone when the round is not known yet).
        needed: usize,
    },
    /// More bytes than the format has.
    #[error("report has {found} bytes, must have {needed}")]
    Long {
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Another version of the format.
    #[error("report has version {0}, must be 1")]
    Version(u8),
    /// A report for another mechanism.
    #[error("report is for another mechanism")]
    Task,
    /// A round that the schedule does not have.
    #[error("round is {round}, must be from 1 to {last}")]
    Round {
        /// The round found.
        round: u32,
        /// The last round of the schedule.
        last: u32,
    },
    /// A count above the number of bits per coordinate.
    #[error("count of coordinate {coordinate} is above {bits}")]
    Count {
        /// Index of the coordinate.
        coordinate: usize,
        /// Largest count allowed.
        bits: u32,
    },
    /// A word that the codebook does not have.
    #[error("index of the word is {index}, must be below {words}")]
    WordIndex {
        /// Index found.
        index: u8,
        /// Words of the codebook.
        words: u32,
    },
    /// A report whose content is not of the encoding that its round has.
    #[error("the report's content is not of the encoding of round {0}")]
    Payload(u32),
    /// Padding bits that are not zero.
    #[error("padding bits must be zero")]
    Padding,
    /// A body of many reports that breaks off.
    #[error("a report is shorter than the length in front of it")]
    Bulk,
    /// A body of too many reports.
    #[error("a body must have at most 4096 reports")]
    BulkLimit,

    /// A number of entries that does not fit the dimension.
    #[error("{what} has {found} entries, must have {needed}")]
    Length {
        /// Which list.
        what: &'static str,
        /// Entries found.
        found: usize,
        /// Entries needed.
        needed: usize,
    },
    /// A batch size that is not the schedule's.
    #[error("release of round {round} has size {found}, must be {needed}")]
    ReleaseSize {
        /// The round.
        round: u32,
        /// Size found.
        found: u32,
        /// Size of the schedule.
        needed: u32,
    },
    /// A sum that all reports together cannot make.
    #[error("sum of coordinate {coordinate} is {found}, must be from {low} to {high}")]
    Range {
        /// Index of the coordinate.
        coordinate: usize,
        /// Sum found.
        found: i64,
        /// Batch size times the least that a report adds.
        low: i64,
        /// Batch size times the most that a report adds.
        high: i64,
    },
    /// Not the text form of 32 bytes.
    #[error("{0} must be 64 lower-case hex digits")]
    Hex(&'static str),
    /// Not the text form of a report's id.
    #[error("a report id has 32 lower-case hex digits")]
    ReportId,
    /// A notice whose law is not the one that the mechanism has for its round.
    #[error("the notice of round {0} has another size or law than the mechanism")]
    RoundLaw(u32),
    /// A model without a version.
    #[error("the version of a model must be at least 1")]
    Unnumbered,
    /// A release of round 1 with a predecessor, or of a later round without one.
    #[error("release of round {0}: previous must be null for round 1 and a hash for every other")]
    Previous(u32),
    /// A model entry that is NaN or infinite.
    #[error("{0} of the model must be finite")]
    NotFinite(&'static str),
    /// A model whose width factor has no positive diagonal: no positive definite matrix has it.
    #[error("the width factor's diagonal must be positive")]
    NotPositiveDefinite,
    /// A negative confidence width.
    #[error("confidence_width is {0}, must be at least 0")]
    ConfidenceWidth(f64),
}
