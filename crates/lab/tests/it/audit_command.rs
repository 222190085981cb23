//! `incrowd-lab audit`: the real code passes, and at d = 1, l = 50 the lower bound is at least half
//! of the certificate.

use std::process::{Command, Output};

fn incrowd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd-lab")).args(arguments).output().unwrap()
}

#[test]
fn the_real_code_passes_and_the_certificate_is_not_far_above_the_attack() {
    let arguments = [
        "audit",
        "--dimension",
        "1",
        "--keep",
        "0.8",
        "--batch-size",
        "50",
        "--runs",
        "400000",
        "--output",
        "json",
    ];
    let output = incrowd(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for side in ["local", "central"] {
        let number = |key: &str| report[side][key].as_f64().unwrap();
        let (lower, exact, certified) =
            (number("lower"), number("exact_for_pair"), number("certified"));
        assert!(lower <= exact && exact <= certified, "{side}: {lower} {exact} {certified}");
        assert!(lower >= certified / 2.0, "{side}: {lower} {certified}");
    }
}

#[test]
fn rounds_that_close_by_time_are_audited_with_presence() {
    let output = incrowd(&["audit", "--closes", "time", "--runs", "100000", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let presence = &report["presence"];
    assert_eq!(presence["certified"], report["central"]["certified"]);
    assert!(presence["inputs"].as_array().unwrap().iter().any(serde_json::Value::is_null));
    let number = |key: &str| presence[key].as_f64().unwrap();
    assert!(number("lower") > 0.0 && number("lower") <= number("exact_for_pair"), "{presence}");
    let text = incrowd(&["audit", "--closes", "time", "--runs", "1000"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("\nthere or not "));
}

#[test]
fn codebook_reports_are_audited() {
    let arguments = ["audit", "--encoding", "codebook", "--dimension", "2", "--words", "16"];
    let law = ["--chosen", "2", "--outside", "0.25", "--moment-weight", "100", "--batch-size", "8"];
    let rest = ["--certified-central", "3.1", "--runs", "20000", "--output", "json"];
    let output = incrowd(&[&arguments[..], &law, &rest].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let local = |key: &str| report["local"][key].as_f64().unwrap();
    // ln(0.75 * 14 / (0.25 * 2))
    assert!((local("exact_for_pair") - 21f64.ln()).abs() < 1e-9);
    assert!(local("lower") > 2.5 && local("lower") <= local("certified"), "{report}");
    assert_eq!(report["central"]["certified"], 3.1);
    assert!(report["central"]["exact_for_pair"].is_null());
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_rule() {
    for (arguments, message) in [
        (&["--keep", "1"][..], "keep is 1, must be above"),
        (&["--delta", "0"], "delta is 0, must be above 0"),
        (&["--batch-size", "0"], "batch_size is 0, must be at least 1"),
        (&["--dimension", "21"], "dimension is 21, must be from 1 to 20"),
        (&["--runs", "10"], "runs are 10, must be from 1000"),
        (&["--words", "16"], "are for --encoding codebook"),
        (&["--encoding", "codebook", "--keep", "0.5"], "are for --encoding bits"),
        (&["--encoding", "codebook", "--outside", "0"], "outside is 0, must be above 0"),
        (
            &[
                "--encoding",
                "codebook",
                "--words",
                "8",
                "--chosen",
                "5",
                "--certified-central",
                "1",
            ],
            "chosen is 5",
        ),
    ] {
        let output = incrowd(&[&["audit"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(message), "{text}");
    }
}
