//! Settings: a file, then the environment, then flags; wrong ones are refused by their name. And
//! every problem is documented.

use std::path::Path;

use incrowd_node::{AdmissionKind, ConfigError, HttpLimits, Kind, Layers, LogFormat, NodeConfig};
use serde_json::{Value, json};

/// Settings of a file with this text, of variables and of flags.
fn layers(text: &str, variables: &[(&str, &str)], flags: &Value) -> Result<Layers, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, text).unwrap();
    Layers::new(Some(&file), owned(variables), flags)
}

fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn read(text: &str, variables: &[(&str, &str)], flags: &Value) -> Result<NodeConfig, ConfigError> {
    layers(text, variables, flags)?.config()
}

fn origin(layers: &Layers, key: &str) -> (String, String) {
    let settings = layers.settings().unwrap();
    let setting = settings.iter().find(|setting| setting.key == key).unwrap_or_else(|| {
        panic!("{key} is not among {settings:?}");
    });
    (setting.value.clone(), setting.origin.clone())
}

#[test]
fn without_anything_the_defaults_hold() {
    assert_eq!(read("", &[], &json!({})).unwrap(), NodeConfig::default());
    let layers = Layers::new(None, [], &json!({})).unwrap();
    assert_eq!(layers.config().unwrap(), NodeConfig::default());
    for setting in layers.settings().unwrap() {
        assert_eq!(setting.origin, "default", "{setting}");
    }
    assert!(NodeConfig::default().check().is_ok());
}

#[test]
fn every_setting_can_be_given_as_it_is_shown() {
    let shown = Layers::new(None, [], &json!({})).unwrap().settings().unwrap();
    assert!(shown.len() > 15);
    let lines: Vec<String> = shown.iter().map(ToString::to_string).collect();
    assert_eq!(read(&lines.join("\n"), &[], &json!({})).unwrap(), NodeConfig::default());
    for setting in &shown {
        let name = format!("INCROWD_{}", setting.key.to_uppercase().replace('.', "__"));
        let value = setting.value.trim_matches('"');
        let layers = layers("", &[(&name, value)], &json!({})).unwrap();
        assert_eq!(layers.config().unwrap(), NodeConfig::default(), "{setting}");
        assert_eq!(origin(&layers, &setting.key).1, name);
    }
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_file() {
    let text = "listen = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:1\"\ndata = \"of-the-file\"\n\
                [limits]\nepsilon_local = 1.5\nsmallest_batch = 11\n[http]\nbody_seconds = 7\n";
    let file = layers(text, &[], &json!({})).unwrap();
    let config = file.config().unwrap();
    assert_eq!((config.listen.port(), config.limits.epsilon_local), (1, 1.5));
    let (value, from) = origin(&file, "limits.epsilon_local");
    assert!(value == "1.5" && from.ends_with("node.toml"), "{from}");

    let variables = [
        ("INCROWD_LISTEN", "127.0.0.1:2"),
        ("INCROWD_ADMIN_LISTEN", "127.0.0.1:2"),
        ("INCROWD_LIMITS__EPSILON_LOCAL", "2.5"),
        ("INCROWD_LIMITS__DELTA", "1e-7"),
        ("INCROWD_SHUFFLER__ADMISSION", "device-tokens"),
        ("INCROWD_SHUFFLER__GATEWAY", "false"),
        ("INCROWD_SHUFFLER__MODEL_URL", "https://models.example"),
        ("INCROWD_TASKS", "[\"a.toml\", \"b.toml\"]"),
        // The path of the file is no setting, and other programs' variables are none of ours.
        ("INCROWD_CONFIG", "node.toml"),
        ("LISTEN", "127.0.0.1:4"),
    ];
    let flags = json!({"listen": "127.0.0.1:3", "http": {"body_seconds": 9}, "log": "json"});
    let layers = layers(text, &variables, &flags).unwrap();
    let config = layers.config().unwrap();
    assert_eq!((config.listen.port(), config.admin_listen.port()), (3, 2));
    assert!((config.limits.epsilon_local - 2.5).abs() < 1e-12);
    assert!((config.limits.delta - 1e-7).abs() < 1e-12);
    assert_eq!(config.limits.smallest_batch, 11, "a section is merged, not replaced");
    assert_eq!(config.data, Path::new("of-the-file"));
    assert_eq!((config.http.body_seconds, config.http.header_seconds), (9, 10));
    assert!(!config.shuffler.gateway);
    assert_eq!(config.shuffler.admission, AdmissionKind::DeviceTokens);
    assert_eq!(config.shuffler.model_url.as_deref(), Some("https://models.example"));
    assert_eq!(config.tasks, ["a.toml", "b.toml"].map(Into::<std::path::PathBuf>::into));
    assert_eq!(config.log, LogFormat::Json);

    let of = |key: &str| origin(&layers, key).1;
    assert_eq!(of("listen"), "flag");
    assert_eq!(of("http.body_seconds"), "flag");
    assert_eq!(of("admin_listen"), "INCROWD_ADMIN_LISTEN");
    assert_eq!(of("limits.epsilon_local"), "INCROWD_LIMITS__EPSILON_LOCAL");
    assert_eq!(of("shuffler.admission"), "INCROWD_SHUFFLER__ADMISSION");
    assert!(of("data").ends_with("node.toml"));
    assert!(of("limits.smallest_batch").ends_with("node.toml"));
    assert_eq!(of("http.header_seconds"), "default");
    assert_eq!(of("bandit.shuffler_url"), "default");
}

#[test]
fn numbers_are_written_as_people_do() {
    for (key, text, value) in [
        ("limits.delta", "1e-5", "0.00001"),
        ("limits.delta", "1E-5", "0.00001"),
        ("limits.epsilon_local", "8", "8.0"),
        ("limits.epsilon_local", ".5", "0.5"),
        ("limits.epsilon_local", "1_000.5", "1000.5"),
        ("limits.smallest_batch", "100_000", "100000"),
        ("limits.smallest_batch", "1e5", "100000"),
        ("http.body_bytes", "0x10000", "65536"),
    ] {
        let name = format!("INCROWD_{}", key.to_uppercase().replace('.', "__"));
        let layers = layers("", &[(&name, text)], &json!({})).unwrap();
        assert_eq!(origin(&layers, key).0, value, "{name}={text}");
    }
    for (name, text) in [
        ("INCROWD_LIMITS__SMALLEST_BATCH", "1.5"),
        ("INCROWD_LIMITS__SMALLEST_BATCH", "1e20"),
        ("INCROWD_LIMITS__SMALLEST_BATCH", "-1"),
        ("INCROWD_LIMITS__DELTA", "small"),
        ("INCROWD_LIMITS__DELTA", ""),
    ] {
        assert!(layers("", &[(name, text)], &json!({})).is_err(), "{name}={text}");
    }
}

#[test]
fn a_wrong_setting_is_refused_by_its_name_and_origin() {
    let none = json!({});
    let named = |result: Result<NodeConfig, ConfigError>, origin: &str, key: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(origin) && error.contains(key), "{error}");
    };
    named(read("listenn = \"127.0.0.1:1\"", &[], &none), "node.toml", "listenn");
    named(read("[limits]\nepsilon = 1.0", &[], &none), "node.toml", "epsilon");
    let variables = [("INCROWD_HTTP__BODY_BYTE", "1024")];
    named(read("", &variables, &none), "INCROWD_", "body_byte");
    named(read("", &[], &json!({"bandit": {"url": ""}})), "flags", "url");
    named(read("listen = 5", &[], &none), "node.toml", "listen");
    named(read("listen = \"here\"", &[], &none), "node.toml", "listen");
    named(read("[limits]\nepsilon_local = \"much\"", &[], &none), "node.toml", "epsilon_local");
    named(read("listen = ", &[], &none), "node.toml", "");
    let missing = Layers::new(Some(Path::new("/nowhere/node.toml")), [], &none);
    let error = missing.err().unwrap();
    assert!(matches!(error, ConfigError::NoFile(_)) && error.to_string().contains("/nowhere"));
}

