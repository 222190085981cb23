//! Codebook reports from outside: what is certified falls and grows as it must, composes with other
//! laws and says what it needs. `src/codebook/tests.rs` compares with exact values.

use incrowd_privacy::{
    Bound, BoundName, Certificate, Trust,
    central::{Presence, StageSetting},
    certify,
    codebook::{ApproxLaw, CodebookSetting, approx_epsilon, largest_inside, local_epsilon},
};
use incrowd_protocol::{
    Closes, CodebookLaw, Delta, Dimension, FlipProbability, Law, Layout, MechanismConfig,
    OutsideProbability, Participations, Stage,
};

fn law(words: u32, chosen: u32, epsilon: f64) -> CodebookLaw {
    let inside = largest_inside(words, chosen, epsilon);
    let outside = OutsideProbability::from_keep(inside).unwrap();
    CodebookLaw { words, chosen, outside, moment_weight: 128 }
}

fn setting(law: CodebookLaw, size: u64, k: u32) -> CodebookSetting {
    CodebookSetting {
        blocks: Dimension::new(10).unwrap().into(),
        law,
        others: size - 1,
        participations: Participations::new(k).unwrap(),
        delta: Delta::new(1e-6).unwrap(),
        presence: Presence::Fixed,
    }
}

fn central(setting: CodebookSetting) -> Bound {
    StageSetting::Codebook(setting).certify().unwrap()
}

fn epsilon(setting: CodebookSetting) -> f64 {
    central(setting).epsilon
}

