//! The commands around the services as an operator uses them: keys, task files, settings, doctor,
//! signals, backups, a full disk.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Answer, Caller, LIFTED, Service, Site, clean, good, incrowd, output, post, refused, text,
};
use incrowd_protocol::{KeyState, Model, Release, Task, TaskNotice};
use incrowd_transport::Method;
use serde_json::Value;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[test]
fn keys_are_made_shown_and_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display();
    let keys = |what: &str| format!("keys {what} --data {data}");
    let public = good(&keys("new --role shuffler"));
    assert!(is_hex(public.trim_end(), 64), "{public}");
    let file = folder.path().join("shuffler.keys");
    assert_eq!(mode(&file), 0o600);
    assert!(refused(&keys("new --role shuffler")).contains("File exists"), "never overwritten");

    let states = || -> Vec<String> {
        let shown = good(&keys("show --role shuffler"));
        let (first, rest) = shown.split_once('\n').unwrap();
        assert_eq!(first, format!("verification key {}", public.trim_end()));
        let parts = rest.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        parts
            .map(|parts| {
                assert!(parts[..2] == ["sealing", "key"] && is_hex(parts[3], 64), "{parts:?}");
                format!("{} {}", parts[2], parts[4])
            })
            .collect()
    };
    assert_eq!(states(), ["1 active"]);
    assert!(refused(&keys("activate")).contains("no key is pending: add one first"));
    assert!(refused(&keys("expire")).contains("there is no active key but the newest one"));
    assert_eq!(good(&keys("rotate")), "keys 2 are pending\n");
    assert_eq!(states(), ["1 active", "2 pending"]);
    assert!(refused(&keys("rotate")).contains("a key is pending already: activate it first"));
    assert_eq!(good(&keys("activate")), "keys 2 are active\n");
    assert_eq!(states(), ["1 active", "2 active"]);
    let secrets = || fs::read_to_string(&file).unwrap().matches("secret = ").count();
    assert_eq!(secrets(), 2);
    let early = refused(&keys("expire"));
    assert!(early.contains("must be for 120 s") && early.contains("--yes"), "{early}");
    assert_eq!(secrets(), 2);
    let expired = good(&keys("expire --yes"));
    assert_eq!(expired, "keys 1 are expired, their secrets overwritten\n");
    assert_eq!((states(), secrets()), (vec!["1 expired".into(), "2 active".into()], 1));
    assert_eq!(mode(&file), 0o600);

    for wrong in [0o640, 0o604] {
        set_mode(&file, wrong);
        let message = format!("is readable by others (mode {wrong:o}): `chmod 600 ");
        assert!(refused(&keys("show --role shuffler")).contains(&message));
        assert!(refused(&keys("rotate")).contains(&message));
    }
    let other = folder.path().join("bandit.keys");
    fs::copy(&file, &other).unwrap();
    set_mode(&other, 0o600);
    assert!(refused(&keys("show --role bandit")).contains("another role's keys"));
    fs::write(&other, "role = ").unwrap();
    assert!(refused(&keys("show --role bandit")).ends_with("it is no key file\n"));
}

#[test]
fn tokens_are_shown_once_and_kept_as_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("keys token --role device --data {}", folder.path().display());
    let (first, second) = (good(&command), good(&command));
    assert_ne!(first, second);
    assert!(first.starts_with("incrowd-device-") && is_hex(first[15..].trim_end(), 64), "{first}");
    let file = folder.path().join("tokens.toml");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!((mode(&file), kept.matches("[[token]]").count()), (0o600, 2));
    assert!(!kept.contains(first[15..].trim_end()) && !kept.contains(second[15..].trim_end()));
    let output = output(&format!("{command} --revoke-others"));
    assert!(text(&output.stderr).starts_with("2 earlier tokens are revoked"));
    assert_eq!(fs::read_to_string(&file).unwrap().matches("[[token]]").count(), 1);
}

#[test]
fn commands_that_change_tokens_at_once_lose_nothing() {
    const EACH: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let data = &folder.path().display().to_string();
    good(&format!("keys issuer --data {data}"));
    let serials = good(&format!("keys device-tokens --number {EACH} --data {data}"));
    let serials: Vec<_> = serials.lines().map(|line| line.split('-').nth(2).unwrap()).collect();
    good(&format!("keys new --role shuffler --data {data}"));
    // The locks of a service that runs are others.
    let service = fs::File::create(folder.path().join("shuffler.lock")).unwrap();
    service.lock().unwrap();
    let rotated = thread::scope(|scope| {
        let mut rotations = Vec::new();
        for serial in &serials {
            scope.spawn(move || good(&format!("keys token --role device --data {data}")));
            scope.spawn(move || good(&format!("keys token --role monitor --data {data}")));
            scope.spawn(move || good(&format!("keys revoke --device {serial} --data {data}")));
            let rotate = format!("keys rotate --data {data}");
            rotations.push(scope.spawn(move || output(&rotate).status.success()));
        }
        rotations.into_iter().map(|rotation| rotation.join().unwrap()).filter(|ok| *ok).count()
    });
    let kept = fs::read_to_string(folder.path().join("tokens.toml")).unwrap();
    assert_eq!(kept.matches("[[token]]").count(), 2 * EACH, "{kept}");
    assert!(serials.iter().all(|serial| kept.contains(serial)), "{kept}");
    assert_eq!(rotated, 1, "the others find a pending key");
    assert_eq!(mode(&folder.path().join("keys.lock")), 0o600);
}

