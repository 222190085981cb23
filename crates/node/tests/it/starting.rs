//! Starts that fail, and starts that would be another service (R33).

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use incrowd_node::{
    AdmissionKind, Files, Heads, Node, NodeConfig, Remains, Role, Roles, ServiceError, StoreError,
    TlsConfig, Tokens, Verdict, read_token,
};
use incrowd_protocol::{Task, TaskConfig};
use tempfile::TempDir;

use crate::common::{Place, mechanism, one_hot, plain, private, settings};

fn config() -> TaskConfig {
    plain(mechanism(2, 0, &[(3, 2, 1)]))
}

/// Settings of `serve` with an empty place for its data and a planner's file.
fn fresh() -> (TempDir, NodeConfig) {
    let folder = TempDir::new().unwrap();
    let mut settings = settings(folder.path().join("deep/data"));
    let path = folder.path().join("task.toml");
    fs::write(&path, toml::to_string(&config()).unwrap()).unwrap();
    settings.tasks = vec![path];
    (folder, settings)
}

fn refused(config: &NodeConfig, roles: Roles) -> ServiceError {
    Node::start(config, roles).err().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

type Spoil = fn(&mut NodeConfig, &Path);

/// What can be checked before there is a folder, and a part of the message.
const REFUSALS: [(Spoil, &str); 8] = [
    (|config, folder| config.tasks.push(folder.join("missing.toml")), "missing.toml"),
    (
        |config, folder| {
            fs::write(folder.join("bad.toml"), "closes = 1").unwrap();
            config.tasks.push(folder.join("bad.toml"));
        },
        "bad.toml cannot be used as a task file",
    ),
    (|config, _| config.limits.smallest_batch = 3, "limits.smallest_batch"),
    (
        |config, folder| {
            let (certificate, key) = (folder.join("no.pem"), folder.join("no.key"));
            config.tls = Some(TlsConfig { certificate, key });
        },
        "no.pem",
    ),
    (|config, _| config.http.body_bytes = 1, "http.body_bytes"),
    (
        |config, _| config.shuffler.admission = AdmissionKind::DeviceTokens,
        "or make it with `incrowd keys issuer --data",
    ),
    (
        |config, folder| {
            config.shuffler.model_url = Some("https://models.example".into());
            config.shuffler.model_ca = Some(folder.join("no-ca.pem"));
        },
        "no-ca.pem",
    ),
    (|config, _| config.tasks.clear(), "there is no task to serve"),
];

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_refused_start_leaves_no_trace() {
    for (spoil, said) in REFUSALS {
        let (folder, mut config) = fresh();
        spoil(&mut config, folder.path());
        let error = refused(&config, Roles::Both).to_string();
        assert!(error.contains(said), "{error}");
        assert!(!folder.path().join("deep").exists(), "{said}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap();
    for admin in [false, true] {
        let (folder, mut config) = fresh();
        *(if admin { &mut config.admin_listen } else { &mut config.listen }) = busy;
        let error = refused(&config, Roles::Both);
        assert!(matches!(error, ServiceError::Listen { address, .. } if address == busy));
        assert!(!folder.path().join("deep").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_start_that_fails_late_keeps_its_keys_and_tokens() {
    let (_folder, mut config) = fresh();
    let files = Files::of(&config.data);
    // A folder is no file of heads.
    config.shuffler.heads = Some(config.data.clone());
    refused(&config, Roles::Both);
    assert_eq!(mode(&config.data), 0o700);
    let device = read_token(&files.token(Role::Device)).unwrap();
    let admin = read_token(&files.token(Role::Admin)).unwrap();
    let keys = [&files.shuffler_keys, &files.bandit_keys].map(|path| fs::read(path).unwrap());
    config.shuffler.heads = None;
    let node = Node::start(&config, Roles::Both).unwrap();
    assert_eq!(node.new_tokens().len(), 2, "named as long as they are there");
    let known = Tokens::load(&files.tokens).unwrap();
    assert_eq!(known.verdict(device.as_bytes()), Verdict::Known(Role::Device));
    assert_eq!(known.verdict(admin.as_bytes()), Verdict::Known(Role::Admin));
    let now = [&files.shuffler_keys, &files.bandit_keys].map(|path| fs::read(path).unwrap());
    assert_eq!(now, keys);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_tokens_that_a_start_left_without_their_hashes_are_taken() {
    let (_folder, config) = fresh();
    let files = Files::of(&config.data);
    fs::create_dir_all(&config.data).unwrap();
    private(&files.token(Role::Admin), "a shopping list");
    let error = refused(&config, Roles::Both);
    assert!(matches!(error, ServiceError::NotAToken { role: "admin", .. }), "{error}");
    assert_eq!(fs::read_to_string(files.token(Role::Admin)).unwrap(), "a shopping list");
    fs::remove_file(files.token(Role::Admin)).unwrap();
    let device = format!("incrowd-device-{}", "ab".repeat(32));
    private(&files.token(Role::Device), &format!("{device}\n"));
    Node::start(&config, Roles::Both).unwrap().stop().await;
    let known = Tokens::load(&files.tokens).unwrap();
    assert_eq!(known.verdict(device.as_bytes()), Verdict::Known(Role::Device));
    assert!(known.has(Role::Admin));
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_stores_without_their_keys_are_not_served_with_new_ones() {
    let place = Place::new(config());
    place.start(Roles::Both).stop().await;
    let files = place.files();
    for path in [&files.shuffler_keys, &files.bandit_keys, &files.tokens] {
        let kept = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        let error = refused(&place.config, Roles::Both);
        let lost = match &error {
            ServiceError::LostKeys { path, .. } | ServiceError::LostTokens { path, .. } => path,
            other => panic!("{other}"),
        };
        assert_eq!(lost, path);
        assert!(!path.exists(), "nothing is made");
        fs::write(path, kept).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::remove_file(&files.bandit_keys).unwrap();
    fs::remove_file(&files.shuffler_keys).unwrap();
    let error = refused(&place.config, Roles::Shuffler).to_string();
    assert!(error.contains("incrowd task restore"), "{error}");
    // A folder without tasks needs keys, which its operator makes.
    let (_folder, config) = fresh();
    let error = refused(&config, Roles::Shuffler).to_string();
    assert!(error.contains("incrowd keys new --role shuffler --data"), "{error}");
    assert!(!config.data.exists());
}

/// Another task of the same keys.
fn planned_anew(place: &Place) -> Task {
    let task = Task::new(plain(mechanism(2, 0, &[(4, 2, 1)])), *place.task.keys());
    let path = place.folder.path().join("task.toml");
    fs::write(path, toml::to_string(&task).unwrap()).unwrap();
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_task_that_was_planned_anew_is_not_silently_another_service() {
    let mut place = Place::new(config());
    let node = place.start(Roles::Both);
    node.put(&one_hot(place.mechanism(), 1, 0)).await;
    node.stop().await;
    let (old, new) = (place.task.id(), planned_anew(&place));
    match refused(&place.config, Roles::Both) {
        ServiceError::Leftover { task, .. } => assert_eq!(task, old),
        other => panic!("{other}"),
    }
    // Served too, from the file that was kept.
    place.config.tasks.push(place.files().kept_task(&old));
    let node = place.start(Roles::Both);
    assert_eq!(node.filled().await, (Some(1), Some(1)));
    assert_eq!(node.close().await, 204);
    node.stop().await;
    // Closed, it may be left out.
    place.config.tasks.pop();
    let node = Node::start(&place.config, Roles::Both).unwrap();
    assert_eq!(node.tasks().collect::<Vec<_>>(), [new.id()]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_task_whose_last_round_is_released_may_be_left_out() {
    let place = Place::new(plain(mechanism(2, 0, &[(1, 2, 1)])));
    let node = place.start(Roles::Both);
    for number in 0..2 {
        node.put(&one_hot(place.mechanism(), 1, number)).await;
    }
    node.model_of(1).await;
    node.stop().await;
    planned_anew(&place);
    Node::start(&place.config, Roles::Both).unwrap().stop().await;
    // Without its file nobody knows how many rounds it has.
    fs::remove_file(place.files().kept_task(&place.task.id())).unwrap();
    assert!(matches!(refused(&place.config, Roles::Both), ServiceError::Leftover { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_purged_is_in_no_file() {
    let place = Place::new(config());
    let (id, files) = (place.task.id(), place.files());
    let node = place.start(Roles::Both);
    for number in 0..3 {
        node.put(&one_hot(place.mechanism(), number / 2 + 1, number)).await;
    }
    node.model_of(1).await;
    let release = node.released(1).await;
    let used = Remains::open(&place.config, id).err().unwrap();
    let named = |error: &ServiceError| matches!(error, ServiceError::StillNamed { .. });
    assert!(named(&used), "{used}");
    let mut config = place.config.clone();
    config.tasks.clear();
    let used = Remains::open(&config, id).err().unwrap();
    assert!(matches!(used, ServiceError::Store(StoreError::InUse(_))), "{used}");
    node.stop().await;
    let remains = open(&config, &place);
    let said = remains.to_string();
    assert!(said.contains("1 signed releases") && said.contains("1 absorbed releases"), "{said}");
    remains.remove().unwrap();
    for store in [&files.shuffler_store, &files.bandit_store] {
        for ending in ["", "-wal"] {
            let bytes = fs::read(with_ending(store, ending)).unwrap_or_default();
            let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            assert!(!has(&release[..40]) && !has(id.bytes()), "{}{ending}", store.display());
        }
    }
    assert!(Heads::load(&files.heads).unwrap().get(&id).is_none());
    assert!(!files.kept_task(&id).exists());
    let keys = fs::read_dir(place.round_keys.path().join("keys")).unwrap();
    assert_eq!(keys.count(), 0, "keys of rounds and the note of commits");
    match Remains::open(&config, id).err() {
        Some(ServiceError::Store(StoreError::UnknownTask(_))) => {}
        other => panic!("{other:?}"),
    }
    // Another task begins in the same stores.
    planned_anew(&place);
    Node::start(&place.config, Roles::Both).unwrap().stop().await;
}

/// A last connection of the node may still hold the store for a moment.
fn open(config: &NodeConfig, place: &Place) -> Remains {
    for _ in 0..100 {
        match Remains::open(config, place.task.id()) {
            Err(ServiceError::Store(StoreError::InUse(_))) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => return other.unwrap(),
        }
    }
    panic!("the store stays in use");
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}