#[test]
fn numbers_out_of_range_are_refused_by_their_name() {
    let http = HttpLimits::default();
    let cases = [
        ("http.body_bytes", HttpLimits { body_bytes: 1023, ..http }),
        ("http.body_bytes", HttpLimits { body_bytes: (64 << 20) + 1, ..http }),
        ("http.header_seconds", HttpLimits { header_seconds: 0, ..http }),
        ("http.header_seconds", HttpLimits { header_seconds: 601, ..http }),
        ("http.body_seconds", HttpLimits { body_seconds: 0, ..http }),
        ("http.body_seconds", HttpLimits { body_seconds: 601, ..http }),
        ("http.concurrent_requests", HttpLimits { concurrent_requests: 0, ..http }),
        ("http.concurrent_requests", HttpLimits { concurrent_requests: (1 << 20) + 1, ..http }),
    ];
    let refused = |config: NodeConfig, key: &str| match config.check() {
        Err(ConfigError::Range { key: found, .. }) => assert_eq!(found, key),
        other => panic!("{key}: {other:?}"),
    };
    for (key, http) in cases {
        refused(NodeConfig { http, ..NodeConfig::default() }, key);
    }
    for seconds in [0, 601] {
        let mut config = NodeConfig::default();
        config.bandit.longest_pause_seconds = seconds;
        refused(config, "bandit.longest_pause_seconds");
    }
    let edges = [
        HttpLimits { body_bytes: 1024, header_seconds: 1, body_seconds: 1, ..http },
        HttpLimits { body_bytes: 64 << 20, header_seconds: 600, body_seconds: 600, ..http },
        HttpLimits { concurrent_requests: 1, ..http },
    ];
    for http in edges {
        assert!(NodeConfig { http, ..NodeConfig::default() }.check().is_ok());
    }
}

#[test]
fn plain_http_for_the_world_is_refused_from_every_source() {
    let text = "listen = \"0.0.0.0:80\"";
    let error = read(text, &[], &json!({})).unwrap_err();
    assert!(matches!(error, ConfigError::PlainHttp { key: "listen", .. }), "{error}");
    let allowed = [("INCROWD_ALLOW_PLAIN_HTTP", "true")];
    assert!(read(text, &allowed, &json!({})).unwrap().allow_plain_http);
    let flags = json!({"allow_plain_http": false, "admin_listen": "[::]:1"});
    assert!(read(text, &allowed, &flags).is_err());
    let local = NodeConfig { listen: "[::1]:1".parse().unwrap(), ..NodeConfig::default() };
    assert!(local.check().is_ok());
}

#[test]
fn every_problem_has_a_section_under_its_own_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    for kind in Kind::ALL {
        let heading = format!("\n## {}\n", kind.name());
        let section = text.split(&heading).nth(1).unwrap_or_else(|| {
            panic!("docs/problems.md has no section {}", kind.name());
        });
        let section = section.split("\n## ").next().unwrap();
        assert!(section.trim().len() > 40, "{} says nothing", kind.name());
        assert!(kind.uri().ends_with(&format!("problems.md#{}", kind.name())));
    }
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for heading in headings {
        assert!(
            names.contains(&heading),
            "docs/problems.md explains {heading}, which does not exist"
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Kind::ALL.len(), "names are unique");
}