#[test]
fn a_task_file_is_made_and_shown() {
    let site = Site::new(2, 3, 50);
    let shown = good(&format!("task show {}", site.path("task.toml").display()));
    let keys = site.task.keys();
    let expected = format!(
        "task {}\nshuffler {}\nbandit   {}\nreports  sealed or plain\n",
        site.task.id(),
        keys.shuffler,
        keys.bandit
    );
    assert!(shown.starts_with(&expected), "{shown}");
    let limit = "Beyond the default limits: the central epsilon of the task is ";
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(limit), "{shown}");

    let plan = site.path("plan.toml").display().to_string();
    let new = |plan: &str, shuffler: &str| {
        format!("task new --plan {plan} --shuffler-key {shuffler} --bandit-key {}", keys.bandit)
    };
    let sealed: Task = toml::from_str(&good(&new(&plan, &keys.shuffler.to_string()))).unwrap();
    assert_eq!(sealed.id(), site.task.id(), "how reports travel is policy, not mechanism");
    assert!(!sealed.config().policy().plain_reports());
    let wrong = output(&new(&plan, "abc"));
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    assert!(
        refused(&new("/no/plan", &keys.shuffler.to_string()))
            .contains("there is no task file /no/plan")
    );
    let said = good(&format!("task show {plan} --data {}", site.path("none").display()));
    assert!(said.starts_with("task     (its id is not known yet"), "{said}");
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("incrowd.toml");
    fs::write(
        &file,
        "listen = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:2\"\ndata = \"d\"\n[http]\nbody_bytes = 4096\nbody_seconds = 5\n",
    )
    .unwrap();
    let run = || {
        let mut command = incrowd();
        command.args(["config", "show", "--listen", "127.0.0.1:3", "--config"]).arg(&file);
        command.env("INCROWD_LISTEN", "127.0.0.1:4").env("INCROWD_HTTP__BODY_BYTES", "8192");
        command.env("INCROWD_ADMIN_LISTEN", "127.0.0.1:5");
        command
    };
    let shown = text(&run().arg("--origin").output().unwrap().stdout);
    let line = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(&format!("{key} = ")));
        let line = line.unwrap_or_else(|| panic!("{key} in {shown}"));
        line.split('#').map(|part| part.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(line("listen"), ["listen = \"127.0.0.1:3\"", "flag"]);
    assert_eq!(line("admin_listen"), ["admin_listen = \"127.0.0.1:5\"", "INCROWD_ADMIN_LISTEN"]);
    assert_eq!(line("http.body_bytes"), ["http.body_bytes = 8192", "INCROWD_HTTP__BODY_BYTES"]);
    assert_eq!(line("http.body_seconds")[0], "http.body_seconds = 5");
    assert!(line("http.body_seconds")[1].ends_with("incrowd.toml"), "{shown}");
    assert_eq!(line("http.header_seconds"), ["http.header_seconds = 10", "default"]);
    let json = run().args(["--output", "json"]).output().unwrap();
    let settings: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    let data = settings.iter().find(|setting| setting["key"] == "data").unwrap();
    assert_eq!(data["value"], "\"d\"");
    assert_eq!(settings.len(), shown.lines().filter(|line| !line.starts_with('#')).count());
}

#[test]
fn bad_settings_are_exit_code_2_and_name_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("incrowd.toml");
    for (text, rule) in [
        ("[http]\nbody_bytes = 10", "http.body_bytes is 10, must be from 1024 to 67108864"),
        ("[http]\nheader_seconds = 0", "http.header_seconds is 0, must be from 1 to 600"),
        ("[http]\nconcurrent_requests = 0", "http.concurrent_requests is 0, must be from 1"),
        ("[bandit]\nlongest_pause_seconds = 601", "bandit.longest_pause_seconds is 601"),
        ("listens = \"127.0.0.1:1\"", "incrowd.toml: unknown field `listens`"),
        ("listen = \"here\"", "incrowd.toml: listen: \"here\" must be an address and a port"),
        ("log = \"loud\"", "unknown variant `loud`"),
        ("listen", "TOML parse error"),
    ] {
        fs::write(&file, text).unwrap();
        for command in ["serve", "shuffler", "bandit", "config show"] {
            let said = refused(&format!("{command} --config {}", file.display()));
            assert!(said.contains(rule), "{command}: {said}");
        }
    }
    assert!(refused("serve --config /no/file").contains("/no/file does not exist"));
    let data = folder.path().join("data").display().to_string();
    assert!(refused(&format!("serve --data {data}")).contains("there is no task to serve"));
    let said = refused(&format!("shuffler --data {data}-2"));
    assert!(said.contains("incrowd keys new --role shuffler --data"), "{said}");
    assert!(!Path::new(&data).exists());
}

