//! Golden vectors of `vectors/v1`: models from sums, in all confidence modes.

use std::sync::Arc;

use incrowd_bandit::{Bandit, BanditError};
use incrowd_protocol::{Learner, Mechanism, Model, Policy, ProtocolError, Release, TaskConfig};
use serde_json::Value;

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn cases() -> Vec<Value> {
    cases_of("models")
}

fn cases_of(file: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/v1/{file}.json", env!("CARGO_MANIFEST_DIR"));
    read(&serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap()["cases"])
}

fn bandit(case: &Value) -> Bandit {
    let (mechanism, learner): (Mechanism, Learner) =
        (read(&case["mechanism"]), read(&case["learner"]));
    Bandit::new(Arc::new(TaskConfig::new(mechanism, learner, Policy::default()).unwrap()))
}

/// Every entry within 1e-10 of the largest one.
fn assert_close(found: &[f64], wanted: &[f64], what: &str) {
    let scale = wanted.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() <= 1e-10 * scale, "{what}: {f} instead of {w}");
    }
}

#[test]
fn sums_give_the_models_as_written() {
    let (mut releases, mut of_words) = (0, 0);
    for case in cases().iter().filter(|case| case["error"].is_null()) {
        let mut bandit = bandit(case);
        for (j, sums) in case["sums"].as_array().unwrap().iter().enumerate() {
            let name = format!("{} release {}", case["name"], j + 1);
            let model = bandit.absorb(read::<Release>(sums).sums()).unwrap();
            let wanted: Option<Model> = read(&case["models"][j]);
            match (&model, &wanted) {
                (None, None) => {}
                (Some(model), Some(wanted)) => {
                    assert_eq!(
                        (model.version(), model.round()),
                        (wanted.version(), wanted.round())
                    );
                    assert_close(model.theta(), wanted.theta(), &name);
                    assert_close(model.width_factor(), wanted.width_factor(), &name);
                    assert_close(&[model.confidence_width()], &[wanted.confidence_width()], &name);
                }
                _ => panic!("{name}: {model:?} instead of {wanted:?}"),
            }
            let ellipsoid = bandit.estimate().unwrap().ellipsoid;
            for (found, key) in [
                (Some(ellipsoid.gram_noise), "nu"),
                (ellipsoid.moment_noise, "eta"),
                (Some(ellipsoid.floor), "z"),
                (Some(ellipsoid.ridge), "lambda"),
                (Some(ellipsoid.ridge_shift), "ridge_shift"),
                (Some(ellipsoid.log_det), "log_det"),
                (Some(ellipsoid.smallest_eigenvalue), "smallest_eigenvalue"),
                (Some(ellipsoid.confidence_width), "beta"),
            ] {
                let wanted: Option<f64> = read(&case["diagnostics"][j][key]);
                assert_eq!(found.is_some(), wanted.is_some(), "{name}: {key}");
                assert_close(found.as_slice(), wanted.as_slice(), &format!("{name}: {key}"));
            }
            releases += 1;
            let round = read::<Release>(sums).sums().round();
            let mechanism: Mechanism = read(&case["mechanism"]);
            of_words += u32::from(mechanism.round(round).unwrap().law.as_bits().is_none());
        }
    }
    assert!(releases >= 100 && of_words >= 30, "{releases} releases, {of_words} of words");
}

#[test]
fn bad_sums_are_refused_and_change_nothing() {
    for case in cases().iter().filter(|case| !case["error"].is_null()) {
        let mut bandit = bandit(case);
        for sums in case["sums"].as_array().unwrap() {
            bandit.absorb(read::<Release>(sums).sums()).unwrap();
        }
        let before = bandit.statistics().clone();
        let rule = match serde_json::from_value::<Release>(case["sums_bad"].clone()) {
            Err(error) if error.to_string().starts_with("integer") => "integer",
            Err(error) if error.to_string().contains("previous") => "previous",
            Err(error) => panic!("{}: {error}", case["name"]),
            Ok(sums) => match bandit.absorb(sums.sums()).unwrap_err() {
                BanditError::Protocol(ProtocolError::Task) => "mechanism",
                BanditError::Protocol(ProtocolError::Round { .. }) | BanditError::Order { .. } => {
                    "round"
                }
                BanditError::Protocol(ProtocolError::ReleaseSize { .. }) => "size",
                BanditError::Protocol(ProtocolError::Length { .. }) => "length",
                BanditError::Protocol(ProtocolError::Range { .. }) => "range",
                other => panic!("{}: {other}", case["name"]),
            },
        };
        assert_eq!(rule, case["error"], "{}", case["name"]);
        assert_eq!(*bandit.statistics(), before, "{}", case["name"]);
    }
}

/// Models with slots, priors and discounts.
#[test]
fn sums_and_assignments_give_the_models_with_slots_as_written() {
    let mut steps = 0;
    for case in cases_of("layout_models") {
        let task: TaskConfig = read(&case["task"]);
        let mut bandit = Bandit::new(Arc::new(task));
        assert_alike(bandit.start().as_ref(), &case["start"], &format!("{} start", case["name"]));
        for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let model = match step["assign"].as_array() {
                Some(actions) => bandit.assign(read(&Value::from(actions.clone()))).unwrap(),
                None => bandit.absorb(read::<Release>(&step["release"]).sums()).unwrap(),
            };
            let name = format!("{} step {number}", case["name"]);
            assert_alike(model.as_ref(), &case["models"][number], &name);
            steps += 1;
        }
    }
    assert!(steps > 90, "{steps} steps");
}

fn assert_alike(model: Option<&Model>, wanted: &Value, name: &str) {
    let wanted: Option<Model> = read(wanted);
    let (Some(model), Some(wanted)) = (model, &wanted) else {
        assert_eq!(model, wanted.as_ref(), "{name}");
        return;
    };
    assert_eq!((model.version(), model.round()), (wanted.version(), wanted.round()), "{name}");
    assert_eq!(model.mechanism(), wanted.mechanism());
    assert_close(model.theta(), wanted.theta(), &format!("{name}: theta"));
    assert_close(model.width_factor(), wanted.width_factor(), &format!("{name}: factor"));
    assert_close(&[model.confidence_width()], &[wanted.confidence_width()], name);
    assert_eq!(model.slots().len(), wanted.slots().len(), "{name}");
    for (i, (found, wanted)) in model.slots().iter().zip(wanted.slots()).enumerate() {
        let name = format!("{name}: slot {i}");
        assert_eq!(found.action, wanted.action, "{name}");
        assert_close(&found.theta, &wanted.theta, &format!("{name}: theta"));
        assert_close(&found.width_factor, &wanted.width_factor, &format!("{name}: factor"));
        assert_close(&found.cross_factor, &wanted.cross_factor, &format!("{name}: cross"));
        let widths = [found.confidence_width, wanted.confidence_width];
        assert_close(&widths[..1], &widths[1..], &format!("{name}: width"));
    }
}
