//! Batches against Gaussians: never below an exact value, sharp, for any number of bits, with what
//! presence needs.

use std::thread;

use crate::plain;
use incrowd_privacy::{
    BoundName,
    central::{self, Presence, Setting},
    certify, gaussian,
};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Participations, Stage,
};
use proptest::prelude::*;
use serde_json::Value;

fn setting(d: u32, m: u32, c: f64, size: u64, delta: f64) -> Setting {
    plain::setting((d, m, c), size, 1.0, 1, delta).unwrap()
}

/// The epsilon by Gaussians alone.
fn by_gaussians(setting: &Setting) -> Option<f64> {
    let (mu, spent) = central::mu_upper(setting)?;
    Some(gaussian::epsilon_upper(mu, setting.delta.get() - spent))
}

struct Case {
    kind: String,
    dimension: u32,
    stages: Vec<(u32, u32, f64)>,
    participations: u32,
    honest: f64,
    delta: f64,
    exact: f64,
}

impl Case {
    fn all() -> Vec<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/losses.json");
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let case = |case: &Value| {
            let number = |key: &str| case[key].as_f64().unwrap();
            let stage = |stage: &Value| {
                let whole = |i: usize| stage[i].as_u64().unwrap() as u32;
                (whole(0), whole(1), stage[2].as_f64().unwrap())
            };
            Self {
                kind: case["kind"].as_str().unwrap().to_owned(),
                dimension: number("dimension") as u32,
                stages: case["stages"].as_array().unwrap().iter().map(stage).collect(),
                participations: number("participations") as u32,
                honest: number("honest"),
                delta: number("delta"),
                exact: number("epsilon_exact"),
            }
        };
        file.as_array().unwrap().iter().map(case).collect()
    }

    fn setting(&self) -> Setting {
        let (size, m, c) = self.stages[0];
        let law = (self.dimension, m, c);
        plain::setting(law, size.into(), self.honest, self.participations, self.delta).unwrap()
    }

    fn mechanism(&self) -> Mechanism {
        let stage = |&(size, bits, keep): &(u32, u32, f64)| Stage {
            rounds: 5,
            size,
            window: None,
            law: Law::bits(bits, FlipProbability::from_keep(keep).unwrap()),
        };
        MechanismConfig {
            dimension: self.dimension,
            context_bound: 1.0,
            schedule: self.stages.iter().map(stage).collect(),
            layout: Layout::Shared,
            closes: Closes::Count { grace: 0 },
            central_delta: self.delta,
            participations: self.participations,
            honest_fraction: self.honest,
        }
        .check()
        .unwrap()
    }
}

/// `reference/losses.py`: at least 500 batches, d from 1 to 4, up to 100 bits and 3 participations,
/// honest fractions, several stages, several reports in one batch, reports that are absent or in
/// another round.
/// How often cases were compared, how often with Gaussians alone, and the smallest
/// certified/exact.
struct Compared {
    cases: usize,
    gaussians: usize,
    closest: f64,
}

fn compare<'a>(cases: impl Iterator<Item = &'a Case>) -> Compared {
    let mut compared = Compared { cases: 0, gaussians: 0, closest: f64::INFINITY };
    for case in cases {
        let free = Setting { presence: Presence::Free, ..case.setting() };
        let (certified, alone) = match &case.kind[..] {
            "apart" => {
                let setting = case.setting();
                (central::certify(&setting).unwrap().epsilon, by_gaussians(&setting))
            }
            "stages" => (certify(&case.mechanism()).unwrap().epsilon_central(), None),
            "together" => (certify(&case.mechanism()).unwrap().epsilon_central_same_batch(), None),
            "present" | "moved" => (central::certify(&free).unwrap().epsilon, by_gaussians(&free)),
            "fair" => continue,
            kind => panic!("{kind}"),
        };
        let what = || {
            format!(
                "{} {:?} d={} k={}",
                case.kind, case.stages, case.dimension, case.participations
            )
        };
        assert!(certified >= case.exact, "{certified} below {}: {}", case.exact, what());
        if let Some(alone) = alone {
            assert!(alone >= case.exact, "gaussian {alone} below {}: {}", case.exact, what());
            compared.gaussians += 1;
        }
        if case.exact > 0.0 {
            compared.closest = compared.closest.min(certified / case.exact);
        }
        compared.cases += 1;
    }
    compared
}

