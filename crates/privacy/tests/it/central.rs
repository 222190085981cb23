//! Central bounds: never below the exact epsilon (the sandwich), the promised values, monotone,
//! right in the corners.

use crate::plain::{self, composition, local};
use incrowd_privacy::{
    Bound, BoundName, PrivacyError,
    central::{self, Setting},
};
use incrowd_protocol::{BatchSize, Delta, Participations};
use proptest::prelude::*;
use serde_json::Value;

fn setting(dimension: u32, bits: u32, keep: f64, size: u64, delta: f64) -> Setting {
    plain::setting((dimension, bits, keep), size, 1.0, 1, delta).unwrap()
}

fn epsilon(dimension: u32, bits: u32, keep: f64, size: u64, delta: f64) -> f64 {
    central::certify(&setting(dimension, bits, keep, size, delta)).unwrap().epsilon
}

/// Every bound is at least the exact epsilon found by enumerating the batch
/// (`reference/sandwich.py`), for several inputs of the others, searched victims, both directions.
#[test]
fn sandwich() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/sandwich.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = file.as_array().or_else(|| file["cases"].as_array()).unwrap();
    let (mut single, mut double, mut worst) = (0, 0, 0f64);
    for case in cases {
        let number = |key: &str| case[key].as_f64().unwrap_or_else(|| panic!("{key} in {case}"));
        let exact = number("epsilon_exact");
        let (d, m, c) = (number("dimension") as u32, number("bits") as u32, number("keep"));
        let (l, delta) = (number("batch_size") as u64, number("delta"));
        let reports = case["reports_in_batch"].as_u64().unwrap_or(1) as u32;
        let setting = setting(d, m, c, l, delta);
        if reports == 1 {
            for bound in central::bounds(&setting).unwrap() {
                assert!(bound.epsilon >= exact, "{bound:?} below {exact}: {case}");
            }
            if l >= 200 && exact > 0.0 {
                let certified = central::certify(&setting).unwrap().epsilon;
                println!(
                    "d={d} c={c} l={l} delta={delta:e}: certified {certified:.4}, exact {exact:.4}"
                );
                // The conversion from Renyi divergence is loose when delta is not small.
                if delta <= 1e-4 {
                    worst = worst.max(certified / exact);
                }
            }
            single += 1;
        } else {
            let one = |delta| {
                Ok(central::certify(&Setting { delta: Delta::new(delta)?, ..setting })?.epsilon)
            };
            let all = f64::from(reports) * local::certify(d, m, c).unwrap().epsilon;
            let certified =
                composition::same_batch(one, reports, delta).map_or(all, |e| e.min(all));
            assert!(certified >= exact, "{certified} below {exact}: {case}");
            double += 1;
        }
    }
    assert!(single >= 100 && double >= 3, "{single} {double}");
    println!("largest certified/exact at l >= 200, delta <= 1e-4: {worst:.3}");
    assert!(worst > 1.0 && worst <= 1.35);
}

#[test]
fn the_promised_values() {
    for (l, goal) in [(100, 0.66), (300, 0.34), (1000, 0.17)] {
        let best = central::certify(&setting(5, 1, 0.5, l, 1e-6)).unwrap();
        assert_eq!(best.bound, BoundName::RenyiWorstOthers);
        assert!(best.epsilon <= goal, "l={l}: {}", best.epsilon);
        println!("d=5 c=0.5 l={l}: {:.4}", best.epsilon);
    }
    for (l, m, c, goal) in [(300, 2, 0.5, 0.48), (300, 4, 0.3, 0.35), (1000, 8, 0.5, 0.50)] {
        let found = epsilon(5, m, c, l, 1e-6);
        println!("d=5 m={m} c={c} l={l}: {found:.4}");
        assert!(found <= goal);
    }
}

