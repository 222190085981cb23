//! Those who send reports, and what they were told.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use incrowd_protocol::TaskNotice;
use incrowd_transport::{NetworkFailure, TransportError};
use rand_chacha::ChaCha8Rng;

use super::{
    PATIENCE, UPLOADERS,
    world::{Role, World, below},
};
use crate::support::{Answer, Caller, Parcel, post};

/// A service that has not started again.
const REFUSED: TransportError = TransportError::Network(NetworkFailure::Refused);

/// Asks one node of a role after the other, by their base addresses, until there is an answer that
/// is not 503 or `early`; nothing once the test is over.
pub(super) fn insist(
    world: &World,
    role: Role,
    ask: impl Fn(&str) -> Result<Answer, TransportError>,
) -> Option<Answer> {
    insist_and_tell(world, role, ask).map(|(_, answer)| answer)
}

/// The same, with the seat of the node that answered.
fn insist_and_tell(
    world: &World,
    role: Role,
    ask: impl Fn(&str) -> Result<Answer, TransportError>,
) -> Option<(usize, Answer)> {
    let began = Instant::now();
    while !world.over.load(SeqCst) {
        assert!(began.elapsed() < PATIENCE, "no answer");
        let seat = world.next(role);
        match ask(&world.seats[seat].url) {
            Ok(answer) if answer.status == 503 => {}
            // By time only: rounds that closed in its absence come first.
            Ok(answer) if answer.status == 409 && answer.problem() == "early" => {
                let by_time = world.site.task.mechanism().window(1).unwrap().is_some();
                assert!(by_time, "a round that has not begun: the shuffler forgot one");
            }
            Ok(answer) => return Some((seat, answer)),
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
pub(super) fn upload(
    world: &World,
    index: usize,
    mut rng: ChaCha8Rng,
    next: impl Fn(&World, u32, &mut ChaCha8Rng) -> Vec<usize>,
) {
    let (site, caller) = (&world.site, Caller::new());
    let mut log = File::create(site.path(&format!("acknowledged-{index}"))).unwrap();
    let get =
        |path: &str| insist(world, Role::Shuffler, |base| caller.get(&site.at(base, path), None));
    let notice = site.notice(&get("config").unwrap());
    let (mut sent, mut newest) = (Vec::new(), 0);
    loop {
        let Some(answer) = get("round") else { return };
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
pub(super) fn at_once(rng: &mut ChaCha8Rng) -> usize {
    if below(rng, 2) == 0 { 1 } else { 2 + below(rng, 3) }
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
    let site = &world.site;
    if let [parcel] = parcels {
        let put = |base: &str| parcel.put(caller, site, base);
        let (seat, answer) = insist_and_tell(world, Role::Shuffler, put).unwrap();
        world.learned(seat);
        if answer.status == 204 {
            return parcels.to_vec();
        }
        refused(world, answer.problem(), &answer.to_string());
        return Vec::new();
    }
    // The first one twice.
    let body = [parcels, &parcels[..1]].concat();
    let post = |base: &str| post(&body, caller, site, base);
    let (seat, answer) = insist_and_tell(world, Role::Shuffler, post).unwrap();
    world.learned(seat);
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
    let put = |base: &str| parcel.put(caller, &world.site, base);
    let Some(answer) = insist(world, Role::Shuffler, put) else { return };
    if answer.status == 204 {
        world.duplicates.fetch_add(1, SeqCst);
    } else {
        assert!(["late", "finished"].contains(&answer.problem()), "{answer}");
    }
}

/// The reports that were acknowledged, and when.
pub(super) fn acknowledged(world: &World) -> BTreeMap<usize, usize> {
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
