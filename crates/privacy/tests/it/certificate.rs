//! Certificates: about one mechanism, the worst stage, said in words and numbers that are rounded
//! up.

#![allow(clippy::float_cmp)]

use incrowd_privacy::{Certificate, Trust, certify, format_epsilon};
use incrowd_protocol::{Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Stage};

fn mechanism(stages: &[(u32, u32, f64)], participations: u32, honest_fraction: f64) -> Mechanism {
    let stage = |&(size, bits, keep): &(u32, u32, f64)| Stage {
        rounds: 3,
        size,
        window: None,
        law: Law::bits(bits, FlipProbability::from_keep(keep).unwrap()),
    };
    MechanismConfig {
        dimension: 3,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations,
        honest_fraction,
    }
    .check()
    .unwrap()
}

#[test]
fn the_certificate_is_the_worst_stage() {
    let whole = certify(&mechanism(&[(200, 1, 0.3), (400, 2, 0.5)], 1, 1.0)).unwrap();
    let first = certify(&mechanism(&[(200, 1, 0.3)], 1, 1.0)).unwrap();
    let second = certify(&mechanism(&[(400, 2, 0.5)], 1, 1.0)).unwrap();
    assert_eq!(whole.epsilon_central(), first.epsilon_central().max(second.epsilon_central()));
    assert_eq!(whole.epsilon_local(), first.epsilon_local().max(second.epsilon_local()));
    assert_eq!(whole.rounds().len(), 2);
    assert_ne!(whole.mechanism(), first.mechanism());
}

#[test]
fn it_names_its_mechanism_and_its_assumptions() {
    let mechanism = mechanism(&[(200, 1, 0.3)], 2, 0.8);
    let certificate = certify(&mechanism).unwrap();
    assert_eq!(certificate.mechanism(), mechanism.hash());
    let text = certificate.to_string();
    for part in [
        &format!("Certificate for mechanism {}", mechanism.hash())[..],
        "(a) whoever reads the wire",
        "(b) whoever reads the shuffler's releases, and (c)",
        &format_epsilon(certificate.epsilon_central()),
        "all 2 reports of one person",
        "does not collude",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    assert!(certificate.trust().contains(&Trust::ShufflerKeepsReports));
    let json = serde_json::to_value(&certificate).unwrap();
    assert_eq!(json["mechanism"], mechanism.hash().to_string());
    assert_eq!(json["epsilon_central_bound"], "renyi-worst-others");
    assert_eq!(json["trust"].as_array().unwrap().len(), 6);
}

#[test]
fn participations_cost_and_in_one_batch_they_cost_more() {
    let at = |k, honest| certify(&mechanism(&[(300, 1, 0.3)], k, honest)).unwrap();
    let (one, two) = (at(1, 1.0), at(2, 1.0));
    assert!(two.epsilon_central() > one.epsilon_central());
    assert!(
        two.epsilon_central() < 2.0 * one.epsilon_central(),
        "k batches compose better than k times"
    );
    assert!(two.epsilon_central_same_batch() > two.epsilon_central());
    assert!(two.epsilon_local_all_reports() >= 2.0 * one.epsilon_local());
    assert!(
        at(1, 0.5).epsilon_central() > one.epsilon_central(),
        "a smaller honest crowd hides less"
    );
}

#[test]
fn printed_numbers_are_rounded_up() {
    assert_eq!(format_epsilon(0.123_401), "0.1235");
    assert_eq!(format_epsilon(0.1234), "0.1234");
    assert_eq!(format_epsilon(2.0 + 1e-12), "2.0001");
}

/// Two laws composed can exceed both of them composed with themselves: one report in a batch of one
/// (c = 0.0488) and one in a batch of 1000 (c = 0.5) have an exact epsilon of at least 0.24015 at
/// delta = 1e-6, d = 1, while twice the one is 0.2245 and twice the other 0.2235. Two reports in
/// the one batch of 1000 have at least 0.29863.
#[test]
fn batches_of_different_stages_are_composed_as_such() {
    let stage = |size, flip: (u32, u32)| Stage {
        rounds: 5,
        size,
        window: None,
        law: Law::bits(1, FlipProbability::new(flip.0, flip.1).unwrap()),
    };
    let mechanism = MechanismConfig {
        dimension: 1,
        context_bound: 1.0,
        schedule: vec![stage(1, (1189, 1250)), stage(1000, (1, 2))],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 2,
        honest_fraction: 1.0,
    };
    let certificate = certify(&mechanism.check().unwrap()).unwrap();
    let (central, same) = (certificate.epsilon_central(), certificate.epsilon_central_same_batch());
    assert!(central >= 0.24015, "{central}");
    assert!(same >= 0.29863, "{same}");
    println!(
        "different stages: {central} by {:?}, together {same}",
        certificate.epsilon_central_bound()
    );
    let two_growing = certify(&self::mechanism(&[(200, 1, 0.3), (400, 2, 0.4)], 2, 1.0)).unwrap();
    let alone = two_growing.rounds().iter().map(|round| round.epsilon_central).fold(0.0, f64::max);
    let central = two_growing.epsilon_central();
    assert!(central >= alone && central < 1.1 * alone, "{central} {alone}");
}

#[test]
fn a_delta_too_small_for_the_tails_falls_back_on_what_is_proved() {
    let certified = |delta| {
        let mut config: MechanismConfig = mechanism(&[(300, 1, 0.5)], 1, 1.0).into();
        config.central_delta = delta;
        certify(&config.check().unwrap()).unwrap()
    };
    assert!(certified(1e-15).epsilon_central() < certified(1e-40).epsilon_central());
}

#[test]
fn rounds_that_close_by_time_cover_presence_and_say_what_that_needs() {
    let stage = |window| Stage {
        rounds: 3,
        size: 500,
        window,
        law: Law::bits(64, FlipProbability::from_keep(0.4).unwrap()),
    };
    let mechanism = |closes, window| {
        let config = MechanismConfig {
            dimension: 3,
            context_bound: 1.0,
            layout: Layout::Shared,
            schedule: vec![stage(window)],
            closes,
            central_delta: 1e-6,
            participations: 2,
            honest_fraction: 1.0,
        };
        config.check().unwrap()
    };
    let count = certify(&mechanism(Closes::Count { grace: 0 }, None)).unwrap();
    let time = certify(&mechanism(Closes::Time { opens: 0 }, Some(60_000))).unwrap();
    assert!(time.covers_presence() && !count.covers_presence());
    // A tail of every release that may differ is paid for, and nothing else.
    let (count_epsilon, time_epsilon) = (count.epsilon_central(), time.epsilon_central());
    assert!(time_epsilon >= count_epsilon && time_epsilon < 1.01 * count_epsilon);
    assert_eq!(count.epsilon_local(), time.epsilon_local());
    let names = |certificate: &Certificate| {
        let trust = serde_json::to_value(certificate).unwrap()["trust"].clone();
        serde_json::from_value::<Vec<String>>(trust).unwrap()
    };
    for needed in ["rounds-close-by-time", "capacity-is-enough", "arrivals-are-independent"] {
        assert!(names(&time).iter().any(|name| name == needed), "{needed}");
    }
    assert!(names(&count).iter().any(|name| name == "silence-tells-nothing"));
    assert!(!names(&time).iter().any(|name| name == "silence-tells-nothing"));
    assert!(time.to_string().contains("whether and in which rounds they do"));
}
