//! Composition against exact sums and dp-accounting (`reference/generate.py`).

use crate::plain::{
    composition::{best_for, compose, same_batch},
    delta_upper, epsilon_upper,
};
use incrowd_privacy::PrivacyError;
use incrowd_protocol::Participations;
use serde_json::Value;

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

#[test]
fn equal_releases_match_the_exact_sum_and_dp_accounting() {
    let reference: Value =
        serde_json::from_str(include_str!("../reference/composition.json")).unwrap();
    let rows = reference["homogeneous"].as_array().unwrap();
    assert!(rows.len() >= 6);
    for row in rows {
        let f = |name: &str| row[name].as_f64().unwrap();
        let times = row["times"].as_u64().unwrap() as u32;
        let ours = compose(f("epsilon"), f("delta"), times, f("delta_total")).unwrap();
        assert!(ours >= f("optimal") && close(ours, f("optimal"), 1e-7), "{row}: {ours}");
        assert!(close(ours, f("dp_accounting"), 1e-6), "{row}: {ours}");
    }
}

#[test]
fn never_above_basic_or_advanced() {
    for (epsilon, delta, times) in [(0.01, 1e-9, 500_u32), (0.3, 0.0, 7), (1.0, 1e-8, 2)] {
        let (k, total) = (f64::from(times), 1e-5);
        let ours = compose(epsilon, delta, times, total).unwrap();
        let slack = total - k * delta;
        let advanced =
            (2.0 * k * (1.0 / slack).ln()).sqrt() * epsilon + k * epsilon * epsilon.exp_m1();
        assert!(ours <= k * epsilon * (1.0 + 2e-9) && ours <= advanced * (1.0 + 2e-9));
    }
    // Beyond the exact sum the closed form takes over, here advanced composition.
    let many = compose(1e-4, 0.0, 1_000_000, 1e-6).unwrap();
    let advanced = (2e6 * 1e6_f64.ln()).sqrt() * 1e-4 + 100.0 * 1e-4_f64.exp_m1();
    assert!(close(many, advanced, 1e-8), "{many} {advanced}");
}

#[test]
fn delta_must_fit() {
    assert!(matches!(compose(0.1, 1e-6, 10, 9e-6), Err(PrivacyError::OutsideRegime { .. })));
    assert!(close(compose(0.1, 1e-6, 10, 1e-5).unwrap(), 1.0, 1e-6));
    assert!(close(compose(0.1, 0.0, 10, 0.0).unwrap(), 1.0, 1e-6));
    assert!(close(compose(0.7, 1e-6, 1, 1e-6).unwrap(), 0.7, 1e-6));
    assert_eq!(compose(0.1, 0.0, 0, 1e-6), Err(Participations::new(0).unwrap_err().into()));
    assert!(compose(f64::NAN, 0.0, 1, 1e-6).is_err());
    assert!(compose(0.1, f64::NAN, 1, 1e-6).is_err());
    assert!(compose(0.1, 0.0, 1, 1.0).is_err());
}

#[test]
fn the_grid_beats_an_even_split_and_grows_with_the_number_of_releases() {
    let at = |delta| epsilon_upper(1.0, 10_000, delta);
    assert_eq!(best_for(at, 1, 1e-6), at(1e-6));
    let mut last = at(1e-6).unwrap();
    for times in [2, 5, 20, 100] {
        let best = best_for(at, times, 1e-6).unwrap();
        let even = f64::from(times) * at(1e-6 / f64::from(times)).unwrap();
        assert!(best > last && best <= even * (1.0 + 1e-6), "{times}: {best} {even}");
        last = best;
    }
    assert!(last < 0.5 * 100.0 * at(1e-8).unwrap());
    assert!(best_for(at, 0, 1e-6).is_err() && best_for(at, 2, 0.0).is_err());
}

#[test]
fn several_reports_in_one_batch_pay_the_group_price() {
    let at = |delta| epsilon_upper(2.0, 10_000, delta);
    assert_eq!(same_batch(at, 1, 1e-6), at(1e-6));
    for reports in [2_u32, 3, 8] {
        let k = f64::from(reports);
        let epsilon = same_batch(at, reports, 1e-6).unwrap();
        // Valid: the delta of one step at epsilon/k, carried through the group, fits.
        let one = epsilon / k;
        let total = delta_upper(2.0, 10_000, one).unwrap() * (k * one).exp_m1() / one.exp_m1();
        assert!(total <= 1e-6, "{reports}: {total}");
        // Tight: one percent less does not.
        let one = 0.99 * one;
        let total = delta_upper(2.0, 10_000, one).unwrap() * (k * one).exp_m1() / one.exp_m1();
        assert!(total > 1e-6, "{reports}: {total}");
        assert!(epsilon > k * at(1e-6).unwrap());
    }
    assert!(matches!(same_batch(|_| Ok(10.0), 100, 1e-6), Err(PrivacyError::OutsideRegime { .. })));
    assert!(same_batch(at, 0, 1e-6).is_err());
}
