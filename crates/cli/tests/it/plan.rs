//! `incrowd plan` as a person uses it: whole outputs, exit codes, files, and a prediction that the
//! demo confirms.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use incrowd_protocol::TaskConfig;
use serde_json::Value;

fn incrowd(command: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd")).args(command.split(' ')).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &str) -> Value {
    let output = incrowd(&format!("plan --output json {arguments}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value:#}"))
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn the_contract() {
    let value = json("--dimension 5 --horizon 100000 --central-epsilon 1 --delta 1e-6");
    assert!(number(&value, "epsilon_central") <= 1.0);
    assert!(number(&value, "epsilon_local") <= 8.0, "the default cap");
    assert!(number(&value, "predicted_regret") < 0.1 * number(&value, "random_regret"));
    assert_eq!(value["report_bytes"], 32);
    let schedule = value["schedule"].as_array().unwrap();
    let total: u64 = schedule
        .iter()
        .map(|stage| stage["rounds"].as_u64().unwrap() * stage["size"].as_u64().unwrap())
        .sum();
    assert_eq!(total, 100_000);
    assert_eq!(value["bits"], schedule[0]["bits"]);
    assert_eq!(value["flip_probability"], schedule[0]["flip_probability"]);
    for alternative in value["alternatives"].as_array().unwrap() {
        assert_eq!(alternative["certified"], false);
        assert!(number(alternative, "predicted_regret") > 0.0);
    }
    let local = json("--dimension 5 --horizon 100000 --local-epsilon 2");
    assert!(number(&local, "epsilon_local") <= 2.0 && number(&local, "epsilon_local") > 1.99);
    let both = json("--dimension 5 --horizon 100000 --local-epsilon 2 --central-epsilon 0.05");
    assert!(number(&both, "epsilon_local") <= 2.0 && number(&both, "epsilon_central") <= 0.05);
    let preset = json("--dimension 5 --horizon 100000 --preset paper-regret");
    assert!(number(&preset["paper"], "regret_theorem_2") > 0.0);
    assert!(preset["paper"]["warning"].as_str().unwrap().contains("not certified"));
}

#[test]
fn a_whole_text() {
    let output = incrowd(
        "plan --dimension 5 --users-per-day 10000 --days 10 --central-epsilon 1 --batch-size 400",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = text(&output.stdout);
    let (head, rest) =
        text.split_once("\nThe price of each choice (searched, not certified)\n").unwrap();
    let expected = "\
Plan for 100000 people, 5 features

  rounds    reports  bits  flip probability  local epsilon  central epsilon
     250        400     1          0.193690         8.0000           0.8373

bytes in a report               32
predicted regret              2677  (7.3% of random choices; a rank, not a promise)
  random choices             36488
days to fill a batch         0.040  (the largest: 0.040)
reports too late              4.6%  (at most)
";
    assert_eq!(head, expected);
    assert!(
        rest.contains("\nNotes\n  - the local epsilon was capped at the default of 8;"),
        "{rest}"
    );
    assert!(rest.contains("\nThis holds if\n"));
}

#[test]
fn unlimited_says_what_it_means() {
    let value = json(
        "--dimension 2 --horizon 20000 --central-epsilon 1 --local-epsilon unlimited --bits 2",
    );
    assert_eq!(value["epsilon_local_limit"], Value::Null);
    let notes = value["notes"].to_string();
    assert!(notes.contains("all protection then comes from a shuffler"), "{notes}");
}

#[test]
fn the_task_file_is_what_was_certified() {
    let path = scratch("planned.toml");
    let value = json(&format!(
        "--dimension 3 --horizon 20000 --central-epsilon 0.5 --task-file {}",
        path.display()
    ));
    let task: TaskConfig = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value["certificate"]["mechanism"], task.mechanism().hash().to_string());
    let output = incrowd(&format!("certify --output json --task-file {}", path.display()));
    let certified: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(certified["epsilon_central"], value["epsilon_central"]);
    assert_eq!(certified["epsilon_local"], value["epsilon_local"]);
}

#[test]
fn the_figure_has_axes_units_and_a_legend() {
    let name = scratch("figure");
    json(&format!("--dimension 2 --horizon 20000 --central-epsilon 0.5 --plot {}", name.display()));
    let svg = fs::read_to_string(name.with_extension("svg")).unwrap();
    for word in [
        "batch size (reports)",
        "central epsilon (nats",
        "certified, local epsilon 8",
        "paper (Prop. 3), local epsilon 1",
        "dimension 2",
    ] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_rule() {
    for (arguments, message) in [
        ("--dimension 0 --horizon 1000", "dimension is 0, must be from 1 to 1000"),
        ("--dimension 5 --horizon 0", "horizon is 0, must be from 1"),
        ("--dimension 5", "the number of people is missing"),
        (
            "--dimension 5 --horizon 1000 --central-epsilon -1",
            "central epsilon is -1, must be above 0",
        ),
        (
            "--dimension 5 --horizon 1000 --central-epsilon nan",
            "central epsilon is NaN, must be above 0",
        ),
        ("--dimension 5 --horizon 1000 --local-epsilon 0", "local epsilon is 0, must be above 0"),
        (
            "--dimension 5 --horizon 1000 --local-epsilon none",
            "must be a number above 0 or 'unlimited'",
        ),
        ("--dimension 5 --horizon 1000 --local-epsilon unlimited", "there is no privacy limit"),
        ("--dimension 5 --horizon 1000 --delta 0", "delta is 0, must be above 0 and below 1"),
        ("--dimension 5 --horizon 1000 --honest 0", "honest fraction is 0, must be above 0"),
        ("--dimension 5 --horizon 1000 --batch-size 0", "batch size is 0, must be at least 1"),
        (
            "--dimension 5 --horizon 1000 --participations 0",
            "participations is 0, must be at least 1",
        ),
        (
            "--dimension 5 --horizon 1000 --latency-days 2",
            "a latency limit needs the number of users per day",
        ),
        (
            "--dimension 5 --users-per-day 10 --days 100 --latency-days 2",
            "allows at most 20 reports in a batch",
        ),
        (
            "--dimension 5 --horizon 100000 --central-epsilon 1 --preset paper-regret",
            "Cor. 2 does not hold here",
        ),
        (
            "--dimension 5 --horizon 1000 --preset paper-ldp",
            "preset paper-ldp needs a local epsilon",
        ),
    ] {
        let output = incrowd(&format!("plan --output json {arguments}"));
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {talk}");
        assert!(talk.contains(message) && !talk.contains("panicked"), "{arguments}: {talk}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn a_preset_keeps_to_the_cap_on_the_local_epsilon() {
    let base = [
        "plan",
        "--dimension",
        "20",
        "--horizon",
        "100000",
        "--preset",
        "weaker-adversary",
        "--central-epsilon",
        "0.013",
    ];
    let run = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_incrowd")).args(base).args(more).output().unwrap()
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("above the cap of 8"));
    assert_eq!(run(&["--local-epsilon", "unlimited"]).status.code(), Some(0));
}
