//! What the threads of a test of kills share, and the services that are killed.

use std::{
    collections::BTreeMap,
    env,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use incrowd_testdb::free_ports;
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

use crate::support::{Service, Site};

/// What the threads share.
pub(super) struct World {
    pub(super) site: Site,
    /// The services that are killed.
    pub(super) seats: Vec<Seat>,
    /// Counts requests: each goes to another node of its role.
    turns: AtomicUsize,
    /// Numbers of reports that are taken.
    pub(super) taken: AtomicUsize,
    /// How many may be taken by now, if batches close by count.
    pub(super) allowed: AtomicUsize,
    /// Every report that was ever sent, by number, if batches close by time.
    pub(super) sent: Mutex<BTreeMap<usize, Sent>>,
    /// Counts what happens in the uploaders, to tell what was before what.
    pub(super) ticks: AtomicUsize,
    pub(super) over: AtomicBool,
    /// By seat: a shuffler that is to be killed at its next acknowledgement, a bandit at the next
    /// new model.
    doomed: Vec<Mutex<Option<Service>>>,
    pub(super) killed_at_start: AtomicUsize,
    pub(super) broken: AtomicUsize,
    pub(super) duplicates: AtomicUsize,
    pub(super) refused: AtomicUsize,
    pub(super) releases: Mutex<BTreeMap<u32, Vec<u8>>>,
    pub(super) models: Mutex<BTreeMap<u64, Vec<u8>>>,
}

/// Where a service is.
pub(super) struct Seat {
    pub(super) role: Role,
    /// The name of its data folder.
    data: String,
    port: u16,
    pub(super) url: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Shuffler,
    Bandit,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Shuffler => "shuffler",
            Self::Bandit => "bandit",
        }
    }
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

impl World {
    /// A service of each role, with stores of their own.
    pub(super) fn new(site: Site) -> Self {
        Self::seated(site, &[Role::Shuffler, Role::Bandit], |role, _| role.name().into())
    }

    /// Nodes of both roles on a database.
    pub(super) fn cluster(site: Site, roles: &[Role], database: &str) -> Self {
        let data = |role: Role, index| format!("{}-{index}", role.name());
        let world = Self::seated(site, roles, data);
        for Seat { role, data, .. } in &world.seats {
            world.site.add_node(role.name(), data, database);
        }
        world
    }

    fn seated(site: Site, roles: &[Role], data: impl Fn(Role, usize) -> String) -> Self {
        let seat = |(index, (role, port)): (usize, (&Role, u16))| Seat {
            role: *role,
            data: data(*role, index),
            port,
            url: format!("http://127.0.0.1:{port}"),
        };
        let seats: Vec<Seat> =
            roles.iter().zip(free_ports(roles.len())).enumerate().map(seat).collect();
        Self {
            site,
            turns: 0.into(),
            doomed: seats.iter().map(|_| Mutex::default()).collect(),
            seats,
            taken: 0.into(),
            allowed: 0.into(),
            sent: Mutex::default(),
            ticks: 0.into(),
            over: false.into(),
            killed_at_start: 0.into(),
            broken: 0.into(),
            duplicates: 0.into(),
            refused: 0.into(),
            releases: Mutex::default(),
            models: Mutex::default(),
        }
    }

    /// The next node of a role to be asked.
    pub(super) fn next(&self, role: Role) -> usize {
        let nodes: Vec<usize> =
            (0..self.seats.len()).filter(|seat| self.seats[*seat].role == role).collect();
        nodes[self.turns.fetch_add(1, SeqCst) % nodes.len()]
    }

    pub(super) fn command(&self, seat: usize) -> Command {
        let Seat { role, data, port, .. } = &self.seats[seat];
        let collected = |index: usize| self.seats[index].url.as_str();
        match role {
            Role::Shuffler if data == role.name() => self.site.shuffler(*port),
            Role::Shuffler => self.site.shuffler_node(data, *port),
            Role::Bandit if data == role.name() => self.site.bandit(*port, collected(0)),
            // Two bandits collect from two shufflers.
            Role::Bandit => self.site.bandit_node(data, *port, collected(seat % 2)),
        }
    }

    pub(super) fn start(&self, seat: usize) -> Service {
        self.site.start(&mut self.command(seat))
    }

    /// Starts all of them.
    pub(super) fn start_all(&self) -> Vec<Option<Service>> {
        (0..self.seats.len()).map(|seat| Some(self.start(seat))).collect()
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
    pub(super) fn learned(&self, seat: usize) {
        if let Some(service) = self.doomed[seat].lock().unwrap().take() {
            service.kill();
        }
    }

    /// Kills a service at any moment, or at the one when it has just told somebody something.
    pub(super) fn kill(&self, seat: usize, service: Service, rng: &mut ChaCha8Rng) {
        let longest = Duration::from_millis(25);
        if below(rng, 2) == 0 {
            thread::sleep(longest.mul_f64(below(rng, 1000) as f64 / 1000.0));
            return service.kill();
        }
        self.kill_when_learned(seat, service, longest);
    }

    /// Kills a service when it has just told somebody something, or at the end of this time.
    pub(super) fn kill_when_learned(&self, seat: usize, service: Service, longest: Duration) {
        *self.doomed[seat].lock().unwrap() = Some(service);
        let began = Instant::now();
        while self.doomed[seat].lock().unwrap().is_some() {
            if began.elapsed() > longest {
                return self.learned(seat);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Starts a service, sometimes after a start that is killed.
pub(super) fn restart(world: &World, seat: usize, rng: &mut ChaCha8Rng) -> Service {
    if below(rng, 4) == 0 {
        let mut child =
            world.command(seat).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(below(rng, 60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        world.killed_at_start.fetch_add(1, SeqCst);
    }
    world.start(seat)
}

/// Once more from what is stored alone.
pub(super) fn restart_all(world: &World, running: &mut [Option<Service>]) {
    for (seat, running) in running.iter_mut().enumerate() {
        running.take().unwrap().kill();
        *running = Some(world.start(seat));
    }
}
