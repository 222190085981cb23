//! Who may ask for what, and what an operator serves at all: R15 (limits), R22 (tokens, own files
//! of each role).

use std::fs;

use crate::common::{Place, certificate, mechanism, one_hot, plain, private};
use incrowd_node::{
    AdmissionKind, KeyRole, Keys, LimitError, Limits, Node, Relay, RelayConfig, Role, Roles,
    ServiceError, Tokens, Verdict, read_token, write_token,
};
use incrowd_protocol::{Closes, FlipProbability, Law, Layout, MechanismConfig, MediaType, Stage};
use reqwest::Method;
use tempfile::TempDir;

/// Whose token a request has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sender {
    Nobody,
    Unknown,
    Malformed,
    Of(Role),
}

/// Who may pass.
#[derive(Clone, Copy)]
enum Door {
    /// Everyone without a token or with a valid one.
    Open,
    Only(Role),
    /// Who watches, and the operator.
    Shown,
    /// Of a device, or without one.
    OpenToDevices,
}

impl Door {
    fn expected(self, sender: Sender, inside: u16) -> u16 {
        match (self, sender) {
            (_, Sender::Unknown | Sender::Malformed)
            | (Self::Only(_) | Self::Shown, Sender::Nobody) => 401,
            (Self::Only(role), Sender::Of(found)) if found != role => 403,
            (Self::Shown, Sender::Of(found)) if ![Role::Monitor, Role::Admin].contains(&found) => {
                403
            }
            (Self::OpenToDevices, Sender::Of(found)) if found != Role::Device => 403,
            _ => inside,
        }
    }
}

const SENDERS: [Sender; 8] = [
    Sender::Nobody,
    Sender::Unknown,
    Sender::Malformed,
    Sender::Of(Role::Device),
    Sender::Of(Role::Bandit),
    Sender::Of(Role::Relay),
    Sender::Of(Role::Monitor),
    Sender::Of(Role::Admin),
];

