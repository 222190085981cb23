//! What people type wrong: each is answered with the name of what is wrong and the next step.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use tempfile::TempDir;

use crate::support::{Site, good, incrowd, output, refused, text};

/// Flags of a service that finds free ports.
const FREE: &str = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0";

/// A folder with a planner's task file.
fn planned() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.toml");
    good(&format!(
        "plan --dimension 2 --horizon 5e3 --central-epsilon 1 --task-file {}",
        shown(&file)
    ));
    (folder, file)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The answer to arguments, also clap's, which must be exit code 2.
fn answer(arguments: &str) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stdout));
    assert!(output.stdout.is_empty(), "{arguments}: {}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let plan = |horizon: &str, epsilon: &str| {
        good(&format!("plan --dimension 2 --horizon {horizon} --central-epsilon {epsilon}"))
    };
    let usual = plan("5000", "1");
    assert_eq!(plan("5e3", "1.0"), usual);
    assert_eq!(plan("5_000", "1e0"), usual);
    let high = good("certify --dimension 500 --keep 0.5 --batch-size 1e3");
    assert!(high.contains("is no protection: everything rests on a shuffler"), "{high}");
    assert!(good("certify --dimension 2 --schedule 2x1e3x1x0.5").contains("Certificate"));
    good("certify --local-epsilon 4 --batch-size 1_000.0 --bound clones");
    for (arguments, rule) in [
        (
            "demo --seed -1",
            "'--seed <SEED>': must be a whole number from 0 to 18446744073709551615",
        ),
        ("demo --users 1.5", "'--users <USERS>': must be a whole number from 0 to 4294967295"),
        ("plan --dimension 2 --horizon 1e3x", "'--horizon <HORIZON>': must be a whole number"),
        ("plan --dimension -1 --horizon 9", "must be a whole number from 0"),
        ("plan --dimension 2 --horizon 9 --central-epsilon nan", "central epsilon is NaN, must be"),
        (
            "plan --dimension 2 --horizon 9 --central-epsilon -1",
            "central epsilon is -1, must be above 0",
        ),
        (
            "plan --dimension 2 --horizon 9000 --central-epsilon 1e-300",
            "central epsilon 1e-300 needs",
        ),
        (
            "certify --dimension 2 --keep 1e-300 --batch-size 9",
            "keep is 1e-300, must be above 1e-9",
        ),
        ("certify --dimension 2 --keep -1 --batch-size 9", "keep is -1, must be above 1e-9"),
        ("certify --dimension 2 --keep 0.5 --batch-size 9 --delta 1e400", "delta is inf, must be"),
        ("serve --limit-epsilon-local -1", "limits.epsilon_local is -1, must be at least 0"),
        ("serve --limit-epsilon-local NaN", "limits.epsilon_local is NaN, must be at least 0"),
    ] {
        let said = answer(arguments);
        assert!(said.contains(rule), "{arguments}: {said}");
        assert!(!said.contains("0000000000000000000000"), "{said}");
        assert!(!said.contains("unexpected argument"), "{said}");
    }
    let mut nan = incrowd();
    nan.args(["config", "show"]).env("INCROWD_LIMITS__DELTA", "nan");
    let said = text(&nan.output().unwrap().stderr);
    assert!(said.contains("limits.delta is NaN, must be at least 0"), "{said}");
    for (number, rule) in [
        ("--reports 0", "reports is 0, must be from 1 to 100000000"),
        ("--connections 4097", "connections is 4097, must be from 1 to 4096"),
        ("--rate 0", "rate is 0, must be above 0"),
        ("--rate -1", "rate is -1, must be above 0"),
    ] {
        let said = refused(&format!("load --task {} {number}", "0".repeat(64)));
        assert!(said.contains(rule), "{said}");
    }
}

/// What a command does whose output goes to a file.
fn to(file: &str, arguments: &[&str], stderr: bool) -> Output {
    let file = File::options().write(true).open(file).unwrap();
    let mut command = incrowd();
    command.args(arguments);
    if stderr {
        command.stderr(file)
    } else {
        command.stdout(file)
    };
    command.output().unwrap()
}

