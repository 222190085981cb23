//! The command line as a person uses it: whole outputs, exit codes, errors that name the rule.

use std::process::{Command, Output};

fn incrowd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The coins come from the operating system, so this can fail by chance. Over 400 seeds of
/// `incrowd-lab demo --keep 0.332`, which has the noise that rounds half full of pads have, the
/// share was 0.7% to 2.2%, its logarithm 11 standard deviations below the limit: if it is normal, a
/// false alarm has a probability below 1e-20.
#[test]
fn the_demo_learns_over_http() {
    let output = incrowd(&["demo", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["users"], 200_000);
    // At most 1000 people come in a round; a slow machine gets fewer into each.
    assert!(value["batches"].as_u64().unwrap() >= 199, "{value}");
    assert!(value["regret_share"].as_f64().unwrap() < 0.15);
    assert!(text(&output.stderr).contains("/200000 people, regret"));
}

#[test]
fn two_runs_have_different_coins_for_the_same_people() {
    let run = || {
        let output = incrowd(&["demo", "--users", "5000", "--output", "json"]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (one, two) = (run(), run());
    assert_eq!(one["regret_random"], two["regret_random"]);
    assert_ne!(one["regret"], two["regret"]);
}

#[test]
fn too_few_people_are_exit_code_1() {
    let output = incrowd(&["demo", "--users", "1000", "--batch-size", "100", "--bits", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("above 15% of a random choice's"));
    assert!(text(&output.stdout).contains("people                        1000"));
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_rule() {
    for (arguments, message) in [
        (&["--keep", "1"][..], "keep is 1, must be above 1e-9 and below 1"),
        (&["--keep", "nan"], "keep is NaN, must be"),
        (&["--bits", "0"], "bits is 0, must be from 1 to 4095"),
        (&["--batch-size", "0"], "size is 0, must be from 1"),
        (&["--users", "99"], "users is 99, must be at least one batch of 1000"),
        (&["--dimension", "1"], "dimension is 1, must be from 2 to 1000"),
        (&["--arms", "0"], "arms is 0, must be from 2"),
        (&["--sampled", "-1"], "scale is -1, must be from 0 to 100"),
        (&["--users", "-1"], "invalid value '-1'"),
        (&["--colour", "red"], "unexpected argument '--colour'"),
    ] {
        let output = incrowd(&[&["demo"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
