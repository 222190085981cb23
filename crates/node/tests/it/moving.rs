//! `incrowd task move`: a task goes from SQLite to PostgreSQL and back, nothing is lost, nothing
//! counts twice (R1 to R5), also if it is interrupted.

use incrowd_node::{
    Heads, Moved, Node, NodeConfig, Roles, RoundKeysConfig, ServiceError, StoreError, StoreKind,
    move_task,
};

use crate::{
    common::{Place, hot, mechanism, memory_folder, one_hot, plain, sums},
    database::Database,
};

const SIZE: u32 = 8;

/// A place with SQLite, and settings of the same service with a database and other round keys.
fn places(database: &Database) -> (Place, NodeConfig) {
    let place = Place::new(plain(mechanism(12, 1, &[(4, SIZE, 1)])));
    let to =
        NodeConfig { store: StoreKind::Postgres(database.url.clone()), ..place.config.clone() };
    (place, to)
}

/// The same place with other settings.
fn with(mut place: Place, config: &NodeConfig) -> Place {
    place.config.clone_from(config);
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_r2_r3_r4_a_task_goes_to_a_database_and_back_and_goes_on_where_it_was() {
    let database = Database::take();
    let (place, mut to) = places(&database);
    let (_folder, other_keys) = memory_folder();
    to.shuffler.round_keys = Some(other_keys);
    let from = place.config.clone();
    let report = |number: u32| {
        let mechanism = mechanism(12, 1, &[(4, SIZE, 1)]);
        one_hot(&mechanism, number / SIZE + 1, number)
    };

    let node = place.start(Roles::Both);
    for number in 0..SIZE + 3 {
        assert_eq!(node.put(&report(number)).await.status(), 204);
    }
    let (release, model) = (node.released(1).await, node.model_of(1).await);
    let busy = move_task(&from, &to, &place.task);
    assert!(matches!(busy, Err(ServiceError::Store(StoreError::InUse(_)))), "{busy:?}");
    node.stop().await;

    let moved = move_task(&from, &to, &place.task).unwrap();
    let expected =
        Moved { releases: 1, filled: Some((2, 3)), learned: Some((1, 1)), before: false };
    assert_eq!(moved, expected);
    let old = Node::start(&from, Roles::Both).map(|_| "it started");
    assert!(matches!(old, Err(ServiceError::Store(StoreError::Moved(_)))), "{old:?}");
    let again = move_task(&from, &to, &place.task).unwrap();
    assert!(again.before, "it does no harm to do it again");

    let place = with(place, &to);
    let node = place.start(Roles::Both);
    assert_eq!(node.filled().await, (Some(2), Some(3)));
    assert_eq!(node.released(1).await, release, "R2");
    assert_eq!(node.model_of(1).await, model);
    // What counted before counts no second time, in this round and in the one of the grace window.
    for number in 0..SIZE + 6 {
        let answer = node.put(&report(number)).await;
        assert_eq!(answer.status(), 204, "report {number}: {:?}", answer.text().await);
    }
    assert_eq!(node.filled().await, (Some(2), Some(6)));
    node.stop().await;

    // And back, to the place that it left.
    let moved = move_task(&to, &from, &place.task).unwrap();
    assert_eq!((moved.releases, moved.filled, moved.before), (1, Some((2, 6)), false));
    let place = with(place, &from);
    let node = place.start(Roles::Both);
    for number in 0..2 * SIZE {
        assert_eq!(node.put(&report(number)).await.status(), 204);
    }
    assert_eq!(sums(&node.released(2).await), hot(place.mechanism(), SIZE..2 * SIZE));
    assert_eq!(node.released(1).await, release);
    assert!(!node.model_of(2).await.is_empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_a_move_that_is_interrupted_anywhere_is_put_right_by_doing_it_again() {
    for table in ["incrowd_shuffler.release", "incrowd_shuffler.entry", "incrowd_bandit.model"] {
        let database = Database::take();
        let (place, mut to) = places(&database);
        let from = place.config.clone();
        // The same media under other names.
        to.shuffler.heads = Some(place.config.data.join("../data/heads.json"));
        if let Some(
            RoundKeysConfig::MemoryFile { path: Some(path) }
            | RoundKeysConfig::File { path: Some(path) },
        ) = &mut to.shuffler.round_keys
        {
            *path = path.join("../keys");
        }
        let report = |number: u32| one_hot(place.mechanism(), number / SIZE + 1, number);
        let node = place.start(Roles::Both);
        for number in 0..SIZE + 2 {
            assert_eq!(node.put(&report(number)).await.status(), 204);
        }
        let model = node.model_of(1).await;
        node.stop().await;

        database.sql(&format!(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE EXCEPTION 'not now';
             END $$;
             CREATE TRIGGER fail BEFORE INSERT ON {table}
                 FOR EACH STATEMENT EXECUTE FUNCTION fail()"
        ));
        let failed = move_task(&from, &to, &place.task);
        assert!(failed.unwrap_err().to_string().contains("not now"), "{table}");
        // Nothing counts, neither where it was nor where it is going.
        let refused = |config: &NodeConfig| match Node::start(config, Roles::Shuffler) {
            Err(ServiceError::Store(error)) => error,
            other => panic!("{table}: {:?}", other.map(|_| "it started")),
        };
        let learning = table.starts_with("incrowd_bandit");
        match refused(&from) {
            StoreError::Moved(_) if learning => {}
            StoreError::Moving(_) if !learning => {
                assert!(matches!(refused(&to), StoreError::Moving(_)), "{table}");
            }
            other => panic!("{table}: {other}"),
        }
        database.sql(&format!("DROP TRIGGER fail ON {table}; DROP FUNCTION fail"));
        move_task(&from, &to, &place.task).unwrap();

        let heads = Heads::load(&place.files().heads).unwrap();
        assert_eq!(heads.get(&place.task.id()).unwrap().round, 1, "{table}");
        let place = with(place, &to);
        let node = place.start(Roles::Both);
        assert_eq!(node.filled().await, (Some(2), Some(2)), "{table}");
        assert_eq!(node.model_of(1).await, model, "{table}");
        node.stop().await;
    }
}

/// Before its first release nothing but the ids keeps reports from counting twice.
#[tokio::test(flavor = "multi_thread")]
async fn r3_a_task_that_comes_back_to_a_database_in_its_first_round_keeps_its_ids() {
    let database = Database::take();
    let (mut place, to) = places(&database);
    let from = place.config.clone();
    let mut expected = 0;
    for (at, next) in [(&to, &from), (&from, &to), (&to, &from), (&from, &to)] {
        place = with(place, at);
        let node = place.start(Roles::Both);
        for number in 0..=expected {
            let answer = node.put(&one_hot(place.mechanism(), 1, number)).await;
            assert_eq!(answer.status(), 204);
        }
        expected += 1;
        assert_eq!(node.filled().await, (Some(1), Some(expected)));
        node.stop().await;
        move_task(at, next, &place.task).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_not_moved_onto_itself_or_onto_another_history() {
    let database = Database::take();
    let (place, to) = places(&database);
    let from = place.config.clone();
    let same = move_task(&from, &from, &place.task).unwrap_err();
    assert!(matches!(same, ServiceError::SameStore { .. }), "{same}");
    let other_name = database.url.replace("127.0.0.1", "localhost");
    assert_ne!(other_name, database.url);
    let other_name = NodeConfig { store: StoreKind::Postgres(other_name), ..to.clone() };
    let same = move_task(&other_name, &to, &place.task).unwrap_err();
    assert!(matches!(same, ServiceError::SameStore { .. }), "{same}");
    let nothing = move_task(&from, &to, &place.task).unwrap_err();
    assert!(matches!(nothing, ServiceError::Store(StoreError::UnknownTask(_))), "{nothing}");
    let report = |number: u32| one_hot(place.mechanism(), 1, number);
    let mut places = vec![place.beside(), with(place.beside(), &to)];
    places[1].config.data = place.config.data.clone();
    for place in &places {
        let node = place.start(Roles::Both);
        assert_eq!(node.put(&report(0)).await.status(), 204);
        node.stop().await;
    }
    let known = move_task(&places[0].config, &to, &place.task).unwrap_err();
    assert!(matches!(known, ServiceError::Store(StoreError::Known(_))), "{known}");
    let node = places[0].start(Roles::Both);
    assert_eq!(node.filled().await, (Some(1), Some(1)), "it is as it was");
    node.stop().await;
}
