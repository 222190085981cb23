//! The command line as a person uses it: whole outputs, exit codes, errors that name the rule.

use std::process::{Command, Output};

fn incrowd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_demo_learns_and_prints_a_table() {
    let output = incrowd(&["demo", "--users", "300000", "--in-process"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
seed                             1
people                      300000
batches released              3000
models published                54
average reward              0.8451
  random arm                0.4999
  best arm                  0.8647
regret                        5899
  random arm                109452
  share of it                 5.4%
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn the_services_give_what_the_library_gives() {
    let over_http = incrowd(&["demo", "--users", "10000"]);
    let in_process = incrowd(&["demo", "--users", "10000", "--in-process"]);
    assert!(text(&in_process.stdout).contains("batches released               100"));
    assert_eq!(text(&over_http.stdout), text(&in_process.stdout), "{}", text(&over_http.stderr));
    assert_eq!(over_http.status, in_process.status);
}

#[test]
fn json_is_one_object_on_stdout() {
    let output = incrowd(&["demo", "--users", "300000", "--in-process", "--output", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["users"], 300_000);
    assert!(value["regret_share"].as_f64().unwrap() < 0.15);
}

#[test]
fn too_few_people_are_exit_code_1() {
    let output = incrowd(&["demo", "--users", "1000"]);
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
        (&["--users", "99"], "users is 99, must be at least one batch of 100"),
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
