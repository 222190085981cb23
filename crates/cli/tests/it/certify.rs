//! `incrowd certify` as a person uses it: whole outputs, exit codes, errors that name the rule.

use std::process::{Command, Output};

use serde_json::Value;

fn incrowd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &str) -> Value {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = incrowd(&[&["certify", "--output", "json"], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value:#}"))
}

const EXAMPLE: &str = "--dimension 5 --bits 1 --keep 0.5 --batch-size 300 --delta 1e-6";

const CURVE: &str = "     epsilon      delta
      0.0000    6.86e-2
      0.1774    1.48e-2
      0.3548    1.47e-3
      0.5322    6.13e-5
      0.7096    1.00e-6
      0.8870    6.63e-9
      1.0643   1.55e-11
      1.4191   1.01e-13
";

#[test]
fn the_contract() {
    let value = json(EXAMPLE);
    assert!((0.30..=0.34).contains(&number(&value, "epsilon_central")), "{value:#}");
    assert_eq!(value["epsilon_central_bound"], "renyi-worst-others");
    assert!((4.0..4.4).contains(&number(&value, "epsilon_local")));
    assert_eq!(value["epsilon_local_bound"], "l1-diameter-refined");
    assert_eq!(value["delta"], 1e-6);
    assert_eq!(value["alternatives"], Value::Null);
    assert_eq!(json("--dimension 5 --flip 0.5 --batch-size 300"), value);
    assert_eq!(json("--dimension 5 --schedule 1x300x1x0.5"), value);
}

#[test]
fn all_bounds_are_listed_and_none_certified_is_below_the_winner() {
    let value = json(&format!("{EXAMPLE} --all"));
    let all = value["alternatives"].as_array().unwrap();
    let named = |name: &str| {
        let found = all.iter().find(|bound| bound["bound"] == name);
        number(found.unwrap_or_else(|| panic!("{name}")), "epsilon")
    };
    let smallest = number(&value, "epsilon_central");
    for name in ["local", "clones", "renyi-blanket"] {
        assert!(named(name) > smallest, "{name}");
    }
    assert!((named("renyi-worst-others") / smallest - 1.0).abs() < 1e-9);
    let blanket = json(&format!("{EXAMPLE} --bound renyi-blanket"));
    assert!((number(&blanket, "epsilon_central") / named("renyi-blanket") - 1.0).abs() < 1e-9);
}

/// Theory notes, section 3.
#[test]
fn clones_for_any_local_level() {
    let value = json("--local-epsilon 4 --batch-size 10000 --delta 1e-6 --bound clones");
    let epsilon = number(&value, "epsilon_central");
    assert!((0.600_909..=0.600_909 * 1.001).contains(&epsilon), "{epsilon}");
    assert_eq!(value["epsilon_central_bound"], "clones");
    assert_eq!(value["epsilon_local"], 4.0);
}

#[test]
fn more_participation_or_fewer_honest_people_is_less_private() {
    let base = number(&json(EXAMPLE), "epsilon_central");
    assert!(number(&json(&format!("{EXAMPLE} --participations 3")), "epsilon_central") > base);
    assert!(number(&json(&format!("{EXAMPLE} --honest 0.5")), "epsilon_central") > base);
    let growing = json("--dimension 5 --schedule 4x300x1x0.5,2x1000x1x0.6");
    let ratio = number(&growing, "epsilon_central") / base;
    assert!((ratio - 1.0).abs() < 1e-9, "the worst stage counts: {ratio}");
    assert_eq!(growing["rounds"].as_array().unwrap().len(), 2);
}

#[test]
fn one_report_alone_has_the_local_level() {
    let value = json("--dimension 2 --keep 0.3 --batch-size 1");
    let ratio = number(&value, "epsilon_central") / number(&value, "epsilon_local");
    assert!((1.0..1.0 + 1e-8).contains(&ratio), "{ratio}");
    assert_eq!(value["epsilon_central_bound"], "local");
}

#[test]
fn people_get_words() {
    let output = incrowd(&["certify", "--dimension", "2", "--keep", "0.3", "--batch-size", "1"]);
    let text = text(&output.stdout);
    assert!(
        text.contains("(a) whoever reads the wire") && text.contains("This holds if"),
        "{text}"
    );
}

/// delta falls with epsilon, is the certified one at the certified epsilon, and the text has the
/// numbers of the JSON, rounded up.
#[test]
fn a_curve_is_printed_as_a_table_and_as_json() {
    let arguments = "--dimension 5 --bits 64 --keep 0.3 --batch-size 1000 --curve";
    let value = json(arguments);
    let points: Vec<(f64, f64)> = value["curve"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| (number(point, "epsilon"), number(point, "delta")))
        .collect();
    assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
    assert_eq!(value["epsilon_central_bound"], "gaussian");
    let certified = number(&value, "epsilon_central");
    let at = points.iter().find(|point| (point.0 - certified).abs() < 1e-12).unwrap();
    assert!(at.1 <= 1e-6 && at.1 > 0.99e-6, "{at:?}");
    assert!(points[0].1 > 0.01 && points[7].1 < 1e-12);
    let output = incrowd(&[&["certify"], &arguments.split(' ').collect::<Vec<_>>()[..]].concat());
    let text = text(&output.stdout);
    let table = text.split_once("at other epsilons\n").unwrap().1;
    assert_eq!(table, CURVE, "{text}");
}

#[test]
fn bad_input_is_exit_code_2_names_the_rule_and_certifies_nothing() {
    for (arguments, message) in [
        ("--dimension 0 --keep 0.5 --batch-size 9", "dimension is 0, must be from 1 to 1000"),
        ("--dimension -1 --keep 0.5 --batch-size 9", "'-1'"),
        ("--dimension 5 --keep 1 --batch-size 9", "keep is 1, must be above 1e-9 and below 1"),
        ("--dimension 5 --keep nan --batch-size 9", "keep is NaN, must be"),
        ("--dimension 5 --keep -0.1 --batch-size 9", "keep is -0.1, must be"),
        ("--dimension 5 --flip 0 --batch-size 9", "flip is 0, must be above 0"),
        ("--dimension 5 --keep 0.5 --batch-size 0", "size is 0, must be from 1"),
        ("--dimension 5 --keep 0.5 --batch-size -3", "invalid value '-3'"),
        (
            "--dimension 5 --keep 0.5 --batch-size 9 --delta 0",
            "delta is 0, must be above 0 and below 1",
        ),
        ("--dimension 5 --keep 0.5 --batch-size 9 --delta nan", "delta is NaN, must be"),
        (
            "--dimension 5 --keep 0.5 --batch-size 9 --honest 0",
            "honest_fraction is 0, must be above 0",
        ),
        (
            "--dimension 5 --keep 0.5 --batch-size 9 --participations 0",
            "participations is 0, must be at least 1",
        ),
        ("--dimension 5 --bits 0 --keep 0.5 --batch-size 9", "bits is 0, must be from 1 to 4095"),
        ("--dimension 5 --keep 0.5", "--batch-size or --schedule is missing"),
        ("--dimension 5 --batch-size 9", "--keep, --flip or --words is missing"),
        ("--keep 0.5 --batch-size 9", "--dimension is missing"),
        (
            "--dimension 5 --words 300 --chosen 4 --outside 0.2 --batch-size 9",
            "words is 300, must be from 2 to 256",
        ),
        (
            "--dimension 5 --words 64 --chosen 33 --outside 0.2 --batch-size 9",
            "chosen is 33, must be from 1 to 32",
        ),
        (
            "--dimension 5 --words 64 --chosen 4 --outside 0.95 --batch-size 9",
            "must be below 1 - chosen/words",
        ),
        (
            "--dimension 5 --words 64 --chosen 4 --outside 1 --batch-size 9",
            "outside is 1, must be above 0",
        ),
        ("--dimension 5 --words 64 --batch-size 9", "--chosen"),
        ("--dimension 5 --schedule 3x4", "must be rounds x size x bits x keep"),
        (
            "--dimension 5 --keep 0.5 --batch-size 9 --bound magic",
            "bound is magic, must be one of local",
        ),
        ("--local-epsilon -1 --batch-size 9", "local epsilon is -1, must be above 0"),
        ("--local-epsilon 1 --batch-size 0", "batch_size is 0, must be at least 1"),
        ("--local-epsilon 1 --batch-size 9 --delta 1", "delta is 1, must be above 0 and below 1"),
        ("--local-epsilon 1 --batch-size 9 --honest 0", "honest fraction is 0, must be above 0"),
        ("--local-epsilon 1 --batch-size 9 --bound renyi-blanket", "must be clones"),
        ("--task-file /nowhere.toml", "there is no task file /nowhere.toml"),
    ] {
        let split: Vec<&str> = arguments.split(' ').collect();
        let output = incrowd(&[&["certify", "--output", "json"], &split[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let talk = text(&output.stderr);
        assert!(talk.contains(message) && !talk.contains("panicked"), "{arguments}: {talk}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

/// What is not a proved central bound of everything asked about cannot be printed as one.
#[test]
fn only_proved_central_bounds_have_a_name() {
    for (arguments, message) in [
        (
            "--dimension 1 --keep 0.5 --batch-size 10 --participations 2 --bound l1-diameter",
            "bound is l1-diameter, must be one of local",
        ),
        (
            "--dimension 5 --keep 0.5 --batch-size 10000 --bound paper-proposition3",
            "must be one of local, clones",
        ),
        (
            "--dimension 2 --schedule 10x300x1x0.5,10x310x2x0.3 --participations 3 --bound clones",
            "only certified together",
        ),
        ("--task-file nowhere.toml --participations 2", "cannot be used with"),
        ("--dimension 2 --schedule 10x300x1x0.5 --bits 2", "cannot be used with"),
        ("--local-epsilon 4 --batch-size 10 --bits 2", "cannot be used with"),
    ] {
        let parts: Vec<&str> = arguments.split(' ').collect();
        let output = incrowd(&[&["certify"], &parts[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(output.stdout.is_empty(), "{arguments}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    let value = json("--dimension 1 --keep 0.5 --batch-size 300 --participations 2 --all");
    let certified = number(&value, "epsilon_central");
    for row in value["alternatives"].as_array().unwrap() {
        if row["of"] == "releases" {
            assert!(number(row, "epsilon") >= certified * (1.0 - 1e-6), "{row}");
        }
        let paper = row["bound"].as_str().unwrap() == "paper-proposition3";
        assert_eq!(row["certificate"], !paper, "{row}");
    }
}

/// The local epsilon is ln(0.8 * 240/(0.2 * 16)) = ln 60, and every bound is named.
#[test]
fn words_of_a_codebook() {
    let arguments = "certify --output json --all --dimension 5 --words 256 --chosen 16 \
                     --outside 0.2 --batch-size 3000";
    let output = incrowd(&arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let local = value["epsilon_local"].as_f64().unwrap();
    assert!((local - 60f64.ln()).abs() < 1e-6, "{local}");
    assert_eq!(value["epsilon_local_bound"], "codebook-ratio");
    assert_eq!(value["rounds"][0]["encoding"], "codebook");
    assert!(value["trust"].as_array().unwrap().contains(&"words-are-random".into()));
    let of = |name: &str| {
        let rows = value["alternatives"].as_array().unwrap();
        let row = rows.iter().find(|row| row["bound"] == name).unwrap();
        row["epsilon"].as_f64().unwrap()
    };
    let (sum, blanket) = (of("codebook-sum"), of("codebook-blanket"));
    assert!(sum < blanket && blanket < local, "{sum} {blanket} {local}");
    assert!((value["epsilon_central"].as_f64().unwrap() - sum).abs() < 1e-12);
}
