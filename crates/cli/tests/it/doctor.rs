//! What `incrowd doctor` says about a set-up is what happens when it is started.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::Value;

use crate::support::{LIFTED, Service, Site, good, incrowd, text};

/// A kind of set-up: how it differs from one that works, and what doctor must find.
struct Case {
    name: &'static str,
    role: &'static str,
    prepare: fn(&Site, &mut Vec<String>),
    /// Part of the only BAD finding; none if all is well.
    bad: Option<&'static str>,
    /// What the start says instead, if it fails at all; empty: it starts, but does not work.
    start: &'static str,
}

const fn case(
    name: &'static str,
    role: &'static str,
    prepare: fn(&Site, &mut Vec<String>),
    bad: Option<&'static str>,
    start: &'static str,
) -> Case {
    Case { name, role, prepare, bad, start }
}

fn set(arguments: &mut Vec<String>, flag: &str, value: &str) {
    match arguments.iter().position(|argument| argument == flag) {
        Some(at) => arguments[at + 1] = value.to_string(),
        None => arguments.extend([flag.to_owned(), value.to_string()]),
    }
}

/// As [`set`], with a file or folder of the site.
fn path(site: &Site, arguments: &mut Vec<String>, flag: &str, name: &str) {
    set(arguments, flag, &site.path(name).display().to_string());
}

/// The planner's file and an empty data folder.
fn fresh(site: &Site, arguments: &mut Vec<String>) {
    path(site, arguments, "--task", "plan.toml");
    path(site, arguments, "--data", "new");
}

fn settings(site: &Site, more: &str) {
    let file = site.path("settings.toml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{more}\n{before}")).unwrap();
}

const CASES: [Case; 15] = [
    case("before the first start", "serve", fresh, None, ""),
    case("one role", "shuffler", |_, _| {}, None, ""),
    case(
        "no keys",
        "shuffler",
        |site, arguments| path(site, arguments, "--data", "new"),
        Some("no keys of the shuffler"),
        "shuffler.keys",
    ),
    case(
        "keys for all to read",
        "shuffler",
        |site, _| {
            let keys = site.path("shuffler/shuffler.keys");
            fs::set_permissions(keys, fs::Permissions::from_mode(0o644)).unwrap();
        },
        Some("is readable by others (mode 644)"),
        "is readable by others (mode 644)",
    ),
    case(
        "another operator's task",
        "shuffler",
        |site, arguments| {
            good(&format!("keys new --role shuffler --data {}", site.path("new").display()));
            path(site, arguments, "--data", "new");
            fs::copy(site.path("shuffler/tokens.toml"), site.path("new/tokens.toml")).unwrap();
        },
        Some("another key of the shuffler"),
        "names another key for the shuffler",
    ),
    case(
        "a task without keys for one role",
        "shuffler",
        |site, arguments| path(site, arguments, "--task", "plan.toml"),
        Some("has no [keys]"),
        "it has no [keys]",
    ),
    case(
        "a task with the keys of others for serve",
        "serve",
        |site, arguments| path(site, arguments, "--data", "new"),
        Some("names another key"),
        "names another key",
    ),
    case(
        "no task file",
        "serve",
        |site, arguments| path(site, arguments, "--task", "none.toml"),
        Some("there is no task file"),
        "there is no task file",
    ),
    case(
        "a task twice",
        "shuffler",
        |site, arguments| {
            fs::copy(site.path("task.toml"), site.path("copy.toml")).unwrap();
            arguments.extend(["--task".into(), site.path("copy.toml").display().to_string()]);
        },
        Some("is the same task as"),
        "are the same task",
    ),
    case(
        "beyond a limit",
        "shuffler",
        |_, arguments| set(arguments, "--limit-epsilon-local", "0.1"),
        Some("this operator's limit is 0.1"),
        "this operator's limit is 0.1",
    ),
    case(
        "TLS files that are none",
        "shuffler",
        |site, _| {
            let key = site.path("shuffler/shuffler.keys").display().to_string();
            settings(site, &format!("tls = {{ certificate = \"/dev/null\", key = \"{key}\" }}"));
        },
        Some("TLS: "),
        "TLS: ",
    ),
    case(
        "both listeners at one address",
        "shuffler",
        |_, arguments| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            set(arguments, "--listen", &format!("127.0.0.1:{port}"));
            set(arguments, "--admin-listen", &format!("127.0.0.1:{port}"));
        },
        Some("listen and admin_listen are both"),
        "cannot listen on",
    ),
    case(
        "round keys where nothing can be",
        "shuffler",
        |site, _| {
            let keys = "path = \"/dev/null\"";
            let file = site.path("settings.toml");
            fs::write(file, format!("[shuffler.round_keys]\nkind = \"file\"\n{keys}\n")).unwrap();
        },
        Some("keys of rounds"),
        "/dev/null",
    ),
    case(
        "no device token",
        "shuffler",
        |site, _| {
            let data = site.path("shuffler").display().to_string();
            fs::remove_file(site.path("shuffler/tokens.toml")).unwrap();
            for role in ["bandit", "admin"] {
                good(&format!("keys token --role {role} --data {data}"));
            }
        },
        Some("no device can upload"),
        "",
    ),
    case(
        "no token for the shuffler",
        "bandit",
        |_, _| {},
        Some("bandit.token_file is missing"),
        "bandit.token_file is missing",
    ),
];

