//! Every environment keeps the promises of the trait, and the synthetic ones are what they say.

use std::path::{Path, PathBuf};

use incrowd_sim::{
    Drifting, Environment, EnvironmentConfig, FixedArms, Ordered, Person, Rewards, Source,
    Synthetic,
};

const HORIZON: u64 = 2000;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/data")
}

fn source(text: &str) -> Source {
    toml::from_str::<EnvironmentConfig>(text).unwrap().load(&data()).unwrap()
}

/// One of each kind, and the variants that compute features in another way.
fn all() -> Vec<Source> {
    [
        "kind = 'synthetic'",
        "kind = 'synthetic'\nrewards = 'bounded'",
        "kind = 'fixed-arms'",
        "kind = 'drifting'",
        "kind = 'ordered'",
        "kind = 'classification'\nfile = 'penguins.csv'\nlabel = 'species'",
        "kind = 'classification'\nfile = 'penguins.csv'\nlabel = 'species'\nproject = 7",
        "kind = 'logged'\nfile = 'penguins-logged.csv'",
        "kind = 'logged'\nfile = 'penguins-logged.csv'\nproject = 7",
    ]
    .map(source)
    .to_vec()
}

fn people(source: &Source, seed: u64) -> Box<dyn Environment + Send> {
    source.people(source.dimension().unwrap_or(5), HORIZON, seed).unwrap()
}

