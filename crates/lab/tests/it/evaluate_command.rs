//! `incrowd-lab evaluate` as a person uses it: the table, the JSON, a published model, refusals.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::{Value, json};

fn evaluate(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incrowd-lab"));
    command.arg("evaluate").args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file of this name.
fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

const LOG: &str = "action,reward,pscore,age\n0,1,0.5,30\n1,0,0.25,40\n0,0,0.5,50\n1,1,0.5,60\n";

#[test]
fn people_get_a_table_and_warnings() {
    let log = file("evaluate-table.csv", LOG);
    let output = evaluate(&format!("--log {log} --policy uniform --folds 2"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
4 events, 2 actions
policy: uniform

mean reward           value   standard error   95 % interval
of the log         0.500000         0.288675   -0.065793 to 1.065793
ips                0.500000         0.288675   -0.065793 to 1.065793
snips              0.400000         0.284722   -0.158045 to 0.958045
dr                 0.299641         0.415803   -0.515318 to 1.114600
(value +- 1.96 standard errors: for independent events, right probabilities, many events)

weights: mean 1.2500 +- 0.2500 (should be 1), largest 2.0000, none cut
effective sample size: 3.6 of 4 events
choices that the log cannot show: 0.00 %
";
    assert_eq!(text(&output.stdout), expected);
    let warning =
        "warning: the effective sample size is 3.6, below 100: do not trust the intervals\n";
    assert_eq!(text(&output.stderr), warning);
}

#[test]
fn json_has_everything() {
    let log = file("evaluate-json.csv", LOG);
    let output = evaluate(&format!(
        "--log {log} --policy always:2 --actions 2 --folds 2 --clip 10 --output json"
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["log"]["format"], "csv");
    assert_eq!((&found["log"]["events"], &found["log"]["actions"]), (&json!(4), &json!(3)));
    assert_eq!(found["log"]["reward"]["value"], 0.5);
    assert_eq!(found["estimates"], json!({ "ips": null, "snips": null, "dr": null }));
    assert_eq!(found["coverage"]["uncovered_share"], 1.0);
    assert_eq!(found["coverage"]["uncovered_actions"], json!([{ "action": "2", "share": 1.0 }]));
    assert_eq!((&found["clip"], &found["folds"]), (&json!(10.0), &json!(2)));
    assert_eq!(found["warnings"].as_array().unwrap().len(), 2);
}

const MAP: &str = "\
context_bound = 1.0
context = [{ name = 'age', kind = 'number', min = 0, max = 50 }]
action = [{ name = 'action', kind = 'category', values = ['0', '1'] }]
";

/// Features (age, is 0, is 1)/sqrt 2. The means prefer action 0, the widths action 1.
fn model() -> Value {
    json!({
        "mechanism": "00".repeat(32),
        "version": "1",
        "round": 1,
        "theta": [0.0, 0.2, 0.1],
        "width_factor": [1.0, 0.0, 0.1, 0.0, 0.0, 1.0],
        "confidence_width": 1.0,
    })
}

#[test]
fn a_published_model_chooses_with_its_feature_map() {
    let log = file("evaluate-model.csv", LOG);
    let map = file("evaluate-map.toml", MAP);
    let plain = file("evaluate-model.json", &model().to_string());
    let signed = json!({ "body": model().to_string(), "signature": "00" });
    let signed = file("evaluate-signed.json", &signed.to_string());
    let run = |model: &str, more: &str| -> Value {
        let output = evaluate(&format!(
            "--log {log} --model {model} --features {map} --folds 2 --output json {more}"
        ));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let named = |policy: &str| -> Value {
        let output = evaluate(&format!("--log {log} --policy {policy} --folds 2 --output json"));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let bound = run(&plain, "");
    assert_eq!(bound["estimates"], named("always:1")["estimates"]);
    assert_eq!(run(&signed, "")["estimates"], bound["estimates"]);
    assert_eq!(run(&plain, "--greedy")["estimates"], named("always:0")["estimates"]);
    // One person is older than the map allows.
    assert_eq!(bound["field_problems"], json!({ "field \"age\" was clipped to its range": 1 }));
    // Equals are drawn by lot, as a device does.
    let mut equal = model();
    equal["theta"] = json!([0.0, 0.1, 0.1]);
    let equal = file("evaluate-equal.json", &equal.to_string());
    assert_eq!(run(&equal, "--greedy")["estimates"], named("uniform")["estimates"]);
}

#[test]
fn refusals_name_the_rule() {
    let log = file("evaluate-refused.csv", LOG);
    let map = file("evaluate-refused.toml", MAP);
    let wide = file("evaluate-wide.toml", &MAP.replace("'0', '1'", "'0', '1', '2'"));
    let other = file("evaluate-other.toml", &MAP.replace("'age'", "'height'"));
    let broken = file("evaluate-broken.toml", "context_bound = 0\n");
    let model = file("evaluate-refused.json", &model().to_string());
    for (arguments, expected) in [
        (format!("--log {log}"), "required arguments were not provided"),
        (format!("--log {log} --policy uniform --model {model}"), "cannot be used with"),
        (format!("--log {log} --model {model}"), "--features"),
        (format!("--log {log} --policy uniform --greedy"), "--model"),
        (format!("--log {log}.gone --policy uniform"), "gone: found no such file, expected a log"),
        (format!("--log {log} --policy best"), "policy is \"best\", must be uniform"),
        (format!("--log {log} --policy uniform --format dsjson"), "line 1: found no JSON object"),
        (
            format!("--log {log} --model {model} --features {wide}"),
            "the model has 3 features and the feature map 4, must be the same number",
        ),
        (
            format!("--log {log} --model {model} --features {other} --folds 2"),
            "the context field \"height\": found no such field in the log, expected one of \"age\"",
        ),
        (format!("--log {log} --model {model} --features {broken}"), "context_bound is 0"),
        (
            format!("--log {log} --model {map} --features {map}"),
            "expected a published model (JSON)",
        ),
        (format!("--log {log} --model {model} --features {model}x"), "expected a feature map"),
        (format!("--log {log} --model {model} --features {log}"), "found another extension"),
    ] {
        let output = evaluate(&arguments);
        let found = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {found}");
        assert!(found.contains(expected), "{arguments}: {found}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_says_when_not_to_use_it() {
    let help = text(&evaluate("--help").stdout);
    for expected in
        ["public, simulated, or given by people", "always:ACTION", "Examples:", "--clip"]
    {
        assert!(help.contains(expected), "{help}");
    }
}