#[test]
fn nothing_panics_where_nobody_reads_or_the_disk_is_full() {
    let plan =
        "plan --dimension 2 --horizon 5000 --central-epsilon 1".split(' ').collect::<Vec<_>>();
    for arguments in [
        &["completions", "bash"][..],
        &["--help"],
        &["plan", "--help"],
        &["--version"],
        &["config", "show"],
        &plan[..],
    ] {
        let full = to("/dev/full", arguments, false);
        assert_eq!(full.status.code(), Some(2), "{arguments:?}");
        let said = text(&full.stderr);
        assert!(said.contains("error: cannot write to stdout: No space left"), "{said}");
        let mut closed = incrowd()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(closed.stdout.take());
        let closed = closed.wait_with_output().unwrap();
        assert_eq!(
            (closed.status.code(), text(&closed.stderr)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
    for arguments in
        [&["plan"][..], &["serve", "--data", "/proc/none"], &["demo", "--users", "1"], &["nothing"]]
    {
        assert_eq!(to("/dev/full", arguments, true).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_task_file_is_never_written_over_silently() {
    let (_folder, file) = planned();
    let before = fs::read(&file).unwrap();
    let again = format!(
        "plan --dimension 3 --horizon 5000 --central-epsilon 1 --task-file {}",
        shown(&file)
    );
    let said = refused(&again);
    assert!(said.contains(&shown(&file)) && said.contains("hint: --force"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), before);
    good(&format!("{again} --force"));
    assert_ne!(fs::read(&file).unwrap(), before);
    let said =
        refused("plan --dimension 2 --horizon 5000 --central-epsilon 1 --task-file /no/t.toml");
    assert!(said.contains("cannot write --task-file /no/t.toml: No such file"), "{said}");
}

#[test]
fn task_files_that_are_wrong_say_where_and_which_rule() {
    let (folder, file) = planned();
    let right = fs::read_to_string(&file).unwrap();
    let write = |text: String| {
        let file = folder.path().join("wrong.toml");
        fs::write(&file, text).unwrap();
        shown(&file)
    };
    let smallest = right.lines().find(|line| line.starts_with("smallest_batch = ")).unwrap();
    for (wrong, rule) in [
        (
            right.replace(smallest, "smallest_batch = 4_000"),
            "must be at least 4000, which is policy.smallest_batch of the same task",
        ),
        (
            right.replace("context_bound = 1.0", "context_bound = nan"),
            "context_bound is NaN, must be from 1e-20 to 1e20",
        ),
        (format!("colour = 1\n{right}"), "unknown field `colour`"),
        (right.replace("[learner]", "[learner"), "TOML parse error at line"),
        (right.replace("layout = \"shared\"\n", ""), "missing field `layout`"),
        (String::new(), "missing field `mechanism`"),
    ] {
        let path = write(wrong);
        for command in [
            format!("task show {path}"),
            format!("certify --task-file {path}"),
            format!("serve {FREE} --task {path} --data {}", shown(&folder.path().join("data"))),
            format!("task new --plan {path} {KEYS}"),
        ] {
            let said = refused(&command);
            assert!(said.contains("wrong.toml") && said.contains(rule), "{command}: {said}");
            assert!(rule.starts_with("TOML") || !said.contains("line 1"), "{command}: {said}");
        }
    }
    let data = shown(&folder.path().join("none"));
    for command in ["task show", "certify --task-file", &format!("serve --data {data} --task")] {
        let said = refused(&format!("{command} /no/t.toml"));
        assert!(said.contains("there is no task file /no/t.toml\nhint: `incrowd plan"), "{said}");
    }
    let said = refused(&format!("serve --data {data}"));
    assert!(said.contains("no task to serve\nhint: ") && said.contains("--task-file"), "{said}");
}

/// Public keys of RFC 8032's tests.
const KEYS: &str = "--shuffler-key d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a --bandit-key 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

#[test]
fn keys_that_belong_to_no_operator_make_no_task() {
    let (_folder, file) = planned();
    let new = |keys: &str| format!("task new --plan {} {keys}", shown(&file));
    good(&new(KEYS));
    let key = |flag: &str| KEYS.split(&format!("--{flag} ")).nth(1).unwrap()[..64].to_owned();
    let (shuffler, bandit) = (key("shuffler-key"), key("bandit-key"));
    let zeros = "0".repeat(64);
    // 2 is the y of no point of the curve; 1 is that of the neutral element.
    let (no_point, neutral) = (format!("02{}", "0".repeat(62)), format!("01{}", "0".repeat(62)));
    for weak in [&zeros, &no_point, &neutral] {
        let said = refused(&new(&format!("--shuffler-key {weak} --bandit-key {bandit}")));
        assert!(said.contains("--shuffler-key is ") && said.contains("hint: "), "{said}");
        let said = refused(&new(&format!("--shuffler-key {shuffler} --bandit-key {weak}")));
        assert!(said.contains("--bandit-key is ") && said.contains("--role bandit"), "{said}");
    }
    let said = refused(&new(&format!("--shuffler-key {bandit} --bandit-key {bandit}")));
    assert!(said.contains("are the same, must be keys of two roles"), "{said}");
}

#[test]
fn one_task_file_does_everywhere() {
    let (folder, file) = planned();
    let (data, file) = (shown(&folder.path().join("data")), shown(&file));
    let said = good(&format!("task show {file} --data {data}"));
    assert!(said.starts_with("task     (its id is not known yet"), "{said}");
    assert!(said.contains("Certificate") && said.contains("reports  sealed"), "{said}");
    let said = refused(&format!("serve {FREE} --data {data} --task {file} --task {file}"));
    assert!(said.contains("are the same task") && said.contains("leave one out"), "{said}");

    for role in ["shuffler", "bandit"] {
        if !Path::new(&data).join(format!("{role}.keys")).exists() {
            good(&format!("keys new --role {role} --data {data}"));
        }
    }
    let said = good(&format!("task show {file} --data {data}"));
    let id = said.lines().next().unwrap().strip_prefix("task ").unwrap().to_owned();
    assert!(id.len() == 64 && said.contains("(the file has no keys; these are those in"), "{said}");
    // As a service keeps it.
    let kept = Path::new(&data).join("tasks");
    fs::create_dir_all(&kept).unwrap();
    let key =
        |role: &str| good(&format!("keys show --role {role} --data {data}"))[17..81].to_owned();
    let keys = format!("--shuffler-key {} --bandit-key {}", key("shuffler"), key("bandit"));
    fs::write(kept.join(format!("{id}.toml")), good(&format!("task new --plan {file} {keys}")))
        .unwrap();
    for task in [&id, &id[..8], &id[..8].to_uppercase()] {
        let shown = good(&format!("task show {task} --data {data}"));
        assert!(shown.starts_with(&format!("task {id}\nshuffler ")), "{shown}");
    }
    let other = if id.starts_with("000000") { "111111" } else { "000000" };
    let said = refused(&format!("task show {other} --data {data}"));
    assert!(said.contains("no task whose id begins with"), "{said}");
    fs::copy(kept.join(format!("{id}.toml")), kept.join(format!("{}00.toml", &id[..62]))).unwrap();
    let said = refused(&format!("task show {} --data {data}", &id[..8]));
    assert!(said.contains("several tasks"), "{said}");
    let said =
        refused(&format!("task new --plan {} {KEYS}", kept.join(format!("{id}.toml")).display()));
    assert!(said.contains("has [keys] already"), "{said}");
}

#[test]
fn addresses_may_have_names_and_paths_must_be_text() {
    for (listen, rule) in [
        (
            "here",
            "listen: \"here\" must be an address and a port, like 127.0.0.1:8787 or localhost:8787",
        ),
        ("localhost:99999", "\"localhost:99999\" must be an address and a port"),
        ("http://localhost:80", "must be an address and a port"),
        (":80", "must be an address and a port"),
        ("no.such.host.invalid:80", "\"no.such.host.invalid:80\""),
    ] {
        let said = refused(&format!("config show --listen {listen}"));
        assert!(said.contains(rule), "{said}");
    }
    let shown = good("config show --listen localhost:1 --admin-listen [::1]:2");
    assert!(shown.contains("admin_listen = \"[::1]:2\""), "{shown}");
    assert!(shown.contains("\nlisten = \"localhost:1\""), "{shown}");
    let said = answer("relay --gateway http://127.0.0.1:1 --token-file t --listen :80");
    assert!(said.contains("listen: \":80\" must be an address and a port"), "{said}");
    let mut variable = incrowd();
    variable.args(["config", "show"]).env("INCROWD_LISTEN", "localhost:3");
    assert!(text(&variable.output().unwrap().stdout).contains(":3\""));
    for flag in ["--data", "--task", "--token-file"] {
        let mut command = incrowd();
        command.arg("bandit").arg(flag).arg(OsStr::from_bytes(b"d\xff"));
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            said.starts_with(&format!("error: {flag} is d")) && said.contains("must be UTF-8"),
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_undone_asks_first() {
    let site = Site::new(2, 3, 50);
    let service = site.start(&mut site.shuffler(0));
    let token = shown(&site.path("admin.token"));
    let asked = format!("--admin {} --token-file {token}", service.admin);
    let (list, id) = (format!("task list {asked}"), site.task.id().to_string());
    let said = refused(&format!("task close {asked} {id}"));
    assert!(said.contains(&format!("nothing is done yet: task {id} ends for good")), "{said}");
    assert!(said.contains("hint: --yes"), "{said}");
    assert_eq!(good(&list), format!("{id}\n  round 1 with 0 reports\n"));
    let said = refused(&format!("task close {asked} xyz --yes"));
    assert!(
        said.contains("task is \"xyz\", must be 64 hex digits, or the first of them"),
        "{said}"
    );
    let other = if id.starts_with('0') { "1" } else { "0" };
    let said = refused(&format!("task close {asked} {other} --yes"));
    assert!(said.contains("no task whose id begins with"), "{said}");
    good(&format!("task close {asked} {} --yes", &id[..7]));
    assert!(good(&list).contains("closed"));
    let said = refused(&format!("{list} --ca /no/ca.pem"));
    assert!(said.contains("/no/ca.pem: No such file"), "{said}");
}

#[test]
fn settings_that_are_shown_are_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("incrowd.toml");
    fs::write(&file, "listen = \"127.0.0.1:9\"\ntasks = [\"a b.toml\", \"c\\\"d\"]\n[bandit]\ntoken_file = \"t\"\n[shuffler]\nround_keys = { kind = \"file\", path = \"k\" }\n[limits]\ndelta = 1e-7\n").unwrap();
    let show =
        |file: &Path, more: &str| good(&format!("config show {more} --config {}", shown(file)));
    let first = show(&file, "");
    assert!(first.contains("# tls.certificate is not set\n") && !first.contains("null"), "{first}");
    for more in ["", "--origin"] {
        let copy = folder.path().join("copy.toml");
        fs::write(&copy, show(&file, more)).unwrap();
        assert_eq!(show(&copy, ""), first);
    }
    assert!(first.contains("tasks = [\"a b.toml\""), "{first}");
}
