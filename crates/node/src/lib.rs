//! The processes of incrowd: shuffler and bandit over HTTP, alone or together, and a relay.
//!
//! A [`Node`] runs one role or both. Each loads the task file from its own operator and computes
//! the certificate itself; the shuffler takes nothing from the bandit. What is acknowledged is
//! durable: uploads wait for a group commit of the [`store`].

mod access;
mod admin;
mod admission;
mod bandit;
mod bounds;
mod config;
mod device_tokens;
mod error;
mod files;
mod heads;
mod http;
mod keys;
mod layers;
mod limits;
mod listener;
mod log;
mod metrics;
mod moving;
mod newest;
mod node;
mod nodes;
mod openapi;
mod problem;
mod purge;
mod rates;
mod readiness;
mod relay;
pub mod role;
pub mod round_keys;
mod secrets;
mod shuffler;
mod signals;
mod startup;
pub mod store;
mod task_file;
mod tls;
mod tokens;

pub use access::Access;
pub use admin::TaskStatus;
pub use admission::{Admission, AdmissionKind, Bearer, Claim};
pub use bandit::{BanditServer, CollectError, shuffler_address};
pub use config::{
    BanditConfig, ConfigError, HttpLimits, LogFormat, NodeConfig, PostgresConfig, ShufflerConfig,
    StoreKind, TlsConfig,
};
pub use device_tokens::{Issuer, Serial};
pub use error::ServiceError;
pub use files::{Files, trust};
pub use heads::{Heads, WentBack, Witnessed};
pub use http::app;
pub use keys::{KeyError, KeyRole, Keys};
pub use layers::{Layers, LayersOf, Setting, Settings};
pub use limits::{LimitError, Limits};
pub use log::init as init_log;
pub use metrics::Metrics;
pub use moving::{Moved, move_task};
pub use node::{Node, Roles, connections_for};
pub use problem::{Kind, Problem};
pub use purge::Remains;
pub use relay::{GatewayError, Relay, RelayConfig, RunningRelay};
pub use round_keys::{RoundKeyError, RoundKeysConfig};
pub use secrets::{Passphrase, Secrets, SecretsError};
pub use shuffler::{OpenTasks, Progress, Shuffler, Upload};
pub use signals::Signals;
pub use store::StoreError;
pub use task_file::{TaskFile, load_task};
pub use tls::check_tls;
pub use tokens::{Role, Tokens, Verdict, read_token, write_token};