#[test]
fn plain_http_beyond_this_machine_must_be_allowed_by_name() {
    let site = Site::new(1, 1, 2);
    let task = site.path("task.toml").display().to_string();
    for flag in ["listen", "admin-listen"] {
        let said = refused(&format!("serve --task {task} --{flag} 0.0.0.0:0"));
        let rule =
            format!("{} is 0.0.0.0:0, which others can reach, without TLS", flag.replace('-', "_"));
        assert!(said.contains(&rule), "{said}");
    }
    let token = site.path("relay.token").display().to_string();
    let relay = format!("relay --gateway http://127.0.0.1:9 --token-file {token} --listen [::]:0");
    assert!(refused(&relay).contains("listen is [::]:0, which others can reach, without TLS"));
    let mut command = incrowd();
    command.args(["shuffler", "--listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0"]);
    command.args(["--allow-plain-http", "--task", &task, "--data"]).arg(site.path("shuffler"));
    let service = site.start(command.args(LIFTED.split(' ')));
    assert!(service.url.starts_with("http://0.0.0.0:"), "{}", service.url);
    assert_eq!(service.terminate().code(), Some(0));
}

/// The findings, each in one line.
fn unwrapped(told: &[u8]) -> String {
    text(told).trim_end().replace("\n      ", " ")
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let site = Site::new(2, 3, 50);
    let doctor = |more: &str| {
        let folder = site.path("shuffler").display().to_string();
        let task = site.path("task.toml").display().to_string();
        let output = output(&format!(
            "doctor --data {folder} --task {task} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 {more}"
        ));
        (output.status.code(), unwrapped(&output.stdout))
    };
    let bad = |said: &str| said.lines().filter(|line| line.starts_with("BAD")).count();
    site.start(&mut site.shuffler(0)).kill();
    let (code, said) = doctor(LIFTED);
    assert_eq!((code, bad(&said)), (Some(0), 0), "{said}");
    for finding in ["ok    settings", "ok    keys of the shuffler", "ok    tokens", "shuffler.db"] {
        assert!(said.contains(finding), "{said}");
    }

    let (code, said) = doctor("");
    assert_eq!((code, bad(&said)), (Some(1), 1), "{said}");
    assert!(said.contains("this operator's limit is 1 (limits.epsilon_central)"), "{said}");
    let settings = site.path("incrowd.toml");
    fs::write(&settings, "[http]\nbody_seconds = 0").unwrap();
    let (code, said) = doctor(&format!("--config {}", settings.display()));
    assert_eq!(code, Some(1));
    assert_eq!(said, "BAD   settings: http.body_seconds is 0, must be from 1 to 600");

    let bandit = |more: &str| {
        let (data, task) = (site.path("bandit"), site.path("task.toml"));
        let output = output(&format!(
            "doctor --data {} --task {} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 {LIFTED} {more}",
            data.display(),
            task.display()
        ));
        (output.status.code(), unwrapped(&output.stdout))
    };
    let (code, said) = bandit("");
    assert_eq!((code, bad(&said)), (Some(1), 1), "{said}");
    assert!(said.ends_with("BAD   bandit.token_file is missing"), "{said}");
    let service = site.start(&mut site.shuffler(0));
    let ask = |role: &str| {
        let token = site.path(&format!("{role}.token"));
        bandit(&format!("--shuffler-url {} --token-file {}", service.url, token.display()))
    };
    let (code, said) = ask("bandit");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("the shuffler has releases of {}", site.task.id())), "{said}");
    for wrong in ["bandit-admin", "device"] {
        let (code, said) = ask(wrong);
        assert_eq!((code, bad(&said)), (Some(1), 1), "{said}");
        assert!(said.ends_with("the shuffler refuses the token in bandit.token_file"), "{said}");
    }
    // A token that is not one of this service's is refused also where none is needed.
    let (caller, url) = (Caller::new(), format!("{}/openapi.json", service.url));
    let status = |token: Option<&str>| caller.get(&url, token).unwrap().status;
    let unknown = site.token("bandit-admin");
    assert_eq!([status(None), status(Some(&unknown))], [200, 401]);
    service.kill();

    let store = site.path("shuffler/shuffler.db");
    let mut bytes = fs::read(&store).unwrap();
    bytes[100..].fill(0xff);
    fs::write(&store, bytes).unwrap();
    let _ = fs::remove_file(site.path("shuffler/shuffler.db-wal"));
    set_mode(&site.path("shuffler/shuffler.keys"), 0o644);
    fs::write(site.path("shuffler/tokens.toml"), "[[token]]\nrole = \"king\"").unwrap();
    let (code, said) = doctor(LIFTED);
    assert_eq!((code, bad(&said)), (Some(1), 3), "{said}");
    for finding in ["(mode 644): `chmod 600 ", "tokens.toml", "shuffler.db"] {
        let found = said.lines().any(|line| line.starts_with("BAD") && line.contains(finding));
        assert!(found, "{finding}: {said}");
    }
}

