//! What a person reads: lines that fit a terminal, the guarantee at every start, and why reports
//! were lost.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use crate::support::{LIFTED, Site, good, incrowd, output, text};

/// Lines of more than 80 columns. An id has more by itself, and clap breaks no usage.
fn too_long(text: &str) -> Vec<&str> {
    let one = |line: &str| line.split_whitespace().count() == 1 || line.starts_with("Usage: ");
    let long = |line: &&str| line.chars().count() > 80 && !one(line);
    text.lines().filter(long).collect()
}

#[test]
fn what_is_printed_fits_80_columns() {
    let site = Site::new(2, 3, 50);
    let task = site.path("task.toml").display().to_string();
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/examples/reader.toml");
    let mut commands: Vec<String> = [
        "plan --dimension 5 --users-per-day 20000 --days 30 --central-epsilon 1",
        "plan --dimension 5 --horizon 1e5 --central-epsilon 1 --local-epsilon unlimited",
        "plan --comparison --users-per-day 2000 --days 30 --central-epsilon 1",
        "certify --dimension 5 --keep 0.5 --batch-size 300 --participations 4 --all --curve",
        "certify --dimension 5 --words 256 --chosen 16 --outside 0.2 --batch-size 3000 --all",
        "demo --users 2000",
        "--help",
    ]
    .map(Into::into)
    .into();
    commands.push(format!("plan --features {reader} --horizon 20000 --central-epsilon 1"));
    commands.push(format!("task show {task}"));
    for command in [
        "plan",
        "certify",
        "serve",
        "demo",
        "load",
        "doctor",
        "relay",
        "config show",
        "keys token",
        "task new",
        "task close",
        "task restore",
        "fit",
        "completions",
    ] {
        commands.push(format!("{command} --help"));
    }
    for command in commands {
        let output = output(&command);
        for stream in [text(&output.stdout), text(&output.stderr)] {
            assert_eq!(too_long(&stream), [""; 0], "{command}");
        }
    }
}

/// Whoever starts something is told what it guarantees, and against whom.
#[test]
fn every_start_says_what_is_guaranteed_and_against_whom() {
    let site = Site::new(2, 3, 50);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let certificate = words(&good(&format!("task show {}", site.path("task.toml").display())));
    let number = |before: &str| {
        let rest = certificate.split_once(before).unwrap().1;
        rest.split(['-', ',', ' ']).next().unwrap().to_owned()
    };
    let (local, central) = (number("each report is "), number("together are ("));
    let shuffler = site.start(&mut site.shuffler(0));
    let bandit = site.start(&mut site.bandit(0, &shuffler.url));
    let mut serve = incrowd();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    serve.args(LIFTED.split(' ')).arg("--task").arg(site.path("plan.toml"));
    serve.arg("--config").arg(site.path("settings.toml")).arg("--data").arg(site.path("both"));
    let both = site.start(&mut serve);
    let log = fs::read_to_string(site.path("services.log")).unwrap();
    let guarantees = log.lines().filter(|line| line.starts_with("  "));
    assert_eq!(too_long(&guarantees.collect::<Vec<_>>().join("\n")), [""; 0], "{log}");
    let log = words(&log);
    assert_eq!(log.matches(&format!("local epsilon {local}: against whoever reads")).count(), 3);
    let all = format!("central epsilon {central} (delta 1e-6): against everyone else");
    assert_eq!(log.matches(&all).count(), 3, "{log}");
    for here in [
        "this role sees single reports: only the local epsilon protects people against its",
        "the central epsilon protects people against this role's operator, if another",
        "one operator runs both roles: only the local epsilon protects people against that",
    ] {
        assert_eq!(log.matches(here).count(), 1, "{here}: {log}");
    }
    for service in [both, bandit, shuffler] {
        assert!(service.terminate().success());
    }
    // For programs that read the log, every line is JSON.
    let mut json = site.shuffler(0);
    let log = site.path("json.log");
    let service = crate::support::Service::start(json.args(["--log", "json"]), &log).unwrap();
    assert!(service.terminate().success());
    let lines = fs::read_to_string(log).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(lines.filter(|line| line["epsilon_local"].is_f64()).count(), 1);
}

/// A script that loads a service must not take lost reports for counted ones.
#[test]
fn load_fails_and_says_why_when_reports_are_lost() {
    let site = Site::new(2, 40, 50);
    let mut command = site.shuffler(0);
    let service = site.start(command.args(["--model-url", "http://127.0.0.1:1"]));
    let load = |more: &str| {
        let task = site.path("task.toml").display().to_string();
        let output = output(&format!("load --url {} --task {task} {more}", service.url));
        (
            output.status.code(),
            text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" "),
        )
    };
    let token = |role: &str| {
        format!("--token-file {} --reports 20", site.path(&format!("{role}.token")).display())
    };
    let (code, said) = load(&token("device"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("models are at http://127.0.0.1:1, another server"), "{said}");
    assert!(said.contains("hint: --follow-model-url") && said.contains("/20 reports, "), "{said}");
    for (options, why) in [
        (
            "--reports 20".to_owned(),
            "100.0 % unauthorized: the shuffler wants a device token: give --token-file",
        ),
        (token("bandit"), "100.0 % forbidden: the token of --token-file is of another role"),
        (token("bandit-admin"), "100.0 % unauthorized: the shuffler does not know the token"),
    ] {
        let (code, said) = load(&options);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why) && said.contains("incrowd keys token --role device"), "{said}");
    }
    // More at once than a round and its grace take.
    let device =
        token("device").replace("--reports 20", "--reports 900 --bulk 300 --connections 1");
    let (code, said) = load(&device);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("late: their round closed before they arrived"), "{said}");
    // Ctrl-C ends it with what was measured so far.
    let mut slow = incrowd();
    slow.args(["load", "--url", &service.url, "--task", &site.task.id().to_string()]);
    slow.args(["--rate", "20", "--connections", "1", "--reports", "5000", "--output", "json"]);
    slow.arg("--token-file").arg(site.path("device.token")).stdout(Stdio::piped());
    let mut slow = slow.stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut stderr = BufReader::new(slow.stderr.take().unwrap());
    while !first.contains("/5000 reports") {
        assert!(stderr.read_line(&mut first).unwrap() > 0, "{first}");
    }
    let kill = format!("kill -INT {}", slow.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let (slow, mut rest) = (slow.wait_with_output().unwrap(), String::new());
    stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("reports were not begun (--reports "), "{rest}");
    let measured: serde_json::Value = serde_json::from_slice(&slow.stdout).unwrap();
    assert!(measured["reports"].as_u64().unwrap() < 5000, "{measured}");
    let (code, said) = load(&format!("{} --ca /no/ca.pem", token("device")));
    assert_eq!(code, Some(2));
    assert!(said.contains("/no/ca.pem: No such file"), "{said}");
}
