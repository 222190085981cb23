//! Models with slots: what they learn, which changes of their actions are taken, and that releases
//! and assignments give the same bits again.

use std::sync::Arc;

use incrowd_bandit::{Assignment, Bandit, BanditError, Statistics};
use incrowd_protocol::{
    BatchSums, Blocks, Closes, Confidence, FlipProbability, Law, Layout, LearnerConfig,
    MechanismConfig, Model, Policy, PriorConfig, ProtocolError, Stage, TaskConfig, UpdateRule,
    triangle,
};

const SIZE: u32 = 200_000;
const BITS: u32 = 64;
/// c is nearly 1: a report's noise has a standard deviation of 1/64.
const FLIP: (u32, u32) = (1, 1_000_000);

struct Setup {
    dimension: u32,
    layout: Layout,
    grace: u32,
    learner: LearnerConfig,
}

fn setup(dimension: u32, layout: Layout) -> Setup {
    let learner = LearnerConfig {
        confidence: Confidence::Calibrated { exploration: 1.0 },
        update: UpdateRule::EveryBatch {},
        ..LearnerConfig::default()
    };
    Setup { dimension, layout, grace: 0, learner }
}

impl Setup {
    fn task(self) -> TaskConfig {
        let flip = FlipProbability::new(FLIP.0, FLIP.1).unwrap();
        let law = Law::bits(BITS, flip);
        let mechanism = MechanismConfig {
            dimension: self.dimension,
            context_bound: 2.0,
            schedule: vec![Stage { rounds: 9, size: SIZE, window: None, law }],
            layout: self.layout,
            closes: Closes::Count { grace: self.grace },
            central_delta: 1e-6,
            participations: 1,
            honest_fraction: 1.0,
        };
        let learner = self.learner.check().unwrap();
        TaskConfig::new(mechanism.check().unwrap(), learner, Policy::default()).unwrap()
    }
}

const PER_ACTION: Layout = Layout::PerAction { slots: 3 };
const HYBRID: Layout = Layout::Hybrid { slots: 3, shared: 2 };

/// The statistic of an arm for L = 1, at its place in a report.
fn statistic(blocks: Blocks, slot: usize, u: &[f64], r: f64) -> Vec<f64> {
    let mut local: Vec<f64> = u.iter().map(|u| r * u).collect();
    for i in 0..u.len() {
        local.extend((0..=i).map(|k| u[i] * u[k]));
    }
    let mut values = vec![0.0; blocks.coordinates()];
    blocks.for_each_active(slot, |place, own| values[place] = local[own]);
    values
}

