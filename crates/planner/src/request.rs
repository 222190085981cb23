use std::{fmt, str::FromStr};

use incrowd_privacy::central::Presence;
use incrowd_protocol::{
    BatchSize, Bits, Blocks, ComparisonSlot, Delta, Dimension, HonestFraction, Layout,
    Participations,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    PlanError, Preset, Problem, number,
    regret::random_regret,
    timetable::{Arrivals, DEFAULT_PEAK, DEFAULT_UPLOAD_SECONDS},
};

/// Cap on the local epsilon when nothing else is said.
pub const DEFAULT_LOCAL_EPSILON: f64 = 8.0;
/// Honest fraction when nothing else is said: one report in ten may be made up by, or known to, an
/// adversary.
///
/// # Privacy
/// A convention, not a measurement: whoever holds a device's token can make up reports, so 1 cannot
/// be promised of a deployed service, and 0.9 costs a few percent of the predicted regret
/// (`docs/planning.md`). A round with a smaller honest share has a larger epsilon than certified.
pub const DEFAULT_HONEST_FRACTION: f64 = 0.9;
/// The planner itself proposes no smaller batch: a crowd of fewer hides nobody, whatever the
/// formula says.
pub const SMALLEST_BATCH: u32 = 100;

/// How much one report on the wire may tell. In a file: a number, `"default"` or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum LocalLimit {
    /// At most [`DEFAULT_LOCAL_EPSILON`].
    #[default]
    Default,
    /// At most this.
    AtMost(f64),
    /// No cap, by name: all protection comes from the shuffler.
    Unlimited,
}

impl LocalLimit {
    /// The cap, if there is one.
    pub fn cap(self) -> Option<f64> {
        match self {
            Self::Default => Some(DEFAULT_LOCAL_EPSILON),
            Self::AtMost(epsilon) => Some(epsilon),
            Self::Unlimited => None,
        }
    }
}