/// n rewards in [0, 1] are this close to their means on average, but for a probability of 1e-10.
fn hoeffding(n: usize) -> f64 {
    ((2.0f64 / 1e-10).ln() / (2.0 * n as f64)).sqrt()
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

fn best(theta: &[f64], arms: &[f64]) -> usize {
    let scores: Vec<f64> = arms.chunks_exact(theta.len()).map(|arm| dot(theta, arm)).collect();
    (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
}

#[test]
fn features_are_in_the_unit_ball_and_means_are_rewards() {
    for source in all() {
        let mut people = people(&source, 1);
        let dimension = people.dimension();
        let mut person = Person::default();
        for _ in 0..HORIZON + 10 {
            people.next_person(&mut person);
            assert_eq!(person.arms.len(), dimension * source.arms() as usize);
            for arm in person.arms.chunks_exact(dimension) {
                assert!(dot(arm, arm).sqrt() <= 1.0 + 1e-12, "{}", source.name());
            }
            let known = if source.name() == "logged" { 0 } else { source.arms() as usize };
            assert_eq!(person.means.len(), known);
            assert!(person.means.iter().all(|mean| (0.0..=1.0).contains(mean)));
            assert_eq!(people.reward(source.arms() as usize), None);
        }
    }
}

#[test]
fn a_seed_decides_everything() {
    let run = |source: &Source, seed| {
        let mut people = people(source, seed);
        let mut person = Person::default();
        let mut seen = Vec::new();
        for turn in 0..200 {
            people.next_person(&mut person);
            let reward = people.reward(turn % source.arms() as usize);
            seen.push((person.arms.clone(), person.means.clone(), reward));
        }
        seen
    };
    for source in all() {
        assert_eq!(run(&source, 1), run(&source.clone(), 1));
        assert_ne!(run(&source, 1), run(&source, 2), "{}", source.name());
    }
}

#[test]
fn a_person_is_the_same_whoever_was_there_before() {
    for source in all() {
        let (mut clean, mut reused) = (people(&source, 3), people(&source, 3));
        let mut dirty = Person { arms: vec![9.0; 10_000], means: vec![9.0; 500] };
        for _ in 0..20 {
            let mut fresh = Person::default();
            clean.next_person(&mut fresh);
            reused.next_person(&mut dirty);
            assert_eq!((&fresh.arms, &fresh.means), (&dirty.arms, &dirty.means));
        }
    }
}

/// Difference between the average reward of arm `play` and the average mean of arm `look`, of the
/// arms sorted by mean.
fn gap(people: &mut dyn Environment, n: usize, play: usize, look: usize) -> f64 {
    let mut person = Person::default();
    let mut sum = 0.0;
    for _ in 0..n {
        people.next_person(&mut person);
        let mut order: Vec<usize> = (0..person.means.len()).collect();
        order.sort_by(|&a, &b| person.means[a].total_cmp(&person.means[b]));
        sum += people.reward(order[play]).unwrap() - person.means[order[look]];
    }
    sum / n as f64
}

/// 8 checks with probability 1e-10 each: a false alarm has probability below 1e-9.
#[test]
fn rewards_have_their_means() {
    let n = 20_000;
    for kind in ["synthetic", "fixed-arms", "drifting", "ordered"] {
        for law in ["bernoulli", "bounded"] {
            let source = source(&format!("kind = '{kind}'\narms = 4\nrewards = '{law}'"));
            let gap =
                |play, look| gap(&mut *source.people(5, n as u64, 7).unwrap(), n, play, look).abs();
            assert!(gap(3, 3) <= hoeffding(n), "{kind}, {law}");
            // The neighbour's mean is noticed.
            assert!(gap(3, 2) > hoeffding(n), "{kind}, {law}");
        }
    }
}

#[test]
fn synthetic_means_are_linear() {
    let mut people = Synthetic::new(6, 10, Rewards::Bernoulli, 4).unwrap();
    let mut person = Person::default();
    people.next_person(&mut person);
    for (arm, mean) in person.arms.chunks_exact(6).zip(&person.means) {
        assert!((dot(people.theta(), arm) - mean).abs() < 1e-12);
    }
}

#[test]
fn fixed_arms_are_the_same_for_everybody() {
    let mut people = FixedArms::new(5, 100, Rewards::Bernoulli, 5).unwrap();
    let (mut first, mut person) = (Person::default(), Person::default());
    people.next_person(&mut first);
    for _ in 0..100 {
        people.next_person(&mut person);
        people.reward(3);
        assert_eq!(person.arms, first.arms);
        assert_eq!(person.means, first.means);
    }
    // |z|^4 is uniform on [0, 1] for z uniform in the ball of dimension 4.
    let fourth = |arm: &[f64]| (2.0 * dot(&arm[1..], &arm[1..])).powi(2);
    let mean = first.arms.chunks_exact(5).map(fourth).sum::<f64>() / 100.0;
    assert!((mean - 0.5).abs() <= hoeffding(100));
    assert!(first.arms.chunks_exact(5).any(|arm| fourth(arm) < 0.5));
    for (arm, mean) in first.arms.chunks_exact(5).zip(&first.means) {
        assert!((dot(people.theta(), arm) - mean).abs() < 1e-12);
    }
}

#[test]
fn a_drifting_parameter_turns_by_the_angle_and_then_stays() {
    let turn = 2.0;
    let mut people = Drifting::new(5, 10, Rewards::Bernoulli, turn, HORIZON, 6).unwrap();
    let mut person = Person::default();
    people.next_person(&mut person);
    let (start, arms) = (people.theta().to_vec(), person.arms.clone());
    for t in 1..=HORIZON + 5 {
        people.next_person(&mut person);
        let theta = people.theta();
        assert!((dot(theta, theta) - 1.0).abs() < 1e-12);
        // <theta(0), theta(t)> = 1/2 + cos(angle)/2
        let angle = turn * t.min(HORIZON) as f64 / HORIZON as f64;
        assert!((dot(&start, theta) - 0.5 - 0.5 * angle.cos()).abs() < 1e-12);
        for (arm, mean) in person.arms.chunks_exact(5).zip(&person.means) {
            assert!((dot(theta, arm) - mean).abs() < 1e-12);
        }
    }
    assert_ne!(best(&start, &arms), best(people.theta(), &arms));
}

#[test]
fn without_a_turn_nothing_drifts() {
    let mut people = Drifting::new(5, 10, Rewards::Bernoulli, 0.0, 50, 6).unwrap();
    let start = people.theta().to_vec();
    for _ in 0..60 {
        people.next_person(&mut Person::default());
        assert_eq!(people.theta(), start);
    }
}

/// Rank by Gaussian elimination.
fn rank(mut rows: Vec<Vec<f64>>) -> usize {
    let mut rank = 0;
    for column in 0..rows[0].len() {
        let size = |row: &Vec<f64>| row[column].abs();
        let pivot = (rank..rows.len()).max_by(|&a, &b| size(&rows[a]).total_cmp(&size(&rows[b])));
        let Some(pivot) = pivot.filter(|&row| rows[row][column].abs() > 1e-9) else { continue };
        rows.swap(rank, pivot);
        let (above, below) = rows.split_at_mut(rank + 1);
        for row in below {
            let factor = row[column] / above[rank][column];
            row.iter_mut().zip(&above[rank]).for_each(|(entry, top)| *entry -= factor * top);
        }
        rank += 1;
    }
    rank
}

#[test]
fn ordered_directions_appear_one_by_one() {
    let horizon = 42;
    let mut people = Ordered::new(5, 10, Rewards::Bernoulli, horizon, 8).unwrap();
    let mut person = Person::default();
    for t in 0..horizon + 10 {
        // Four phases of 10.5 people: the last people of the phases are number 10, 20, 31 and 41.
        let directions = [11, 21, 32].iter().filter(|&&start| t >= start).count() + 1;
        assert_eq!(people.directions(), directions);
        people.next_person(&mut person);
        let arms: Vec<Vec<f64>> = person.arms.chunks_exact(5).map(<[f64]>::to_vec).collect();
        assert_eq!(rank(arms.clone()), 1 + directions);
        for (arm, mean) in arms.iter().zip(&person.means) {
            assert!(arm[1 + directions..].iter().all(|&entry| entry == 0.0));
            assert!((dot(arm, arm) - 1.0).abs() < 1e-12);
            assert!((dot(people.theta(), arm) - mean).abs() < 1e-12);
        }
    }
}

#[test]
fn a_horizon_of_all_numbers_does_not_overflow() {
    let mut ordered = Ordered::new(1000, 2, Rewards::Bernoulli, u64::MAX, 8).unwrap();
    ordered.next_person(&mut Person::default());
    assert_eq!(ordered.directions(), 1);
    let mut short = Ordered::new(5, 2, Rewards::Bernoulli, 1, 8).unwrap();
    short.next_person(&mut Person::default());
    assert_eq!(short.directions(), 4);
}

#[test]
fn numbers_out_of_range_are_named() {
    let (law, horizon) = (Rewards::Bernoulli, 10);
    let small = source("kind = 'synthetic'");
    let penguins = source("kind = 'classification'\nfile = 'penguins.csv'\nlabel = 'species'");
    let load = |text: &str| {
        let config: EnvironmentConfig = toml::from_str(text).unwrap();
        config.load(&data()).unwrap_err().to_string()
    };
    let cases = [
        (
            Synthetic::new(1, 2, law, 1).unwrap_err().to_string(),
            "dimension is 1, must be from 2 to 1000",
        ),
        (
            small.people(1001, 5, 1).map(|_| ()).unwrap_err().to_string(),
            "dimension is 1001, must be from 2 to 1000",
        ),
        (
            FixedArms::new(2, 1, law, 1).unwrap_err().to_string(),
            "arms is 1, must be from 2 to 100000",
        ),
        (
            Ordered::new(5, 2, law, 0, 1).unwrap_err().to_string(),
            "horizon is 0, must be at least 1",
        ),
        (
            Drifting::new(2, 2, law, 1.0, horizon, 1).unwrap_err().to_string(),
            "dimension of a drifting environment is 2, must be from 3 to 1000",
        ),
        (
            Drifting::new(3, 2, law, f64::NAN, horizon, 1).unwrap_err().to_string(),
            "turn is NaN, must be from 0 to 1000 (radians)",
        ),
        (load("kind = 'drifting'\nturn = -0.5"), "turn is -0.5, must be from 0 to 1000 (radians)"),
        (load("kind = 'ordered'\narms = 100001"), "arms is 100001, must be from 2 to 100000"),
        (load("kind = 'fixed-arms'\narms = 0"), "arms is 0, must be from 2 to 100000"),
        (
            penguins.people(5, 5, 1).map(|_| ()).unwrap_err().to_string(),
            "dimension is 5, but the data gives 15",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_source_says_what_it_is() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let expected = [
        ("synthetic", None, 10),
        ("synthetic", None, 10),
        ("fixed-arms", None, 100),
        ("drifting", None, 10),
        ("ordered", None, 10),
        ("classification", Some(15), 3),
        ("classification", Some(7), 3),
        ("logged", Some(15), 3),
        ("logged", Some(7), 3),
    ];
    for (source, expected) in all().iter().zip(expected) {
        shared(source);
        assert_eq!((source.name(), source.dimension(), source.arms()), expected);
        assert_eq!(source.log().is_some(), source.name() == "logged");
    }
}

#[test]
fn configurations_go_to_toml_and_back_and_refuse_unknown_fields() {
    let full = [
        "kind = \"synthetic\"\narms = 3\nrewards = \"bounded\"\n",
        "kind = \"fixed-arms\"\narms = 3\nrewards = \"bernoulli\"\n",
        "kind = \"drifting\"\narms = 3\nrewards = \"bernoulli\"\nturn = 0.5\n",
        "kind = \"ordered\"\narms = 3\nrewards = \"bernoulli\"\n",
        "kind = \"classification\"\nfile = \"a.csv\"\nlabel = \"b\"\nfeatures = \"per-arm\"\nproject = 4\nprojection_seed = 2\n",
        "kind = \"logged\"\nfile = \"a.csv\"\ncontext = [\"b\"]\nproject = 4\nprojection_seed = 2\n",
    ];
    for text in full {
        let config: EnvironmentConfig = toml::from_str(text).unwrap();
        assert_eq!(toml::to_string(&config).unwrap(), text);
        let unknown = toml::from_str::<EnvironmentConfig>(&format!("{text}colour = 1\n"));
        assert!(unknown.unwrap_err().to_string().contains("colour"), "{text}");
    }
    assert_eq!(
        toml::from_str::<EnvironmentConfig>("kind = 'drifting'").unwrap(),
        EnvironmentConfig::Drifting {
            arms: 10,
            rewards: Rewards::Bernoulli,
            turn: std::f64::consts::FRAC_PI_2
        }
    );
    assert!(toml::from_str::<EnvironmentConfig>("kind = 'other'").is_err());
}
