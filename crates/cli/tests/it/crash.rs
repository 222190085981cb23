//! R5, R24: shuffler and bandit are killed with SIGKILL at random moments, also while they start,
//! and nothing that was acknowledged is lost or counted twice. Here batches close by count, and
//! every report has one coordinate that no other has, so that the sum of all releases shows whether
//! it counted. In [`timed`] they close by time.
//!
//! `INCROWD_KILLS=200 cargo test --package incrowd --test it crash -- --nocapture` does it longer;
//! `INCROWD_SEED` takes other moments.

mod timed;

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::Write,
    net::TcpListener,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{Answer, Caller, Parcel, Service, Site, post};
use incrowd_bandit::Bandit;
use incrowd_envelope::Document;
use incrowd_node::ShufflerConfig;
use incrowd_protocol::{Model, Release, ReleaseHash, TaskNotice};
use incrowd_transport::{NetworkFailure, TransportError};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const UPLOADERS: usize = 6;
const SIZE: usize = 10;
/// Reports between two kills, on average.
const BETWEEN: usize = 12;
/// How long a service may be gone before a caller gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the threads share.
struct World {
    site: Site,
    ports: [u16; 2],
    shuffler: String,
    bandit: String,
    /// Numbers of reports that are taken.
    taken: AtomicUsize,
    /// How many may be taken by now, if batches close by count.
    allowed: AtomicUsize,
    /// Every report that was ever sent, by number, if batches close by time.
    sent: Mutex<BTreeMap<usize, Sent>>,
    /// Counts what happens in the uploaders, to tell what was before what.
    ticks: AtomicUsize,
    over: AtomicBool,
    /// A shuffler that is to be killed at the next acknowledgement, a bandit at the next new model.
    doomed: [Mutex<Option<Service>>; 2],
    killed_at_start: AtomicUsize,
    broken: AtomicUsize,
    duplicates: AtomicUsize,
    refused: AtomicUsize,
    releases: Mutex<BTreeMap<u32, Vec<u8>>>,
    models: Mutex<BTreeMap<u64, Vec<u8>>>,
}

/// A report on its way.
#[derive(Clone, Copy)]
struct Sent {
    round: u32,
    /// Before it was sent first.
    at: usize,
}