#[test]
fn no_certificate_is_below_an_exact_value() {
    let all = Case::all();
    let (some, others) = thread::scope(|scope| {
        let some = scope.spawn(|| compare(all.iter().step_by(2)));
        (compare(all.iter().skip(1).step_by(2)), some.join().unwrap())
    });
    let compared = some.cases + others.cases;
    let gaussians = some.gaussians + others.gaussians;
    let closest = some.closest.min(others.closest);
    println!("{compared} cases, {gaussians} by Gaussians, smallest certified/exact {closest:.4}");
    assert!(compared >= 500 && gaussians >= 300 && closest < 1.1);
}

/// Pads of fair coins are covered by nothing when there are two bits: the exact epsilon is above
/// the certificate, which is about pads that the device's own encoder makes of x = 0.
#[test]
fn fair_coins_are_no_pads() {
    let cases = Case::all();
    let case = cases.iter().find(|case| case.kind == "fair").unwrap();
    let free = Setting { presence: Presence::Free, ..case.setting() };
    let certified = central::certify(&free).unwrap().epsilon;
    println!("certified {certified}, exact with fair coins {}", case.exact);
    assert!(case.exact > 1.3 * certified && certified > 4.0, "{certified}");
}

/// The table of the theory notes, section 3: what a prototype found, and exact lower bounds.
#[test]
fn as_sharp_as_promised() {
    for (d, m, c, l, delta, exact, promised) in [
        (9, 16, 0.5, 1000, 1e-6, 0.636, 0.672),
        (15, 64, 0.9, 10_000, 1e-6, 1.532, 1.596),
        (5, 16, 0.8, 3000, 1e-2, 0.276, 0.301),
        (5, 65, 0.3, 1000, 1e-6, 0.701, 0.718),
        (5, 1024, 0.115, 150, 1e-6, 2.969, 2.989),
        (5, 256, 0.5, 10_000, 1e-6, 0.8161, 0.8268),
    ] {
        let best = central::certify(&setting(d, m, c, l, delta)).unwrap();
        println!("d={d} m={m} c={c} l={l} delta={delta:e}: {:.4}", best.epsilon);
        assert_eq!(best.bound, BoundName::Gaussian);
        assert!(best.epsilon >= exact && best.epsilon <= 1.005 * promised, "{best:?}");
    }
}

/// The noise of a released sum at equal (epsilon, delta) is at most 1.08 times the variance of a
/// trusted server's Gaussian, 4.5/mu^2. All coins of a coordinate but one have a tilt of 1 or -1,
/// so that its variance is at most l(1 - c^2 (m-1)/m)/(m c^2), whatever people send.
#[test]
fn the_crowd_costs_little() {
    let m = 1024;
    for epsilon in [1.0, 3.0] {
        let mu = largest(|mu| gaussian::epsilon_upper(mu, 1e-6) <= epsilon, 4.0);
        for d in [5, 9, 15] {
            for l in [150, 1000, 10_000] {
                let fits = |c: f64| {
                    let found = central::approx_mu(&setting(d, m, c, l, 1e-6));
                    found.is_some_and(|found| found <= mu)
                };
                let c = largest(fits, 0.999);
                let certified = central::certify(&setting(d, m, c, l, 1e-6)).unwrap();
                assert!(certified.epsilon <= 1.002 * epsilon, "{certified:?}");
                let most = l as f64 / (f64::from(m) * c * c) * mu * mu / 4.5;
                let ratio = most * (1.0 - c * c * f64::from(m - 1) / f64::from(m));
                println!("d={d} epsilon={epsilon} l={l}: {ratio:.4}, by l/(m c^2) {most:.4}");
                assert!(ratio <= 1.08, "{d} {epsilon} {l}: {ratio}");
            }
        }
    }
}

