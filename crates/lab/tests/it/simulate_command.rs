//! `incrowd-lab simulate` and `incrowd-lab figures` as a person uses them: the JSON, a killed run,
//! bad files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

fn incrowd(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incrowd-lab"));
    command.args(arguments.split_whitespace());
    command
}

fn output(arguments: &str) -> Output {
    incrowd(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An empty directory of this name.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn the_contract() {
    let directory = scratch("simulate-contract");
    let algorithms = ["sblb-growing", "sblb", "jdp-tree", "ldp-gaussian", "linucb", "random"];
    let output = output(&format!(
        "simulate --algorithms {} --dimension 5 --arms 10 --horizon 5000 --central-epsilon 1 --delta 1e-6 --local-epsilon unlimited --runs 3 --seed 1 --out {} --output json",
        algorithms.join(","),
        directory.display()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        rows.iter().map(|row| row["algorithm"].as_str().unwrap()).collect::<Vec<_>>(),
        algorithms
    );
    for row in &rows {
        assert_eq!((&row["horizon"], &row["runs"]), (&5000.into(), &3.into()));
        for field in [
            "regret_mean",
            "regret_stderr",
            "regret_random",
            "batches",
            "model_versions",
            "rounds_per_second",
        ] {
            assert!(row[field].is_number(), "{field} in {row:#}");
        }
        let private = !["linucb", "random"].contains(&row["algorithm"].as_str().unwrap());
        assert_eq!(row["certified"], private);
        for field in ["epsilon_central", "delta", "noise_std"] {
            assert_eq!(row[field].is_number(), private, "{field} in {row:#}");
        }
        if private {
            assert!(row["epsilon_central"].as_f64().unwrap() <= 1.0);
        }
    }
    // The order of things that should not depend on luck.
    let regret = |i: usize| rows[i]["regret_mean"].as_f64().unwrap();
    assert!(regret(0) < regret(3) && regret(4) < regret(0) && regret(3) < regret(5));
    assert!(rows[2]["epsilon_local"].is_null(), "a trusted server sees raw data");

    let drawn = self::output(&format!("figures {}", directory.display()));
    assert_eq!(drawn.status.code(), Some(0), "{}", text(&drawn.stderr));
    for line in text(&drawn.stdout).lines() {
        assert!(Path::new(line).exists(), "{line}");
    }
    assert!(text(&drawn.stdout).contains("report.html"));
}

#[test]
fn people_get_a_table_with_shares_of_the_random_regret() {
    let directory = scratch("simulate-text");
    let output = output(&format!(
        "simulate --algorithms linucb,random,jdp-tree --horizon 2000 --central-epsilon 1 --runs 2 --against random --out {}",
        directory.display()
    ));
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "synthetic: d = 5, K = 10, T = 2000, 2 runs; asked: central epsilon 1, local epsilon 8"
    );
    let share = |line: &str| -> f64 {
        line.split_whitespace().find_map(|word| word.strip_suffix('%')).unwrap().parse().unwrap()
    };
    assert!(lines[2].contains("linucb") && share(lines[2]) < 10.0, "{printed}");
    assert!(lines[3].contains("random") && (share(lines[3]) - 100.0).abs() < 5.0, "{printed}");
    assert!(lines[3].ends_with("1.000 of random"), "no limit from two runs: {printed}");
    assert!(lines[4].contains("jdp-tree") && lines[4].contains("1.0000"), "{printed}");
}

fn tables(directory: &Path) -> [Vec<u8>; 2] {
    ["table.csv", "curves.csv"].map(|name| fs::read(directory.join(name)).unwrap())
}

#[test]
fn a_killed_or_interrupted_run_continues() {
    let command = "simulate --algorithms linucb,random,jdp-tree --horizon 60000 --central-epsilon 1 --runs 8 --threads 1 --out";
    let (whole, broken) = (scratch("simulate-whole"), scratch("simulate-broken"));
    assert!(output(&format!("{command} {}", whole.display())).status.success());
    for signal in ["-KILL", "-INT"] {
        // A shell may have told its background jobs, and so this test, to ignore SIGINT.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_incrowd-lab")])
            .args(command.split_whitespace())
            .arg(&broken)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let cells = broken.join("cells");
        let finished = || fs::read_dir(&cells).map_or(0, Iterator::count);
        let before = finished();
        while finished() < before + 2 {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert!(!child.wait().unwrap().success());
        assert!(finished() < 24 && !broken.join("table.csv").exists(), "{signal} came too late");
    }
    let again = output(&format!("{command} {}", broken.display()));
    assert!(again.status.success());
    let said = text(&again.stderr);
    assert!(said.contains(" found finished") && !said.contains(" 0 found"), "{said}");
    assert_eq!(tables(&whole), tables(&broken));
}

#[test]
fn bad_files_are_explained_with_their_line() {
    let directory = scratch("simulate-bad");
    let toml = directory.join("e.toml");
    let message = |experiment: &str, data: &str| {
        fs::write(&toml, experiment).unwrap();
        fs::write(directory.join("d.csv"), data).unwrap();
        let output = output(&format!("simulate {} --out {}", toml.display(), directory.display()));
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        text(&output.stderr).replace(directory.to_str().unwrap(), "DIR")
    };
    let data = "algorithms = ['random']\nhorizons = [10]\nenvironment = { kind = 'classification', file = 'd.csv', label = 'y' }\n";
    for (csv, expected) in [
        ("a,y\n1,x\n2\n", "d.csv, line 3"),
        ("a,y\n1,x\nNaN,z\n", "d.csv, line 3, column \"a\""),
        ("a,y\n1,x\ntall,z\n", "d.csv, line 3, column \"a\""),
        ("a,y\n1,x\n2,x\n", "d.csv"),
        ("", "d.csv"),
        ("a,b\n1,2\n", "\"y\""),
    ] {
        let found = message(data, csv);
        assert!(
            found.starts_with("error: ") && found.contains(expected) && found.contains("expected"),
            "{csv:?}: {found}"
        );
    }
    let found = message("algorithms = ['random']\nhorizons = [10]\nrounds = 3\n", "");
    assert!(
        found.contains("e.toml: TOML parse error at line 3, column 1")
            && found.contains("unknown field `rounds`"),
        "{found}"
    );
    let found = message("algorithms = ['random']\nhorizons = [10]\nruns = 'many'\n", "");
    assert!(found.contains("line 3, column 8") && found.contains("expected u32"), "{found}");
}

#[test]
fn impossible_requests_say_what_is_missing() {
    let directory = scratch("simulate-impossible");
    let message = |arguments: &str| {
        let output = output(&format!("simulate --out {} {arguments}", directory.display()));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        text(&output.stderr)
    };
    assert_eq!(
        message("--algorithms jdp-tree --horizon 500 --local-epsilon 8"),
        "error: jdp-tree needs a central epsilon\nhint: --central-epsilon 1, or central_epsilons = [1]\n"
    );
    assert!(message("--algorithms sblob").contains("must be one of sblb, sblb-fixed"));
    assert!(message("--threads 0").contains("0 is not in 1..=1024"));
    assert!(message("--horizon 0 --central-epsilon 1").contains("horizon is 0, must be from 1"));
    assert!(
        message("--algorithms random --arms 1").contains("arms is 1, must be from 2 to 100000")
    );
    assert!(message("--algorithms random --against linucb").contains("against is \"linucb\""));
    assert!(message("nothing.toml").contains("nothing.toml: No such file"));
    assert!(
        message("--algorithms sblb --horizon 1000 --central-epsilon 0.000001")
            .contains("sblb: central epsilon")
    );
}

#[test]
fn laws_and_gaps_are_a_grid() {
    let directory = scratch("simulate-laws");
    let output = output(&format!(
        "simulate --algorithms random --contexts sphere,one-hot --gap 0.5,0.1 --horizon 100 --runs 1 \
         --out {} --output json",
        directory.display()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["environment"].as_str().unwrap()).collect();
    let expected =
        ["synthetic", "synthetic, gap 0.1", "synthetic, one-hot", "synthetic, one-hot, gap 0.1"];
    assert_eq!(names, expected);
    let output = self::output(&format!(
        "simulate --algorithms random --environment fixed-arms --click-rate 0.5,0.1 --parameter-norm 2 \
         --horizon 100 --runs 1 --out {} --output json",
        directory.display()
    ));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["environment"].as_str().unwrap()).collect();
    assert_eq!(names, ["fixed-arms, norm 2", "fixed-arms, click rate 0.1, norm 2"]);
    let refused = [
        ("--gap 0.6", "gap is 0.6, must be above 0 and at most 0.5"),
        (
            "--contexts cube",
            "must be one of sphere, one-hot, correlated, anisotropic, heavy-tailed",
        ),
        ("--environment ordered --contexts one-hot", "--contexts is given, must be left out"),
        ("--environment fixed-arms --drift 1", "--drift is given, must be left out"),
        ("--click-rate 0.05 --gap 0.1", "gap is 0.1, must be above 0 and at most 0.05"),
        ("--click-rate 0", "click_rate is 0, must be above 0 and below 1"),
        ("--drift -1", "drift is -1, must be from 0 to 1000 (radians)"),
    ];
    for (flags, expected) in refused {
        let output = self::output(&format!("simulate --algorithms random {flags}"));
        assert!(!output.status.success());
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{flags}: {message}");
    }
}
