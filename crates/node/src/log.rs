//! Log lines: what happened to the service, never who did what, and when only to the minute.

use std::{
    env,
    io::{self, IsTerminal},
};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{self, format::Writer, time::FormatTime},
    layer::SubscriberExt,
    util::{SubscriberInitExt, TryInitError},
};

use crate::LogFormat;

/// The minute, in UTC. An exact time next to a release would say when its last report came.
struct Minute;

impl FormatTime for Minute {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        let now = time::OffsetDateTime::now_utc();
        let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
        write!(writer, "{year}-{month:02}-{day:02}T{:02}:{:02}Z", now.hour(), now.minute())
    }
}

/// Writes log lines to stderr. `RUST_LOG` chooses what, as in `warn,incrowd_node=debug`; by default
/// everything from `info` of our own and warnings of others.
pub fn init(format: LogFormat) -> Result<(), TryInitError> {
    let wished = env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = wished.unwrap_or_else(|| {
        Targets::new()
            .with_default(LevelFilter::WARN)
            .with_targets([("incrowd_node", LevelFilter::INFO), ("incrowd", LevelFilter::INFO)])
    });
    let layer = fmt::layer()
        .with_writer(io::stderr)
        .with_timer(Minute)
        .with_ansi(io::stderr().is_terminal())
        // Where stderr is full or closed, std's own message about it would panic.
        .log_internal_errors(false)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    }
}
