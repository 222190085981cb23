//! Local bounds: never below the best attack found, tight, monotone, finite in the corners.

use crate::plain::local;
use incrowd_privacy::{BoundName, PrivacyError};
use incrowd_protocol::{Bits, Dimension};
use proptest::prelude::*;
use serde_json::Value;

fn reference(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/reference/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    match serde_json::from_str::<Value>(&text).unwrap() {
        Value::Array(cases) => cases,
        Value::Object(mut file) => match file["cases"].take() {
            Value::Array(cases) => cases,
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

/// The best attack found by search (`reference/sandwich.py`) is below every bound; at m = 1, c <=
/// 0.5 and d in {5, 10} within a factor 1.1.
#[test]
fn no_attack_exceeds_a_bound_and_the_best_bound_is_tight() {
    let mut tight = 0;
    for case in reference("local") {
        let number = |key: &str| case[key].as_f64().unwrap_or_else(|| panic!("{key} in {case}"));
        let (d, m, c) = (number("dimension") as u32, number("bits") as u32, number("keep"));
        let attack = number("epsilon_local_attack");
        for bound in local::bounds(d, m, c).unwrap() {
            assert!(bound.epsilon >= attack, "{bound:?} below {attack}: {case}");
        }
        if m == 1 && c <= 0.5 && (d == 5 || d == 10) {
            let certified = local::certify(d, m, c).unwrap().epsilon;
            assert!(certified <= 1.1 * attack, "d={d} c={c}: {certified} against {attack}");
            tight += 1;
        }
    }
    assert!(tight >= 4, "{tight} cases of tightness");
}

#[test]
fn known_values() {
    let best = local::certify(10, 1, 0.2).unwrap();
    assert_eq!(best.bound, BoundName::L1DiameterRefined);
    assert!(best.epsilon <= 2.61 && best.epsilon > 2.5, "{}", best.epsilon);
    assert!(local::largest_keep(20, 1, 2.0).unwrap() >= 0.09);
    // The paper's level: 65 * ln(1.2/0.8) = 26.355.
    let paper = local::bounds(10, 1, 0.2)
        .unwrap()
        .into_iter()
        .find(|b| b.bound == BoundName::PaperProposition1);
    assert!((paper.unwrap().epsilon - 65.0 * 1.5f64.ln()).abs() < 1e-6);
    // One coin of one bit near c = 1: finite.
    assert!(local::certify(1, 1, 1.0 - 1e-9).unwrap().epsilon < 50.0);
    assert!(local::certify(1000, 4095, 0.999).unwrap().epsilon.is_finite());
    assert!(local::certify(200, 1, 0.01).unwrap().epsilon < 2.0);
}

#[test]
fn bad_numbers_are_refused() {
    assert_eq!(local::certify(0, 1, 0.5), Err(Dimension::new(0).unwrap_err().into()));
    assert_eq!(local::certify(1, 0, 0.5), Err(Bits::new(0).unwrap_err().into()));
    for keep in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
        assert!(
            matches!(local::certify(1, 1, keep), Err(PrivacyError::Unit(error)) if error.name == "keep"),
            "{keep}"
        );
    }
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(local::largest_keep(5, 1, epsilon).is_err(), "{epsilon}");
    }
}

proptest! {
    #[test]
    fn epsilon_grows_with_c_and_d_and_m(d in 1u32..40, m in 1u32..6, c in 0.01..0.95f64, more in 1.0001..1.05f64) {
        let at = |d, m, c| local::certify(d, m, c).unwrap().epsilon;
        let here = at(d, m, c);
        prop_assert!(at(d, m, (c * more).min(0.99)) >= here);
        prop_assert!(at(d + 1, m, c) >= here);
        prop_assert!(at(d, m + 1, c) >= here);
    }

    #[test]
    fn the_largest_keep_meets_the_budget_and_the_next_one_does_not(d in 1u32..30, m in 1u32..4, epsilon in 0.01..20.0f64) {
        let keep = local::largest_keep(d, m, epsilon).unwrap();
        prop_assert!(local::certify(d, m, keep).unwrap().epsilon <= epsilon);
        let next = keep + 2.0 / f64::from(1u32 << 30);
        if next < 1.0 {
            prop_assert!(local::certify(d, m, next).unwrap().epsilon > epsilon);
        }
    }
}