#[test]
fn the_winner_is_below_every_other_bound_and_all_are_capped_by_the_local_one() {
    for (m, c, l) in [(1, 0.5, 300), (2, 0.3, 100), (1, 0.9, 10), (16, 0.5, 500)] {
        let setting = setting(5, m, c, l, 1e-6);
        let (best, all) = (central::certify(&setting).unwrap(), central::bounds(&setting).unwrap());
        let cap = local::certify(5, m, c).unwrap().epsilon;
        assert!(
            all.iter().all(|bound| bound.epsilon >= best.epsilon * (1.0 - 1e-6)),
            "{best:?} {all:?}"
        );
        assert!(all.iter().all(|bound| bound.epsilon <= cap * (1.0 + 1e-8)), "{all:?}");
        let names: Vec<BoundName> = all.iter().map(|bound: &Bound| bound.bound).collect();
        assert!(names.contains(&BoundName::Clones) && names.contains(&BoundName::Local));
    }
}

#[test]
fn corners() {
    let cap = local::certify(5, 1, 0.5).unwrap().epsilon;
    let alone = epsilon(5, 1, 0.5, 1, 1e-6);
    assert!((alone - cap).abs() <= 1e-8 * cap, "a batch of one hides nobody");
    assert!(epsilon(5, 1, 1e-6, 100, 1e-6) < 1e-4, "no signal, no risk");
    assert!(epsilon(5, 1, 0.5, 300, 1e-15) < 0.8);
    let huge = epsilon(5, 1, 0.5, 1_000_000_000, 1e-6);
    assert!(huge > 1e-5 && huge < 2e-4, "{huge}");
    assert!(epsilon(200, 1, 0.01, 1000, 1e-6) < 0.01);
    assert!(
        epsilon(5, 1, 0.999_999, 300, 1e-6)
            <= local::certify(5, 1, 0.999_999).unwrap().epsilon * 1.000_001
    );
    assert!(epsilon(5, 4095, 0.5, 1000, 1e-6).is_finite());
}

#[test]
fn bad_numbers_are_refused() {
    let make = |size, honest, k, delta| plain::setting((5, 1, 0.5), size, honest, k, delta);
    assert_eq!(make(0, 1.0, 1, 1e-6), Err(BatchSize::new(0).unwrap_err().into()));
    assert_eq!(make(10, 1.0, 0, 1e-6), Err(Participations::new(0).unwrap_err().into()));
    for delta in [0.0, 1.0, -1.0, f64::NAN] {
        assert!(matches!(make(10, 1.0, 1, delta), Err(PrivacyError::Unit(e)) if e.name == "delta"));
    }
    for honest in [0.0, 1.1, -1.0, f64::NAN] {
        assert!(
            matches!(make(10, honest, 1, 1e-6), Err(PrivacyError::Unit(e)) if e.name == "honest fraction")
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn monotone(c in 0.05..0.9f64, l in 2u64..600, d in 1u32..20, m in 1u32..3, more in 1u64..200, k in 1u32..4) {
        let of = |d, c, l, honest, k| {
            let setting = plain::setting((d, m, c), l, honest, k, 1e-6).unwrap();
            central::certify(&setting).unwrap().epsilon
        };
        let here = of(d, c, l, 1.0, k);
        prop_assert!(of(d, c, l + more, 1.0, k) <= here * (1.0 + 1e-6), "larger batch");
        prop_assert!(of(d, c, l, 0.7, k) >= here * (1.0 - 1e-6), "fewer honest");
        prop_assert!(of(d, (c * 1.05).min(0.95), l, 1.0, k) >= here * (1.0 - 1e-6), "less noise");
        prop_assert!(of(d + 1, c, l, 1.0, k) >= here * (1.0 - 1e-6), "more dimensions");
        prop_assert!(of(d, c, l, 1.0, k + 1) >= here * (1.0 - 1e-6), "more participations");
    }

    #[test]
    fn the_guess_is_near_the_certificate(c in 0.1..0.7f64, l in 100u64..2000) {
        let setting = setting(5, 1, c, l, 1e-6);
        let (guess, certified) = (central::approx_epsilon(&setting), central::certify(&setting).unwrap().epsilon);
        prop_assert!((guess / certified - 1.0).abs() < 0.05, "{} {}", guess, certified);
    }
}