impl Serialize for LocalLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Default => serializer.serialize_str("default"),
            Self::AtMost(epsilon) => serializer.serialize_f64(epsilon),
            Self::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for LocalLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = LocalLimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number above 0, \"default\" or \"unlimited\"")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<LocalLimit, E> {
                Ok(LocalLimit::AtMost(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<LocalLimit, E> {
                self.visit_f64(value as f64)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<LocalLimit, E> {
                self.visit_f64(value as f64)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<LocalLimit, E> {
                match value {
                    "default" => Ok(LocalLimit::Default),
                    "unlimited" => Ok(LocalLimit::Unlimited),
                    _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// As an argument: a number or `unlimited`; an argument that is not given is the default.
impl FromStr for LocalLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let rule =
            |_| format!("local epsilon is {text:?}, must be a number above 0 or 'unlimited'");
        number::real(text).map(Self::AtMost).map_err(rule)
    }
}

/// How the sizes of batches may change over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Whatever predicts less regret.
    #[default]
    Auto,
    /// Equal batches (up to one report, to end at the horizon).
    Fixed,
    /// Growing batches.
    Growing,
}

/// How reports may be randomized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum EncodingChoice {
    /// Whatever has less noise, stage by stage.
    #[default]
    Auto,
    /// Randomized bits, the paper's encoding.
    Bits,
    /// Words of a random codebook.
    Codebook,
}

/// What closes a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ClosingRule {
    /// Its last report: the paper's rule, for simulations.
    Count,
    /// The clock: what is deployed.
    Time,
}

/// What the user knows. Unchecked: see [`PlanRequest::check`].
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// Features of an arm (d), 1 to 1000.
    pub dimension: u32,
    /// Which parameters the model has.
    pub layout: Layout,
    /// Reports in all (T), 1 to 10^12; or give `users_per_day` and `days`.
    pub horizon: Option<u64>,
    /// Reports per day, above 0.
    pub users_per_day: Option<f64>,
    /// Days the task runs, above 0.
    pub days: Option<f64>,
    /// How much one report may tell.
    pub local_epsilon: LocalLimit,
    /// How much all releases and models together may tell about one person, above 0.
    pub central_epsilon: Option<f64>,
    /// Delta of the central guarantee, above 0 and below 1.
    pub delta: f64,
    /// Reports in a batch, if it is not free; batches are at most a few reports larger, to end at
    /// the horizon. Where batches close by time: reports expected in one.
    pub batch_size: Option<u32>,
    /// How reports may be randomized.
    pub encoding: EncodingChoice,
    /// Bits per coordinate (m), 1 to 4095, if it is not free. Only bits have any.
    pub bits: Option<u32>,
    /// Longest time in days that a batch may take to fill, or is open; needs `users_per_day`.
    pub latency_days: Option<f64>,
    /// Reports one person may send (k), at least 1.
    pub participations: u32,
    /// Share of the reports that are surely honest (h), above 0 and at most 1. Of a batch that
    /// closes by time at most 1 - h of the capacity are then not: arrivals stay below it, and pads
    /// are honest.
    pub honest_fraction: f64,
    /// What closes a batch. Without it the clock, where `users_per_day` is known and there is no
    /// preset.
    pub closes: Option<ClosingRule>,
    /// When round 1 opens, in milliseconds since 1970-01-01T00:00:00Z; where batches close by time.
    pub opens: Option<u64>,
    /// Peak rate over mean rate, at least 1, that batches which close by time have room for.
    pub peak: Option<f64>,
    /// Reports of the busiest 24 hours over those of the mean day, from 1 to the peak, that long
    /// rounds have room for; without it the peak. Where batches close by time.
    pub busiest_day: Option<f64>,
    /// Seconds from the moment a report is due until it arrives, at least 0; where batches close by
    /// time.
    pub upload_seconds: Option<f64>,
    /// Rounds a report may be late, 0 to 1000; where batches close by count.
    pub grace: Option<u32>,
    /// Hours between a decision and its report at most, at least 0.
    pub reward_window_hours: f64,
    /// Fixed or growing batches.
    pub shape: Shape,
    /// Take the paper's parameters instead of searching.
    pub preset: Option<Preset>,
    /// People after whom half of a taste is left, above 0: the bandit then forgets. Batches are
    /// equal.
    pub half_life: Option<f64>,
    /// Actions to choose from, 2 to 100000; without it 10, or one for each slot. For the prediction
    /// only.
    pub actions: Option<u32>,
    /// How far mean rewards are from their middle at most, above 0 and at most 0.5; without it 0.5.
    /// For the prediction only.
    pub gap: Option<f64>,
    /// Plan a comparison of two mean rewards instead of something that learns: 1 feature, 2 slots
    /// and equal batches, such that the interval of the difference is shortest at the end.
    pub comparison: bool,
}

impl PlanRequest {
    /// A request with every default; at least one privacy limit is then the local cap.
    pub fn new(dimension: u32, horizon: u64) -> Self {
        Self {
            dimension,
            layout: Layout::Shared,
            horizon: Some(horizon),
            users_per_day: None,
            days: None,
            local_epsilon: LocalLimit::Default,
            central_epsilon: None,
            delta: 1e-6,
            batch_size: None,
            encoding: EncodingChoice::Auto,
            bits: None,
            latency_days: None,
            participations: 1,
            honest_fraction: DEFAULT_HONEST_FRACTION,
            closes: None,
            opens: None,
            peak: None,
            busiest_day: None,
            upload_seconds: None,
            grace: None,
            reward_window_hours: 1.0,
            shape: Shape::Auto,
            preset: None,
            half_life: None,
            actions: None,
            gap: None,
            comparison: false,
        }
    }

    /// A request for a comparison of two mean rewards, with every default.
    pub fn comparison(horizon: u64) -> Self {
        let slots = ComparisonSlot::ALL.len() as u32;
        Self {
            layout: Layout::PerAction { slots },
            shape: Shape::Fixed,
            comparison: true,
            ..Self::new(1, horizon)
        }
    }

    /// The valid request, or the first rule that is violated.
    pub fn check(self) -> Result<Request, PlanError> {
        let positive = |what, value: Option<f64>| match value {
            Some(value) if !(value > 0.0 && value.is_finite()) => {
                Err(PlanError::NotPositive { what, value })
            }
            _ => Ok(()),
        };
        positive("users per day", self.users_per_day)?;
        positive("days", self.days)?;
        positive("latency in days", self.latency_days)?;
        positive("central epsilon", self.central_epsilon)?;
        positive("half-life", self.half_life)?;
        if let Some(actions) = self.actions.filter(|k| !(2..=100_000).contains(k)) {
            return Err(PlanError::Actions(actions));
        }
        if let Some(gap) = self.gap.filter(|gap| !(*gap > 0.0 && *gap <= 0.5)) {
            return Err(PlanError::Gap(gap));
        }
        if let Some(preset) = self.preset.filter(|_| self.half_life.is_some()) {
            return Err(PlanError::PresetForgets(preset.name()));
        }
        if let Some(preset) = self.preset.filter(|_| self.layout != Layout::Shared) {
            return Err(PlanError::PresetLayout(preset.name()));
        }
        if self.half_life.is_some() && self.shape == Shape::Growing {
            return Err(PlanError::GrowingForgets);
        }
        let usual = Self::comparison(0);
        let same = (self.dimension, self.layout, self.shape, self.half_life, self.preset)
            == (usual.dimension, usual.layout, usual.shape, None, None);
        if self.comparison && !same {
            return Err(PlanError::Comparison);
        }
        if let LocalLimit::AtMost(epsilon) = self.local_epsilon {
            positive("local epsilon", Some(epsilon))?;
        }
        let mut units = self.units()?;
        let arrivals = self.arrivals()?;
        if arrivals.is_some() {
            units.presence = Presence::Free;
        }
        let horizon = self.total()?;
        if horizon == 0 || horizon > 1_000_000_000_000 {
            return Err(PlanError::Horizon(horizon));
        }
        if self.local_epsilon == LocalLimit::Unlimited && self.central_epsilon.is_none() {
            return Err(PlanError::NoLimit);
        }
        let largest_batch = self.largest_batch(horizon, arrivals.as_ref())?;
        let random_regret = random_regret(units.blocks);
        Ok(Request { config: self, units, horizon, largest_batch, arrivals, random_regret })
    }

    fn units(&self) -> Result<Units, PlanError> {
        let dimension = Dimension::new(self.dimension)?;
        let blocks = Blocks::new(dimension, self.layout)?;
        let delta = Delta::new(self.delta)?;
        if let Some(size) = self.batch_size {
            BatchSize::new(u64::from(size)).map_err(|error| error.named("batch size"))?;
        }
        if let Some(bits) = self.bits {
            Bits::new(bits)?;
            if self.encoding == EncodingChoice::Codebook {
                return Err(PlanError::BitsOfCodebook(bits));
            }
        }
        let participations = Participations::new(self.participations)?;
        let honest_fraction = HonestFraction::new(self.honest_fraction)?;
        if let Some(grace) = self.grace.filter(|&grace| grace > 1000) {
            return Err(PlanError::Grace(grace));
        }
        if !(self.reward_window_hours >= 0.0 && self.reward_window_hours.is_finite()) {
            return Err(PlanError::RewardWindow(self.reward_window_hours));
        }
        let presence = Presence::Fixed;
        Ok(Units { dimension, blocks, delta, participations, honest_fraction, presence })
    }

    /// When and how fast reports come, where batches close by time.
    fn arrivals(&self) -> Result<Option<Arrivals>, PlanError> {
        let users_per_day = match (self.closes, self.preset, self.users_per_day) {
            (Some(ClosingRule::Time), Some(preset), _) => {
                return Err(PlanError::PresetClosesByCount(preset.name()));
            }
            (Some(ClosingRule::Time), None, None) => return Err(PlanError::TimeNeedsRate),
            (Some(ClosingRule::Count), ..) | (None, Some(_), _) | (None, None, None) => {
                let given = [
                    ("opens", self.opens.is_some()),
                    ("peak", self.peak.is_some()),
                    ("busiest day", self.busiest_day.is_some()),
                    ("upload seconds", self.upload_seconds.is_some()),
                ];
                return match given.into_iter().find(|&(_, given)| given) {
                    Some((what, _)) => Err(PlanError::NeedsTime(what)),
                    None => Ok(None),
                };
            }
            (_, None, Some(users)) => users,
        };
        if let Some(grace) = self.grace.filter(|&grace| grace > 0) {
            return Err(PlanError::GraceWithTime(grace));
        }
        let opens = self.opens.ok_or(PlanError::NoOpens)?;
        let peak = self.peak.unwrap_or(DEFAULT_PEAK);
        if !(peak >= 1.0 && peak.is_finite()) {
            return Err(PlanError::Peak(peak));
        }
        let busiest_day = self.busiest_day.unwrap_or(peak);
        if !(1.0..=peak).contains(&busiest_day) {
            return Err(PlanError::BusiestDay { busiest_day, peak });
        }
        let upload_seconds = self.upload_seconds.unwrap_or(DEFAULT_UPLOAD_SECONDS);
        if !(upload_seconds >= 0.0 && upload_seconds.is_finite()) {
            return Err(PlanError::UploadSeconds(upload_seconds));
        }
        Ok(Some(Arrivals { users_per_day, peak, busiest_day, opens, upload_seconds }))
    }

    fn total(&self) -> Result<u64, PlanError> {
        match (self.horizon, self.users_per_day, self.days) {
            (Some(horizon), _, None) => Ok(horizon),
            (None, Some(users), Some(days)) => Ok((users * days).min(1e18) as u64),
            (Some(_), _, Some(_)) => Err(PlanError::TwoHorizons),
            (None, ..) => Err(PlanError::NoHorizon),
        }
    }

    fn largest_batch(&self, horizon: u64, arrivals: Option<&Arrivals>) -> Result<u32, PlanError> {
        let mut most = horizon.min(u64::from(u32::MAX)) as u32;
        if let Some(size) = self.batch_size.filter(|&size| size > most) {
            return Err(PlanError::BatchAboveHorizon { size, horizon });
        }
        if let Some(arrivals) = arrivals {
            most = f64::from(most).min(arrivals.most_expected()) as u32;
        }
        if let Some(size) = self.batch_size.filter(|&size| size > most) {
            return Err(PlanError::BatchAboveWindow { size, most });
        }
        let Some(days) = self.latency_days else { return Ok(most) };
        let users = self.users_per_day.ok_or(PlanError::LatencyNeedsRate)?;
        let allowed = (users * days).min(f64::from(most)) as u32;
        let wanted = self.batch_size.unwrap_or(SMALLEST_BATCH.min(most));
        if allowed < wanted {
            let needed_days = f64::from(wanted) / users;
            return Err(PlanError::Latency { days, allowed, wanted, needed_days });
        }
        Ok(allowed)
    }
}

/// The numbers of a request that its guarantee depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Units {
    pub dimension: Dimension,
    pub blocks: Blocks,
    pub delta: Delta,
    pub participations: Participations,
    pub honest_fraction: HonestFraction,
    pub presence: Presence,
}

