//! Those who read releases and models, and what they must have seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use incrowd_bandit::Bandit;
use incrowd_envelope::Document;
use incrowd_node::ShufflerConfig;
use incrowd_protocol::{Model, Release, ReleaseHash};

use super::{
    uploads::insist,
    world::{Role, World},
};
use crate::support::{Caller, now};

fn release(world: &World, caller: &Caller, round: u32) -> Option<Vec<u8>> {
    let (path, token) = (format!("releases/{round}?wait=1"), world.site.token("bandit"));
    let get = |base: &str| caller.get(&world.site.at(base, &path), Some(&token));
    let answer = insist(world, Role::Shuffler, get)?;
    if answer.status == 202 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer}");
    let key = &world.site.task.keys().shuffler;
    Some(answer.signed(key, Document::Release, &world.site.task).to_vec())
}

/// Keeps every release as it was first seen, which is not before its time. An earlier one stays as
/// it is.
pub(super) fn watch_releases(world: &World) {
    let caller = Caller::new();
    let mut round = 1;
    while round <= world.rounds() && !world.over.load(SeqCst) {
        let Some(bytes) = release(world, &caller, round) else { continue };
        if let Some(window) = world.site.task.mechanism().window(round).unwrap() {
            let shown = window.closes + ShufflerConfig::default().release_delay_milliseconds;
            assert!(now() >= shown, "round {round} is released before its time");
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

fn model(world: &World, caller: &Caller) -> Option<Model> {
    let get = |base: &str| caller.get(&world.site.at(base, "model"), None);
    let answer = insist(world, Role::Bandit, get)?;
    if answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer}");
    let model: Model = serde_json::from_slice(&answer.body).unwrap();
    let mut models = world.models.lock().unwrap();
    let first = models.entry(model.version()).or_insert_with(|| {
        (0..world.seats.len())
            .filter(|seat| world.seats[*seat].role == Role::Bandit)
            .for_each(|seat| world.learned(seat));
        answer.body.clone()
    });
    assert_eq!(*first, answer.body, "version {} has other bytes than before", model.version());
    drop(models);
    answer.signed(&world.site.task.keys().bandit, Document::Model, &world.site.task);
    Some(model)
}

/// What is published stays published.
pub(super) fn watch_models(world: &World) {
    let (caller, mut newest) = (Caller::new(), 0);
    while !world.over.load(SeqCst) {
        let found = model(world, &caller);
        if newest > 0 && !world.over.load(SeqCst) {
            assert!(found.is_some(), "a model was there before");
        }
        if let Some(model) = found {
            assert!(model.version() >= newest, "version {} after {newest}", model.version());
            newest = model.version();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn wait_for_the_last_model(world: &World, patience: Duration) {
    let (caller, rounds) = (Caller::new(), world.rounds());
    let began = Instant::now();
    while model(world, &caller).is_none_or(|model| model.version() < u64::from(rounds)) {
        assert!(began.elapsed() < patience, "the bandit does not absorb every release");
        thread::sleep(Duration::from_millis(10));
    }
    while world.releases.lock().unwrap().len() < rounds as usize {
        assert!(began.elapsed() < patience, "not every release can be had");
        thread::sleep(Duration::from_millis(10));
    }
}

/// After a restart every round has the one release that was seen first, each follows the one
/// before, and every model that was ever served is what the library makes of them.
pub(super) fn check_releases_and_models(world: &World) -> Vec<Release> {
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
    let newest = model(world, &caller).unwrap();
    assert_eq!(newest.version(), u64::from(world.rounds()));
    for (version, bytes) in world.models.lock().unwrap().iter() {
        assert_eq!(&models[version], bytes, "model {version}");
    }
    releases
}