/// What a batch of these people adds up to, each as often as the others, without noise.
fn release(task: &TaskConfig, round: u32, people: &[(usize, Vec<f64>, f64)]) -> BatchSums {
    let mechanism = task.mechanism();
    let mut total = vec![0.0; mechanism.coordinates()];
    let each = f64::from(SIZE) / people.len() as f64;
    for (slot, x, r) in people {
        let u: Vec<f64> = x.iter().map(|x| x / mechanism.context_bound()).collect();
        let values = statistic(mechanism.blocks(), *slot, &u, *r);
        total.iter_mut().zip(values).for_each(|(total, value)| *total += each * value);
    }
    let keep = 1.0 - f64::from(FLIP.0) / f64::from(FLIP.1);
    let half = f64::from(BITS) / 2.0;
    let sum = |total: f64| (half * (keep * total + f64::from(SIZE))).round() as i64;
    BatchSums::new(mechanism, round, total.into_iter().map(sum).collect()).unwrap()
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// People of every slot with features all around, whose rewards are linear in them: `own` has the
/// weights of each slot, `shared` those of the last features.
fn people(slots: &[usize], own: &[[f64; 2]], shared: &[f64]) -> Vec<(usize, Vec<f64>, f64)> {
    let mut people = Vec::new();
    for &slot in slots {
        for step in 0..24 {
            let angle = f64::from(step) * std::f64::consts::TAU / 24.0;
            // Own and shared features go together, differently in each slot.
            let lean = 0.3 + 0.2 * slot as f64;
            let mut x = vec![1.0 + 0.3 * angle.cos(), 0.8 * angle.sin()];
            let also = [lean * x[0] + 0.4 * (2.0 * angle).sin(), 0.4 * (3.0 * angle).cos()];
            x.extend(&also[..shared.len()]);
            let reward = inner(&x, &[&own[slot][..], shared].concat());
            assert!((0.0..=1.0).contains(&reward) && inner(&x, &x) <= 4.0, "{x:?} {reward}");
            people.push((slot, x, reward));
        }
    }
    people
}

const OWN: [[f64; 2]; 3] = [[0.4, 0.1], [0.3, -0.1], [0.3, 0.05]];
const SHARED: [f64; 2] = [0.1, -0.15];

fn furthest(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn actions(names: [&str; 3]) -> Vec<Option<String>> {
    names.iter().map(|name| Some((*name).to_owned()).filter(|name| !name.is_empty())).collect()
}

/// Without noise to speak of the weights are found, of each slot by itself and of all together.
#[test]
fn weights_converge_to_the_truth() {
    for (dimension, layout, shared) in [(2, PER_ACTION, &[][..]), (4, HYBRID, &SHARED[..])] {
        let task = Arc::new(setup(dimension, layout).task());
        let mut bandit = Bandit::new(task.clone());
        let mut errors = Vec::new();
        for round in 1..=9 {
            let sums = release(&task, round, &people(&[0, 1, 2], &OWN, shared));
            let model = bandit.absorb(&sums).unwrap().unwrap();
            let mut error = furthest(model.theta(), shared);
            for (slot, own) in model.slots().iter().zip(&OWN) {
                error = error.max(furthest(&slot.theta, own));
            }
            errors.push(error);
        }
        println!("{layout:?}: {errors:?}");
        assert!(errors[8] < 0.004 && errors[8] < 0.5 * errors[0], "{errors:?}");
    }
}

/// A slot's widths do not depend on what the others report, and its weights only as far as the ridge
/// pulls them towards what all slots have in common.
#[test]
fn slots_learn_by_themselves_where_nothing_is_shared() {
    let task = Arc::new(setup(2, PER_ACTION).task());
    let learn = |weights: &[[f64; 2]; 3]| {
        let sums = release(&task, 1, &people(&[0, 1, 2], weights, &[]));
        Bandit::new(task.clone()).absorb(&sums).unwrap().unwrap()
    };
    let (one, other) = (learn(&OWN), learn(&[OWN[0], [0.3, 0.3], OWN[2]]));
    for slot in [0, 2] {
        assert_eq!(one.slots()[slot].width_factor, other.slots()[slot].width_factor);
        let moved = furthest(&one.slots()[slot].theta, &other.slots()[slot].theta);
        assert!(moved > 0.0 && moved < 0.02, "{moved}");
    }
    assert!(furthest(&one.slots()[1].theta, &other.slots()[1].theta) > 0.05);
}

/// |W x|^2 of the published factors is x' V^-1 x of the whole system, for a hybrid model.
#[test]
fn published_factors_give_the_width_of_the_whole_system() {
    let task = Arc::new(setup(4, HYBRID).task());
    let mut bandit = Bandit::new(task.clone());
    let sums = release(&task, 1, &people(&[0, 1, 2], &OWN, &SHARED));
    let model = bandit.absorb(&sums).unwrap().unwrap();
    let estimates = bandit.estimates().unwrap();
    let joint = estimates.joint().unwrap();
    let row = |factor: &[f64], i: usize, x: &[f64]| inner(&factor[triangle(i)..triangle(i + 1)], x);
    for (number, slot) in model.slots().iter().enumerate() {
        let (own, shared) = ([0.3, -0.7], [0.9, 0.2]);
        let mut long = vec![0.0; 8];
        long[2 * number..2 * number + 2].copy_from_slice(&own);
        (0..2).for_each(|i| long[6 + i] = shared[i] / 3f64.sqrt());
        let wanted: f64 = (0..8).map(|i| row(&joint.width_factor, i, &long).powi(2)).sum();
        let mut found: f64 = (0..2).map(|i| row(&slot.width_factor, i, &own).powi(2)).sum();
        for i in 0..2 {
            let cross = inner(&slot.cross_factor[2 * i..2 * i + 2], &own);
            found += (cross + row(model.width_factor(), i, &shared)).powi(2);
        }
        assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
    }
}

/// A slot that gets another action keeps what it taught about shared features, and only that: the
/// rewards that its old weights explain do not move the weights of the others.
#[test]
fn another_action_in_a_slot_does_not_bias_shared_weights() {
    let task = Arc::new(setup(4, HYBRID).task());
    let mut bandit = Bandit::new(task.clone());
    bandit.start();
    let all = people(&[0, 1, 2], &OWN, &SHARED);
    (1..=3).for_each(|round| drop(bandit.absorb(&release(&task, round, &all)).unwrap()));
    bandit.assign(actions(["0", "", "2"])).unwrap().unwrap();
    let rest = people(&[0, 2], &OWN, &SHARED);
    bandit.absorb(&release(&task, 4, &rest)).unwrap();
    let before = bandit.estimates().unwrap().joint().unwrap().theta.clone();
    let model = bandit.assign(actions(["0", "new", "2"])).unwrap().unwrap();
    // Nothing is known of the new action but what all have in common.
    let between = |i: usize| {
        let weights = [0, 2].map(|slot: usize| model.slots()[slot].theta[i]);
        weights[0].min(weights[1])..=weights[0].max(weights[1])
    };
    assert!((0..2).all(|i| between(i).contains(&model.slots()[1].theta[i])));
    // About the same estimates of all that is left.
    assert!(furthest(&model.slots()[0].theta, &before[..2]) < 0.01);
    let mut weights = OWN;
    weights[1] = [0.2, 0.1];
    let changed = people(&[0, 1, 2], &weights, &SHARED);
    let mut model = None;
    (5..=9).for_each(|round| {
        model = bandit.absorb(&release(&task, round, &changed)).unwrap();
    });
    let model: Model = model.unwrap();
    assert!(furthest(model.theta(), &SHARED) < 0.01, "{:?}", model.theta());
    for (slot, own) in model.slots().iter().zip(&weights) {
        assert!(furthest(&slot.theta, own) < 0.02, "{:?} {own:?}", slot.theta);
    }
}

/// Retire, rest for the grace and one round more, refill from nothing.
#[test]
fn a_slot_rests_before_it_gets_another_action() {
    let task = Setup { grace: 1, ..setup(2, PER_ACTION) }.task();
    let task = Arc::new(task.with_actions(vec!["a".into(), "b".into()]).unwrap());
    let mut bandit = Bandit::new(task.clone());
    let first = bandit.start().unwrap();
    assert!(first.is_blank() && first.round() == 0 && first.slot_of("b") == Some(1));
    assert_eq!(bandit.start(), None, "once");
    let batch = |round| release(&task, round, &people(&[0, 1], &OWN, &[]));
    let absorb = |bandit: &mut Bandit, round| bandit.absorb(&batch(round)).unwrap().unwrap();
    absorb(&mut bandit, 1);
    let known = absorb(&mut bandit, 2);
    assert_eq!(bandit.assign(actions(["a", "b", ""])).unwrap(), None, "nothing changes");

    // A spare slot can be filled at any time, and starts with the floor's width.
    let model = bandit.assign(actions(["a", "b", "c"])).unwrap().unwrap();
    assert_eq!((model.version(), model.round()), (4, 2));
    for (slot, known) in model.slots().iter().zip(&known.slots()[..2]) {
        assert!(slot.width_factor == known.width_factor && slot.action == known.action);
        assert!(furthest(&slot.theta, &known.theta) < 0.01);
    }
    let between = |i: usize| {
        let [a, b] = [0, 1].map(|slot: usize| model.slots()[slot].theta[i]);
        a.min(b)..=a.max(b)
    };
    assert!((0..2).all(|i| between(i).contains(&model.slots()[2].theta[i])));
    assert!(model.slots()[2].confidence_width > 0.0);

    let model = bandit.assign(actions(["a", "", "c"])).unwrap().unwrap();
    assert!(model.slot_of("b").is_none() && model.slots()[1].theta == [0.0, 0.0]);
    let refused = |round| Err(BanditError::SlotResting { slot: 1, retired: round, from: 4 });
    let new = actions(["a", "d", "c"]);
    let before = bandit.statistics().clone();
    assert_eq!(bandit.assign(new.clone()), refused(2));
    assert_eq!(*bandit.statistics(), before, "a refused change changes nothing");
    absorb(&mut bandit, 3);
    assert_eq!(bandit.assign(new.clone()), refused(2));
    absorb(&mut bandit, 4);
    let model = bandit.assign(new).unwrap().unwrap();
    assert_eq!(model.slot_of("d"), Some(1));
    // What all slots have in common is what the one with reports says.
    assert!(furthest(&model.slots()[1].theta, &OWN[0]) < 0.01, "{:?}", model.slots()[1]);
    // What the old action's reports said is gone, and what comes counts for the new one alone.
    let weights = [OWN[0], [0.35, 0.3], OWN[2]];
    let model =
        bandit.absorb(&release(&task, 5, &people(&[0, 1], &weights, &[]))).unwrap().unwrap();
    assert!(furthest(&model.slots()[1].theta, &weights[1]) < 0.02, "{:?}", model.slots()[1]);
}

/// Before the first release too: the first model may have been used.
#[test]
fn a_slot_retired_before_the_first_release_rests_as_well() {
    let task = Arc::new(setup(2, PER_ACTION).task());
    let mut bandit = Bandit::new(task.clone());
    bandit.start();
    assert!(bandit.assign(actions(["0", "", "2"])).unwrap().is_some());
    let early = Err(BanditError::SlotResting { slot: 1, retired: 0, from: 1 });
    assert_eq!(bandit.assign(actions(["0", "new", "2"])), early);
    bandit.absorb(&release(&task, 1, &people(&[0, 1, 2], &OWN, &[]))).unwrap();
    assert!(bandit.assign(actions(["0", "new", "2"])).unwrap().is_some());
}

/// Nothing is proved about the joint width once an old action is taken out of it; a slot that never
/// had one can be filled.
#[test]
fn a_hybrid_model_with_proven_widths_keeps_its_actions() {
    let mut plan = setup(4, HYBRID);
    plan.learner.confidence = Confidence::Proven {};
    let task = Arc::new(plan.task().with_actions(vec!["0".into(), "1".into()]).unwrap());
    let mut bandit = Bandit::new(task.clone());
    bandit.start();
    let batch = |round| release(&task, round, &people(&[0, 1], &OWN, &SHARED));
    bandit.absorb(&batch(1)).unwrap();
    assert!(bandit.assign(actions(["0", "", "2"])).unwrap().is_some());
    bandit.absorb(&batch(2)).unwrap();
    let refused = Err(BanditError::ProvenSlot { slot: 1 });
    assert_eq!(bandit.assign(actions(["0", "new", "2"])), refused);
}

#[test]
fn changes_that_cannot_be_are_refused_and_change_nothing() {
    let task = Arc::new(setup(2, PER_ACTION).task());
    let mut bandit = Bandit::new(task.clone());
    bandit.start();
    bandit.absorb(&release(&task, 1, &people(&[0, 1, 2], &OWN, &[]))).unwrap();
    let before = bandit.statistics().clone();
    let taken = BanditError::SlotTaken { slot: 1, old: "1".into(), new: "x".into() };
    let long = "x".repeat(201);
    for (actions, error) in [
        (actions(["0", "x", "2"]), taken),
        (
            actions(["0", "1", "2"])[..2].to_vec(),
            ProtocolError::Actions { found: 2, slots: 3 }.into(),
        ),
        (actions(["0", "", "0"]), ProtocolError::DuplicateAction("0".into()).into()),
        (
            vec![Some(String::new()), None, None],
            ProtocolError::ActionName { found: 0, most: 200 }.into(),
        ),
        (actions(["0", &long, "2"]), ProtocolError::ActionName { found: 201, most: 200 }.into()),
    ] {
        assert_eq!(bandit.assign(actions.clone()), Err(error), "{actions:?}");
        assert_eq!(*bandit.statistics(), before);
    }
}

/// Releases and assignments are all that a bandit is: put together again they give the same
/// statistics and the same newest model, to the last bit.
#[test]
fn rebuilt_from_releases_and_assignments_it_is_the_same() {
    for (layout, dimension) in [(PER_ACTION, 2), (HYBRID, 4), (Layout::Shared, 2)] {
        let mut plan = setup(dimension, layout);
        plan.learner.discount = 0.9;
        let mut task = plan.task();
        let slots = task.mechanism().blocks().slots();
        if slots > 0 {
            task = task.with_actions(vec!["a".into(), "b".into()]).unwrap();
        }
        let values = statistic(task.mechanism().blocks(), 0, &vec![0.3; dimension as usize], 0.5);
        let prior = PriorConfig { people: 40.0, values }.check().unwrap();
        let task = Arc::new(task.with_prior(prior).unwrap());

        let mut bandit = Bandit::new(task.clone());
        let (mut newest, mut releases) = (bandit.start(), Vec::new());
        let shared = if dimension == 4 { &SHARED[..] } else { &[] };
        let known: &[usize] = if slots > 0 { &[0, 1] } else { &[0] };
        let steps =
            [["a", "b", "c"], ["a", "", "c"], ["a", "", "c"], ["a", "d", "c"], ["", "d", "c"]];
        for (round, step) in (1..).zip(steps) {
            let mut group = people(known, &OWN, shared);
            // Another share of people every time.
            group.truncate(group.len() - 2 * round as usize);
            releases.push(release(&task, round, &group));
            newest = bandit.absorb(releases.last().unwrap()).unwrap().or(newest);
            if slots > 0 {
                newest = bandit.assign(actions(step)).unwrap().or(newest);
            }
        }
        let assignments = bandit.statistics().assignments();
        assert_eq!(assignments.len(), if slots > 0 { 5 } else { 0 });
        let (again, model) = Bandit::rebuild(task.clone(), assignments, &releases).unwrap();
        assert_eq!(again.statistics(), bandit.statistics());
        let bytes = |model: &Option<Model>| serde_json::to_string(model).unwrap();
        assert_eq!(bytes(&model), bytes(&newest));

        // Written down in between, too.
        let saved = serde_json::to_string(bandit.statistics()).unwrap();
        let read: Statistics = serde_json::from_str(&saved).unwrap();
        assert_eq!(&read, bandit.statistics());
        assert!(Bandit::resume(task.clone(), read).is_ok());

        // One more than there are, at a round that never came, or without the first.
        let late = Assignment { round: 6, actions: actions(["", "d", ""]) };
        let more = [assignments, &[late]].concat();
        let wrong = |list: &[Assignment]| Bandit::rebuild(task.clone(), list, &releases).err();
        assert_eq!(wrong(&more), Some(BanditError::Assignments));
        if slots > 0 {
            assert_eq!(wrong(&assignments[1..]), Some(BanditError::Assignments));
            assert_eq!(wrong(&[]), Some(BanditError::Assignments));
        }
    }
}

/// A task whose reports are mostly noise.
fn noisy(dimension: u32, layout: Layout, people: f64) -> Arc<TaskConfig> {
    let config = MechanismConfig {
        dimension,
        context_bound: 2.0,
        schedule: vec![Stage {
            rounds: 9,
            size: 1000,
            window: None,
            law: Law::bits(1, FlipProbability::from_keep(0.2).unwrap()),
        }],
        layout,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let learner = setup(dimension, layout).learner.check().unwrap();
    let task = TaskConfig::new(config.check().unwrap(), learner, Policy::default()).unwrap();
    let blocks = task.mechanism().blocks();
    let mut values = vec![0.0; blocks.coordinates()];
    for slot in 0..blocks.slots().max(1) {
        for (axis, reward) in (0..dimension as usize).zip([0.3, 0.9, 0.1, 0.6]) {
            let mut u = vec![0.0; dimension as usize];
            u[axis] = 1.0;
            let told = statistic(blocks, slot, &u, reward / (1.0 + slot as f64));
            let all = f64::from(dimension) * blocks.slots().max(1) as f64;
            values.iter_mut().zip(told).for_each(|(sum, value)| *sum += value / all);
        }
    }
    Arc::new(task.with_prior(PriorConfig { people, values }.check().unwrap()).unwrap())
}

/// What a batch without any signal adds up to: every sum is off by what its standard deviation
/// would be, up or down in turn, by as many as the round.
fn noise(task: &TaskConfig, round: u32) -> BatchSums {
    let up = |i: usize| (i / round as usize).is_multiple_of(2);
    let sums = (0..task.mechanism().coordinates()).map(|i| if up(i) { 516 } else { 484 });
    BatchSums::new(task.mechanism(), round, sums.collect()).unwrap()
}

/// The weights of a model, those of slots first.
fn weights(model: &Model) -> Vec<f64> {
    let slots = model.slots().iter().flat_map(|slot| slot.theta.clone());
    slots.chain(model.theta().to_vec()).collect()
}

/// Sums that are nothing but noise leave a prior alone, in every layout. If they counted like those
/// of people without noise, weights would move by more than 0.1 here.
#[test]
fn noise_alone_does_not_move_a_prior() {
    for (dimension, layout) in [(3, PER_ACTION), (4, HYBRID), (3, Layout::Shared)] {
        let task = noisy(dimension, layout, 300.0);
        let mut bandit = Bandit::new(task.clone());
        let before = weights(&bandit.start().unwrap());
        assert!(before.iter().any(|weight| *weight > 0.2), "{before:?}");
        let after = weights(&bandit.absorb(&noise(&task, 1)).unwrap().unwrap());
        assert!(furthest(&after, &before) < 0.05, "{layout:?}: {before:?} {after:?}");
    }
}

/// Many people without noise to speak of overrule a prior of as few as 40, whatever it says.
#[test]
fn people_overrule_a_prior_that_is_wrong() {
    for (layout, dimension, shared) in [(PER_ACTION, 2, &[][..]), (HYBRID, 4, &SHARED)] {
        let task = setup(dimension, layout).task();
        let values = statistic(task.mechanism().blocks(), 0, &vec![0.5; dimension as usize], 0.0);
        let prior = PriorConfig { people: 40.0, values }.check().unwrap();
        let task = Arc::new(task.with_prior(prior).unwrap());
        let mut bandit = Bandit::new(task.clone());
        assert!(bandit.start().unwrap().slots().iter().all(|slot| slot.theta[0].abs() < 1e-9));
        let group = people(&[0, 1, 2], &OWN, shared);
        let model = bandit.absorb(&release(&task, 1, &group)).unwrap().unwrap();
        let wanted = [&OWN.concat(), shared].concat();
        let off = furthest(&weights(&model), &wanted);
        assert!(off < if shared.is_empty() { 0.01 } else { 0.05 }, "{layout:?}: {off}");
    }
}

/// Where a slot gets another action, the prior's words were about the old one: the new one starts
/// with what one person says about any action. Where slots are estimated by themselves its width is
/// that of one person, too. Other weights stay, those of shared features included.
#[test]
fn another_action_does_not_inherit_the_prior_of_its_slot() {
    for (dimension, layout) in [(2, PER_ACTION), (4, HYBRID)] {
        let task = noisy(dimension, layout, 300.0);
        let mut bandit = Bandit::new(task.clone());
        let first = bandit.start().unwrap();
        bandit.absorb(&noise(&task, 1)).unwrap();
        bandit.assign(actions(["", "1", "2"])).unwrap();
        bandit.absorb(&noise(&task, 2)).unwrap();
        let model = bandit.assign(actions(["new", "1", "2"])).unwrap().unwrap();
        let (old, new) = (&first.slots()[0], &model.slots()[0]);
        assert_eq!(new.action.as_deref(), Some("new"));
        assert!(furthest(&old.theta, &new.theta) > 0.05, "{:?} {:?}", old.theta, new.theta);
        if layout == PER_ACTION {
            assert!(new.width_factor[0] > 5.0 * old.width_factor[0]);
        }
        let others = |model: &Model| weights(model)[new.theta.len()..].to_vec();
        let moved = furthest(&others(&first), &others(&model));
        assert!(moved < 0.05, "{layout:?}: {moved}");
    }
}

/// Statistics of a task without slots were written as `moment` and `gram` before.
#[test]
fn statistics_of_the_older_form_are_read() {
    let task = Arc::new(setup(2, Layout::Shared).task());
    let mut bandit = Bandit::new(task.clone());
    bandit.absorb(&release(&task, 1, &people(&[0], &OWN, &[]))).unwrap();
    let new = serde_json::to_value(bandit.statistics()).unwrap();
    let mut old = new.clone();
    let sums = old.as_object_mut().unwrap().remove("sums").unwrap();
    let (moment, gram) = sums.as_array().unwrap().split_at(2);
    (old["moment"], old["gram"]) = (moment.to_vec().into(), gram.to_vec().into());
    let read: Statistics = serde_json::from_value(old.clone()).unwrap();
    assert_eq!(read, *bandit.statistics());
    let next = release(&task, 2, &people(&[0], &OWN, &[]));
    let model = Bandit::resume(task, read).unwrap().absorb(&next).unwrap();
    assert_eq!(model, bandit.absorb(&next).unwrap());
    // Half of it, or both forms at once, is neither.
    for name in ["moment", "gram"] {
        let mut half = old.clone();
        half.as_object_mut().unwrap().remove(name);
        assert!(serde_json::from_value::<Statistics>(half).is_err(), "{name}");
        let mut both = new.clone();
        both[name] = old[name].clone();
        assert!(serde_json::from_value::<Statistics>(both).is_err(), "{name}");
    }
}

/// A saved state whose slots have impossible names, or no start, is none.
#[test]
fn statistics_with_impossible_assignments_are_refused() {
    let task = Arc::new(setup(2, PER_ACTION).task());
    let saved = serde_json::to_value(Bandit::new(task.clone()).statistics()).unwrap();
    for (place, value) in [
        ("/assignments/0/round", serde_json::json!(1)),
        ("/assignments/0/actions", serde_json::json!(["a", "a", null])),
        ("/assignments/0/actions", serde_json::json!(["a", "", null])),
        ("/assignments/0/actions", serde_json::json!(["a", "b"])),
        ("/assignments", serde_json::json!([])),
        ("/sums", serde_json::json!(vec![0.0; 14])),
    ] {
        let mut broken = saved.clone();
        *broken.pointer_mut(place).unwrap() = value;
        let broken: Statistics = serde_json::from_value(broken).unwrap();
        let refused = Bandit::resume(task.clone(), broken).err();
        assert_eq!(refused, Some(BanditError::WrongStatistics), "{place}");
    }
}