impl Units {
    /// How many releases one person may change.
    pub fn releases(&self) -> f64 {
        let k = f64::from(self.participations.get());
        match self.presence {
            Presence::Fixed => k,
            Presence::Free => 2.0 * k,
        }
    }
}

/// A valid request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub(crate) config: PlanRequest,
    pub(crate) units: Units,
    pub(crate) horizon: u64,
    pub(crate) largest_batch: u32,
    pub(crate) arrivals: Option<Arrivals>,
    /// What drafts are compared with, once for all.
    pub(crate) random_regret: f64,
}

impl Request {
    /// The request as it was asked.
    pub fn config(&self) -> &PlanRequest {
        &self.config
    }

    /// Reports in all (T).
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// The largest batch that horizon and latency allow; where batches close by time, reports
    /// expected in it.
    pub fn largest_batch(&self) -> u32 {
        self.largest_batch
    }

    /// What closes a batch.
    pub fn closing_rule(&self) -> ClosingRule {
        if self.arrivals.is_some() { ClosingRule::Time } else { ClosingRule::Count }
    }

    /// The problem that predictions are about.
    pub fn problem(&self) -> Problem {
        let usual = Problem::of(self.units.blocks);
        let PlanRequest { actions, gap, .. } = self.config;
        Problem {
            actions: actions.unwrap_or(usual.actions),
            gap: gap.unwrap_or(usual.gap),
            ..usual
        }
    }

    /// Whether a stage may have bits.
    pub(crate) fn allows_bits(&self) -> bool {
        self.config.encoding != EncodingChoice::Codebook
    }

    /// Whether a stage may have words. Where single reports need not be private bits have less
    /// noise.
    pub(crate) fn allows_words(&self) -> bool {
        match self.config.encoding {
            EncodingChoice::Auto => {
                self.config.bits.is_none() && self.config.local_epsilon.cap().is_some()
            }
            EncodingChoice::Bits => false,
            EncodingChoice::Codebook => true,
        }
    }

    /// Rounds a report may be late: 1 where batches close by count and nothing is said.
    pub(crate) fn grace(&self) -> u32 {
        self.config.grace.unwrap_or(1)
    }
}
