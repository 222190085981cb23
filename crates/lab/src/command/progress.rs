//! What a person sees while an experiment takes long: a bar on a terminal, elsewhere a line every
//! few seconds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use incrowd_lab::experiment::Event;
use indicatif::{ProgressBar, ProgressStyle};

const PLANNING: &str = "planning {wide_msg} {pos}/{len} plans, {elapsed}";
const SERVING: &str = "{msg} {bar:30} {human_pos}/{human_len} rounds, {per_sec}, {eta} left";
/// Between two lines where no bar can be drawn.
const INTERVAL: Duration = Duration::from_secs(5);

/// Listens to an experiment.
pub struct Progress {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
    /// Prints the lines until it is told to stop by the end of the channel.
    lines: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

/// How far the current phase is.
struct State {
    phase: &'static str,
    begun: Instant,
    done: u64,
    all: u64,
    /// What is being planned, since when.
    planning: Vec<(String, Instant)>,
}

impl Progress {
    pub fn new() -> Self {
        let (phase, begun) = ("planning", Instant::now());
        let state = State { phase, begun, done: 0, all: 0, planning: Vec::new() };
        let (bar, state) = (ProgressBar::new(0), Arc::new(Mutex::new(state)));
        let lines = bar.is_hidden().then(|| {
            let (stop, stopped) = mpsc::channel::<()>();
            let state = state.clone();
            let print = move || {
                while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if let Some(line) = lock(&state).line(Instant::now()) {
                        eprintln!("{line}");
                    }
                }
            };
            (stop, thread::spawn(print))
        });
        Self { bar, state, lines }
    }

    pub fn show(&self, event: Event<'_>) {
        match event {
            Event::Preparing(count) => self.begin(PLANNING, "planning", count as u64),
            Event::Planning(name) => {
                lock(&self.state).planning.push((name.into(), Instant::now()));
                self.name_plans();
            }
            Event::Planned(name) => {
                let mut state = lock(&self.state);
                state.done += 1;
                if let Some(at) = state.planning.iter().position(|(other, _)| other == name) {
                    state.planning.remove(at);
                }
                drop(state);
                self.name_plans();
                self.bar.inc(1);
            }
            Event::Tuning(rounds) => self.begin(SERVING, "tuning", rounds),
            Event::Running(rounds) => self.begin(SERVING, "running", rounds),
            Event::Served(rounds) => {
                lock(&self.state).done += rounds;
                self.bar.inc(rounds);
            }
        }
    }

    /// Nothing more is shown.
    pub fn finish(mut self) {
        self.bar.finish_and_clear();
        if let Some((stop, lines)) = self.lines.take() {
            drop(stop);
            // It only prints: whatever became of it does not matter.
            let _ = lines.join();
        }
    }

    fn begin(&self, template: &str, phase: &'static str, all: u64) {
        let mut state = lock(&self.state);
        (state.phase, state.begun, state.done, state.all) = (phase, Instant::now(), 0, all);
        drop(state);
        let style = ProgressStyle::with_template(template);
        self.bar.set_style(style.expect("invariant: the templates are constants"));
        self.bar.reset();
        self.bar.set_length(all);
        self.bar.set_message(if template == PLANNING { "" } else { phase });
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn name_plans(&self) {
        let state = lock(&self.state);
        let names: Vec<&str> = state.planning.iter().map(|(name, _)| name.as_str()).collect();
        self.bar.set_message(names.join("; "));
    }
}

impl State {
    /// What there is to say; nothing once all is done.
    fn line(&self, now: Instant) -> Option<String> {
        let Self { phase, begun, done, all, .. } = *self;
        if done >= all {
            return None;
        }
        let seconds = |since: Instant| now.duration_since(since).as_secs_f64();
        let elapsed = seconds(begun);
        if phase == "planning" {
            let named =
                |(name, since): &(String, Instant)| format!("{name} for {:.0} s", seconds(*since));
            let names: Vec<String> = self.planning.iter().map(named).collect();
            let names = names.join("; ");
            return Some(format!("planning, {done} of {all} after {elapsed:.0} s: {names}"));
        }
        let left = match done {
            0 => String::new(),
            _ => format!(", {:.0} s left", elapsed * (all - done) as f64 / done as f64),
        };
        let share = 100.0 * done as f64 / all as f64;
        Some(format!("{phase}, {done} of {all} rounds ({share:.0}%) after {elapsed:.0} s{left}"))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_done_and_what_is_not() {
        let progress = Progress::new();
        let begun = Instant::now();
        let line = |after: u64| {
            let mut state = lock(&progress.state);
            state.begun = begun;
            state
                .planning
                .iter_mut()
                .for_each(|(_, since)| *since = begun + Duration::from_secs(3));
            state.line(begun + Duration::from_secs(after))
        };
        assert_eq!(line(9), None, "nothing is known yet");
        progress.show(Event::Preparing(3));
        progress.show(Event::Planning("sblb (d = 90)"));
        progress.show(Event::Planning("jdp-tree"));
        progress.show(Event::Planning("random"));
        progress.show(Event::Planned("random"));
        assert_eq!(
            line(15).as_deref(),
            Some("planning, 1 of 3 after 15 s: sblb (d = 90) for 12 s; jdp-tree for 12 s")
        );
        progress.show(Event::Planned("jdp-tree"));
        progress.show(Event::Planned("sblb (d = 90)"));
        assert_eq!(line(20), None);
        progress.show(Event::Running(400));
        assert_eq!(line(5).as_deref(), Some("running, 0 of 400 rounds (0%) after 5 s"));
        progress.show(Event::Served(100));
        assert_eq!(
            line(10).as_deref(),
            Some("running, 100 of 400 rounds (25%) after 10 s, 30 s left")
        );
        progress.show(Event::Served(300));
        assert_eq!(line(40), None);
        progress.finish();
    }
}
