//! The paper's numbers, with its slips: those of `docs/paper-notes.md` and of
//! `reference/generate.py`.

use incrowd_planner::paper::{
    Composition, Learning, Randomizer, RegretCase, Target, Theorem1, batch_size_proposition_3,
    batch_size_theorem_1, composed_proposition_3, corollary_1, corollary_2, fixed_schedule_regret,
    proposition_3, remark_2, remark_2_printed_rate, theorem_1_accepts, theorem_2,
};
use incrowd_privacy::PrivacyError;
use incrowd_protocol::{Bits, Dimension};
use serde_json::Value;

fn dimension(d: u32) -> Dimension {
    Dimension::new(d).unwrap()
}

fn bits(m: u32) -> Bits {
    Bits::new(m).unwrap()
}

fn five() -> Randomizer {
    Randomizer { dimension: dimension(5), bits: bits(1), flip: 0.9 }
}

fn target(epsilon_central: f64) -> Target {
    Target { horizon: 1_000_000, epsilon_central, delta: 1e-6 }
}

/// `value` rounds to `shown`, which has two digits unless told otherwise.
fn rounds_to(value: f64, shown: f64, relative: f64) {
    assert!((value / shown - 1.0).abs() <= relative, "{value} is not {shown}");
}

fn condition<T: std::fmt::Debug>(result: Result<T, PrivacyError>) -> String {
    match result {
        Err(PrivacyError::OutsideRegime { condition, .. }) => condition,
        other => panic!("{other:?}"),
    }
}

fn reference() -> Value {
    serde_json::from_str(include_str!("../reference/paper.json")).unwrap()
}

#[test]
fn proposition_1() {
    for row in reference()["flips"].as_array().unwrap() {
        let f = |name: &str| row[name].as_f64().unwrap();
        let r = Randomizer::proposition_1(
            dimension(f("dimension") as u32),
            bits(f("bits") as u32),
            f("epsilon_local"),
        );
        let r = r.unwrap();
        rounds_to(r.flip, f("flip"), 1e-14);
        rounds_to(r.epsilon_local().unwrap(), f("epsilon_local"), 1e-6);
    }
    assert!(Randomizer::proposition_1(dimension(5), bits(1), 0.0).is_err());
    assert!(Dimension::new(0).is_err());
}

#[test]
fn proposition_3_is_infeasible_at_the_example() {
    let size = batch_size_proposition_3(five(), target(1.0)).unwrap();
    rounds_to(size.batch_size as f64, 4.8e6, 0.05 / 4.8);
    assert_eq!((size.composition, size.feasible), (Composition::None, false));
    let at = |l| composed_proposition_3(five(), l, 1_000_000, 1e-6).unwrap().0;
    assert!(at(size.batch_size) <= 1.0 && at(size.batch_size - 1) > 1.0);
    // A batch of Thm 1's size, with its union over T: 1.0e3.
    rounds_to(proposition_3(five(), 463, 1e-12).unwrap(), 1.0e3, 0.05);
    assert!(condition(proposition_3(five(), 200, 1e-6)).contains("14 ln(8m/delta)"));
    // Slip 11: delta for all D coordinates makes epsilon larger by 1.19.
    let ratio = proposition_3(five(), 1 << 40, 1e-6 / 20.0).unwrap()
        / proposition_3(five(), 1 << 40, 1e-6).unwrap();
    rounds_to(ratio, 1.19, 0.005 / 1.19);
}

#[test]
fn composition_of_proposition_3() {
    let long = Target { horizon: 1 << 45, epsilon_central: 1.0, delta: 1e-6 };
    let size = batch_size_proposition_3(five(), long).unwrap();
    assert_eq!((size.composition, size.feasible), (Composition::Advanced, true));
    let two = composed_proposition_3(five(), 5_000_000, 10_000_000, 1e-6).unwrap();
    assert_eq!(two.1, Composition::Basic);
    rounds_to(two.0, 2.0 * proposition_3(five(), 5_000_000, 5e-7).unwrap(), 1e-12);
}

#[test]
fn theorem_1_as_printed_does_not_depend_on_epsilon() {
    let size = |epsilon, form| batch_size_theorem_1(five(), target(epsilon), form).unwrap();
    assert_eq!(size(1.0, Theorem1::Printed), 463);
    assert_eq!(size(1e-9, Theorem1::Printed), 463);
    rounds_to(size(1.0, Theorem1::Repaired) as f64, 3.1e7, 0.05 / 3.1);
    assert!(size(1e-9, Theorem1::Repaired) > 1_000_000_000_000);
    // Slip 10's example.
    let two = Randomizer { dimension: dimension(2), ..five() };
    let size = batch_size_theorem_1(two, target(1.0), Theorem1::Repaired).unwrap();
    rounds_to(size as f64, 7.8e6, 0.05 / 7.8);
    assert_eq!(theorem_1_accepts(two, target(1.0), size - 1, Theorem1::Repaired), Ok(false));
    assert!(
        condition(theorem_1_accepts(five(), target(1.5), 463, Theorem1::Printed))
            .contains("above 1")
    );
}

