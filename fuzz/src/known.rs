//! What the targets hold their inputs against: the golden vectors.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

use incrowd_protocol::{Learner, Mechanism, MechanismHash, Policy, Task, TaskConfig};
use serde_json::Value;

/// The mechanisms of `reports.json` in the order in which they first appear: an input's first byte
/// says which one is meant.
pub static MECHANISMS: LazyLock<Vec<Arc<Mechanism>>> = LazyLock::new(|| {
    let mut all: Vec<Arc<Mechanism>> = Vec::new();
    for case in cases(include_str!("../../vectors/v1/reports.json")) {
        let mechanism: Mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
        if all.iter().all(|known| **known != mechanism) {
            all.push(Arc::new(mechanism));
        }
    }
    all
});

/// The cases of `envelope.json`.
pub static ENVELOPE: LazyLock<Vec<Value>> =
    LazyLock::new(|| cases(include_str!("../../vectors/v1/envelope.json")));

/// The first task of `envelope.json`: d = 2, ten rounds of 100 reports with three bits.
pub static TASK: LazyLock<Task> =
    LazyLock::new(|| serde_json::from_value(ENVELOPE[0]["task"].clone()).unwrap());

/// The same without its keys.
pub static CONFIG: LazyLock<Arc<TaskConfig>> = LazyLock::new(|| Arc::new(TASK.config().clone()));

/// A task of d = 2 whose first three rounds of 40 reports are of a codebook, and two more of bits:
/// that of the first case of `models.json` whose name begins with `codebook, sum`.
pub static WORDS: LazyLock<Arc<TaskConfig>> = LazyLock::new(|| {
    let cases = cases(include_str!("../../vectors/v1/models.json"));
    let named = |case: &&Value| case["name"].as_str().unwrap().starts_with("codebook, sum");
    let case = cases.iter().find(named).unwrap();
    let read = |name: &str| case[name].clone();
    let mechanism: Mechanism = serde_json::from_value(read("mechanism")).unwrap();
    let learner: Learner = serde_json::from_value(read("learner")).unwrap();
    Arc::new(TaskConfig::new(mechanism, learner, Policy::default()).unwrap())
});

/// A task with slots: that of the first case of `layout_models.json`.
pub static SLOTS: LazyLock<Arc<TaskConfig>> = LazyLock::new(|| {
    let cases = cases(include_str!("../../vectors/v1/layout_models.json"));
    Arc::new(serde_json::from_value(cases[0]["task"].clone()).unwrap())
});

/// The one of the tasks that a document with this hash is about; the first if it is none's.
pub fn config_of(mechanism: MechanismHash) -> &'static Arc<TaskConfig> {
    let mut others = [&*WORDS, &*SLOTS].into_iter();
    others.find(|config| config.mechanism().hash() == mechanism).unwrap_or(&CONFIG)
}

/// The bytes that all cases of a kind of `envelope.json` have in a field, where they are bytes.
pub fn all(kind: &str, field: &str) -> HashSet<Vec<u8>> {
    let cases = ENVELOPE.iter().filter(|case| case["kind"] == kind);
    cases.filter_map(|case| hex::decode(case[field].as_str()?).ok()).collect()
}

fn cases(text: &str) -> Vec<Value> {
    match serde_json::from_str::<Value>(text).unwrap()["cases"].take() {
        Value::Array(cases) => cases,
        _ => Vec::new(),
    }
}
