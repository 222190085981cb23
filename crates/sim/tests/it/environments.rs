//! Every environment keeps the promises of the trait, and the synthetic ones are what they say.

use std::path::{Path, PathBuf};

use incrowd_sim::{
    Contexts, Environment, EnvironmentConfig, FixedArms, Ordered, Person, Rewards, Signal, Source,
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
        "kind = 'synthetic'\ncontexts = 'one-hot'\ngap = 0.1",
        "kind = 'synthetic'\ncontexts = 'correlated'\ndimension = 7",
        "kind = 'synthetic'\ncontexts = 'anisotropic'",
        "kind = 'synthetic'\ncontexts = 'heavy-tailed'\ngap = 0.25",
        "kind = 'fixed-arms'",
        "kind = 'synthetic'\ndrift = 1.5",
        "kind = 'ordered'",
        "kind = 'ordered'\ngap = 0.1\ndimension = 3",
        "kind = 'synthetic'\nclick_rate = 0.05\nparameter_norm = 2\ndrift = 1",
        "kind = 'fixed-arms'\nclick_rate = 0.9\ngap = 0.05\nparameter_norm = 3",
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
    for kind in ["synthetic'", "fixed-arms'", "synthetic'\ndrift = 1.5", "ordered'"] {
        for law in ["bernoulli", "bounded"] {
            let source = source(&format!("kind = '{kind}\narms = 4\nrewards = '{law}'"));
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
    let mut people = Synthetic::new(5, 10, Rewards::Bernoulli, 6).unwrap();
    people = people.with_drift(turn, HORIZON).unwrap();
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
    let still = Synthetic::new(5, 10, Rewards::Bernoulli, 6).unwrap();
    let mut people = still.clone().with_drift(0.0, 50).unwrap();
    for _ in 0..60 {
        people.next_person(&mut Person::default());
        assert_eq!(people.theta(), still.theta());
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
    let drifting = |dimension, angle| {
        let people = Synthetic::new(dimension, 2, law, 1).unwrap();
        people.with_drift(angle, horizon).unwrap_err().to_string()
    };
    let beyond = |text: &str, bound: f64| {
        source(text).people_within(bound, 5, horizon, 1).map(|_| ()).unwrap_err().to_string()
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
        (drifting(2, 1.0), "dimension is 2, must be from 3 to 1000 where there is a drift"),
        (drifting(3, f64::NAN), "drift is NaN, must be from 0 to 1000 (radians)"),
        (
            load("kind = 'synthetic'\ndrift = -0.5"),
            "drift is -0.5, must be from 0 to 1000 (radians)",
        ),
        (
            load("kind = 'synthetic'\nclick_rate = 1.0"),
            "click_rate is 1, must be above 0 and below 1",
        ),
        (
            load("kind = 'fixed-arms'\nclick_rate = nan"),
            "click_rate is NaN, must be above 0 and below 1",
        ),
        (
            load("kind = 'ordered'\nclick_rate = 0.05\ngap = 0.1"),
            "gap is 0.1, must be above 0 and at most 0.05",
        ),
        (
            beyond("kind = 'synthetic'\nparameter_norm = 0.5", 1.0),
            "parameter_norm is 0.5, must be from 1 to 1000000, so that features are within 1",
        ),
        (
            beyond("kind = 'fixed-arms'\nparameter_norm = 3", 0.25),
            "parameter_norm is 3, must be from 4 to 1000000, so that features are within 0.25",
        ),
        (
            beyond("kind = 'ordered'\nparameter_norm = nan", 2.0),
            "parameter_norm is NaN, must be from 0.5 to 1000000, so that features are within 2",
        ),
        (beyond("kind = 'synthetic'", 0.0), "context_bound is 0, must be from 0.000001 to 1000000"),
        (load("kind = 'ordered'\narms = 100001"), "arms is 100001, must be from 2 to 100000"),
        (load("kind = 'synthetic'\ngap = 0.0"), "gap is 0, must be above 0 and at most 0.5"),
        (load("kind = 'synthetic'\ngap = nan"), "gap is NaN, must be above 0 and at most 0.5"),
        (load("kind = 'ordered'\ngap = 0.51"), "gap is 0.51, must be above 0 and at most 0.5"),
        (
            Signal::new(0.5, Some(-0.1)).unwrap_err().to_string(),
            "gap is -0.1, must be above 0 and at most 0.5",
        ),
        (load("kind = 'synthetic'\ndimension = 1"), "dimension is 1, must be from 2 to 1000"),
        (load("kind = 'ordered'\ndimension = 1001"), "dimension is 1001, must be from 2 to 1000"),
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
        ("synthetic, one-hot, gap 0.1", None, 10),
        ("synthetic, correlated", Some(7), 10),
        ("synthetic, anisotropic", None, 10),
        ("synthetic, heavy-tailed, gap 0.25", None, 10),
        ("fixed-arms", None, 100),
        ("synthetic, drift 1.5", None, 10),
        ("ordered", None, 10),
        ("ordered, gap 0.1", Some(3), 10),
        ("synthetic, click rate 0.05, norm 2, drift 1", None, 10),
        ("fixed-arms, click rate 0.9, gap 0.05, norm 3", None, 100),
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
        "kind = \"synthetic\"\narms = 3\nrewards = \"bernoulli\"\nclick_rate = 0.25\ngap = 0.25\nparameter_norm = 2.0\ndrift = 0.5\n",
        "kind = \"fixed-arms\"\narms = 3\nrewards = \"bernoulli\"\nclick_rate = 0.25\nparameter_norm = 2.0\n",
        "kind = \"ordered\"\narms = 3\nrewards = \"bernoulli\"\n",
        "kind = \"synthetic\"\narms = 3\nrewards = \"bernoulli\"\ncontexts = \"heavy-tailed\"\ngap = 0.1\ndimension = 7\n",
        "kind = \"ordered\"\narms = 3\nrewards = \"bernoulli\"\ngap = 0.25\ndimension = 7\n",
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
        toml::from_str::<EnvironmentConfig>("kind = 'synthetic'").unwrap(),
        EnvironmentConfig::default()
    );
    assert!(toml::from_str::<EnvironmentConfig>("kind = 'other'").is_err());
}

/// Without knobs the same seeds give the people they gave before there were knobs, bit by bit.
#[test]
fn people_without_knobs_are_as_ever() {
    let mut people = source("kind = 'synthetic'").people(5, HORIZON, 1).unwrap();
    let (mut person, mut hash, mut rewards) = (Person::default(), 0u64, 0.0);
    for turn in 0..1000 {
        people.next_person(&mut person);
        rewards += people.reward(turn % 10).unwrap();
        for number in person.arms.iter().chain(&person.means) {
            hash = hash.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.to_bits();
        }
    }
    assert_eq!((hash, rewards as u32), (5_633_115_327_622_771_233, 475));
    let knobs = Synthetic::new(5, 10, Rewards::Bernoulli, 1).unwrap();
    let knobs = knobs.with_contexts(Contexts::Sphere).with_signal(Signal::default());
    assert_eq!(knobs.theta(), Synthetic::new(5, 10, Rewards::Bernoulli, 1).unwrap().theta());
}

#[test]
fn the_gap_scales_every_difference_of_means() {
    let kinds = Contexts::ALL.map(|law| format!("kind = 'synthetic'\ncontexts = '{}'", law.name()));
    for kind in kinds.into_iter().chain(["kind = 'ordered'".into()]) {
        let mut wide = source(&kind).people(5, HORIZON, 2).unwrap();
        let mut narrow = source(&format!("{kind}\ngap = 0.1")).people(5, HORIZON, 2).unwrap();
        let (mut far, mut near) = (Person::default(), Person::default());
        for _ in 0..100 {
            wide.next_person(&mut far);
            narrow.next_person(&mut near);
            assert_eq!(far.arms, near.arms, "{kind}");
            for (far, near) in far.means.iter().zip(&near.means) {
                assert!((near - 0.5 - 0.2 * (far - 0.5)).abs() < 1e-12, "{kind}: {far} {near}");
                assert!((0.4..=0.6).contains(near));
            }
        }
    }
}

/// The parameter is the one that makes the means, with every knob and in all units; data has none.
#[test]
fn the_parameter_explains_the_means() {
    for source in all() {
        for bound in [1.0, 0.7, 20.0] {
            let dimension = source.dimension().unwrap_or(5);
            let mut people = source.people_within(bound, dimension, HORIZON, 4).unwrap();
            let data = ["classification", "logged"].contains(&source.name());
            assert_eq!(people.parameter().is_none(), data, "{}", source.name());
            let mut person = Person::default();
            for _ in 0..20 {
                people.next_person(&mut person);
                for (arm, mean) in person.arms.chunks_exact(people.dimension()).zip(&person.means) {
                    assert!(dot(arm, arm).sqrt() <= bound * (1.0 + 1e-12), "{}", source.name());
                    let Some(theta) = people.parameter() else { continue };
                    assert!((dot(theta, arm) - mean).abs() < 1e-12, "{}", source.name());
                }
            }
        }
    }
}

/// Units and the norm of the parameter leave coins and rewards as they are.
#[test]
fn a_norm_and_a_bound_change_features_and_nothing_else() {
    let knobs = "kind = 'synthetic'\nclick_rate = 0.2\ngap = 0.15";
    // |theta*| = sqrt(2 (0.2^2 + 0.15^2))
    let norm = 0.125f64.sqrt();
    let cases = [
        ("", 1.0, norm),
        ("", 4.0, norm / 4.0),
        ("\nparameter_norm = 3", 1.0, 3.0),
        ("\nparameter_norm = 3", 4.0, 3.0),
        ("\nparameter_norm = 0.1", 4.0, 0.1),
    ];
    let mut usual = source(knobs).people(5, HORIZON, 9).unwrap();
    let mut others = cases.map(|(more, bound, expected)| {
        let people = source(&format!("{knobs}{more}")).people_within(bound, 5, HORIZON, 9).unwrap();
        let theta = people.parameter().unwrap();
        assert!((dot(theta, theta).sqrt() / expected - 1.0).abs() < 1e-12, "{more} {bound}");
        people
    });
    let (mut person, mut other) = (Person::default(), Person::default());
    for turn in 0..50 {
        usual.next_person(&mut person);
        assert!(person.means.iter().all(|mean| (0.05..=0.35).contains(mean)));
        let reward = usual.reward(turn % 10);
        for ((_, _, expected), people) in cases.iter().zip(&mut others) {
            people.next_person(&mut other);
            assert_eq!((&other.means, people.reward(turn % 10)), (&person.means, reward));
            for (own, usual) in other.arms.iter().zip(&person.arms) {
                assert!((own - usual * norm / expected).abs() < 1e-12);
            }
        }
    }
}

/// z of every arm of `count` people.
fn directions(law: Contexts, count: usize) -> Vec<Vec<Vec<f64>>> {
    let people = Synthetic::new(5, 10, Rewards::Bernoulli, 3).unwrap();
    let (mut people, mut person) = (people.with_contexts(law), Person::default());
    let z = |arm: &[f64]| arm[1..].iter().map(|entry| entry * 2f64.sqrt()).collect();
    (0..count)
        .map(|_| {
            people.next_person(&mut person);
            person.arms.chunks_exact(5).map(z).collect()
        })
        .collect()
}

#[test]
fn one_hot_features_have_one_entry_and_every_category_comes() {
    let mut seen = [0; 4];
    for arm in directions(Contexts::OneHot, 100).iter().flatten() {
        let category = arm.iter().position(|&entry| entry != 0.0).unwrap();
        assert!((arm[category] - 1.0).abs() < 1e-12);
        assert_eq!(arm.iter().filter(|&&entry| entry != 0.0).count(), 1);
        seen[category] += 1;
    }
    // Binomial with mean 250 and deviation 13.7: 100 away has a probability below 1e-12.
    assert!(seen.iter().all(|count| (150..350).contains(count)), "{seen:?}");
}

/// <z, z'> of two arms of a person is in [-1, 1] and independent between people: 1000 of them are
/// within 0.16 of their mean, but for a probability of 1e-10 each.
#[test]
fn correlated_arms_look_alike_and_others_do_not() {
    let alike = |law| {
        let people = directions(law, 1000);
        people.iter().map(|arms| dot(&arms[0], &arms[1])).sum::<f64>() / 1000.0
    };
    for law in [Contexts::Sphere, Contexts::HeavyTailed] {
        assert!(alike(law).abs() < 0.16, "{law:?}");
    }
    let alike = alike(Contexts::Correlated);
    assert!((0.55..0.95).contains(&alike), "{alike}");
}

#[test]
fn later_entries_of_anisotropic_features_are_smaller() {
    let mut squares = [0.0; 4];
    for arm in directions(Contexts::Anisotropic, 1000).iter().flatten() {
        assert!((dot(arm, arm) - 1.0).abs() < 1e-12);
        squares.iter_mut().zip(arm).for_each(|(sum, entry)| *sum += entry * entry / 1e4);
    }
    // Each mean of 10,000 squares in [0, 1] is within 0.035 of its expectation, but for 1e-10.
    assert!(squares[0] > squares[1] + 0.2 && squares[1] > squares[3] + 0.05, "{squares:?}");
}

/// P(|z| > r/10) = 1/r^2 for 1 <= r < 10, and |z| = 1 with probability 1/100. Hoeffding: 1e-10 for
/// each of three checks.
#[test]
fn heavy_tails_are_scaled_into_the_ball() {
    let people = directions(Contexts::HeavyTailed, 2000);
    let lengths: Vec<f64> = people.iter().flatten().map(|arm| dot(arm, arm).sqrt()).collect();
    assert!(lengths.iter().all(|length| (0.1 - 1e-12..=1.0 + 1e-12).contains(length)));
    let share = |above: f64| {
        lengths.iter().filter(|&&length| length > above).count() as f64 / lengths.len() as f64
    };
    for (above, expected) in [(0.2, 0.25), (0.5, 0.04), (0.999, 0.01)] {
        let found = share(above);
        assert!((found - expected).abs() < hoeffding(lengths.len()), "{above}: {found}");
    }
    assert!(share(0.999) > 0.0);
}