#[test]
fn corollary_1_needs_less_than_ln_2() {
    let choice = corollary_1(dimension(5), bits(1), 1_000_000, 0.5).unwrap();
    rounds_to(choice.epsilon_central, 0.81, 0.005 / 0.81);
    rounds_to(1.0 - choice.flip, 0.0125, 0.000_05 / 0.0125);
    // Slip 12: the rate has the c of a single bit, 0.245, so its leading term is too small by 4.4.
    let leading = 1e6_f64.powf(0.75) / (1.0 - choice.flip).sqrt();
    rounds_to(leading / (1e6_f64.powf(0.75) / 0.244_9_f64.sqrt()), 4.4, 0.05 / 4.4);
    assert!(choice.regret_rate > 1e6_f64.powf(0.75) / 0.245_f64.sqrt());
    assert!(condition(corollary_1(dimension(5), bits(1), 0, 0.5)).contains("horizon is 0"));
    let text = condition(corollary_1(dimension(5), bits(1), 1_000_000, 1.0));
    assert!(text.contains("1.31") && text.contains("ln 2"), "{text}");
}

#[test]
fn corollary_2_needs_a_small_epsilon() {
    let choice = corollary_2(dimension(5), 1_000_000, 0.001).unwrap();
    rounds_to(1.0 - choice.flip, 0.1, 1e-9);
    rounds_to(choice.epsilon_local, 4.01, 0.005 / 4.01);
    rounds_to(choice.regret_rate, 1e4 / 0.1, 1e-9);
    let text = condition(corollary_2(dimension(5), 1_000_000, 0.0012));
    assert!(text.contains("0.00117"), "{text}");
    assert!(
        corollary_2(dimension(5), 1_900_000, 0.001).is_err()
            != corollary_2(dimension(5), 1_880_000, 0.001).is_err()
    );
}

#[test]
fn remark_2_balances_with_its_missing_factor() {
    let choice = remark_2(dimension(5), 1_000_000, 0.001).unwrap();
    rounds_to(1.0 - choice.flip, 0.25, 0.005 / 0.25);
    rounds_to(choice.regret_rate, 6.3e4, 0.05 / 6.3);
    let c = 1.0 - choice.flip;
    rounds_to(1e6_f64.powf(0.75) / c.sqrt(), choice.regret_rate, 1e-9);
    rounds_to(c * c / 1e-6, choice.regret_rate, 1e-9);
    // As printed the second term alone is above T.
    assert!(remark_2_printed_rate(choice.flip, 1_000_000, 0.001) > 1e6);
    assert!(condition(remark_2(dimension(5), 1_000_000, 0.1)).contains("not below 1"));
}

/// 2 * 3 * sqrt(10 * 10000/100) * ln(10001) * (sqrt(500) + 5 * sqrt(100)), by hand.
#[test]
fn fixed_schedule_regret_as_printed() {
    let by_hand =
        6.0 * 31.622_776_601_683_793 * 9.210_440_366_976_516 * (22.360_679_774_997_898 + 50.0);
    rounds_to(fixed_schedule_regret(3.0, 10_000, 100, dimension(5)), by_hand, 1e-12);
}

#[test]
fn theorem_2_as_printed() {
    let mut cases = Vec::new();
    for row in reference()["theorem_2"].as_array().unwrap() {
        let f = |name: &str| row[name].as_f64().unwrap();
        let randomizer = Randomizer {
            dimension: dimension(f("dimension") as u32),
            bits: bits(f("bits") as u32),
            flip: f("flip"),
        };
        let target = Target {
            horizon: f("horizon") as u64,
            epsilon_central: f("epsilon_central"),
            delta: f("delta"),
        };
        let learning = Learning {
            context_bound: f("context_bound"),
            parameter_bound: f("parameter_bound"),
            ridge: f("ridge"),
            growth: f("growth"),
            failure_probability: f("failure_probability"),
        };
        let regret = theorem_2(randomizer, target, learning).unwrap();
        rounds_to(regret.regret, f("regret"), 1e-10);
        let case = if row["case"] == "flip" { RegretCase::Flip } else { RegretCase::Epsilon };
        assert_eq!(regret.case, case);
        cases.push(case);
        let bad = Learning { ridge: 0.0, ..learning };
        assert!(condition(theorem_2(randomizer, target, bad)).contains("lambda"));
    }
    assert!(cases.contains(&RegretCase::Flip) && cases.contains(&RegretCase::Epsilon));
}
