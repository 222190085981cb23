//! Rounds that close by time, made from a plan of batches that close by count.
//!
//! Stands in for the planner where it does not plan windows itself.

use incrowd_privacy::certify;
use incrowd_protocol::{Closes, Law, Mechanism, MechanismConfig, ProtocolError, Stage};

use super::{ExperimentError, prepare::Preparation};

const DAY: f64 = 86_400_000.0;
/// Bits that a report can have.
const MOST_BITS: f64 = 4095.0;
/// Halvings of the search for the least noise.
const STEPS: u32 = 7;

/// Room for twice the mean, which the largest swing makes of a short window at its peak, and for
/// chance: 6 standard deviations of a Poisson number.
fn capacity(size: u32) -> u32 {
    let peak = 2.0 * f64::from(size);
    (peak + 6.0 * peak.sqrt()).ceil() as u32
}

impl Preparation<'_> {
    /// Each batch becomes a window in which as many people come on average. It has room for more,
    /// so a report may have more bits: as many as both limits allow, or those asked for.
    pub fn by_time(
        &self,
        counted: &Mechanism,
        per_day: f64,
        local_limit: Option<f64>,
    ) -> Result<Mechanism, ExperimentError> {
        let certified = |mechanism: &Mechanism| -> Result<_, ExperimentError> {
            let certificate = certify(mechanism).map_err(|error| self.privacy(error))?;
            Ok((certificate.epsilon_central(), certificate.epsilon_local()))
        };
        let central_limit = match self.central() {
            Some(limit) => limit,
            None => certified(counted)?.0,
        };
        let fits = |mechanism: &Mechanism| -> Result<_, ExperimentError> {
            let (central, local) = certified(mechanism)?;
            Ok(central <= central_limit && local_limit.is_none_or(|limit| local <= limit))
        };
        let timed = |more| timed(counted, per_day, more).map_err(|error| self.protocol(error));
        // The law of the plan is more private in a larger batch; with as many more bits as the
        // batch is larger, the noise of the sums and their privacy are about those of the plan.
        let mut best = timed(0.0)?;
        if self.algorithm.bits.is_some() {
            return Ok(best);
        }
        let most = timed(1.0)?;
        if fits(&most)? {
            return Ok(most);
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let tried = timed(middle)?;
            if fits(&tried)? {
                (best, low) = (tried, middle);
            } else {
                high = middle;
            }
        }
        Ok(best)
    }
}

/// The windows of a schedule. Reports have the bits of the plan at `more` = 0, and as many more as
/// their batch is larger at 1.
fn timed(counted: &Mechanism, per_day: f64, more: f64) -> Result<Mechanism, ProtocolError> {
    let stage = |stage: &Stage| {
        let window = f64::from(stage.size) / per_day * DAY;
        if window > f64::from(u32::MAX) {
            return Err(ProtocolError::Window("is above 49 days: more people per day are needed"));
        }
        let size = capacity(stage.size);
        let larger = f64::from(size) / f64::from(stage.size);
        let bits = (f64::from(stage.law.bits) * larger.powf(more)).min(MOST_BITS);
        let law = Law { bits: bits as u32, ..stage.law };
        Ok(Stage { size, window: Some(window.round().max(10.0) as u32), law, ..*stage })
    };
    let schedule = counted.schedule().stages().iter().map(stage);
    MechanismConfig {
        dimension: counted.dimension() as u32,
        context_bound: counted.context_bound(),
        schedule: schedule.collect::<Result<_, ProtocolError>>()?,
        layout: counted.layout(),
        closes: Closes::Time { opens: 0 },
        central_delta: counted.central_delta().get(),
        participations: counted.participations().get(),
        honest_fraction: counted.honest_fraction().get(),
    }
    .check()
}
