//! What an application is told about its map and its model before it serves anyone.

use incrowd_device::{Arm, Chooser, FeatureMap, Fields, Score, Value};
use incrowd_protocol::{
    Blocks, Dimension, Layout, Model, ModelParts, Selection, SlotParts, triangle,
};
use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};

const HOUR: &str = r#"{"name": "hour", "kind": "number", "min": 0, "max": 24}"#;
const TOPIC: &str = r#"{"name": "topic", "kind": "category", "values": ["news", "sport"]}"#;

fn map(json: &str) -> FeatureMap {
    let json = json.replace("HOUR", HOUR).replace("TOPIC", TOPIC);
    serde_json::from_str(&json).unwrap()
}

#[test]
fn the_context_must_be_able_to_change_the_best_action() {
    for (json, personalises) in [
        // The hour adds the same to every topic.
        (r#"{"bias": true, "context": [HOUR], "action": [TOPIC]}"#, false),
        (r#"{"bias": true, "context": [HOUR]}"#, false),
        (r#"{"bias": true, "action": [TOPIC]}"#, false),
        (r#"{"context": [HOUR], "action": [TOPIC], "interactions": [["hour", "topic"]]}"#, true),
        (r#"{"model": "per-action", "actions": ["a", "b"], "bias": true}"#, false),
        (r#"{"model": "per-action", "actions": ["a", "b"], "context": [HOUR]}"#, true),
        (r#"{"model": "hybrid", "actions": ["a"], "bias": true, "action": [TOPIC]}"#, false),
        (r#"{"model": "hybrid", "actions": ["a"], "context": [HOUR], "action": [TOPIC]}"#, true),
    ] {
        assert_eq!(map(json).personalises(), personalises, "{json}");
    }
}

#[test]
fn a_scale_from_the_largest_norm_brings_that_one_onto_the_ball() {
    let map = map(r#"{"bias": true, "context": [HOUR], "action": [TOPIC]}"#);
    let fields = |name: &str, value: Value| Fields::from([(name.to_owned(), value)]);
    let noon = fields("hour", Value::Number(12.0));
    let midnight = fields("hour", Value::Number(0.0));
    let news = fields("topic", Value::Text("news".into()));
    assert!((map.unscaled_norm(&noon, &news) - 2f64.sqrt()).abs() < 1e-15);
    assert!((map.unscaled_norm(&midnight, &news) - 3f64.sqrt()).abs() < 1e-15);
    assert!((map.scale() - 1.0 / 3f64.sqrt()).abs() < 1e-15);
    let norm = |map: &FeatureMap, context: &Fields| {
        map.features(context, &news).x.iter().map(|x| x * x).sum::<f64>().sqrt()
    };
    assert!((norm(&map, &noon) - (2f64 / 3.0).sqrt()).abs() < 1e-15);
    let scaled = map.clone().with_scale(Some(1.0 / 2f64.sqrt())).unwrap();
    assert!((scaled.scale() - 1.0 / 2f64.sqrt()).abs() < 1e-15);
    assert!((scaled.unscaled_norm(&noon, &news) - 2f64.sqrt()).abs() < 1e-15, "before the scale");
    assert!((norm(&scaled, &noon) - 1.0).abs() < 1e-15);
    assert!((norm(&scaled, &midnight) - 1.0).abs() < 1e-15, "shortened");
    assert!(scaled.clone().with_scale(Some(1.5)).is_err());
    assert_eq!(scaled.with_scale(None).unwrap(), map);
}

/// Random numbers from -1 to 1.
fn numbers(length: usize, rng: &mut ChaCha20Rng) -> Vec<f64> {
    (0..length).map(|_| f64::from(rng.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0).collect()
}

/// Lower triangular with a positive diagonal.
fn factor(dimension: usize, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let mut factor = numbers(triangle(dimension), rng);
    (0..dimension).for_each(|i| factor[triangle(i + 1) - 1] = 1.0 + i as f64);
    factor
}

fn model(blocks: Blocks, rng: &mut ChaCha20Rng) -> Model {
    let (q, s) = (blocks.own(), blocks.shared());
    let slots = (0..blocks.slots()).map(|slot| SlotParts {
        action: Some(slot.to_string()),
        theta: numbers(q, rng),
        width_factor: factor(q, rng),
        cross_factor: numbers(s * q, rng),
        confidence_width: 0.1 + slot as f64,
    });
    let slots = slots.collect();
    let parts = ModelParts {
        mechanism: "00".repeat(32).parse().unwrap(),
        version: 1,
        round: 0,
        theta: numbers(s, rng),
        width_factor: factor(s, rng),
        confidence_width: if blocks.slots() > 0 { 0.0 } else { 0.7 },
        slots,
    };
    parts.check().unwrap()
}

#[test]
fn devices_choose_the_largest_score() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for layout in
        [Layout::Shared, Layout::PerAction { slots: 4 }, Layout::Hybrid { slots: 4, shared: 2 }]
    {
        let blocks = Blocks::new(Dimension::new(5).unwrap(), layout).unwrap();
        let mut chooser = Chooser::new(blocks);
        for _ in 0..50 {
            let model = model(blocks, &mut rng);
            let features: Vec<Vec<f64>> = (0..4).map(|_| numbers(5, &mut rng)).collect();
            let slot = |arm: usize| if blocks.slots() > 0 { arm as u32 } else { 0 };
            let arm = |(index, features)| Arm { slot: slot(index), features };
            let arms: Vec<Arm<'_>> =
                features.iter().map(Vec::as_slice).enumerate().map(arm).collect();
            let bound = |arm: &Arm<'_>| {
                let Score { mean, width } = Score::of(&model, *arm).unwrap();
                assert!(width > 0.0);
                mean + width
            };
            let bounds: Vec<f64> = arms.iter().map(bound).collect();
            let best = (0..4).max_by(|&a, &b| bounds[a].total_cmp(&bounds[b])).unwrap();
            let ucb = Selection::Ucb {};
            let chosen = chooser.choose(Some(&model), ucb, arms.iter().copied(), &mut rng);
            assert_eq!(chosen.unwrap(), best, "{layout:?}");
            // A draw with scale 0 is the mean.
            let mean = |arm: &Arm<'_>| Score::of(&model, *arm).unwrap().mean;
            let means: Vec<f64> = arms.iter().map(mean).collect();
            let best = (0..4).max_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap();
            let greedy = Selection::Sampled { scale: 0.0 };
            let chosen = chooser.choose(Some(&model), greedy, arms.iter().copied(), &mut rng);
            assert_eq!(chosen.unwrap(), best, "{layout:?}");
        }
        let model = model(blocks, &mut rng);
        let slot = blocks.slots().max(1) as u32;
        assert_eq!(Score::of(&model, Arm { slot, features: &[0.0; 5] }), None);
        assert_eq!(Score::of(&model, Arm { slot: 0, features: &[0.0; 4] }), None);
    }
}
