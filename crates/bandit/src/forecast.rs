//! What the bandit's confidence will be after a round, from the public schedule alone.

use incrowd_protocol::{ProtocolError, TaskConfig};
use libm::log;

use crate::{
    Ellipsoid,
    confidence::{Frame, Setting},
    noise::{Counted, Noise},
};

/// The confidence after `round` releases if the chosen contexts are of norm L and spread evenly
/// over all directions and slots (the Gram matrix is L^2 t/d times the
/// identity, d the number of parameters) and the noise is of its
/// expected size.
///
/// `people` are the reports that are no pads, if not all are, each with what it counts for.
///
/// The same formulas that size the confidence of real models, in all modes; only the Gram matrix is
/// a guess. For planning, not for a guarantee.
pub fn forecast(
    task: &TaskConfig,
    round: u32,
    people: Option<f64>,
) -> Result<Ellipsoid, ProtocolError> {
    let mechanism = task.mechanism();
    let bound = mechanism.context_bound();
    let (blocks, learner) = (mechanism.blocks(), task.learner().config());
    let frame = Frame::new(learner, blocks, round);
    let dimension = frame.dimension;
    let counted = Counted { after: 0, until: round, discount: learner.discount };
    let noise = Noise::of(mechanism, dimension, counted);
    let round = Some(mechanism.round(round)?);
    let setting = Setting { frame, blocks, context_bound: bound, round, noise };
    let sizes = setting.sizes();
    // People are spread evenly over the slots too.
    let people = people.unwrap_or(noise.reports);
    let gram = bound * bound * people / blocks.parameters() as f64;
    let ridge = sizes.ridge(gram);
    let smallest = gram + ridge.total;
    let log_det = dimension as f64 * log(smallest);
    Ok(setting.frame.ellipsoid(&sizes, ridge, log_det, smallest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use incrowd_protocol::{
        BatchSums, Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, Stage,
        TaskConfig,
    };

    use super::*;
    use crate::Bandit;

    /// What does not depend on the data must be the real bandit's, round by round, over a change of
    /// the law.
    #[test]
    fn noise_sizes_are_those_of_a_real_bandit() {
        let stage = |rounds, size, bits, keep| Stage {
            rounds,
            size,
            window: None,
            law: Law::bits(bits, FlipProbability::from_keep(keep).unwrap()),
        };
        let mechanism = MechanismConfig {
            dimension: 3,
            context_bound: 2.0,
            schedule: vec![stage(2, 100, 1, 0.3), stage(2, 400, 4, 0.5)],
            layout: Layout::Shared,
            closes: Closes::Count { grace: 0 },
            central_delta: 1e-6,
            participations: 1,
            honest_fraction: 1.0,
        };
        let mechanism = mechanism.check().unwrap();
        let task = TaskConfig::new(mechanism, Learner::default(), Policy::default()).unwrap();
        let task = Arc::new(task);
        let mut bandit = Bandit::new(task.clone());
        for number in 1..=4 {
            let round = task.mechanism().round(number).unwrap();
            let half = i64::from(round.size) * i64::from(round.law.as_bits().unwrap().bits) / 2;
            let sums = BatchSums::new(
                task.mechanism(),
                number,
                vec![half; task.mechanism().coordinates()],
            )
            .unwrap();
            bandit.absorb(&sums).unwrap();
            let real = bandit.estimates().unwrap().joint().unwrap().ellipsoid;
            let forecast = forecast(&task, number, None).unwrap();
            assert_eq!(
                (forecast.gram_noise, forecast.moment_noise, forecast.floor),
                (real.gram_noise, real.moment_noise, real.floor)
            );
            // The real bandit has seen no signal here, so it cannot be narrower.
            assert!(forecast.smallest_eigenvalue > real.smallest_eigenvalue);
        }
        assert!(forecast(&task, 5, None).is_err());
    }
}
