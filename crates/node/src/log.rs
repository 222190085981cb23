//! Log lines: what happened to the service, never who did what, and when only to the minute.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    EnvFilter,
    fmt::{self, format::Writer, time::FormatTime},
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

/// Writes log lines to stderr. `RUST_LOG` chooses what; by default everything from `info` of our own, warnings of others.
pub fn init(format: LogFormat) -> Result<(), TryInitError> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,incrowd_node=info,incrowd=info"));
    let builder = fmt::fmt().with_env_filter(filter).with_writer(io::stderr).with_timer(Minute);
    let builder = builder.with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.with_target(false).finish().try_init(),
        LogFormat::Json => builder.json().with_target(false).finish().try_init(),
    }
}