fn named(setting: CodebookSetting, name: BoundName) -> f64 {
    let bounds = StageSetting::Codebook(setting).bounds().unwrap();
    let named = bounds.iter().filter(|bound| bound.bound == name);
    named.map(|bound| bound.epsilon).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_local_epsilon_is_the_ratio_and_never_below_it() {
    for (words, chosen, o, of) in
        [(256, 17, 1, 5), (2, 1, 1, 3), (64, 32, 499, 1000), (256, 1, 7, 90)]
    {
        let outside = OutsideProbability::new(o, of).unwrap();
        let found = local_epsilon(words, chosen, outside);
        let ratio = f64::from((of - o) * (words - chosen)) / f64::from(o * chosen);
        assert!(found >= ratio.ln() && found <= ratio.ln() * (1.0 + 1e-8), "{found} {ratio}");
    }
    // As likely as all others: nothing is told.
    let same = OutsideProbability::new(3, 4).unwrap();
    assert!(local_epsilon(8, 2, same).abs() < f64::MIN_POSITIVE);
    for epsilon in [0.1, 1.0, 4.0, 8.0] {
        for (words, chosen) in [(2, 1), (64, 7), (256, 128)] {
            let law = law(words, chosen, epsilon);
            let found = local_epsilon(words, chosen, law.outside);
            assert!(found <= epsilon && found > epsilon - 1e-4, "{words} {chosen}: {found}");
        }
    }
}

#[test]
fn it_falls_with_the_batch_and_with_noise_and_grows_with_participations() {
    for name in [BoundName::CodebookBlanket, BoundName::CodebookSum] {
        let mut last = f64::INFINITY;
        for size in [300, 301, 500, 1000, 4000, 20_000] {
            let found = named(setting(law(256, 17, 4.0), size, 1), name);
            assert!(found < last, "{name:?} {size}: {found} {last}");
            last = found;
        }
        last = 0.0;
        for local in [1.0, 2.0, 3.0, 4.0, 6.0] {
            let found = named(setting(law(256, 17, local), 3000, 1), name);
            assert!(found > last, "{name:?} {local}: {found} {last}");
            last = found;
        }
        last = 0.0;
        for k in [1, 2, 3, 6] {
            let found = named(setting(law(256, 17, 3.0), 3000, k), name);
            assert!(found > last, "{name:?} {k}: {found} {last}");
            last = found;
        }
    }
}

#[test]
fn moments_that_weigh_more_are_farther_apart() {
    let at = |moment_weight| {
        let law = CodebookLaw { moment_weight, ..law(256, 17, 4.0) };
        named(setting(law, 3000, 1), BoundName::CodebookSum)
    };
    // 2 + 2 kappa is 2.25 at w = 1/2, 2 at w = 0 and 4 at w = 1; epsilon is about its root.
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.03;
    assert!(near(at(128) / at(1), (2.25f64 / 2.0).sqrt()), "{} {}", at(128), at(1));
    assert!(near(at(255) / at(128), (3.98f64 / 2.25).sqrt()), "{} {}", at(255), at(128));
}

#[test]
fn alone_there_is_the_local_guarantee_and_with_nothing_to_tell_zero() {
    let alone = central(setting(law(256, 17, 4.0), 1, 1));
    assert_eq!(alone.bound, BoundName::Local);
    assert!((alone.epsilon - 4.0).abs() < 1e-6);
    let outside = OutsideProbability::new(3, 4).unwrap();
    let nothing = CodebookLaw { words: 8, chosen: 2, outside, moment_weight: 128 };
    for size in [1, 2, 1000] {
        assert!(epsilon(setting(nothing, size, 3)) < f64::MIN_POSITIVE);
    }
    // Half of all words, and few of them.
    for (words, chosen) in [(2, 1), (256, 128), (3, 1)] {
        let found = epsilon(setting(law(words, chosen, 1.0), 2000, 1));
        assert!(found > 0.0 && found < 0.2, "{words} {chosen}: {found}");
    }
}

#[test]
fn free_presence_costs_little() {
    for (local, chosen) in [(2.0, 59), (4.0, 17)] {
        for k in [1, 2] {
            let fixed = setting(law(256, chosen, local), 2000, k);
            let free = CodebookSetting { presence: Presence::Free, ..fixed };
            for name in [BoundName::CodebookBlanket, BoundName::CodebookSum] {
                let (fixed, free) = (named(fixed, name), named(free, name));
                // Searches stop within a share of 1e-6.
                let range = fixed * (1.0 - 1e-5)..fixed * 1.1;
                assert!(range.contains(&free), "{name:?} {local} {k}: {fixed} {free}");
            }
        }
    }
}

#[test]
fn guesses_are_near() {
    for (local, words, chosen) in [(1.0, 64, 24), (2.0, 256, 59), (4.0, 256, 17), (5.3, 256, 7)] {
        for size in [1000, 5000, 30_000] {
            for k in [1, 4] {
                let setting = setting(law(words, chosen, local), size, k);
                let inside = setting.law.outside.keep();
                let law = ApproxLaw { words, chosen, inside, moment_weight: 0.5 };
                let (k, delta) = (setting.participations, setting.delta);
                let guess = approx_epsilon(law, setting.others, k, delta, setting.presence);
                let found = epsilon(setting);
                assert!(
                    (guess / found - 1.0).abs() < 0.02,
                    "{local} {size} {k:?}: {guess} {found}"
                );
            }
        }
    }
}

fn bits(bits: u32, keep: f64) -> Law {
    Law::bits(bits, FlipProbability::from_keep(keep).unwrap())
}

fn certified(stages: &[(u32, Law)], k: u32, closes: Closes) -> Certificate {
    let window = match closes {
        Closes::Count { .. } => None,
        Closes::Time { .. } => Some(60_000),
    };
    let stage = |&(size, law)| Stage { rounds: 3, size, window, law };
    let config = MechanismConfig {
        dimension: 3,
        context_bound: 1.0,
        layout: Layout::Shared,
        schedule: stages.iter().map(stage).collect(),
        closes,
        central_delta: 1e-6,
        participations: k,
        honest_fraction: 1.0,
    };
    certify(&config.check().unwrap()).unwrap()
}

const COUNT: Closes = Closes::Count { grace: 0 };
const TIME: Closes = Closes::Time { opens: 0 };

#[test]
fn a_certificate_has_the_law_and_says_when_words_must_be_random() {
    let needs = |certificate: &Certificate| certificate.trust().contains(&Trust::WordsAreRandom);
    let codebook = Law::Codebook(law(256, 17, 4.0));
    let sum = certified(&[(2000, codebook)], 1, COUNT);
    assert_eq!(sum.epsilon_central_bound(), BoundName::CodebookSum);
    assert_eq!(sum.epsilon_local_bound(), BoundName::CodebookRatio);
    assert!(needs(&sum) && sum.to_string().contains("as good as random ones"));
    let json = serde_json::to_value(&sum).unwrap();
    let round = &json["rounds"][0];
    assert_eq!(round["encoding"], "codebook");
    assert_eq!((&round["words"], &round["chosen"]), (&256.into(), &17.into()));
    assert_eq!(round["moment_weight"], 128);
    assert!(round["outside_probability"].as_f64().unwrap() > 0.1 && round.get("bits").is_none());
    assert!(json["trust"].as_array().unwrap().iter().any(|name| name == "words-are-random"));
    // Too few blind words for the sum: the blanket needs nothing but blind reports.
    let blanket = certified(&[(20, Law::Codebook(law(16, 3, 1.0)))], 1, COUNT);
    assert_eq!(blanket.epsilon_central_bound(), BoundName::CodebookBlanket);
    assert!(!needs(&blanket));
    // Words in place of missing reports.
    assert!(needs(&certified(&[(20, Law::Codebook(law(16, 3, 1.0)))], 1, TIME)));
    let other = certified(&[(2000, bits(1, 0.3))], 1, COUNT);
    assert!(!needs(&other));
    let json = serde_json::to_value(&other).unwrap();
    assert_eq!(
        (&json["rounds"][0]["encoding"], &json["rounds"][0]["bits"]),
        (&"bits".into(), &1.into())
    );
}

#[test]
fn stages_of_different_laws_compose() {
    let codebook = Law::Codebook(law(256, 40, 2.5));
    for closes in [COUNT, TIME] {
        for (k, most) in [(1, 1.15), (2, 1.15), (3, 1.15)] {
            let stages = [(1000, codebook), (1500, bits(1, 0.3)), (3000, codebook)];
            let both = certified(&stages, k, closes);
            let alone: Vec<f64> = stages
                .iter()
                .map(|stage| certified(&[*stage], k, closes).epsilon_central())
                .collect();
            let largest = alone.iter().copied().fold(0.0, f64::max);
            let found = both.epsilon_central();
            assert!(found >= largest * (1.0 - 1e-3), "{k} {closes:?}: {found} {alone:?}");
            assert!(found <= most * largest, "{k} {closes:?}: {found} {alone:?}");
            assert!(both.epsilon_central_same_batch() >= found);
            if k == 1 && closes == COUNT {
                assert!(found <= largest);
            }
        }
    }
}

#[test]
fn the_curve_falls_and_holds_the_certificate() {
    for (k, closes) in [(1, COUNT), (1, TIME), (2, COUNT)] {
        for local in [1.0, 4.0] {
            let certificate = certified(&[(1000, Law::Codebook(law(256, 30, local)))], k, closes);
            let central = certificate.epsilon_central();
            assert!(certificate.delta_upper(central * (1.0 + 1e-9)) <= 1e-6);
            let mut last = 1.0;
            for i in 0..40 {
                let delta = certificate.delta_upper(f64::from(i) * central / 20.0);
                assert!(delta <= last * (1.0 + 1e-12), "{k} {closes:?} {local} {i}");
                last = delta;
            }
            assert!(last < 1e-7, "{last}");
            assert!(certificate.delta_upper(100.0) == 0.0);
        }
    }
}
