//! Tasks as JSON and as TOML.

use std::collections::HashSet;

use incrowd_protocol::{
    BitsLaw, Closes, CodebookLaw, Confidence, Law, Layout, LearnerConfig, Mechanism, OpenRound,
    Selection, Task, TaskConfig, TaskId, UpdateRule,
};

use serde_json::Value;

use crate::{Unknown, covers, json};

/// A task, or what the planner writes, or a mechanism alone.
pub fn task_json(data: &[u8]) {
    let task: Option<Task> = json(data, Unknown::Refused);
    let config: Option<TaskConfig> = json(data, Unknown::Refused);
    assert!(task.is_none() || config.is_none(), "a task has keys, a planner's file has not");
    if let Some(mechanism) = json::<Mechanism>(data, Unknown::Refused) {
        check_mechanism(&mechanism);
    }
    if let Some(task) = &task {
        check_task(task);
    }
    if let Some(config) = config.as_ref().or(task.as_ref().map(Task::config)) {
        check_config(config);
        // The same type in TOML.
        let written = toml::to_string(config).expect("a task can be written as TOML");
        assert_eq!(toml::from_str::<TaskConfig>(&written).as_ref(), Ok(config));
    }
}

/// A task file.
pub fn task_toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let task: Option<Task> = toml::from_str(text).ok();
    let config: Option<TaskConfig> = toml::from_str(text).ok();
    assert!(task.is_none() || config.is_none(), "a task has keys, a planner's file has not");
    if let Some(task) = &task {
        check_task(task);
        let written = toml::to_string(task).expect("a task can be written as TOML");
        assert_eq!(toml::from_str::<Task>(&written).as_ref(), Ok(task));
        let wire = serde_json::to_string(task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&wire).unwrap().id(), task.id());
        assert_eq!(serde_json::from_str::<Task>(&wire).unwrap(), *task);
    }
    if let Some(config) = config.as_ref().or(task.as_ref().map(Task::config)) {
        check_config(config);
        let written = toml::to_string(config).expect("a task can be written as TOML");
        let again = toml::from_str::<TaskConfig>(&written).expect("and read back");
        let mut said: Value = toml::from_str(text).unwrap();
        said.as_object_mut().unwrap().remove("keys");
        assert!(covers(&serde_json::to_value(config).unwrap(), &said), "lost some of {said}");
        assert_eq!(again, *config);
        assert_eq!(again.mechanism().hash(), config.mechanism().hash());
    }
}

fn check_task(task: &Task) {
    assert_eq!(task.id(), TaskId::of(task.mechanism(), task.keys()));
    assert_eq!(task.id().to_string().parse(), Ok(task.id()));
}

/// The ranges of `docs/formats.md`.
pub fn check_config(config: &TaskConfig) {
    check_mechanism(config.mechanism());
    let wide = 1e-20..=1e20;
    let LearnerConfig {
        parameter_bound,
        reward_noise,
        failure_probability,
        confidence,
        update,
        discount,
    } = config.learner().config();
    assert!(*discount > 0.0 && *discount <= 1.0);
    let forgets = *discount < 1.0;
    assert!(!forgets || matches!(confidence, Confidence::Calibrated { .. }));
    assert!(!forgets || matches!(update, UpdateRule::EveryBatch {}));
    assert!(wide.contains(parameter_bound) && wide.contains(reward_noise));
    assert!(*failure_probability > 0.0 && *failure_probability < 1.0);
    match confidence {
        Confidence::Paper { ridge } => {
            let stages = config.mechanism().schedule().stages();
            assert!(wide.contains(ridge) && stages.iter().all(|s| s.law.as_bits().is_some()));
            assert!(config.mechanism().blocks().slots() == 0 && config.prior().is_none());
        }
        Confidence::Calibrated { exploration } => assert!((0.0..=100.0).contains(exploration)),
        Confidence::Proven {} => assert!(config.prior().is_none()),
    }
    if let UpdateRule::Determinant { growth } = update {
        assert!(wide.contains(growth));
    }
    if let Selection::Sampled { scale } = config.policy().selection() {
        assert!((0.0..=100.0).contains(&scale));
    }
    check_knowledge(config);
    let smallest = config.policy().smallest_batch();
    assert!(config.mechanism().schedule().stages().iter().all(|stage| stage.size >= smallest));
}