#[test]
fn completions_name_the_commands() {
    let script = good("completions bash");
    for word in ["_incrowd()", "doctor", "--limit-epsilon-local", "complete -F _incrowd"] {
        assert!(script.contains(word), "{word}");
    }
    let mut bash =
        Command::new("bash").arg("-n").stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success(), "bash reads it");
}

fn statuses(site: &Site, service: &Service, role: &str) -> String {
    let token = site.path(&format!("{role}.token"));
    good(&format!("task list --admin {} --token-file {}", service.admin, token.display()))
}

#[test]
fn serve_makes_what_is_missing_and_ends_well() {
    let site = Site::new(2, 3, 50);
    let (log, plan) = (site.path("serve.log"), site.path("plan.toml"));
    let start = || {
        let mut command = incrowd();
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command
            .args(LIFTED.split(' '))
            .arg("--data")
            .arg(site.path("both"))
            .arg("--config")
            .arg(site.path("settings.toml"))
            .arg("--task")
            .arg(&plan);
        Service::start(&mut command, &log).unwrap()
    };
    let service = start();
    let id = service.said[4].strip_prefix("task ").unwrap().to_owned();
    assert!(service.said.len() == 5 && is_hex(&id, 64), "{:?}", service.said);
    for (line, role) in service.said.iter().zip(["device", "admin"]) {
        let path = site.path(&format!("both/{role}.token"));
        let named = format!("token of the {role} in {}: hand it over", path.display());
        assert!(line.starts_with(&named), "{line}");
        assert_eq!(mode(&path), 0o600);
        let token = fs::read_to_string(&path).unwrap();
        assert!(token.starts_with(&format!("incrowd-{role}-")));
        let talk = fs::read_to_string(&log).unwrap();
        assert!(!talk.contains(token.trim()) && !talk.contains("incrowd-"), "{talk}");
    }
    // Handed over.
    fs::rename(site.path("both/admin.token"), site.path("admin.token")).unwrap();
    fs::rename(site.path("both/device.token"), site.path("device.token")).unwrap();
    for file in ["shuffler.keys", "bandit.keys", "tokens.toml", "shuffler.db", "bandit.db"] {
        assert_eq!(mode(&site.path("both").join(file)), 0o600, "{file}");
    }
    for folder in ["both", "both/tasks"] {
        assert_eq!(mode(&site.path(folder)), 0o700, "{folder}");
    }
    for lock in ["both/shuffler.lock", "both/bandit.lock"] {
        assert_eq!(mode(&site.path(lock)), 0o600, "another user could hold the lock: {lock}");
    }
    assert!(statuses(&site, &service, "admin").contains(&id));
    let status = service.terminate();
    assert_eq!(status.code(), Some(0));
    let again = start();
    assert_eq!(again.said[2..], [format!("task {id}")], "the keys and so the task are the same");
    let mut second = incrowd();
    second
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(LIFTED.split(' '));
    second.arg("--config").arg(site.path("settings.toml"));
    second.arg("--data").arg(site.path("both")).arg("--task").arg(&plan);
    let second = second.output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("is in use by another process"));
    assert!(again.terminate().success());
}

/// R28 with real processes and round keys in memory.
#[test]
fn an_old_store_put_back_is_refused_before_it_counts() {
    let site = Site::new(3, 4, 3);
    let caller = Caller::new();
    let serve = || {
        let mut serve = incrowd();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        serve.args(LIFTED.split(' ')).arg("--data").arg(site.path("both"));
        serve.arg("--config").arg(site.path("settings.toml"));
        serve.arg("--task").arg(site.path("task.toml"));
        serve
    };
    // Both roles in one folder.
    fs::create_dir(site.path("both")).unwrap();
    for file in ["shuffler/shuffler.keys", "bandit/bandit.keys", "shuffler/tokens.toml"] {
        let name = Path::new(file).file_name().unwrap();
        fs::copy(site.path(file), site.path("both").join(name)).unwrap();
    }
    let log = site.path("services.log");
    let fill = |round: u32, service: &Service| {
        let first = (round as usize - 1) * 3;
        let parcels: Vec<_> = (first..first + 3).map(|i| site.one_hot(round, i % 9)).collect();
        assert_eq!(post(&parcels, &caller, &site, &service.url).unwrap().bulk().accepted, 3);
        site.model(&caller, &service.url, round - 1);
    };
    let service = site.start(&mut serve());
    assert!(fs::read_to_string(&log).unwrap().contains("keys of rounds: "));
    fill(1, &service);
    assert!(service.terminate().success());
    let (store, kept) = (site.path("both/shuffler.db"), site.path("kept.db"));
    fs::copy(&store, &kept).unwrap();
    let service = site.start(&mut serve());
    fill(2, &service);
    assert!(service.terminate().success());
    let newest = fs::read(&store).unwrap();
    fs::copy(&kept, &store).unwrap();
    for heads in [true, false] {
        if !heads {
            fs::remove_file(site.path("both/heads.json")).unwrap();
        }
        let before = fs::read(&store).unwrap();
        let refused = serve().output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("the shuffler's store went back in time"), "{said}");
        assert!(said.contains("release 2 of task") && said.contains("no such release"), "{said}");
        assert_eq!(fs::read(&store).unwrap(), before);
    }
    fs::write(&store, newest).unwrap();
    let service = site.start(&mut serve());
    fill(3, &service);
    assert!(service.terminate().success());
}

