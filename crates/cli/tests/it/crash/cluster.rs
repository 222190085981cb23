//! R1 to R5, R24, R25, R26: three shufflers and two bandits on one PostgreSQL database, which are
//! killed with SIGKILL at random moments, while the database is stopped as by a crash; every
//! request goes to another node than the one before; or a standby takes over. And a node that is
//! stopped inside a transaction.
//!
//! `INCROWD_NODE_KILLS=100 INCROWD_DATABASE_STOPS=10 cargo test --package incrowd --test it cluster
//! -- --nocapture` does it longer; `INCROWD_SEED` takes other moments.

use std::{
    thread,
    time::{Duration, Instant},
};

use incrowd_protocol::Release;
use incrowd_testdb::{Server, USER};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::{
    PATIENCE, killed_by_count, timed,
    uploads::insist,
    world::{Role, World, number},
};
use crate::support::{Caller, Service, Site, good};

const NODES: [Role; 5] =
    [Role::Shuffler, Role::Shuffler, Role::Shuffler, Role::Bandit, Role::Bandit];

/// Stops the database as a crash would, before so many of these kills, evenly.
fn stopping(server: &Server, stops: usize, kills: usize) -> impl FnMut(usize) {
    move |kill| {
        if (kill + 1) * stops / kills > kill * stops / kills {
            server.stop();
            // Long enough for requests that find nothing there.
            thread::sleep(Duration::from_millis(100));
            server.start_again();
        }
    }
}

fn kills_and_stops() -> (usize, usize, ChaCha8Rng) {
    let seed = number("INCROWD_SEED", 1) as u64;
    let (kills, stops) = (number("INCROWD_NODE_KILLS", 15), number("INCROWD_DATABASE_STOPS", 2));
    (kills, stops, ChaCha8Rng::seed_from_u64(seed))
}

#[test]
fn of_several_nodes_nothing_acknowledged_is_lost_or_counted_twice() {
    let (kills, stops, mut rng) = kills_and_stops();
    let server = Server::start(&[]);
    let site = super::site(kills);
    let world = World::cluster(site, &NODES, &server.create("incrowd"));
    killed_by_count(&world, kills, &mut rng, stopping(&server, stops, kills));
    alone(&world);
}

#[test]
fn of_several_nodes_one_closes_each_round_when_its_time_is_over() {
    let (kills, stops, mut rng) = kills_and_stops();
    let server = Server::start(&[]);
    let site = timed::site(kills);
    let world = World::cluster(site, &NODES, &server.create("incrowd"));
    timed::killed_by_time(&world, kills, &mut rng, stopping(&server, stops, kills));
}

/// A node of each role without a database, to which the reports of each release are sent, makes the
/// same releases and models, byte for byte.
fn alone(world: &World) {
    let (site, caller) = (&world.site, Caller::new());
    let shuffler = site.start(&mut site.shuffler(0));
    let bandit = site.start(&mut site.bandit(0, &shuffler.url));
    let token = site.token("bandit");
    for (round, bytes) in world.releases.lock().unwrap().iter() {
        let release: Release = serde_json::from_slice(bytes).unwrap();
        for (coordinate, sum) in release.sums().sums().iter().enumerate() {
            if *sum == 1 {
                let answer = site.one_hot(*round, coordinate).put(&caller, site, &shuffler.url);
                assert_eq!(answer.unwrap().status, 204);
            }
        }
        let url = site.at(&shuffler.url, &format!("releases/{round}?wait=20"));
        let answer = caller.get(&url, Some(&token)).unwrap();
        assert_eq!(answer.body, *bytes, "round {round} of a node alone");
        let model = site.model(&caller, &bandit.url, *round - 1);
        if let Some(shown) = world.models.lock().unwrap().get(&u64::from(*round)) {
            assert_eq!(model, *shown, "model {round} of a node alone");
        }
    }
}