/// Every endpoint, as the documentation writes it and not as the code does: whether it is the
/// operator's, method, path, content type, who may pass, and the status once inside.
type Endpoint = (bool, Method, String, &'static str, Door, u16);

fn endpoints(task: &str) -> Vec<Endpoint> {
    let get = |path: &str, door, inside| (false, Method::GET, path.to_owned(), "", door, inside);
    let at = |path: &str| format!("/v1/tasks/{task}{path}");
    let (device, bandit) = (Door::Only(Role::Device), Door::Only(Role::Bandit));
    let (relay, admin) = (Door::Only(Role::Relay), Door::Only(Role::Admin));
    let report = at(&format!("/reports/{}", "a5".repeat(16)));
    vec![
        get(&at("/config"), Door::Open, 200),
        get(&at("/round"), Door::Open, 200),
        get(&at("/model"), Door::Open, 404),
        get("/v1/ohttp-keys", Door::Open, 200),
        get("/openapi.json", Door::Open, 200),
        get(&at("/releases/1"), bandit, 202),
        (false, Method::PUT, report, MediaType::Report.as_str(), device, 422),
        (false, Method::POST, at("/reports"), MediaType::Reports.as_str(), device, 200),
        get("/v1/gateway", relay, 204),
        (
            false,
            Method::POST,
            "/v1/gateway".into(),
            MediaType::ObliviousRequest.as_str(),
            relay,
            422,
        ),
        (true, Method::GET, "/healthz".into(), "", Door::Open, 200),
        (true, Method::GET, "/readyz".into(), "", Door::Open, 200),
        (true, Method::GET, "/metrics".into(), "", Door::Shown, 200),
        (true, Method::GET, "/v1/tasks".into(), "", Door::Shown, 200),
        (true, Method::POST, format!("/v1/tasks/{}/close", "0".repeat(64)), "", admin, 404),
    ]
}

async fn status(node: &crate::common::Running, endpoint: &Endpoint, header: Option<&str>) -> u16 {
    let (operator, method, path, kind, ..) = endpoint;
    let base = if *operator { &node.admin } else { &node.base };
    let mut request = node.client.request(method.clone(), format!("{base}{path}"));
    if !kind.is_empty() {
        request = request.header("content-type", *kind);
    }
    if let Some(header) = header {
        request = request.header("authorization", header);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    if status == 401 {
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    }
    if status >= 400 {
        assert_eq!(crate::common::problem(answer).await.0, status);
    }
    status
}

fn headers(place: &Place, sender: Sender) -> Vec<Option<String>> {
    let device = place.token(Role::Device);
    match sender {
        Sender::Nobody => vec![None],
        Sender::Unknown => {
            let unknown = Tokens::default().add(Role::Admin).unwrap().to_string();
            // The hash in the token file is no token.
            let file = fs::read_to_string(place.files().tokens).unwrap();
            let hash = file.split('"').find(|part| part.len() == 64).unwrap();
            vec![Some(format!("Bearer {unknown}")), Some(format!("Bearer {hash}"))]
        }
        Sender::Malformed => ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz"]
            .map(|text| Some(text.to_owned()))
            .into_iter()
            .chain([
                Some(device.to_owned()),
                Some(format!("Bearer  {device}")),
                Some(format!("Bearer {device},{device}")),
                Some(format!("Bearer {}", &device[..device.len() - 1])),
            ])
            .collect(),
        Sender::Of(role) => vec![Some(format!("Bearer {}", place.token(role)))],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_every_endpoint_refuses_every_wrong_token() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Both);
    for endpoint in endpoints(&place.task.id().to_string()) {
        for sender in SENDERS {
            for header in headers(&place, sender) {
                let found = status(&node, &endpoint, header.as_deref()).await;
                let (_, method, path, _, door, inside) = &endpoint;
                let expected = door.expected(sender, *inside);
                assert_eq!(found, expected, "{method} {path} from {sender:?} ({header:?})");
            }
        }
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_the_description_lists_every_endpoint_that_is_tested_here() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Both);
    let text = node.client.get(format!("{}/openapi.json", node.base)).send().await.unwrap();
    let api: serde_json::Value = serde_json::from_slice(&text.bytes().await.unwrap()).unwrap();
    let described: Vec<String> = api["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    let mut tested: Vec<String> = endpoints("{task}")
        .iter()
        .filter(|(operator, _, path, ..)| !operator && path != "/openapi.json")
        .map(|(_, method, path, ..)| format!("{} {path}", method.as_str().to_lowercase()))
        .map(|line| {
            line.replace(&"a5".repeat(16), "{id}").replace("releases/1", "releases/{round}")
        })
        .collect();
    tested.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
    let mut described = described;
    described.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
    assert_eq!(described, tested);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_open_uploads_take_devices_and_those_without_a_token_but_no_other_role() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    place.config.shuffler.admission = AdmissionKind::Open;
    let node = place.start(Roles::Shuffler);
    for mut endpoint in endpoints(&place.task.id().to_string()) {
        if !endpoint.2.contains("/reports") {
            continue;
        }
        endpoint.4 = Door::OpenToDevices;
        for sender in SENDERS {
            for header in headers(&place, sender) {
                let expected = endpoint.4.expected(sender, endpoint.5);
                let found = status(&node, &endpoint, header.as_deref()).await;
                assert_eq!(found, expected, "{} from {sender:?} ({header:?})", endpoint.2);
            }
        }
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_a_role_answers_only_its_own_paths() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let at_bandit = place.bandit_of(&shuffler);
    let bandit = at_bandit.start(Roles::Bandit);
    assert_eq!(shuffler.model().await.status(), 404);
    assert_eq!(crate::common::problem(shuffler.model().await).await.1, "not-found");
    assert_eq!(crate::common::problem(bandit.model().await).await.1, "no-model-yet");
    assert_eq!(bandit.put(&one_hot(place.mechanism(), 1, 0)).await.status(), 404);
    assert_eq!(bandit.release(1).await.status(), 404);
    assert_eq!(bandit.ask(Method::GET, "/config").send().await.unwrap().status(), 404);
    assert_eq!(bandit.close().await, 404, "the bandit closes nothing");
    let files = |place: &Place| {
        let (files, has) = (place.files(), |path: &std::path::Path| path.exists());
        (has(&files.shuffler_store), has(&files.bandit_store))
    };
    assert_eq!(files(&place), (true, false), "each role has its own file");
    assert_eq!(files(&at_bandit), (false, true));
    assert!(!at_bandit.files().shuffler_keys.exists());
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_tokens_are_kept_as_hashes_in_a_file_of_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    // A node that makes its own.
    fs::remove_file(place.files().tokens).unwrap();
    let node = Node::start(&place.config, Roles::Both).unwrap();
    let made = node.new_tokens();
    assert_eq!(made.iter().map(|(role, _)| *role).collect::<Vec<_>>(), [Role::Device, Role::Admin]);
    let text = fs::read_to_string(place.files().tokens).unwrap();
    let known = Tokens::load(&place.files().tokens).unwrap();
    for (role, path) in made {
        assert_eq!(*path, place.files().token(*role));
        let token = read_token(path).unwrap();
        let secret = token.rsplit('-').next().unwrap();
        assert!(secret.len() == 64 && !text.contains(secret), "the hashes have no token");
        assert_eq!(known.verdict(token.as_bytes()), Verdict::Known(*role));
        assert_eq!(known.verdict(secret.as_bytes()), Verdict::Unknown);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = place.files();
    for path in [&files.tokens, &files.shuffler_keys, &files.bandit_keys] {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    node.stop().await;
    fs::set_permissions(&files.shuffler_keys, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = Node::start(&place.config, Roles::Both).err().unwrap().to_string();
    assert!(refused.contains("readable by others"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_a_task_that_names_another_key_is_not_served() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let files = place.files();
    for (path, role, roles, name) in [
        (&files.shuffler_keys, KeyRole::Shuffler, Roles::Shuffler, "shuffler"),
        (&files.bandit_keys, KeyRole::Bandit, Roles::Bandit, "bandit"),
    ] {
        let mine = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        Keys::create(path, role).unwrap();
        let mut config = place.config.clone();
        let token = place.folder.path().join("token");
        private(&token, place.token(Role::Bandit));
        config.bandit.token_file = Some(token);
        match Node::start(&config, roles).err() {
            Some(ServiceError::OtherKey { task, role }) => {
                assert_eq!((task, role), (place.task.id(), name));
            }
            other => panic!("{other:?}"),
        }
        fs::write(path, mine).unwrap();
    }
    fs::copy(&files.bandit_keys, &files.shuffler_keys).unwrap();
    let refused = Node::start(&place.config, Roles::Shuffler).err().unwrap().to_string();
    assert!(refused.contains("another role's"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_a_role_alone_needs_keys_token_and_a_task_with_keys() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let refused = |config: &incrowd_node::NodeConfig, roles| {
        Node::start(config, roles).err().unwrap().to_string()
    };
    assert!(refused(&place.config, Roles::Bandit).contains("bandit.token_file"));
    let mut config = place.config.clone();
    config.tasks.clear();
    assert!(matches!(Node::start(&config, Roles::Shuffler).err(), Some(ServiceError::NoTask)));
    let keyless = place.folder.path().join("keyless.toml");
    fs::write(&keyless, toml::to_string(place.task.config()).unwrap()).unwrap();
    config.tasks = vec![keyless];
    assert!(refused(&config, Roles::Shuffler).contains("[keys]"));
    let empty = TempDir::new().unwrap();
    let mut config = place.config.clone();
    config.data = empty.path().join("new");
    assert!(
        refused(&config, Roles::Shuffler).contains("shuffler.keys"),
        "keys are not made silently"
    );
    assert!(!config.data.join("shuffler.keys").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_a_task_beyond_a_limit_is_refused_by_the_limits_name() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 50, 1), (1, 40, 1)])));
    let open = place.config.limits;
    assert!(open.admit(&place.task).is_ok());
    let certificate = open.admit(&place.task).unwrap();
    let (local, central) = (certificate.epsilon_local(), certificate.epsilon_central());
    let below = |value: f64| value * 0.999;
    for (key, limits) in [
        ("epsilon_local", Limits { epsilon_local: below(local), ..open }),
        ("epsilon_central", Limits { epsilon_central: below(central), ..open }),
        ("delta", Limits { delta: 0.9e-6, ..open }),
        ("smallest_batch", Limits { smallest_batch: 41, ..open }),
    ] {
        place.config.limits = limits;
        for roles in [Roles::Shuffler, Roles::Both] {
            match Node::start(&place.config, roles).err() {
                Some(ServiceError::Limit(LimitError::Exceeded { key: found, .. })) => {
                    assert_eq!(found, key);
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        let text = limits.admit(&place.task).unwrap_err().to_string();
        assert!(text.contains(&format!("limits.{key}")), "{text}");
    }
    place.config.limits =
        Limits { epsilon_local: local, epsilon_central: central, delta: 1e-6, smallest_batch: 40 };
    Node::start(&place.config, Roles::Shuffler).unwrap().stop().await;
    place.config.limits = Limits::default();
    assert!(Node::start(&place.config, Roles::Both).is_err(), "the defaults refuse tiny batches");
}

#[test]
fn r15_a_task_that_hides_next_to_nothing_is_refused_by_the_defaults() {
    // Coins that are almost never flipped, in batches of one honest person at most.
    let flip = FlipProbability::new(1, u32::MAX).unwrap();
    let config = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: vec![Stage {
            rounds: 1,
            size: 100_000,
            window: None,
            law: Law::bits(4095, flip),
        }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-9,
        participations: u32::MAX,
        honest_fraction: 1e-5,
    };
    let task = crate::common::orphan(plain(config.check().unwrap()));
    let defaults = Limits::default();
    for (key, limits) in [
        ("epsilon_local", Limits { epsilon_local: f64::NAN, ..defaults }),
        ("epsilon_local", defaults),
        ("epsilon_central", Limits { epsilon_local: f64::INFINITY, ..defaults }),
    ] {
        match limits.admit(&task) {
            Err(LimitError::Exceeded { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_secrets_that_others_can_read_are_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |config: &incrowd_node::NodeConfig, roles| {
        Node::start(config, roles).err().unwrap().to_string()
    };
    let token = place.folder.path().join("bandit.token");
    write_token(&token, place.token(Role::Bandit)).unwrap();
    let taken = write_token(&token, "another").unwrap_err().to_string();
    assert!(taken.contains("bandit.token") && taken.contains("exists"), "{taken}");
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    place.config.bandit.token_file = Some(token.clone());
    mode(&token, 0o644);
    let said = refused(&place.config, Roles::Bandit);
    assert!(said.contains("(mode 644): `chmod 640 ") && said.contains("bandit.token"), "{said}");
    mode(&token, 0o640);
    place.node(Roles::Bandit).stop().await;

    place.config.tls = Some(certificate(place.folder.path(), "node"));
    let key = place.config.tls.as_ref().unwrap().key.clone();
    mode(&key, 0o604);
    let said = refused(&place.config, Roles::Shuffler);
    assert!(said.contains("(mode 604)") && said.contains("chmod 640"), "{said}");
    mode(&key, 0o640);
    place.node(Roles::Shuffler).stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_no_token_goes_to_another_machine_in_clear() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let token = place.folder.path().join("bandit.token");
    write_token(&token, place.token(Role::Bandit)).unwrap();
    place.config.bandit.token_file = Some(token);
    place.config.bandit.shuffler_url = "http://192.0.2.1:8787".into();
    let said = Node::start(&place.config, Roles::Bandit).err().unwrap().to_string();
    for part in ["bandit.shuffler_url", "http://192.0.2.1:8787", "plain http", "allow_plain_http"] {
        assert!(said.contains(part), "{said}");
    }
    place.config.bandit.allow_plain_http = true;
    place.node(Roles::Bandit).stop().await;
    let relay = RelayConfig {
        gateway: "http://192.0.2.1".into(),
        token_file: place.config.bandit.token_file.clone(),
        ..RelayConfig::default()
    };
    let said = Relay::start(&relay).await.err().unwrap().to_string();
    assert!(said.contains("the gateway is http://192.0.2.1, plain http"), "{said}");
}
