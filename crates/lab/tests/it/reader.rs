//! The example app of `incrowd-client` personalises: its map lets the best topic depend on the
//! person, and what the real devices, batches and bandit learn through it follows the hour.

use std::sync::Arc;

use incrowd_bandit::Bandit;
use incrowd_device::{Arm, FeatureMap, FieldKind, Fields, Value};
use incrowd_planner::{LocalLimit, PlanRequest, plan};
use incrowd_protocol::Model;
use incrowd_sim::{Path, Rounds};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

const READERS: u64 = 100_000;

/// From 0 to 1.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Someone at this hour; `place` says where in its range each other number is, none of which says
/// anything about topics.
fn reader(map: &FeatureMap, hour: f64, mut place: impl FnMut() -> f64) -> Fields {
    let mut fields = Fields::from([("hour".to_owned(), Value::Number(hour))]);
    for field in map.config().context.iter().filter(|field| field.name != "hour") {
        let FieldKind::Number { min, max } = field.kind else { panic!("{field:?}") };
        fields.insert(field.name.clone(), Value::Number(min + (max - min) * place()));
    }
    fields
}

/// The probability that someone reads the topic: news early in the day, games late.
fn interest(topic: &str, hour: f64) -> f64 {
    match topic {
        "news" => 0.9 - 0.8 * hour / 24.0,
        "games" => 0.1 + 0.8 * hour / 24.0,
        _ => 0.3,
    }
}

/// The last model.
fn learn(map: &FeatureMap, seed: u64) -> Model {
    let request = PlanRequest {
        layout: map.layout(),
        central_epsilon: Some(1.0),
        local_epsilon: LocalLimit::Unlimited,
        ..PlanRequest::new(map.dimension() as u32, READERS)
    };
    let task = plan(&request.check().unwrap()).unwrap().task().clone();
    let task = Arc::new(task.with_actions(map.config().actions.clone()).unwrap());
    let mut bandit = Bandit::new(task.clone());
    let mut rounds = Rounds::new(task, Path::Bulk, seed);
    let mut model = bandit.start().unwrap();
    rounds.devices().take(model.clone());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..READERS {
        let hour = 24.0 * uniform(&mut rng);
        let x = map.features(&reader(map, hour, || uniform(&mut rng)), &Fields::new()).x;
        let slot = rounds.devices().choose(&x.repeat(map.config().actions.len())).unwrap();
        let read = uniform(&mut rng) < interest(&map.config().actions[slot], hour);
        let arm = Arm { slot: slot as u32, features: &x };
        let released = rounds.add(arm, f64::from(u8::from(read))).unwrap();
        if let Some(newer) = released.and_then(|sums| bandit.absorb(&sums).unwrap()) {
            model = newer;
            rounds.devices().take(model.clone());
        }
    }
    model
}

/// The topic with the largest estimate for a reader at this hour who is average in all else.
fn best_topic(map: &FeatureMap, model: &Model, hour: f64) -> String {
    let x = map.features(&reader(map, hour, || 0.5), &Fields::new()).x;
    let score = |theta: &[f64]| theta.iter().zip(&x).map(|(a, b)| a * b).sum::<f64>();
    let slots = model.slots().iter();
    let best = slots.max_by(|a, b| score(&a.theta).total_cmp(&score(&b.theta)));
    best.and_then(|slot| slot.action.clone()).unwrap()
}

/// Over 7 seeds the mean lead over another topic was at least 0.206 at 7:00 and 0.279 at 20:00, with
/// standard deviations of 0.023 and 0.026 (pooled): 8.8 of them or more. Were they a quarter larger,
/// one of the 18 comparisons would fail by the normal law with probability 18 * 1.3e-12 < 1e-10.
#[test]
fn the_best_topic_of_the_example_follows_the_hour() {
    let text = include_str!("../../../client/examples/reader.toml");
    let map: FeatureMap = toml::from_str(text).unwrap();
    assert!(map.personalises());
    let model = learn(&map, 1);
    assert_eq!(best_topic(&map, &model, 7.0), "news");
    assert_eq!(best_topic(&map, &model, 20.0), "games");
}