#[test]
fn sigterm_keeps_an_unfinished_batch() {
    let site = Site::new(4, 1, 5);
    let caller = Caller::new();
    let service = site.start(&mut site.shuffler(0));
    for coordinate in 0..3 {
        let answer = site.one_hot(1, coordinate).put(&caller, &site, &service.url).unwrap();
        assert_eq!(answer.status, 204, "{answer}");
    }
    // It waits for the first release, which does not keep the shuffler from ending.
    let bandit = site.start(&mut site.bandit(0, &service.url));
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    assert_eq!(service.terminate().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(bandit.terminate().code(), Some(0));
    good(&format!("task backup --data {0} --to {0}-copy", site.path("shuffler").display()));
    let service = site.start(&mut site.shuffler(0));
    assert!(statuses(&site, &service, "admin").contains("round 1 with 3 reports"));
    let rest: Vec<_> = (2..5).map(|coordinate| site.one_hot(1, coordinate)).collect();
    let answer = post(&rest, &caller, &site, &service.url).unwrap();
    assert_eq!(answer.bulk().accepted, 3, "{answer}");
    let token = site.token("bandit");
    let answer = caller.get(&site.at(&service.url, "releases/1"), Some(&token)).unwrap();
    let release: Release = serde_json::from_slice(&answer.body).unwrap();
    let sums = release.sums();
    assert_eq!(sums.sums()[..6], [1, 1, 1, 1, 1, 0], "the third came twice and counts once");
    assert!(statuses(&site, &service, "admin").contains("finished"));
}

fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sighup_takes_rotated_keys_into_use() {
    let site = Site::new(3, 1, 10);
    let caller = Caller::new();
    let service = site.start(&mut site.shuffler(0));
    let notice = || site.notice(&caller.get(&site.at(&service.url, "config"), None).unwrap());
    let send = |coordinate, notice: &TaskNotice| -> Answer {
        let sealed = site.seal(&site.one_hot(1, coordinate), notice);
        sealed.put(&caller, &site, &service.url).unwrap()
    };
    let step = |what: &str, expected: &[KeyState]| {
        good(&format!("keys {what} --data {}", site.path("shuffler").display()));
        service.signal("HUP");
        eventually(what, || {
            let notice = notice();
            notice
                .sealing_keys
                .iter()
                .map(|key| key.state)
                .eq(expected.iter().copied())
                .then_some(notice)
        })
    };
    let first = notice();
    let pending = step("rotate", &[KeyState::Active, KeyState::Pending]);
    assert_eq!(pending.sealing_key().unwrap().id, 1);
    assert_eq!(send(0, &first).status, 204);
    let second = step("activate", &[KeyState::Active, KeyState::Active]);
    assert_eq!(second.sealing_key().unwrap().id, 2);
    assert_eq!(send(1, &first).status, 204, "on its way when the key changed");
    assert_eq!(send(2, &second).status, 204);
    step("expire --yes", &[KeyState::Expired, KeyState::Active]);
    let answer = send(3, &first);
    assert_eq!((answer.status, answer.problem()), (422, "unknown-key"));
    assert_eq!(send(4, &second).status, 204);

    // A file that cannot be used changes nothing.
    set_mode(&site.path("shuffler/shuffler.keys"), 0o644);
    service.signal("HUP");
    eventually("a line in the log", || {
        fs::read_to_string(site.path("services.log"))
            .unwrap()
            .contains("stay as they were")
            .then_some(())
    });
    assert_eq!(send(5, &second).status, 204);
    assert!(service.terminate().success());
}

/// Restores a backup although a third release was made since.
fn accept_rollback(site: &Site, restore: &str) {
    let said = refused(restore);
    assert!(said.contains("went back in time") && said.contains("release 3"), "{said}");
    assert!(said.contains("--accept-rollback"), "{said}");
    assert!(!site.path("shuffler/shuffler.db").exists());
    let accepted = output(&format!("{restore} --accept-rollback"));
    let said = text(&accepted.stderr);
    assert_eq!(accepted.status.code(), Some(0), "{said}");
    assert!(said.contains("can be counted again"), "{said}");
}

/// The third release destroyed the key of round 1, whose ids the backup still has.
fn accept_lost_keys(site: &Site) -> Service {
    let said = site.shuffler(0).output().unwrap();
    assert!(text(&said.stderr).contains("the key of round 1 of task"), "{}", text(&said.stderr));
    let mut accepting = site.shuffler(0);
    accepting.env("INCROWD_SHUFFLER__ACCEPT_LOST_ROUND_KEYS", "true");
    site.start(&mut accepting)
}

#[test]
fn export_backup_restore_and_close() {
    let site = Site::new(3, 4, 3);
    let caller = Caller::new();
    let shuffler = site.start(&mut site.shuffler(0));
    let bandit = site.start(&mut site.bandit(0, &shuffler.url));
    let task = site.path("task.toml").display().to_string();
    let fill = |round: u32, number: usize, shuffler: &Service| {
        let first = (round as usize - 1) * 3;
        let parcels: Vec<_> = (first..first + number).map(|i| site.one_hot(round, i % 9)).collect();
        let answer = post(&parcels, &caller, &site, &shuffler.url).unwrap();
        assert_eq!(answer.bulk().accepted, number, "{answer}");
    };
    fill(1, 3, &shuffler);
    fill(2, 3, &shuffler);
    fill(3, 2, &shuffler);
    let model = |base: &str, after: u32| site.model(&caller, base, after);
    let second = model(&bandit.url, 1);
    assert!(statuses(&site, &bandit, "bandit-admin").contains("model 2 after 2 rounds"));
    let export = |data: &str, what: &str| -> Vec<Value> {
        let data = site.path(data).display().to_string();
        let lines = good(&format!("task export --data {data} --task {task} {what}"));
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let models = export("bandit", "models");
    assert_eq!(models.len(), 2);
    assert_eq!(models[1], serde_json::from_slice::<Value>(&second).unwrap());
    let releases = export("bandit", "releases");
    let rounds: Vec<_> = releases.iter().map(|release| release["round"].clone()).collect();
    assert_eq!(rounds, [1, 2]);
    let ledger = export("bandit", "ledger");
    assert_eq!(ledger.len(), 2);
    let last = &ledger[1];
    assert!(last["reports"] == 3 && last["law"]["flip"] == "1/2", "{last}");
    assert!(last["epsilon_local"].as_f64().unwrap() > 0.0);

    // While both run; then a third round that the copies do not have.
    let (kept, path) = (site.path("kept"), |name: &str| site.path(name).display().to_string());
    for role in ["shuffler", "bandit"] {
        let copied = good(&format!("task backup --data {} --to {}", path(role), kept.display()));
        let store = kept.join(format!("{role}.db")).display().to_string();
        assert_eq!(copied.lines().next(), Some(store.as_str()));
        assert_eq!(mode(&kept.join(format!("{role}.db"))), 0o600);
    }
    let again = refused(&format!("task backup --data {} --to {}", path("bandit"), kept.display()));
    assert!(again.contains("bandit.db exists: move it away first"), "{again}");
    fill(3, 3, &shuffler);
    model(&bandit.url, 2);
    shuffler.kill();
    bandit.kill();
    let restore = format!("task restore --data {} --from {}", path("shuffler"), kept.display());
    assert!(refused(&restore).contains("exists: move it away first"));
    for role in ["shuffler", "bandit"] {
        for file in fs::read_dir(site.path(role)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.to_string_lossy().contains(".db") {
                fs::remove_file(file).unwrap();
            }
        }
    }
    fs::create_dir(site.path("none")).unwrap();
    let none = format!("task restore --data {} --from {}", path("bandit"), path("none"));
    assert!(refused(&none).contains("there is no store in the folder"));
    for role in ["shuffler", "bandit"] {
        let only = site.path(&format!("kept-{role}"));
        fs::create_dir(&only).unwrap();
        fs::copy(kept.join(format!("{role}.db")), only.join(format!("{role}.db"))).unwrap();
        let restore = format!("task restore --data {} --from {}", path(role), only.display());
        if role == "shuffler" {
            accept_rollback(&site, &restore);
        } else {
            good(&restore);
        }
    }
    let shuffler = accept_lost_keys(&site);
    let bandit = site.start(&mut site.bandit(0, &shuffler.url));
    assert!(statuses(&site, &shuffler, "admin").contains("round 3 with 2 reports"));
    assert_eq!(model(&bandit.url, 0), second, "bit for bit");
    fill(3, 3, &shuffler);
    let third: Model = serde_json::from_slice(&model(&bandit.url, 2)).unwrap();
    assert_eq!((third.version(), third.round()), (3, 3));

    let close = |token: &str, admin: &str| {
        format!("task close --yes --admin {admin} --token-file {} {}", path(token), site.task.id())
    };
    let said = refused(&close("device.token", &shuffler.admin));
    assert!(
        said.contains("answered 403 (forbidden): this needs a token of the role admin"),
        "{said}"
    );
    assert!(
        refused(&close("bandit-admin.token", &bandit.admin))
            .contains("only the shuffler closes tasks")
    );
    fill(4, 1, &shuffler);
    good(&close("admin.token", &shuffler.admin));
    assert!(statuses(&site, &shuffler, "admin").contains("closed"));
    let answer = site.one_hot(4, 8).put(&caller, &site, &shuffler.url).unwrap();
    assert_eq!((answer.status, answer.problem()), (410, "finished"));
    let release = |round: u32| {
        let url = site.at(&shuffler.url, &format!("releases/{round}"));
        caller.get(&url, Some(&site.token("bandit"))).unwrap().status
    };
    assert_eq!([release(3), release(4)], [200, 410]);
}

/// R25. A limit on the size of files is what a full disk is to the store.
#[test]
fn when_nothing_more_can_be_written_nothing_is_acknowledged() {
    const SIZE: usize = 120;
    let site = Site::new(40, 1, SIZE as u32);
    let caller = Caller::new();
    let mut limited = Command::new("sh");
    clean(&mut limited);
    // 512 bytes each. Without the trap the process would end instead of getting an error.
    let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_incrowd")]).args(site.arguments("shuffler", 0));
    let service = site.start(&mut limited);
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    let mut coordinate = 0;
    while failed.len() < 20 && coordinate < 100 {
        let number = if coordinate % 3 == 0 { 4 } else { 1 };
        let parcels: Vec<_> = (coordinate..coordinate + number)
            .map(|coordinate| site.one_hot(1, coordinate))
            .collect();
        let answer = match &parcels[..] {
            [parcel] => parcel.put(&caller, &site, &service.url),
            parcels => post(parcels, &caller, &site, &service.url),
        };
        let answer = answer.unwrap();
        match answer.status {
            200 | 204 => acknowledged.extend(coordinate..coordinate + number),
            status => {
                assert_eq!((status, answer.problem()), (503, "unavailable"));
                assert_eq!(answer.headers["retry-after"], "1");
                failed.extend(parcels);
            }
        }
        coordinate += number;
    }
    assert!(!acknowledged.is_empty() && failed.len() >= 20, "{acknowledged:?}, {}", failed.len());
    let alive = caller.get(&format!("{}/healthz", service.admin), None).unwrap();
    assert_eq!(alive.status, 200, "it answers, it only takes nothing");
    service.kill();

    let service = site.start(&mut site.shuffler(0));
    let expected = format!("round 1 with {} reports", acknowledged.len());
    let found = statuses(&site, &service, "admin");
    assert!(found.contains(&expected), "{expected}, but {found}");
    // One that failed comes again, the others never.
    let retry = failed.remove(0);
    assert_eq!(retry.put(&caller, &site, &service.url).unwrap().status, 204);
    acknowledged.push(retry.number);
    let rest: Vec<_> = (0..SIZE - acknowledged.len()).map(|i| site.one_hot(1, 200 + i)).collect();
    let answer = post(&rest, &caller, &site, &service.url).unwrap();
    assert_eq!(answer.bulk().accepted, rest.len(), "{answer}");
    let url = site.at(&service.url, "releases/1");
    let answer = caller.ask(Method::GET, &url, Some(&site.token("bandit")), None).unwrap();
    let release: Release = serde_json::from_slice(&answer.body).unwrap();
    let sums = release.sums();
    for (coordinate, &sum) in sums.sums().iter().enumerate() {
        let counted = acknowledged.contains(&coordinate)
            || rest.iter().any(|parcel| parcel.number == coordinate);
        assert_eq!(sum, i64::from(counted), "report {coordinate}");
    }
}

#[test]
fn load_takes_the_real_way_and_measures_it() {
    let site = Site::new(2, 10, 50);
    let shuffler = site.start(&mut site.shuffler(0));
    let bandit = site.start(&mut site.bandit(0, &shuffler.url));
    let load = |options: &str| {
        let (task, token) = (site.task.id(), site.path("device.token"));
        let base = &shuffler.url;
        let command = format!(
            "load --url {base} --task {task} --token-file {} --output json {options}",
            token.display()
        );
        let told: serde_json::Value = serde_json::from_str(&good(&command)).unwrap();
        assert!(told["milliseconds_p50"].as_f64() <= told["milliseconds_p99"].as_f64());
        told["outcomes"]["accepted"].as_u64().unwrap()
    };
    let wrong = |url: &str, task: &str| refused(&format!("load --url {url} --task {task}"));
    let (url, task) = (&shuffler.url, site.task.id().to_string());
    let plain = url.replace("http:", "https:");
    for (said, cause) in [
        (
            wrong("http://127.0.0.1:1", &task),
            "no answer from the server: the connection was refused",
        ),
        (wrong("127.0.0.1:8787", &task), "the url must be an http or https address with a host"),
        (wrong("ftp://127.0.0.1", &task), "the url must begin with http:// or https://"),
        (wrong(&plain, &task), "TLS failed: the server does not speak TLS at this port"),
        (
            wrong(url, &"0".repeat(64)),
            "the server answered 404 (not-found): this service does not have the task",
        ),
    ] {
        assert!(said.contains(cause), "{said}");
    }
    // Reports of a round that ends meanwhile are late: with one connection none is.
    assert_eq!(load("--reports 49 --connections 1"), 49);
    assert_eq!(load("--reports 51 --bulk 51 --connections 1 --plain"), 51);
    assert_eq!(load("--reports 40 --connections 1 --rate 400"), 40);
    assert!(statuses(&site, &shuffler, "admin").contains("round 3 with 40 reports"));
    assert_eq!(bandit.terminate().code(), Some(0));
    assert_eq!(shuffler.terminate().code(), Some(0));
}

#[test]
fn r30_r35_tokens_and_the_issuing_secret_are_made_in_private_files() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = |name: &str| folder.path().join(name);
    let keys = |rest: &str| format!("keys {rest} --data {}", data.display());
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
    };
    let monitor = path("monitor.token");
    let made = format!("token --role monitor --out {}", monitor.display());
    assert_eq!(good(&keys(&made)), "");
    let token = fs::read_to_string(&monitor).unwrap();
    assert!(token.starts_with("incrowd-monitor-") && token.ends_with('\n'), "only the token");
    assert_eq!((mode(&data), mode(&monitor)), (0o700, 0o600));
    let hashes = fs::read_to_string(data.join("tokens.toml")).unwrap();
    assert!(refused(&keys(&made)).contains("File exists"));
    assert_eq!(fs::read_to_string(data.join("tokens.toml")).unwrap(), hashes, "no hash without it");
    assert_eq!(fs::read_to_string(&monitor).unwrap(), token, "never overwritten silently");

    let number = keys("device-tokens --number 3");
    assert!(refused(&number).contains("issuing.key"));
    good(&keys("issuer"));
    let issuer = data.join("issuing.key");
    let secret = fs::read_to_string(&issuer).unwrap();
    assert!(secret.len() == 65 && mode(&issuer) == 0o600);
    assert!(refused(&keys("issuer")).contains("File exists"));
    let tokens = good(&number);
    let serials: Vec<_> = tokens.lines().map(|line| line.split('-').nth(2).unwrap()).collect();
    assert!(serials.len() == 3 && serials[0] != serials[1] && serials[1] != serials[2]);
    let out = path("tokens");
    good(&format!("{number} --out {}", out.display()));
    assert_eq!((fs::read_to_string(&out).unwrap().lines().count(), mode(&out)), (3, 0o600));
    let revoked =
        format!("revoke --device {} --device {}", serials[0], tokens.lines().nth(1).unwrap());
    good(&keys(&revoked));
    let file = fs::read_to_string(data.join("tokens.toml")).unwrap();
    assert!(file.contains(serials[0]) && file.contains(serials[1]) && !file.contains(serials[2]));
    assert!(refused(&keys("revoke --device 12")).contains("32 hex digits"));
    good(&keys("revoke --role monitor"));
    assert!(!fs::read_to_string(data.join("tokens.toml")).unwrap().contains("monitor"));
    good(&keys("issuer --replace"));
    assert_ne!(fs::read_to_string(&issuer).unwrap(), secret);
    set_mode(&issuer, 0o644);
    assert!(refused(&number).contains("is readable by others (mode 644): `chmod 600 "));

    // Nothing goes out before the rule is kept.
    let plain = "task list --admin http://192.0.2.1:1 --token-file";
    let said = refused(&format!("{plain} {}", monitor.display()));
    assert!(said.contains("http://192.0.2.1:1, plain http to another machine"), "{said}");
}

