//! The clones bound against exact sums (mpmath, `reference/generate.py`) and at the edges of its
//! range.

use crate::plain::{delta_upper, epsilon_upper};
use incrowd_privacy::{PrivacyError, numeric::binomial_at_most_upper};
use incrowd_protocol::BatchSize;
use serde_json::Value;

fn reference() -> Value {
    serde_json::from_str(include_str!("../reference/clones.json")).unwrap()
}

fn rows(name: &str) -> Vec<Value> {
    let rows = reference()[name].as_array().unwrap().clone();
    assert!(rows.len() >= 5);
    rows
}

fn field(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap()
}

/// `value` is an upper bound on `exact`, and a tight one.
fn just_above(value: f64, exact: f64, relative: f64, what: &str) {
    assert!(value >= exact, "{what}: {value} is below {exact}");
    assert!(value <= exact * (1.0 + relative), "{what}: {value} is far above {exact}");
}

#[test]
fn epsilon_is_just_above_the_exact_sum() {
    for row in rows("epsilons") {
        let (n, e, d) = (
            row["batch_size"].as_u64().unwrap(),
            field(&row, "epsilon_local"),
            field(&row, "delta"),
        );
        just_above(epsilon_upper(e, n, d).unwrap(), field(&row, "epsilon"), 1e-4, &row.to_string());
    }
}

#[test]
fn epsilon_is_just_above_the_values_of_the_theory_notes() {
    let cases = [
        (1_000, 1.0, 0.182_412),
        (1_000, 2.0, 0.545_498),
        (10_000, 1.0, 0.053_005_3),
        (10_000, 2.0, 0.155_045),
        (10_000, 4.0, 0.600_909),
        (100_000, 4.0, 0.169_770),
        (1_000_000, 4.0, 0.049_307_1),
    ];
    for (n, e, exact) in cases {
        just_above(epsilon_upper(e, n, 1e-6).unwrap(), exact, 1e-4, &format!("n={n} e={e}"));
    }
}

#[test]
fn delta_is_just_above_the_exact_sum() {
    for row in rows("deltas") {
        let (n, e, c) = (
            row["batch_size"].as_u64().unwrap(),
            field(&row, "epsilon_local"),
            field(&row, "epsilon_central"),
        );
        just_above(delta_upper(e, n, c).unwrap(), field(&row, "delta"), 1e-3, &row.to_string());
    }
}

#[test]
fn binomial_tails_are_just_above_the_exact_sum() {
    let mut smallest = 1.0_f64;
    for row in rows("tails") {
        let (n, k) = (row["trials"].as_u64().unwrap(), row["count"].as_u64().unwrap());
        let tail = binomial_at_most_upper(n, field(&row, "probability"), k).unwrap();
        just_above(tail, field(&row, "at_most"), 1e-8, &row.to_string());
        smallest = smallest.min(tail);
    }
    assert!(smallest < 1e-12);
    assert_eq!(binomial_at_most_upper(10, 0.5, 10), Ok(1.0));
}

#[test]
fn epsilon_and_delta_are_inverse() {
    for (e, n) in [(0.3, 200), (1.0, 3_000), (4.0, 100_000), (9.0, 1_000_000)] {
        for delta in [1e-3, 1e-6, 1e-10, 1e-15] {
            let epsilon = epsilon_upper(e, n, delta).unwrap();
            if epsilon < e {
                assert!(delta_upper(e, n, epsilon).unwrap() <= delta, "{e} {n} {delta}");
                assert!(delta_upper(e, n, epsilon * 0.999).unwrap() > delta, "{e} {n} {delta}");
            }
        }
    }
}

#[test]
fn one_report_hides_among_nobody() {
    assert_eq!(epsilon_upper(1.5, 1, 1e-6), Ok(1.5));
}

#[test]
fn epsilon_never_exceeds_the_local_one_and_falls_with_the_batch() {
    for e in [1e-6, 0.1, 1.0, 4.0, 12.0, 50.0, 599.0, 1e4] {
        for delta in [1e-15, 1e-6, 1e-2] {
            let mut last = e;
            for n in [1, 2, 3, 10, 100, 10_000, 1_000_000, 100_000_000, 1_000_000_000] {
                let epsilon = epsilon_upper(e, n, delta).unwrap();
                assert!(
                    epsilon >= 0.0 && epsilon <= (last * (1.0 + 1e-9)).min(e),
                    "{e} {n} {delta}"
                );
                last = epsilon;
            }
        }
    }
}

/// H by the central limit theorem, with N at its mean: good to a percent at these sizes.
fn approx_divergence(epsilon_local: f64, batch_size: f64, epsilon: f64) -> f64 {
    let root = (batch_size * (-epsilon_local).exp()).sqrt();
    let a = (epsilon_local / 2.0).tanh();
    let z = (epsilon / 2.0).tanh() / a * root;
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let tail = libm::erfc(z / std::f64::consts::SQRT_2) / 2.0;
    a * (1.0 + epsilon.exp()) * (density - z * tail) / root
}

#[test]
fn large_batches_follow_the_normal_law() {
    for (n, e) in [(100_000_000_u64, 1.0), (100_000_000, 4.0), (1_000_000_000, 1.0)] {
        let epsilon = epsilon_upper(e, n, 1e-6).unwrap();
        let ratio = approx_divergence(e, n as f64, epsilon) / 1e-6;
        assert!((ratio - 1.0).abs() < 0.01, "n={n} e={e}: {epsilon}, ratio {ratio}");
    }
    assert!(epsilon_upper(1.0, u64::MAX, 1e-6).unwrap() < 2e-5);
}

#[test]
fn numbers_out_of_range_are_errors() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(epsilon_upper(bad, 10, 1e-6), Err(PrivacyError::EpsilonLocal(_))));
        assert!(matches!(delta_upper(1.0, 10, bad), Err(PrivacyError::EpsilonCentral(_))));
    }
    for bad in [0.0, -1.0, 1.0, f64::NAN] {
        assert!(
            matches!(epsilon_upper(1.0, 10, bad), Err(PrivacyError::Unit(e)) if e.name == "delta")
        );
        assert!(binomial_at_most_upper(10, bad, 3).is_err());
    }
    assert_eq!(epsilon_upper(1.0, 0, 1e-6), Err(BatchSize::new(0).unwrap_err().into()));
}

#[test]
fn one_more_report_never_costs_anything() {
    for (e, delta, from) in [(1.0, 1e-6, 300), (4.0, 1e-9, 20_000), (0.1, 1e-3, 5_000)] {
        let mut last = f64::INFINITY;
        for n in from..from + 200 {
            let epsilon = epsilon_upper(e, n, delta).unwrap();
            assert!(epsilon <= last, "{e} {delta} {n}: {epsilon} {last}");
            last = epsilon;
        }
    }
}