/// The largest x below `most` that fits, to 1e-4.
fn largest(fits: impl Fn(f64) -> bool, most: f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    while high - low > 1e-4 * high {
        let middle = f64::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[test]
fn every_number_of_bits_and_reports_has_an_answer() {
    for (d, m, c, l) in [
        (1, 1, 0.5, 1),
        (1, 2, 0.01, 1),
        (2, 4095, 1e-3, 2),
        (5, 4095, 0.5, 1000),
        (10, 1, 0.5, 1_000_000_000),
        (3, 1, 1e-8, 10),
        (3, 3, 0.999_999_99, 100_000),
    ] {
        let setting = setting(d, m, c, l, 1e-6);
        let epsilon = central::certify(&setting).unwrap().epsilon;
        assert!(epsilon.is_finite() && epsilon >= 0.0, "{d} {m} {c} {l}: {epsilon}");
    }
    // A coin alone: two values of it are 0 and 1 with chances (1 -+ c)/2.
    let alone = setting(1, 1, 0.5, 1, 1e-6);
    let (mu, _) = central::mu_upper(&alone).unwrap();
    assert!((mu / (2.0 * 0.25 / 0.317_776_572) / 1.005 - 1.0).abs() < 1e-6, "{mu}");
}

/// Who is present costs nothing in mu, but twice the tails, and twice the local epsilon without a
/// crowd.
#[test]
fn presence_costs_tails() {
    for (d, k) in [(1, 1), (1, 3), (5, 1), (5, 3)] {
        let fixed = plain::setting((d, 64, 0.3), 500, 1.0, k, 1e-6).unwrap();
        let free = Setting { presence: Presence::Free, ..fixed };
        let (one, two) = (by_gaussians(&fixed).unwrap(), by_gaussians(&free).unwrap());
        assert!(two >= one && two <= 1.01 * one, "{one} {two}");
        let alone =
            |setting: Setting| central::certify(&Setting { others: 0, ..setting }).unwrap().epsilon;
        let small = |presence| {
            alone(Setting {
                presence,
                bits: incrowd_protocol::Bits::ONE,
                keep: incrowd_protocol::Keep::new(0.01).unwrap(),
                ..fixed
            })
        };
        let ratio = small(Presence::Free) / small(Presence::Fixed);
        assert!((1.0..=2.000_001).contains(&ratio), "{ratio}");
    }
}

/// mu adds up in squares over batches; in one batch it adds up.
#[test]
fn reports_add_up() {
    let of = |k| plain::setting((5, 64, 0.3), 1000, 1.0, k, 1e-6).unwrap();
    let mu = |k| central::mu_upper(&of(k)).unwrap().0;
    assert!((mu(4) / (2.0 * mu(1)) - 1.0).abs() < 2e-3);
    let case = Case {
        kind: String::new(),
        dimension: 5,
        stages: vec![(1000, 64, 0.3)],
        participations: 3,
        honest: 1.0,
        delta: 1e-6,
        exact: 0.0,
    };
    let same = certify(&case.mechanism()).unwrap().epsilon_central_same_batch();
    let wanted = gaussian::epsilon_upper(3.0 * mu(1), 1e-6);
    assert!((same / wanted - 1.0).abs() < 0.02, "{same} {wanted}");
    assert_eq!(of(1).participations, Participations::ONE);
}

/// The guess is within the cover's slack of the certificate, for any number of bits.
#[test]
fn the_guess_is_near_for_many_bits() {
    for (d, m, c, l) in [
        (5, 16, 0.5, 1000),
        (5, 256, 0.2, 1000),
        (9, 1024, 0.1, 150),
        (5, 4095, 0.05, 5000),
        (5, 1, 0.5, 10_000),
    ] {
        let setting = setting(d, m, c, l, 1e-6);
        let (guess, best) =
            (central::approx_epsilon(&setting), central::certify(&setting).unwrap());
        assert!((guess / best.epsilon - 1.0).abs() < 0.01, "{m}: {guess} {best:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A curve falls, passes through the certified point and is never below a larger bound's.
    #[test]
    fn a_curve_falls(c in 0.05..0.6f64, l in 50u32..600, m in 1u32..40, k in 1u32..3) {
        let case = Case {
            kind: String::new(), dimension: 2, stages: vec![(l, m, c)], participations: k,
            honest: 1.0, delta: 1e-6, exact: 0.0,
        };
        let certificate = certify(&case.mechanism()).unwrap();
        let epsilon = certificate.epsilon_central();
        prop_assert!(certificate.delta_upper(epsilon) <= 1e-6);
        let mut last = 1.0;
        for i in 0..40 {
            let delta = certificate.delta_upper(epsilon * f64::from(i) / 16.0);
            prop_assert!(delta <= last && delta >= 0.0, "{} {}", delta, last);
            last = delta;
        }
        let cap = certificate.epsilon_local() * f64::from(k) * (1.0 + 1e-6);
        prop_assert_eq!(certificate.delta_upper(cap).to_bits(), 0f64.to_bits());
    }
}