fn arguments(site: &Site, role: &str) -> Vec<String> {
    let mut arguments = site.arguments(role, 0);
    arguments.remove(0);
    if role == "serve" {
        // It has no folder yet.
        path(site, &mut arguments, "--data", "new");
    }
    arguments
}

fn doctor(role: &str, arguments: &[String]) -> (Option<i32>, Value) {
    let mut command = incrowd();
    command.args(["doctor", "--output", "json", "--role", role]).args(arguments);
    let output = command.output().unwrap();
    let found = serde_json::from_slice(&output.stdout);
    (output.status.code(), found.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

fn findings<'a>(found: &'a Value, level: &str) -> Vec<&'a str> {
    let all = found["findings"].as_array().unwrap().iter();
    let level = all.filter(|finding| finding["level"] == level);
    level.map(|finding| finding["text"].as_str().unwrap()).collect()
}

#[test]
fn what_the_doctor_says_is_what_happens() {
    for Case { name, role, prepare, bad, start } in CASES {
        let site = Site::new(2, 3, 50);
        let mut arguments = arguments(&site, role);
        prepare(&site, &mut arguments);
        let (code, found) = doctor(role, &arguments);
        let found_bad = findings(&found, "bad");
        assert_eq!(found["bad"], found_bad.len(), "{name}: {found:#}");
        assert_eq!(code, Some(i32::from(bad.is_some())), "{name}: {found:#}");
        let named = bad.is_none_or(|bad| found_bad.iter().any(|text| text.contains(bad)));
        assert!(named, "{name}: {found:#}");
        if role == "serve" {
            assert!(!site.path("new").exists(), "{name}: it changed something");
        }

        let mut command = incrowd();
        command.arg(role).args(&arguments);
        match Service::start(&mut command, &site.path("start.log")) {
            Ok(service) => {
                assert!(start.is_empty(), "{name}: it starts");
                running(name, role, &arguments, &service);
                assert!(service.terminate().success(), "{name}");
            }
            Err(status) => {
                let said = fs::read_to_string(site.path("start.log")).unwrap();
                assert_eq!(status.code(), Some(2), "{name}: {said}");
                assert!(!start.is_empty() && said.contains(start), "{name}: {said}");
            }
        }
    }
}

/// The doctor of a running service finds its own ports busy, which is well.
fn running(name: &str, role: &str, arguments: &[String], service: &Service) {
    let mut arguments = arguments.to_vec();
    set(&mut arguments, "--listen", service.url.trim_start_matches("http://"));
    set(&mut arguments, "--admin-listen", service.admin.trim_start_matches("http://"));
    let (_, found) = doctor(role, &arguments);
    let running = findings(&found, "ok").iter().filter(|text| text.ends_with("is running")).count();
    assert_eq!(running, 2, "{name}: {found:#}");
    // To a service with another folder they are taken.
    let folder = tempfile::tempdir().unwrap();
    set(&mut arguments, "--data", &folder.path().display().to_string());
    let (code, found) = doctor(role, &arguments);
    let taken =
        findings(&found, "bad").iter().filter(|text| text.starts_with("cannot listen on")).count();
    assert_eq!((code, taken), (Some(1), 2), "{name}: {found:#}");
}

#[test]
fn a_folder_that_cannot_be_written_is_found() {
    let site = Site::new(2, 3, 50);
    let mut arguments = arguments(&site, "serve");
    path(&site, &mut arguments, "--task", "plan.toml");
    set(&mut arguments, "--data", "/proc/incrowd");
    let (code, found) = doctor("serve", &arguments);
    assert_eq!(code, Some(1));
    assert!(findings(&found, "bad")[0].contains("cannot write to /proc"), "{found:#}");
    let start = |command: &mut Command| command.args(&arguments).output().unwrap();
    assert_eq!(start(incrowd().arg("serve")).status.code(), Some(2));
    assert!(!Path::new("/proc/incrowd").exists());
    // For people: one line a finding, within 80 columns, and the same exit code.
    let told = start(incrowd().arg("doctor"));
    let said = text(&told.stdout);
    assert!(said.contains("\nBAD   data folder /proc/incrowd: cannot write"), "{said}");
    assert!(text(&told.stderr).ends_with(" bad\n") && told.status.code() == Some(1));
    assert!(LIFTED.contains("limit") && said.lines().all(|line| line.chars().count() <= 80));
}
