//! How nodes reach their database: which URLs are taken, TLS and passwords, and hosts that do not
//! answer.

use std::{fs, net::TcpListener, path::Path};

use incrowd_node::{ConfigError, NodeConfig, PostgresConfig, StoreKind, store::Stores};
use incrowd_testdb::{Server, USER};
use tempfile::TempDir;

use crate::common::private;

fn settings(url: &str) -> NodeConfig {
    NodeConfig { store: StoreKind::Postgres(url.into()), ..NodeConfig::default() }
}

#[test]
fn a_url_says_where_the_database_is_and_has_no_password() {
    let refused = |url: &str| match settings(url).check() {
        Err(ConfigError::Range { key: "store", allowed, .. }) => allowed,
        other => panic!("{url}: {:?}", other.map(|_| "taken")),
    };
    for url in [
        "postgres://u@127.0.0.1/d",
        "postgres://u@localhost:6000,127.0.0.1:6001/d?sslmode=disable",
        "postgres://u@db1.example,db2.example/d",
        "postgres://u@db1.example/d?sslmode=require&target_session_attrs=read-write",
        "postgres://u@%2Frun%2Fpostgresql/d",
    ] {
        assert!(settings(url).check().is_ok(), "{url}");
    }
    for url in [
        "mysql://u@h/d",
        "sqlite:file",
        "",
        "postgres:///d",
        "postgres://u@h/d?sslmode=verify-full",
    ] {
        assert!(refused(url).contains("postgres://USER@HOST"), "{url}");
    }
    let secret = "postgres://u:secret@db1.example/d";
    assert!(refused(secret).contains("postgres.password_file"));
    assert!(!settings(secret).check().unwrap_err().to_string().contains("secret@"));
    let plain = "postgres://u@db1.example,127.0.0.1/d?sslmode=disable";
    assert!(refused(plain).contains("postgres.allow_plain"));
    let mut allowed = settings(plain);
    allowed.postgres.allow_plain = true;
    assert!(allowed.check().is_ok());
    for connections in [0, 1, 1001] {
        let mut wrong = settings("postgres://u@127.0.0.1/d");
        wrong.postgres.connections = connections;
        assert!(matches!(
            wrong.check(),
            Err(ConfigError::Range { key: "postgres.connections", .. })
        ));
    }
}

fn opened(url: &str, postgres: PostgresConfig) -> Result<(), String> {
    let config = NodeConfig { postgres, ..settings(url) };
    Stores::of(&config).unwrap().shuffler().map(drop).map_err(|error| error.to_string())
}

#[test]
fn tls_needs_the_right_authority_and_name_and_the_password_is_in_a_private_file() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let server = Server::start_with_tls(&certificate, &key, "kept apart");
    server.create("incrowd");
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        private(&path, text);
        path
    };
    let (password, ca) = (file("password", "kept apart\n"), file("ca.pem", &certificate));
    let postgres = |ca: &Path, password: &Path| PostgresConfig {
        ca: Some(ca.to_owned()),
        password_file: Some(password.to_owned()),
        ..PostgresConfig::default()
    };
    let port = server.address().rsplit(':').next().unwrap().to_owned();
    let url = |host: &str| format!("postgres://{USER}@{host}:{port}/incrowd?sslmode=require");
    let name = url("localhost");
    assert_eq!(opened(&name, postgres(&ca, &password)), Ok(()));
    // The certificate is of another name, or of nobody that is trusted.
    assert!(
        opened(&url("127.0.0.1"), postgres(&ca, &password)).unwrap_err().contains("certificate")
    );
    let stranger = file("other.pem", &other.cert.pem());
    assert!(opened(&name, postgres(&stranger, &password)).is_err());
    let wrong = file("wrong", "something else");
    assert!(opened(&name, postgres(&ca, &wrong)).unwrap_err().contains("password"));
    // Read again at each connection.
    private(&wrong, "kept apart");
    assert_eq!(opened(&name, postgres(&ca, &wrong)), Ok(()));
    // Plain connections are not what the server takes.
    let plain = name.replace("require", "disable");
    assert!(opened(&plain, postgres(&ca, &password)).is_err());
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&password, everybody).unwrap();
    assert!(opened(&name, postgres(&ca, &password)).unwrap_err().contains("chmod"));
}

#[test]
fn a_host_that_takes_connections_and_never_answers_keeps_nobody_from_the_others() {
    let server = Server::start(&[]);
    server.create("incrowd");
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("{},{}", frozen.local_addr().unwrap(), server.address());
    let config = settings(&format!("postgres://{USER}@{hosts}/incrowd"));
    let store = Stores::of(&config).unwrap().shuffler().unwrap();
    frozen.set_nonblocking(true).unwrap();
    assert!(frozen.accept().is_ok(), "it was asked first");
    // From then on the one that answers is asked first.
    server.stop();
    server.start_again();
    assert!(store.tasks().unwrap_or_default().is_empty());
    assert!(store.tasks().is_ok());
    assert!(frozen.accept().is_err(), "it is not asked again");
}