/// The server is lost while nodes are killed, its synchronous standby takes over, and nobody tells
/// the nodes.
#[test]
fn r25_of_several_nodes_nothing_acknowledged_is_lost_when_a_standby_takes_over() {
    let (kills, _, mut rng) = kills_and_stops();
    let kills = kills.div_ceil(4);
    let primary = Server::start(&[]);
    primary.create("incrowd");
    let standby = Server::standby_of(&primary, "second", &[]);
    primary.set("synchronous_standby_names", "FIRST 1 (second)");
    let hosts = format!("{},{}", primary.address(), standby.address());
    let database = format!("postgres://{USER}@{hosts}/incrowd");
    let world = World::cluster(super::site(kills), &NODES, &database);
    killed_by_count(&world, kills, &mut rng, |kill| {
        if kill == kills / 2 {
            primary.stop();
            standby.promote();
        }
    });
    alone(&world);
}

/// A node that is stopped, by a hypervisor or by SIGSTOP, inside a transaction: the others wait for
/// as long as the settings of its session say, and what it would have committed is not.
#[test]
fn r25_a_node_that_is_frozen_inside_a_transaction_holds_nobody_for_long_and_cannot_commit() {
    let server = Server::start(&[]);
    let site = Site::new(20, 40, 10);
    let roles = [Role::Shuffler, Role::Shuffler];
    let world = World::cluster(site, &roles, &server.create("incrowd"));
    let nodes: Vec<Service> = (0..2).map(|seat| world.start(seat)).collect();
    let caller = Caller::new();
    let put = |node: usize, round, number| {
        let parcel = world.site.one_hot(round, number);
        parcel.put(&caller, &world.site, &nodes[node].url).unwrap()
    };
    assert_eq!(put(1, 1, 0).status, 204);
    // Whoever changes the task waits for this test, inside its transaction.
    server.sql("incrowd", SLOW);
    let held = server.hold("incrowd", "SELECT pg_advisory_lock(7)");
    let frozen = thread::scope(|scope| {
        let (site, url) = (&world.site, &nodes[0].url);
        let upload = scope.spawn(move || site.one_hot(1, 1).put(&Caller::new(), site, url));
        let began = Instant::now();
        while server.sql("incrowd", WAITING) != "1" {
            assert!(began.elapsed() < PATIENCE, "it is never inside a transaction");
        }
        nodes[0].signal("STOP");
        let began = Instant::now();
        drop(held);
        while insist(&world, Role::Shuffler, |_| {
            world.site.one_hot(1, 2).put(&caller, &world.site, &nodes[1].url)
        })
        .is_none_or(|answer| answer.status != 204)
        {}
        let waited = began.elapsed();
        nodes[0].signal("CONT");
        let answer = upload.join().unwrap().unwrap();
        assert_eq!(answer.status, 503, "what it held was taken from it: {answer}");
        waited
    });
    // Its session ends after five seconds in which it says nothing; the rest is this machine.
    assert!(frozen > Duration::from_secs(4), "nothing was frozen: {frozen:?}");
    assert!(frozen < PATIENCE, "{frozen:?}");
    server.sql("incrowd", "DROP TRIGGER slow ON incrowd_shuffler.entry; DROP FUNCTION slow");
    println!("another node waited for {:.1} s", frozen.as_secs_f64());
    // It goes on, and nothing of the lost transaction counted.
    assert_eq!(put(0, 1, 1).status, 204);
    let (admin, token) = (&nodes[0].admin, world.site.path("admin.token"));
    let list = good(&format!("task list --admin {admin} --token-file {}", token.display()));
    assert!(list.contains("round 1 with 3 reports"), "{list}");
}

/// Makes an append wait for whoever has the lock.
const SLOW: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock_shared(7);
        RETURN NEW;
    END $$;
    CREATE TRIGGER slow BEFORE INSERT ON incrowd_shuffler.entry
        FOR EACH STATEMENT EXECUTE FUNCTION slow()";

/// Sessions that are inside such an append.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%entry%'";
