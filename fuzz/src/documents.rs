//! The documents that services publish.

use std::collections::HashSet;

use incrowd_bandit::Bandit;
use incrowd_device::{Arm, Chooser};
use incrowd_protocol::{
    BatchSums, Blocks, Dimension, KeyState, Law, Layout, Model, Policy, PolicyConfig, Release,
    Round, RoundNotice, Selection, TaskNotice,
};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::{
    Unknown, json,
    known::{TASK, config_of},
    tasks::check_config,
};

/// A notice of a task.
pub fn notice(data: &[u8]) {
    let Some(notice) = json::<TaskNotice>(data, Unknown::SkippedOutsideTask) else { return };
    check_config(notice.task.config());
    let mut active = notice.sealing_keys.iter().filter(|key| key.state == KeyState::Active);
    assert_eq!(notice.sealing_key(), active.next_back());
    if notice.id == TASK.id() && notice.task.id() == notice.id {
        assert_eq!(notice.task.mechanism(), TASK.mechanism(), "the id pins the mechanism");
        assert_eq!(notice.task.keys(), TASK.keys(), "and the keys");
    }
}

/// A notice of the round.
pub fn round_notice(data: &[u8]) {
    let Some(notice) = json::<RoundNotice>(data, Unknown::Refused) else { return };
    let mechanism = TASK.mechanism();
    let stage = mechanism.schedule().stages()[0];
    match notice.check(TASK.id(), mechanism) {
        Ok(None) => assert!(notice.task == TASK.id() && notice.round.is_none()),
        Ok(Some(round)) => {
            assert_eq!(notice, RoundNotice::new(TASK.id(), Some(round), notice.time));
            assert!((1..=stage.rounds).contains(&round.number));
            assert_eq!((round.size, round.law), (stage.size, stage.law));
        }
        Err(_) => {
            let planned = |round: incrowd_protocol::Round| {
                (1..=stage.rounds).contains(&round.number)
                    && (round.size, round.law) == (stage.size, stage.law)
            };
            assert!(notice.task != TASK.id() || !notice.round.is_none_or(planned));
        }
    }
}

/// A release, offered to a bandit that waits for the first.
pub fn sums(data: &[u8]) {
    let Some(release) = json::<Release>(data, Unknown::Refused) else { return };
    let sums = release.sums();
    assert_eq!(release.previous().is_none(), sums.round() == 1);
    let config = config_of(sums.mechanism());
    let mechanism = config.mechanism();
    let fits = |round: Round| {
        let (low, high) = match round.law {
            Law::Bits(law) => (0, i64::from(law.bits)),
            Law::Codebook(_) => (-136, 136),
        };
        let size = i64::from(round.size);
        sums.size() == round.size
            && sums.sums().iter().all(|sum| (size * low..=size * high).contains(sum))
    };
    let valid = sums.mechanism() == mechanism.hash()
        && sums.sums().len() == mechanism.coordinates()
        && mechanism.round(sums.round()).is_ok_and(fits);
    assert_eq!(sums.check(mechanism).is_ok(), valid);
    if valid {
        assert_eq!(
            BatchSums::new(mechanism, sums.round(), sums.sums().to_vec()).as_ref(),
            Ok(sums)
        );
    }
    let mut bandit = Bandit::new(config.clone());
    let before = bandit.statistics().clone();
    match bandit.absorb(sums) {
        Ok(model) => {
            assert!(valid && sums.round() == 1);
            let model = model.expect("the first release gives a model");
            assert_eq!((model.version(), model.round()), (1, 1));
            assert_eq!(bandit.statistics().round(), 1);
            assert!(bandit.absorb(sums).is_err(), "a release is absorbed once");
        }
        Err(_) => {
            assert!(!valid || sums.round() != 1);
            assert_eq!(*bandit.statistics(), before, "a refused release changes nothing");
        }
    }
}

/// A model, which a device then uses.
pub fn model(data: &[u8]) {
    let Some(model) = json::<Model>(data, Unknown::Refused) else { return };
    let (shared, slots) = (model.theta().len(), model.slots().len());
    let own = model.slots().first().map_or(0, |slot| slot.theta.len());
    let d = shared + own;
    assert!((1..=1000).contains(&d) && model.version() >= 1 && (own > 0) == (slots > 0));
    check_factor(model.theta(), model.width_factor(), model.confidence_width());
    let mut names = HashSet::new();
    for slot in model.slots() {
        assert_eq!((slot.theta.len(), slot.cross_factor.len()), (own, shared * own));
        check_factor(&slot.theta, &slot.width_factor, slot.confidence_width);
        assert!(slot.cross_factor.iter().all(|value| value.is_finite()));
        if let Some(name) = &slot.action {
            assert!((1..=200).contains(&name.len()) && names.insert(name), "a name of its own");
        }
    }
    let Some(blocks) = blocks(d, slots, shared) else { return };
    assert!(model.fits(blocks));
    let arms: Vec<Vec<f64>> =
        (0..7).map(|arm| (0..d).map(|i| if i == arm { 1.0 } else { 0.125 }).collect()).collect();
    for selection in [Selection::Ucb {}, Selection::Sampled { scale: 1.0 }] {
        assert!(Policy::try_from(PolicyConfig { selection, ..PolicyConfig::default() }).is_ok());
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let arm = |(i, x): (usize, &'_ Vec<f64>)| (i as u32 % slots.max(1) as u32, x.clone());
        let arms: Vec<(u32, Vec<f64>)> = arms.iter().enumerate().map(arm).collect();
        let arms = arms.iter().map(|(slot, features)| Arm { slot: *slot, features });
        let chosen = Chooser::new(blocks).choose(Some(&model), selection, arms, &mut rng);
        assert!(chosen.is_err() || chosen.is_ok_and(|arm| arm < 7));
    }
    let Ok(more) = Dimension::new(d as u32 + 1) else { return };
    let mut other = Chooser::new(more.into());
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let arm = vec![0.0; d + 1];
    assert!(other.choose(Some(&model), Selection::Ucb {}, [arm.as_slice()], &mut rng).is_err());
}

/// Finite, of the right length, and with a positive diagonal.
fn check_factor(theta: &[f64], factor: &[f64], width: f64) {
    let d = theta.len();
    assert_eq!(factor.len(), d * (d + 1) / 2);
    assert!(theta.iter().chain(factor).all(|value| value.is_finite()));
    assert!(width.is_finite() && width >= 0.0);
    let mut at = 0;
    for row in 1..=d {
        at += row;
        assert!(factor[at - 1] > 0.0, "a positive diagonal");
    }
}

/// The layout of these sizes, where a task may have it.
fn blocks(d: usize, slots: usize, shared: usize) -> Option<Blocks> {
    let [slots, shared] = [slots, shared].map(|size| u32::try_from(size).ok());
    let layout = match (slots?, shared?) {
        (0, _) => Layout::Shared,
        (slots, 0) => Layout::PerAction { slots },
        (slots, shared) => Layout::Hybrid { slots, shared },
    };
    Blocks::new(Dimension::new(u32::try_from(d).ok()?).ok()?, layout).ok()
}