/// Names of actions for the slots, and a prior for the coordinates.
fn check_knowledge(config: &TaskConfig) {
    let (blocks, actions) = (config.mechanism().blocks(), config.actions());
    assert_eq!(actions.len(), blocks.slots());
    let named: Vec<&String> = actions.iter().flatten().collect();
    assert_eq!(named.iter().collect::<HashSet<_>>().len(), named.len());
    assert!(named.iter().all(|name| (1..=200).contains(&name.len())));
    if let Some(prior) = config.prior() {
        assert!(prior.people() > 0.0 && prior.people() <= 1e12);
        assert_eq!(prior.values().len(), blocks.coordinates());
        assert!(prior.values().iter().all(|value| (-1.0..=1.0).contains(value)));
    }
}

/// A round has a window exactly where rounds close by time, and the clock finds it there.
fn check_window(mechanism: &Mechanism, number: u32) {
    let window = mechanism.window(number).unwrap();
    let length = mechanism.round(number).unwrap().window;
    assert_eq!(window.is_some(), matches!(mechanism.closes(), Closes::Time { .. }));
    assert_eq!(window.is_some(), length.is_some());
    if let (Some(window), Some(length)) = (window, length) {
        assert!(length >= 10 && window.closes - window.opens == u64::from(length));
        for inside in [window.opens, window.closes - 1] {
            assert_eq!(mechanism.round_at(inside), Some(OpenRound::Open(number)));
        }
        assert_ne!(mechanism.round_at(window.closes), Some(OpenRound::Open(number)));
    }
}

fn check_law(law: Law, coordinates: u64) {
    match law {
        Law::Bits(BitsLaw { bits, flip }) => {
            assert!((1..=4095).contains(&bits) && u64::from(bits) * coordinates <= 1 << 24);
            assert!(flip.numerator() > 0 && flip.numerator() < flip.denominator());
        }
        Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight }) => {
            assert!((2..=256).contains(&words) && (1..=words / 2).contains(&chosen));
            assert!((1..=255).contains(&moment_weight) && outside.numerator() > 0);
            // Below 1 - k/N.
            let [o, of, n, k] =
                [outside.numerator(), outside.denominator(), words, chosen].map(u64::from);
            assert!(o * n < of * (n - k));
        }
    }
}

/// The sizes of `docs/formats.md`, Layouts; how many coordinates a report has.
fn check_blocks(mechanism: &Mechanism) -> u64 {
    let d = mechanism.dimension() as u64;
    let (slots, shared) = match mechanism.layout() {
        Layout::Shared => (0, d),
        Layout::PerAction { slots } => (u64::from(slots), 0),
        Layout::Hybrid { slots, shared } => (u64::from(slots), u64::from(shared)),
    };
    let (own, half) = (d - shared, |n: u64| n * (n + 3) / 2);
    assert!(slots <= 10_000 && (slots > 0) == (own > 0));
    assert!(shared == 0 || slots == 0 || slots * own + shared <= 1000);
    let coordinates = half(shared) + slots * (half(own) + own * shared);
    assert!(coordinates <= 501_500);
    assert_eq!(mechanism.coordinates() as u64, coordinates);
    coordinates
}

fn check_mechanism(mechanism: &Mechanism) {
    let (d, stages) = (mechanism.dimension() as u64, mechanism.schedule().stages());
    assert!((1..=1000).contains(&d));
    assert!((1e-20..=1e20).contains(&mechanism.context_bound()));
    assert!((1..=10_000).contains(&stages.len()) && mechanism.grace() <= 1000);
    assert!(mechanism.central_delta().get() > 0.0 && mechanism.central_delta().get() < 1.0);
    assert!(mechanism.honest_fraction().get() > 0.0 && mechanism.honest_fraction().get() <= 1.0);
    assert!(mechanism.participations().get() >= 1);
    let coordinates = check_blocks(mechanism);
    let mut end = 0;
    for (i, stage) in stages.iter().enumerate() {
        assert!(stage.rounds >= 1 && stage.size >= 1);
        check_law(stage.law, coordinates);
        let law = |stage: &incrowd_protocol::Stage| (stage.size, stage.window, stage.law);
        assert!(i == 0 || law(stage) != law(&stages[i - 1]), "neighbours differ");
        let (first, last) = (end + 1, end + u64::from(stage.rounds));
        assert!(last < u64::from(u32::MAX));
        for number in [first, last] {
            let round = mechanism.round(number as u32).unwrap();
            assert_eq!((round.size, round.window, round.law), law(stage));
            check_window(mechanism, number as u32);
        }
        end = last;
    }
    if let Closes::Time { opens } = mechanism.closes() {
        assert_eq!(mechanism.grace(), 0);
        assert!(opens.checked_add(mechanism.schedule().duration()).unwrap() <= 253_402_300_800_000);
    }
    assert_eq!(u64::from(mechanism.schedule().last_round()), end);
    assert!(mechanism.round(0).is_err() && mechanism.round(end as u32 + 1).is_err());
}
