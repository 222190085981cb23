//! R5, R24: shuffler and bandit are killed with SIGKILL at random moments, also while they start,
//! and nothing that was acknowledged is lost or counted twice. Every report has one coordinate that
//! no other has, so that the sum of all releases shows whether it counted.
//!
//! `INCROWD_KILLS=200 cargo test --package incrowd --test it crash -- --nocapture` does it longer;
//! `INCROWD_SEED` takes other moments.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::Write,
    net::TcpListener,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{Answer, Caller, Parcel, Service, Site, post};
use incrowd_bandit::Bandit;
use incrowd_envelope::Document;
use incrowd_protocol::{Model, Release, TaskNotice};
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
    shuffler: String,
    bandit: String,
    /// Coordinates that are taken.
    taken: AtomicUsize,
    /// How many may be taken by now.
    allowed: AtomicUsize,
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

#[test]
fn nothing_acknowledged_is_lost_or_counted_twice() {
    let number = |name, otherwise| env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (kills, seed) = (number("INCROWD_KILLS", 60), number("INCROWD_SEED", 1));
    let started = Instant::now();
    let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
    let rounds = (kills * BETWEEN).div_ceil(SIZE) + 10;
    // Some are refused because they are late: there are more coordinates than reports that fit.
    let needed = rounds * SIZE * 5 / 4 + 50;
    let dimension = (1..1000).find(|d| d * (d + 3) / 2 >= needed).unwrap();
    let site = Site::new(dimension as u32, rounds as u32, SIZE as u32);
    let [shuffler_port, bandit_port] = free_ports();
    let address = |port| format!("http://127.0.0.1:{port}");
    let world = World {
        site,
        shuffler: address(shuffler_port),
        bandit: address(bandit_port),
        taken: 0.into(),
        allowed: 0.into(),
        over: false.into(),
        doomed: Default::default(),
        killed_at_start: 0.into(),
        broken: 0.into(),
        duplicates: 0.into(),
        refused: 0.into(),
        releases: Mutex::default(),
        models: Mutex::default(),
    };
    let start = |role: usize| match role {
        0 => world.site.shuffler(shuffler_port),
        _ => world.site.bandit(bandit_port, &world.shuffler),
    };
    let mut running = [0, 1].map(|role| Some(world.site.start(&mut start(role))));

    thread::scope(|scope| {
        let ends = OverAtEnd(&world.over);
        let uploaders: Vec<_> = (0..UPLOADERS)
            .map(|index| {
                let rng = ChaCha8Rng::seed_from_u64(rng.next_u64());
                let world = &world;
                scope.spawn(move || upload(world, index, rng))
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
            running[role] = Some(restart(&world, || start(role), &mut rng));
        }
        world.allowed.store(usize::MAX, SeqCst);
        for uploader in uploaders {
            uploader.join().unwrap();
        }
        wait_for_the_last_model(&world, rounds as u64);
        drop(ends);
    });
    // Once more from the files alone.
    for role in [0, 1] {
        running[role].take().unwrap().kill();
        running[role] = Some(world.site.start(&mut start(role)));
    }
    let acknowledged = check(&world, rounds);
    println!(
        "{kills} kills and {} at the start in {:.1} s: {acknowledged} reports acknowledged of {} sent, {} duplicates answered, {} refused, {} requests broken off, {rounds} releases",
        world.killed_at_start.load(SeqCst),
        started.elapsed().as_secs_f64(),
        world.taken.load(SeqCst),
        world.duplicates.load(SeqCst),
        world.refused.load(SeqCst),
        world.broken.load(SeqCst),
    );
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
    let mut held = Vec::new();
    for port in (10_000 + std::process::id() as u16 % 10_000..30_000).step_by(7) {
        held.extend(TcpListener::bind(("127.0.0.1", port)).ok().map(|socket| (port, socket)));
        if let [(first, _), (second, _)] = held[..] {
            return [first, second];
        }
    }
    panic!("no port is free");
}

impl World {
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
fn restart(world: &World, start: impl Fn() -> Command, rng: &mut ChaCha8Rng) -> Service {
    if below(rng, 4) == 0 {
        let mut child = start().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(below(rng, 60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        world.killed_at_start.fetch_add(1, SeqCst);
    }
    world.site.start(&mut start())
}

/// A service that has not started again.
const REFUSED: TransportError = TransportError::Network(NetworkFailure::Refused);

/// Asks until there is an answer that is not 503; nothing once the test is over.
fn insist(world: &World, ask: impl Fn() -> Result<Answer, TransportError>) -> Option<Answer> {
    let began = Instant::now();
    while !world.over.load(SeqCst) {
        assert!(began.elapsed() < PATIENCE, "no answer");
        match ask() {
            Ok(answer) if answer.status == 503 => {}
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
fn upload(world: &World, index: usize, mut rng: ChaCha8Rng) {
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
        let parcels = next(world, &notice, round, &mut rng);
        if parcels.is_empty() {
            resend(world, &caller, &sent, &mut rng);
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        for parcel in deliver(world, &caller, &parcels) {
            writeln!(log, "{}", parcel.coordinate).unwrap();
            sent.push(parcel);
        }
        log.sync_data().unwrap();
        if below(&mut rng, 4) == 0 {
            resend(world, &caller, &sent, &mut rng);
        }
    }
}

/// One to four new reports, if they are allowed by now.
fn next(world: &World, notice: &TaskNotice, round: u32, rng: &mut ChaCha8Rng) -> Vec<Parcel> {
    let number = if below(rng, 2) == 0 { 1 } else { 2 + below(rng, 3) };
    let take = |taken: usize| (taken < world.allowed.load(SeqCst)).then_some(taken + number);
    let Ok(first) = world.taken.fetch_update(SeqCst, SeqCst, take) else { return Vec::new() };
    let coordinates = world.site.task.mechanism().coordinates();
    assert!(first + number <= coordinates, "more reports are refused than expected");
    let sealed = below(rng, 2) == 0;
    let parcel = |coordinate| {
        let parcel = world.site.one_hot(round, coordinate);
        if sealed { world.site.seal(&parcel, notice) } else { parcel }
    };
    (first..first + number).map(parcel).collect()
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

/// Keeps every release as it was first seen.
fn watch_releases(world: &World) {
    let caller = Caller::new();
    let last = world.site.task.mechanism().schedule().last_round();
    let mut round = 1;
    while round <= last && !world.over.load(SeqCst) {
        if let Some(bytes) = release(world, &caller, round) {
            world.releases.lock().unwrap().insert(round, bytes);
            round += 1;
        }
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

fn wait_for_the_last_model(world: &World, version: u64) {
    let caller = Caller::new();
    let began = Instant::now();
    while model(world, &caller, "").is_none_or(|model| model.version() < version) {
        assert!(began.elapsed() < PATIENCE, "the bandit does not absorb every release");
        thread::sleep(Duration::from_millis(10));
    }
    while world.releases.lock().unwrap().len() < version as usize {
        assert!(began.elapsed() < PATIENCE, "not every release can be had");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The releases and models against the logs of the uploaders and the library. How many reports were
/// acknowledged.
fn check(world: &World, rounds: usize) -> usize {
    world.over.store(false, SeqCst);
    let (caller, site) = (Caller::new(), &world.site);
    let mut bandit = Bandit::new(Arc::new(site.task.config().clone()));
    let mut total = vec![0; site.task.mechanism().coordinates()];
    let mut models = BTreeMap::new();
    let first = world.releases.lock().unwrap().clone();
    assert!(first.keys().copied().eq(1..=rounds as u32));
    for (round, bytes) in first {
        assert_eq!(
            release(world, &caller, round).unwrap(),
            bytes,
            "round {round} has two releases"
        );
        let release: Release = serde_json::from_slice(&bytes).unwrap();
        let sums = release.sums();
        assert_eq!((sums.round(), sums.size()), (round, SIZE as u32));
        assert_eq!(sums.sums().iter().sum::<i64>(), SIZE as i64, "round {round}");
        for (total, sum) in total.iter_mut().zip(sums.sums()) {
            *total += sum;
        }
        let model = bandit.absorb(sums).unwrap().unwrap();
        models.insert(model.version(), serde_json::to_vec(&model).unwrap());
    }
    for (coordinate, total) in total.iter().enumerate() {
        assert!(*total <= 1, "report {coordinate} counts {total} times");
    }
    let mut acknowledged = 0;
    for index in 0..UPLOADERS {
        let log = fs::read_to_string(site.path(&format!("acknowledged-{index}"))).unwrap();
        for coordinate in log.lines().map(|line| line.parse::<usize>().unwrap()) {
            assert_eq!(total[coordinate], 1, "report {coordinate} was acknowledged and is lost");
            acknowledged += 1;
        }
    }
    assert!(total[world.taken.load(SeqCst)..].iter().all(|total| *total == 0), "nobody sent that");
    assert!(acknowledged <= rounds * SIZE);
    // After the restart the newest model is served, and everything that was ever served is what the
    // library makes of the releases.
    assert_eq!(model(world, &caller, "").unwrap().version(), rounds as u64);
    for (version, bytes) in world.models.lock().unwrap().iter() {
        assert_eq!(&models[version], bytes, "model {version}");
    }
    acknowledged
}