/// A number from the environment.
fn number(name: &str, otherwise: usize) -> usize {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn nothing_acknowledged_is_lost_or_counted_twice() {
    let (kills, seed) = (number("INCROWD_KILLS", 60), number("INCROWD_SEED", 1));
    let started = Instant::now();
    let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
    let rounds = (kills * BETWEEN).div_ceil(SIZE) + 10;
    // Some are refused because they are late: there are more coordinates than reports that fit.
    let needed = rounds * SIZE * 5 / 4 + 50;
    let dimension = (1..1000).find(|d| d * (d + 3) / 2 >= needed).unwrap();
    let site = Site::new(dimension as u32, rounds as u32, SIZE as u32);
    let world = World::new(site);
    let mut running = [0, 1].map(|role| Some(world.start(role)));

    thread::scope(|scope| {
        let ends = OverAtEnd(&world.over);
        let uploaders: Vec<_> = (0..UPLOADERS)
            .map(|index| {
                let rng = ChaCha8Rng::seed_from_u64(rng.next_u64());
                let world = &world;
                scope.spawn(move || upload(world, index, rng, next))
            })
            .collect();
        scope.spawn(|| watch_releases(&world));
        scope.spawn(|| watch_models(&world));
        for _ in 0..kills {
            let more = 2 + below(&mut rng, 2 * BETWEEN - 3);
            let last = rounds * SIZE - 3 * SIZE;
            world.allowed.store((world.allowed.load(SeqCst) + more).min(last), SeqCst);
            let role = below(&mut rng, 2);
            world.kill(role, running[role].take().unwrap(), &mut rng);
            running[role] = Some(restart(&world, role, &mut rng));
        }
        world.allowed.store(usize::MAX, SeqCst);
        for uploader in uploaders {
            uploader.join().unwrap();
        }
        wait_for_the_last_model(&world, PATIENCE);
        drop(ends);
    });
    restart_both(&world, &mut running);
    let acknowledged = check(&world, rounds);
    world.print(kills, started, acknowledged);
}

/// Tells the other threads to end, also when this one panics.
struct OverAtEnd<'a>(&'a AtomicBool);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn below(rng: &mut ChaCha8Rng, limit: usize) -> usize {
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
    fn new(site: Site) -> Self {
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

    fn command(&self, role: usize) -> Command {
        match role {
            0 => self.site.shuffler(self.ports[0]),
            _ => self.site.bandit(self.ports[1], &self.shuffler),
        }
    }

    fn start(&self, role: usize) -> Service {
        self.site.start(&mut self.command(role))
    }

    fn rounds(&self) -> u32 {
        self.site.task.mechanism().schedule().last_round()
    }

    fn tick(&self) -> usize {
        self.ticks.fetch_add(1, SeqCst)
    }

    fn print(&self, kills: usize, started: Instant, acknowledged: usize) {
        println!(
            "{kills} kills and {} at the start in {:.1} s: {acknowledged} reports acknowledged of {} sent, {} duplicates answered, {} refused, {} requests broken off, {} releases",
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
    fn learned(&self, role: usize) {
        if let Some(service) = self.doomed[role].lock().unwrap().take() {
            service.kill();
        }
    }

    /// Kills a service at any moment, or at the one when it has just told somebody something.
    fn kill(&self, role: usize, service: Service, rng: &mut ChaCha8Rng) {
        let longest = Duration::from_millis(25);
        if below(rng, 2) == 0 {
            thread::sleep(longest.mul_f64(below(rng, 1000) as f64 / 1000.0));
            return service.kill();
        }
        self.kill_when_learned(role, service, longest);
    }

    /// Kills a service when it has just told somebody something, or at the end of this time.
    fn kill_when_learned(&self, role: usize, service: Service, longest: Duration) {
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
fn restart(world: &World, role: usize, rng: &mut ChaCha8Rng) -> Service {
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
fn restart_both(world: &World, running: &mut [Option<Service>; 2]) {
    for role in [0, 1] {
        running[role].take().unwrap().kill();
        running[role] = Some(world.start(role));
    }
}

/// A service that has not started again.
const REFUSED: TransportError = TransportError::Network(NetworkFailure::Refused);

/// Asks until there is an answer that is not 503 or `early`; nothing once the test is over.
fn insist(world: &World, ask: impl Fn() -> Result<Answer, TransportError>) -> Option<Answer> {
    let began = Instant::now();
    while !world.over.load(SeqCst) {
        assert!(began.elapsed() < PATIENCE, "no answer");
        match ask() {
            Ok(answer) if answer.status == 503 => {}
            // By time only: rounds that closed in its absence come first.
            Ok(answer) if answer.status == 409 && answer.problem() == "early" => {
                let by_time = world.site.task.mechanism().window(1).unwrap().is_some();
                assert!(by_time, "a round that has not begun: the shuffler forgot one");
            }
            Ok(answer) => return Some(answer),
            Err(error) => {
                world.broken.fetch_add(usize::from(error != REFUSED), SeqCst);
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Sends reports until the task is over. What is acknowledged is in a durable log before the next
/// one is sent.
fn upload(
    world: &World,
    index: usize,
    mut rng: ChaCha8Rng,
    next: impl Fn(&World, u32, &mut ChaCha8Rng) -> Vec<usize>,
) {
    let (site, caller) = (&world.site, Caller::new());
    let mut log = File::create(site.path(&format!("acknowledged-{index}"))).unwrap();
    let url = site.at(&world.shuffler, "config");
    let notice = site.notice(&insist(world, || caller.get(&url, None)).unwrap());
    let url = site.at(&world.shuffler, "round");
    let (mut sent, mut newest) = (Vec::new(), 0);
    loop {
        let Some(answer) = insist(world, || caller.get(&url, None)) else { return };
        let Some(round) = site.round(&answer) else { return };
        assert!(round >= newest, "round {round} after {newest}");
        newest = round;
        let numbers = next(world, round, &mut rng);
        if numbers.is_empty() {
            resend(world, &caller, &sent, &mut rng);
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let parcels = pack(world, &notice, round, numbers, &mut rng);
        for parcel in deliver(world, &caller, &parcels) {
            writeln!(log, "{} {}", parcel.number, world.tick()).unwrap();
            sent.push(parcel);
        }
        log.sync_data().unwrap();
        if below(&mut rng, 4) == 0 {
            resend(world, &caller, &sent, &mut rng);
        }
    }
}

/// One to four new reports are sent at once.
fn at_once(rng: &mut ChaCha8Rng) -> usize {
    if below(rng, 2) == 0 { 1 } else { 2 + below(rng, 3) }
}

/// New reports, if they are allowed by now.
fn next(world: &World, _: u32, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let number = at_once(rng);
    let take = |taken: usize| (taken < world.allowed.load(SeqCst)).then_some(taken + number);
    let Ok(first) = world.taken.fetch_update(SeqCst, SeqCst, take) else { return Vec::new() };
    let coordinates = world.site.task.mechanism().coordinates();
    assert!(first + number <= coordinates, "more reports are refused than expected");
    (first..first + number).collect()
}

/// The reports of these numbers, all sealed or none.
fn pack(
    world: &World,
    notice: &TaskNotice,
    round: u32,
    numbers: Vec<usize>,
    rng: &mut ChaCha8Rng,
) -> Vec<Parcel> {
    let sealed = below(rng, 2) == 0;
    let parcel = |number| {
        let parcel = world.site.one_hot(round, number);
        if sealed { world.site.seal(&parcel, notice) } else { parcel }
    };
    numbers.into_iter().map(parcel).collect()
}

/// Those that are acknowledged in the end; the same bytes are sent as often as it takes.
fn deliver(world: &World, caller: &Caller, parcels: &[Parcel]) -> Vec<Parcel> {
    let (site, base) = (&world.site, &world.shuffler);
    if let [parcel] = parcels {
        let answer = insist(world, || parcel.put(caller, site, base)).unwrap();
        world.learned(0);
        if answer.status == 204 {
            return parcels.to_vec();
        }
        refused(world, answer.problem(), &answer.to_string());
        return Vec::new();
    }
    // The first one twice.
    let body = [parcels, &parcels[..1]].concat();
    let answer = insist(world, || post(&body, caller, site, base)).unwrap();
    world.learned(0);
    let told = answer.bulk();
    let places: Vec<usize> = told
        .refused
        .iter()
        .map(|one| {
            refused(world, one.kind().unwrap().name(), &answer.to_string());
            one.index
        })
        .collect();
    assert_eq!(told.accepted, body.len() - places.len());
    let counted =
        |(place, parcel): (usize, &Parcel)| (!places.contains(&place)).then(|| parcel.clone());
    parcels.iter().enumerate().filter_map(counted).collect()
}

/// The only good reasons: too late, or the task is over. A round that has not begun would mean that
/// the shuffler forgot one.
fn refused(world: &World, kind: &str, answer: &str) {
    assert!(["late", "finished"].contains(&kind), "{answer}");
    world.refused.fetch_add(1, SeqCst);
}

/// Sends an acknowledged report again.
fn resend(world: &World, caller: &Caller, sent: &[Parcel], rng: &mut ChaCha8Rng) {
    if sent.is_empty() {
        return;
    }
    // Mostly one of the newest: the others are late.
    let back =
        if below(rng, 4) == 0 { below(rng, sent.len()) } else { below(rng, sent.len().min(4)) };
    let parcel = &sent[sent.len() - 1 - back];
    let Some(answer) = insist(world, || parcel.put(caller, &world.site, &world.shuffler)) else {
        return;
    };
    if answer.status == 204 {
        world.duplicates.fetch_add(1, SeqCst);
    } else {
        assert!(["late", "finished"].contains(&answer.problem()), "{answer}");
    }
}

fn release(world: &World, caller: &Caller, round: u32) -> Option<Vec<u8>> {
    let url = world.site.at(&world.shuffler, &format!("releases/{round}?wait=1"));
    let token = world.site.token("bandit");
    let answer = insist(world, || caller.get(&url, Some(&token)))?;
    if answer.status == 202 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer}");
    let key = &world.site.task.keys().shuffler;
    Some(answer.signed(key, Document::Release, &world.site.task).to_vec())
}

/// Keeps every release as it was first seen, which is not before its time. An earlier one stays as
/// it is.
fn watch_releases(world: &World) {
    let caller = Caller::new();
    let mut round = 1;
    while round <= world.rounds() && !world.over.load(SeqCst) {
        let Some(bytes) = release(world, &caller, round) else { continue };
        if let Some(window) = world.site.task.mechanism().window(round).unwrap() {
            let shown = window.closes + ShufflerConfig::default().release_delay_milliseconds;
            assert!(timed::now() >= shown, "round {round} is released before its time");
        }
        world.releases.lock().unwrap().insert(round, bytes);
        let earlier = round.div_ceil(2);
        if let Some(bytes) = release(world, &caller, earlier) {
            let first = world.releases.lock().unwrap()[&earlier].clone();
            assert_eq!(bytes, first, "round {earlier} has two releases");
        }
        round += 1;
    }
}

fn model(world: &World, caller: &Caller, query: &str) -> Option<Model> {
    let url = world.site.at(&world.bandit, &format!("model{query}"));
    let answer = insist(world, || caller.get(&url, None))?;
    if answer.status == 304 || answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer}");
    let model: Model = serde_json::from_slice(&answer.body).unwrap();
    let mut models = world.models.lock().unwrap();
    let first = models.entry(model.version()).or_insert_with(|| {
        world.learned(1);
        answer.body.clone()
    });
    assert_eq!(*first, answer.body, "version {} has other bytes than before", model.version());
    drop(models);
    answer.signed(&world.site.task.keys().bandit, Document::Model, &world.site.task);
    Some(model)
}

/// What is published stays published.
fn watch_models(world: &World) {
    let (caller, mut newest) = (Caller::new(), 0);
    let mut waits = false;
    while !world.over.load(SeqCst) {
        waits = !waits;
        let query = if waits { format!("?after={newest}&wait=1") } else { String::new() };
        let found = model(world, &caller, &query);
        if !waits && newest > 0 && !world.over.load(SeqCst) {
            assert!(found.is_some(), "a model was there before");
        }
        if let Some(model) = found {
            assert!(model.version() >= newest, "version {} after {newest}", model.version());
            newest = model.version();
        }
    }
}

fn wait_for_the_last_model(world: &World, patience: Duration) {
    let (caller, rounds) = (Caller::new(), world.rounds());
    let began = Instant::now();
    while model(world, &caller, "").is_none_or(|model| model.version() < u64::from(rounds)) {
        assert!(began.elapsed() < patience, "the bandit does not absorb every release");
        thread::sleep(Duration::from_millis(10));
    }
    while world.releases.lock().unwrap().len() < rounds as usize {
        assert!(began.elapsed() < patience, "not every release can be had");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The releases and models against the logs of the uploaders and the library. How many reports were
/// acknowledged.
fn check(world: &World, rounds: usize) -> usize {
    let mut total = vec![0; world.site.task.mechanism().coordinates()];
    for release in check_releases_and_models(world) {
        let (round, sums) = (release.sums().round(), release.sums().sums());
        assert_eq!(sums.iter().sum::<i64>(), SIZE as i64, "round {round}");
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += sum;
        }
    }
    for (coordinate, total) in total.iter().enumerate() {
        assert!(*total <= 1, "report {coordinate} counts {total} times");
    }
    let acknowledged = acknowledged(world);
    for number in acknowledged.keys() {
        assert_eq!(total[*number], 1, "report {number} was acknowledged and is lost");
    }
    assert!(total[world.taken.load(SeqCst)..].iter().all(|total| *total == 0), "nobody sent that");
    assert!(acknowledged.len() <= rounds * SIZE);
    acknowledged.len()
}

/// The reports that were acknowledged, and when.
fn acknowledged(world: &World) -> BTreeMap<usize, usize> {
    let mut acknowledged = BTreeMap::new();
    for index in 0..UPLOADERS {
        let log = fs::read_to_string(world.site.path(&format!("acknowledged-{index}"))).unwrap();
        for line in log.lines() {
            let (number, at) = line.split_once(' ').unwrap();
            acknowledged.insert(number.parse().unwrap(), at.parse().unwrap());
        }
    }
    acknowledged
}

/// After a restart every round has the one release that was seen first, each follows the one
/// before, and every model that was ever served is what the library makes of them.
fn check_releases_and_models(world: &World) -> Vec<Release> {
    world.over.store(false, SeqCst);
    let (caller, site) = (Caller::new(), &world.site);
    let mut bandit = Bandit::new(Arc::new(site.task.config().clone()));
    let (mut releases, mut models) = (Vec::new(), BTreeMap::new());
    let first = world.releases.lock().unwrap().clone();
    assert!(first.keys().copied().eq(1..=world.rounds()));
    let mut previous = None;
    for (round, bytes) in first {
        let again = release(world, &caller, round).unwrap();
        assert_eq!(again, bytes, "round {round} has two releases");
        let release: Release = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(release.previous(), previous, "round {round}");
        previous = Some(ReleaseHash::of(&bytes));
        let sums = release.sums();
        let size = site.task.mechanism().round(round).unwrap().size;
        assert_eq!((sums.round(), sums.size()), (round, size));
        let model = bandit.absorb(sums).unwrap().unwrap();
        models.insert(model.version(), serde_json::to_vec(&model).unwrap());
        releases.push(release);
    }
    let newest = model(world, &caller, "").unwrap();
    assert_eq!(newest.version(), u64::from(world.rounds()));
    for (version, bytes) in world.models.lock().unwrap().iter() {
        assert_eq!(&models[version], bytes, "model {version}");
    }
    releases
}
