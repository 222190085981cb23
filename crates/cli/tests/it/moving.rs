//! A service that moves to another machine, and a task that is removed (R33).

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use incrowd_testdb::Server;

use crate::support::{
    Caller, LIFTED, Service, Site, good, incrowd, output, post, private, refused, text,
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Both roles in one folder, with the keys and tokens of the site.
fn place(site: &Site, data: &str) {
    fs::create_dir(site.path(data)).unwrap();
    for file in ["shuffler/shuffler.keys", "bandit/bandit.keys", "shuffler/tokens.toml"] {
        let name = Path::new(file).file_name().unwrap();
        fs::copy(site.path(file), site.path(data).join(name)).unwrap();
    }
    // Not handed over yet.
    fs::copy(site.path("admin.token"), site.path(data).join("admin.token")).unwrap();
}

fn serve(site: &Site, data: &str, settings: &str) -> Command {
    let mut serve = incrowd();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    serve.args(LIFTED.split(' ')).arg("--data").arg(site.path(data));
    serve.arg("--config").arg(site.path(settings)).arg("--task").arg(site.path("task.toml"));
    serve
}

fn status(site: &Site, service: &Service) -> String {
    let token = site.path("admin.token").display().to_string();
    good(&format!("task list --admin {} --token-file {token}", service.admin))
}

/// What an export prints.
fn releases(site: &Site, data: &str) -> String {
    let (data, task) = (site.path(data), site.path("task.toml"));
    good(&format!("task export --data {} --task {} releases", data.display(), task.display()))
}

#[test]
fn r33_a_service_moves_with_its_keys_tokens_and_releases() {
    let site = Site::new(3, 4, 3);
    let caller = Caller::new();
    let path = |name: &str| site.path(name).display().to_string();
    place(&site, "one");
    let service = site.start(&mut serve(&site, "one", "settings.toml"));
    let send = |round, numbers: &[usize], service: &Service| {
        let parcels: Vec<_> = numbers.iter().map(|number| site.one_hot(round, *number)).collect();
        assert_eq!(
            post(&parcels, &caller, &site, &service.url).unwrap().bulk().accepted,
            numbers.len()
        );
    };
    send(1, &[0, 1, 2], &service);
    site.model(&caller, &service.url, 0);
    send(2, &[3, 4], &service);
    assert!(service.terminate().success());
    let before = releases(&site, "one");

    private(site.path("passphrase"), "correct horse battery staple\n");
    private(site.path("short"), "horse\n");
    let back_up = format!("task backup --data {} --to {}", path("one"), path("kept"));
    let short = refused(&format!("{back_up} --passphrase-file {}", path("short")));
    assert!(short.contains("5 characters, must have at least 12"), "{short}");
    fs::write(site.path("open"), "correct horse battery staple").unwrap();
    let open = refused(&format!("{back_up} --passphrase-file {}", path("open")));
    assert!(open.contains("is readable by others"), "{open}");
    assert!(!site.path("kept").exists());
    let made = good(&format!("{back_up} --passphrase-file {}", path("passphrase")));
    for name in ["shuffler.db", "bandit.db", "secrets.incrowd"] {
        assert!(made.contains(name), "{made}");
        assert_eq!(mode(&site.path("kept").join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&site.path("kept")), 0o700);
    let sealed = fs::read(site.path("kept/secrets.incrowd")).unwrap();
    let admin = site.token("admin");
    assert!(!sealed.windows(20).any(|window| window == &admin.as_bytes()[..20]));

    // With another passphrase nothing is restored, not even the folder.
    private(site.path("wrong"), "correct horse battery");
    let restore = |to: &str| format!("task restore --data {} --from {}", path(to), path("kept"));
    let wrong = refused(&format!("{} --passphrase-file {}", restore("two"), path("wrong")));
    assert!(wrong.contains("secrets.incrowd does not open: the passphrase is another"), "{wrong}");
    assert!(!site.path("two").exists());
    // A restore that breaks off has no keys yet: with them and without releases a start would begin
    // the task anew.
    fs::create_dir(site.path("broken")).unwrap();
    fs::write(site.path("broken/tasks"), "no folder").unwrap();
    refused(&format!("{} --passphrase-file {}", restore("broken"), path("passphrase")));
    assert!(site.path("broken/shuffler.db").exists());
    assert!(!site.path("broken/shuffler.keys").exists());
    good(&format!("{} --passphrase-file {}", restore("two"), path("passphrase")));
    let again = refused(&format!("{} --passphrase-file {}", restore("two"), path("passphrase")));
    assert!(again.contains("exists: move it away first"), "{again}");
    for name in ["shuffler.keys", "bandit.keys", "tokens.toml", "admin.token"] {
        let (one, two) = (site.path("one").join(name), site.path("two").join(name));
        assert_eq!(fs::read(one).unwrap(), fs::read(&two).unwrap(), "{name}");
        assert_eq!(mode(&two), 0o600, "{name}");
    }
    assert_eq!(releases(&site, "two"), before);

    // The keys of rounds moved too: the settings name their folder.
    let service = site.start(&mut serve(&site, "two", "settings.toml"));
    assert!(service.said.contains(&format!("task {}", site.task.id())), "{:?}", service.said);
    assert!(status(&site, &service).contains("round 2 with 2 reports"));
    send(2, &[3, 4], &service);
    assert!(status(&site, &service).contains("round 2 with 2 reports"), "they are duplicates");
    assert!(service.terminate().success());

    // They did not: the open round is discarded, where a task with grace must allow it.
    let settings = fs::read_to_string(site.path("settings.toml")).unwrap();
    let elsewhere = settings.replace("/keys\"", "/keys-of-another-machine\"");
    assert_ne!(settings, elsewhere);
    fs::write(site.path("elsewhere.toml"), elsewhere).unwrap();
    good(&format!("{} --passphrase-file {}", restore("three"), path("passphrase")));
    let lost = serve(&site, "three", "elsewhere.toml").output().unwrap();
    assert!(text(&lost.stderr).contains("the key of round"), "{}", text(&lost.stderr));
    let mut accepting = serve(&site, "three", "elsewhere.toml");
    accepting.env("INCROWD_SHUFFLER__ACCEPT_LOST_ROUND_KEYS", "true");
    let service = site.start(&mut accepting);
    assert!(status(&site, &service).contains("round 2 with 0 reports"));
    assert!(service.terminate().success());
    assert_eq!(releases(&site, "three"), before);
}

#[test]
fn r33_a_backup_without_secrets_says_so_and_is_not_another_service() {
    let site = Site::new(2, 2, 2);
    let path = |name: &str| site.path(name).display().to_string();
    place(&site, "one");
    assert!(site.start(&mut serve(&site, "one", "settings.toml")).terminate().success());
    let made = output(&format!("task backup --data {} --to {}", path("one"), path("kept")));
    assert!(made.status.success());
    let said = text(&made.stderr);
    assert!(said.contains("WARNING: keys and tokens are NOT in this backup"), "{said}");
    assert!(said.contains("the key of the open round is in no backup"), "{said}");
    let restore = format!("task restore --data {} --from {}", path("two"), path("kept"));
    private(site.path("passphrase"), "correct horse battery staple");
    let none = refused(&format!("{restore} --passphrase-file {}", path("passphrase")));
    assert!(none.contains("secrets.incrowd: No such file") && !site.path("two").exists(), "{none}");
    let restored = output(&restore);
    assert!(restored.status.success());
    let said = text(&restored.stderr);
    assert!(said.contains("shuffler.keys is missing: its service refuses to start"), "{said}");
    let refused = serve(&site, "two", "settings.toml").output().unwrap();
    let said = text(&refused.stderr);
    assert!(said.contains("new keys would be another service"), "{said}");
    assert!(!site.path("two/shuffler.keys").exists() && !site.path("two/tokens.toml").exists());
}

#[test]
fn a_task_is_purged_only_when_the_operator_means_it() {
    let site = Site::new(2, 2, 2);
    place(&site, "one");
    let service = site.start(&mut serve(&site, "one", "settings.toml"));
    let purge = |more: &str| {
        let mut purge = incrowd();
        purge.args(["task", "purge", &site.task.id().to_string()]);
        purge.arg("--config").arg(site.path("settings.toml")).arg("--data").arg(site.path("one"));
        purge.args(more.split_whitespace());
        let output = purge.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = purge("--yes");
    assert!(code == Some(2) && said.contains("is in use by another process"), "{said}");
    assert!(service.terminate().success());
    let (code, said) = purge("");
    assert!(
        code == Some(2) && said.contains("nothing is done yet") && said.contains("--yes"),
        "{said}"
    );
    assert!(said.contains("shuffler: 0 signed releases, ids, its unfinished batch"), "{said}");
    let (code, said) = purge("--yes --task /no/such.toml");
    assert!(
        code == Some(2) && said.contains("/no/such.toml"),
        "what is named must be known: {said}"
    );
    let named = purge(&format!("--yes --task {}", site.path("task.toml").display()));
    assert!(named.1.contains("the next start would begin it anew"), "{}", named.1);
    assert_eq!(purge("--yes").0, Some(0));
    let (code, said) = purge("--yes");
    assert!(code == Some(2) && said.contains("is not in the store"), "{said}");
}

#[test]
fn r33_task_move_takes_a_service_to_a_database_and_back() {
    let server = Server::start(&[]);
    let site = Site::new(3, 4, 3);
    let caller = Caller::new();
    place(&site, "data");
    let (data, task) = (site.path("data"), site.path("task.toml"));
    let store = |url: &str| {
        let common = fs::read_to_string(site.path("settings.toml")).unwrap();
        format!("store = {url:?}\ndata = {data:?}\ntasks = [{task:?}]\n{common}")
    };
    fs::write(site.path("files.toml"), store("sqlite")).unwrap();
    fs::write(site.path("nodes.toml"), store(&server.create("incrowd"))).unwrap();
    let path = |name: &str| site.path(name).display().to_string();
    let moved = |from: &str, to: &str, more: &str| {
        format!("task move --from {} --to {} {more}", path(from), path(to))
    };
    let put = |service: &Service, round, number| {
        let answer = site.one_hot(round, number).put(&caller, &site, &service.url).unwrap();
        assert_eq!(answer.status, 204, "{answer}");
    };
    let service = site.start(&mut serve(&site, "data", "files.toml"));
    (0..3).for_each(|number| put(&service, 1, number));
    site.model(&caller, &service.url, 0);
    put(&service, 2, 3);
    let busy = refused(&moved("files.toml", "nodes.toml", "--yes"));
    assert!(busy.contains("in use"), "{busy}");
    assert!(service.terminate().success());

    let asked = refused(&moved("files.toml", "nodes.toml", ""));
    assert!(asked.contains("--yes"), "{asked}");
    let stranger = "--yes --task 00";
    assert!(!refused(&moved("files.toml", "nodes.toml", stranger)).is_empty());
    let said = good(&moved("files.toml", "nodes.toml", "--yes"));
    assert!(said.contains("1 signed releases, round 2 with 1 reports"), "{said}");
    let again = good(&moved("files.toml", "nodes.toml", "--yes"));
    assert!(again.contains("was moved before"), "{again}");
    let old = output(&format!("doctor {LIFTED} --config {}", path("files.toml")));
    assert_eq!(old.status.code(), Some(1));
    assert!(
        text(&old.stdout).contains("to another store (`incrowd task move`)"),
        "{}",
        text(&old.stdout)
    );

    let service = site.start(&mut serve(&site, "data", "nodes.toml"));
    put(&service, 2, 3);
    put(&service, 2, 4);
    assert!(status(&site, &service).contains("round 2 with 2 reports"));
    assert!(service.terminate().success());
    let back = good(&moved("nodes.toml", "files.toml", "--yes"));
    assert!(back.contains("round 2 with 2 reports"), "{back}");
    let service = site.start(&mut serve(&site, "data", "files.toml"));
    put(&service, 2, 5);
    site.model(&caller, &service.url, 1);
    assert!(service.terminate().success());
}
