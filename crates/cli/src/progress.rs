//! How far a long command is.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// A bar on a terminal, otherwise a line every few seconds, the first at once.
pub struct Progress {
    bar: ProgressBar,
    of: u64,
    what: &'static str,
    terminal: bool,
    last_line: Option<Instant>,
}

impl Progress {
    /// `of` of something is the end.
    pub fn new(of: u64, what: &'static str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(of) } else { ProgressBar::hidden() };
        let template =
            format!("{{human_pos}}/{{human_len}} {what}, {{msg}}, {{eta}} left {{wide_bar}}");
        let style = ProgressStyle::with_template(&template);
        let style = style.expect("invariant: the template is a constant but for a word");
        Self { bar: bar.with_style(style), of, what, terminal, last_line: None }
    }

    /// There are `done` now; `message` is only made if somebody will see it.
    pub fn show(&mut self, done: u64, message: impl FnOnce() -> String) {
        if self.terminal {
            self.bar.set_position(done);
            self.bar.set_message(message());
        } else if self.last_line.is_none_or(|last| last.elapsed() >= PAUSE) {
            eprintln!("{done}/{} {}, {}", self.of, self.what, message());
            self.last_line = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
