//! What a bandit and a device keep, and feature maps.

use std::{borrow::Cow, sync::Arc};

use incrowd_bandit::{Bandit, Statistics};
use incrowd_device::{Device, FeatureMap, Fields, Participation};
use incrowd_protocol::{BatchSums, Report, TaskConfig};
use serde_json::Value;

use crate::{
    Unknown, json,
    known::{CONFIG, SLOTS, WORDS},
};

/// What a bandit remembers; it goes on from there with the next release.
pub fn statistics(data: &[u8]) {
    let data = without_older_fields(data);
    let Some(statistics) = json::<Statistics>(&data, Unknown::Refused) else { return };
    // Of one of the tasks at most.
    let configs = [&*CONFIG, &*WORDS, &*SLOTS];
    let resume = |config: &&Arc<TaskConfig>| Bandit::resume(Arc::clone(config), statistics.clone());
    let Some(config) = configs.iter().find(|config| resume(config).is_ok()) else { return };
    let mechanism = config.mechanism();
    let mut bandit = resume(config).unwrap();
    assert_eq!(*bandit.statistics(), statistics);
    let last = mechanism.schedule().last_round();
    assert_eq!(statistics.sums().len(), mechanism.coordinates());
    assert!(statistics.round() <= last);
    let next = statistics.round() + 1;
    // In the range of every law of all.
    let sums = (0..mechanism.coordinates()).map(|j| [40, 0, 17][j % 3]).collect();
    match BatchSums::new(mechanism, next, sums) {
        Err(_) => assert_eq!(statistics.round(), last),
        Ok(sums) => {
            let model = bandit.absorb(&sums).expect("the next release");
            assert_eq!(bandit.statistics().round(), next);
            if let Some(model) = model {
                assert_eq!(model.round(), next);
                assert!(model.theta().iter().all(|value| value.is_finite()));
            }
            let written = serde_json::to_string(bandit.statistics()).unwrap();
            let again =
                serde_json::from_str(&written).expect("a bandit can go on from what it kept");
            assert_eq!(bandit.statistics(), &again);
            assert!(Bandit::resume(Arc::clone(config), again).is_ok());
        }
    }
}

/// Statistics of the older form, which has `moment` and `gram`, in the form of today.
fn without_older_fields(data: &[u8]) -> Cow<'_, [u8]> {
    let older = |value: &Value| value.get("moment").is_some_and(Value::is_array);
    let Some(value) = serde_json::from_slice::<Value>(data).ok().filter(older) else {
        return data.into();
    };
    let Ok(statistics) = serde_json::from_slice::<Statistics>(data) else { return data.into() };
    let sums: Vec<f64> = ["moment", "gram"]
        .iter()
        .flat_map(|name| value[*name].as_array().unwrap())
        .map(|sum| sum.as_f64().unwrap())
        .collect();
    assert_eq!(statistics.sums(), sums);
    serde_json::to_vec(&statistics).unwrap().into()
}

/// A feature map, and after zero bytes a context and an action.
pub fn features(data: &[u8]) {
    let mut parts = data.split(|&byte| byte == 0);
    let Some(map) = parts.next().and_then(|map| json::<FeatureMap>(map, Unknown::Refused)) else {
        return;
    };
    let mut fields = || {
        parts.next().and_then(|part| json::<Fields>(part, Unknown::NoFields)).unwrap_or_default()
    };
    let (context, action) = (fields(), fields());
    assert!((1..=1000).contains(&map.dimension()));
    let bound = map.context_bound();
    assert!(bound > 0.0 && bound.is_finite());
    let made = map.features(&context, &action);
    assert_eq!(made.x.len(), map.dimension());
    // In units of L, so that no square overflows; not for an L so small that its root has no room
    // for rounding.
    if bound > 1e-300 {
        let norm = made.x.iter().map(|x| (x / bound) * (x / bound)).sum::<f64>().sqrt();
        assert!(norm <= 1.0 + 1e-9, "{norm}");
    }
    assert!(made.x.iter().all(|x| x.is_finite()));
}

/// What a device remembers; it answers once from there, and not twice.
pub fn participation(data: &[u8]) {
    let Some(participation) = json::<Participation>(data, Unknown::Refused) else { return };
    for config in [&*CONFIG, &*WORDS, &*SLOTS] {
        check_participation(participation, config);
    }
}

fn check_participation(participation: Participation, config: &Arc<TaskConfig>) {
    let mechanism = config.mechanism();
    let (x, final_round) = (vec![0.5; mechanism.dimension()], mechanism.schedule().last_round());
    let kept = serde_json::to_value(participation).unwrap();
    let last = kept["last_round"].as_u64().unwrap();
    let spent = participation.reports() >= mechanism.participations().get();
    for number in [1, 3, final_round] {
        let mut device = Device::resume(config.clone(), participation).unwrap();
        let soon = last > 0 && u64::from(number) <= last + u64::from(mechanism.grace());
        match device.report(number, &x, 1.0) {
            Ok(answer) => {
                assert!(!spent && !soon && answer.report.round() == number);
                let bytes = answer.report.encode(mechanism).unwrap();
                assert_eq!(Report::decode(&bytes, mechanism).as_ref(), Ok(&answer.report));
                assert_eq!(device.participation().reports(), participation.reports() + 1);
                assert!(device.report(number, &x, 1.0).is_err(), "one report in a round");
            }
            Err(_) => {
                assert!(spent || soon);
                assert_eq!(device.participation(), participation);
            }
        }
    }
}
