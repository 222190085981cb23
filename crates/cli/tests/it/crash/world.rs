//! What the threads of a test of kills share, and the services that are killed.

use std::{
    collections::BTreeMap,
    env,
    net::TcpListener,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

use crate::support::{Service, Site};

/// What the threads share.
pub(super) struct World {
    pub(super) site: Site,
    pub(super) ports: [u16; 2],
    pub(super) shuffler: String,
    pub(super) bandit: String,
    /// Numbers of reports that are taken.
    pub(super) taken: AtomicUsize,
    /// How many may be taken by now, if batches close by count.
    pub(super) allowed: AtomicUsize,
    /// Every report that was ever sent, by number, if batches close by time.
    pub(super) sent: Mutex<BTreeMap<usize, Sent>>,
    /// Counts what happens in the uploaders, to tell what was before what.
    pub(super) ticks: AtomicUsize,
    pub(super) over: AtomicBool,
    /// A shuffler that is to be killed at the next acknowledgement, a bandit at the next new model.
    pub(super) doomed: [Mutex<Option<Service>>; 2],
    pub(super) killed_at_start: AtomicUsize,
    pub(super) broken: AtomicUsize,
    pub(super) duplicates: AtomicUsize,
    pub(super) refused: AtomicUsize,
    pub(super) releases: Mutex<BTreeMap<u32, Vec<u8>>>,
    pub(super) models: Mutex<BTreeMap<u64, Vec<u8>>>,
}

/// A report on its way.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) round: u32,
    /// Before it was sent first.
    pub(super) at: usize,
}

/// A number from the environment.
pub(super) fn number(name: &str, otherwise: usize) -> usize {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Tells the other threads to end, also when this one panics.
pub(super) struct OverAtEnd<'a>(pub(super) &'a AtomicBool);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub(super) fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
    rng.next_u64() as usize % limit
}

/// Ports that no outgoing connection is given while the service that has one is dead.
fn free_ports() -> [u16; 2] {
    /// Of the tests of this process, each looks elsewhere.
    static TESTS: AtomicU16 = AtomicU16::new(0);
    let mut held = Vec::new();
    let process = std::process::id() as u16 % 10_000;
    let first = 10_000 + process + 500 * TESTS.fetch_add(1, SeqCst);
    for port in (first..30_000).step_by(7) {
        held.extend(TcpListener::bind(("127.0.0.1", port)).ok().map(|socket| (port, socket)));
        if let [(first, _), (second, _)] = held[..] {
            return [first, second];
        }
    }
    panic!("no port is free");
}

impl World {
    pub(super) fn new(site: Site) -> Self {
        let ports = free_ports();
        let [shuffler, bandit] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        Self {
            site,
            ports,
            shuffler,
            bandit,
            taken: 0.into(),
            allowed: 0.into(),
            sent: Mutex::default(),
            ticks: 0.into(),
            over: false.into(),
            doomed: Default::default(),
            killed_at_start: 0.into(),
            broken: 0.into(),
            duplicates: 0.into(),
            refused: 0.into(),
            releases: Mutex::default(),
            models: Mutex::default(),
        }
    }

    pub(super) fn command(&self, role: usize) -> Command {
        match role {
            0 => self.site.shuffler(self.ports[0]),
            _ => self.site.bandit(self.ports[1], &self.shuffler),
        }
    }

    pub(super) fn start(&self, role: usize) -> Service {
        self.site.start(&mut self.command(role))
    }

    pub(super) fn rounds(&self) -> u32 {
        self.site.task.mechanism().schedule().last_round()
    }

    pub(super) fn tick(&self) -> usize {
        self.ticks.fetch_add(1, SeqCst)
    }

    pub(super) fn print(&self, kills: usize, started: Instant, acknowledged: usize) {
        println!(
            "{kills} kills and {} at the start in {:.1} s: {acknowledged} reports acknowledged of {} \
             sent, {} duplicates answered, {} refused, {} requests broken off, {} releases",
            self.killed_at_start.load(SeqCst),
            started.elapsed().as_secs_f64(),
            self.taken.load(SeqCst),
            self.duplicates.load(SeqCst),
            self.refused.load(SeqCst),
            self.broken.load(SeqCst),
            self.rounds(),
        );
    }

    /// Somebody has just learned what must now be durable.
    pub(super) fn learned(&self, role: usize) {
        if let Some(service) = self.doomed[role].lock().unwrap().take() {
            service.kill();
        }
    }

    /// Kills a service at any moment, or at the one when it has just told somebody something.
    pub(super) fn kill(&self, role: usize, service: Service, rng: &mut ChaCha8Rng) {
        let longest = Duration::from_millis(25);
        if below(rng, 2) == 0 {
            thread::sleep(longest.mul_f64(below(rng, 1000) as f64 / 1000.0));
            return service.kill();
        }
        self.kill_when_learned(role, service, longest);
    }

    /// Kills a service when it has just told somebody something, or at the end of this time.
    pub(super) fn kill_when_learned(&self, role: usize, service: Service, longest: Duration) {
        *self.doomed[role].lock().unwrap() = Some(service);
        let began = Instant::now();
        while self.doomed[role].lock().unwrap().is_some() {
            if began.elapsed() > longest {
                return self.learned(role);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Starts a service, sometimes after a start that is killed.
pub(super) fn restart(world: &World, role: usize, rng: &mut ChaCha8Rng) -> Service {
    if below(rng, 4) == 0 {
        let mut child =
            world.command(role).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(below(rng, 60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        world.killed_at_start.fetch_add(1, SeqCst);
    }
    world.start(role)
}

/// Once more from the files alone.
pub(super) fn restart_both(world: &World, running: &mut [Option<Service>; 2]) {
    for role in [0, 1] {
        running[role].take().unwrap().kill();
        running[role] = Some(world.start(role));
    }
}