#[test]
fn a_relay_takes_a_file_variables_and_flags_and_says_where_it_is() {
    use std::io::{BufRead, BufReader};
    let site = Site::new(2, 2, 2);
    let caller = Caller::new();
    let shuffler = site.start(&mut site.shuffler(0));
    let token = site.path("relay.token").display().to_string();
    let file = site.path("relay.toml");
    fs::write(&file, format!("gateway = \"http://127.0.0.1:9\"\ntoken_file = \"{token}\""))
        .unwrap();
    let relay = |more: &[&str]| {
        let mut relay = incrowd();
        relay.arg("relay").args(["--listen", "127.0.0.1:0"]).args(more);
        relay.env("INCROWD_ADMIN_LISTEN", "127.0.0.1:0").env("INCROWD_HTTP__BODY_BYTES", "1e5");
        relay
    };
    let said = |more: &[&str]| text(&relay(more).output().unwrap().stderr);
    let config = file.display().to_string();
    assert!(said(&[]).contains("gateway is missing (--gateway)"));
    assert!(said(&["--gateway", "http://127.0.0.1:9"]).contains("token_file is missing"));
    let with = |more: &[&str]| said(&[&["--config", &config], more].concat());
    assert!(with(&["--tls-key", "x.pem"]).contains("certificate"));
    assert!(with(&["--admin-listen", "0.0.0.0:0"]).contains("this listener asks for no token"));
    let device = site.path("device.token").display().to_string();
    let other = with(&["--gateway", &shuffler.url, "--token-file", &device]);
    assert!(other.contains("refuses the token") && other.contains("--token-file"), "{other}");

    let mut command = relay(&["--config", &config, "--gateway", &shuffler.url]);
    let log = fs::File::create(site.path("relay.log")).unwrap();
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(log).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let listening = lines.next().unwrap();
    let admin = lines.next().unwrap();
    let at = |line: &str, begin: &str| format!("http://{}", line.strip_prefix(begin).unwrap());
    let keys = format!("{}/ohttp-keys", at(&listening, "listening on "));
    assert_eq!(caller.get(&keys, None).unwrap().status, 200);
    let ready = format!("{}/readyz", at(&admin, "admin on "));
    assert_eq!(caller.get(&ready, None).unwrap().status, 200);
    for signal in ["HUP", "TERM"] {
        let kill = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
    assert!(child.wait().unwrap().success());
}
