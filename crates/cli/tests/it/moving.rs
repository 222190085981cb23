//! A service that moves to another machine, and a task that is removed (R33).

use std::{fs, path::Path, process::Command};

use crate::support::{LIFTED, Site, incrowd, text};

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
    assert!(code == Some(2) && said.contains("nothing is removed: give --yes"), "{said}");
    assert!(said.contains("shuffler: 0 signed releases, ids, its unfinished batch"), "{said}");
    let named = purge(&format!("--yes --task {}", site.path("task.toml").display()));
    assert!(named.1.contains("the next start would begin it anew"), "{}", named.1);
    assert_eq!(purge("--yes").0, Some(0));
    let (code, said) = purge("--yes");
    assert!(code == Some(2) && said.contains("is not in the store"), "{said}");
}
