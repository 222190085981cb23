//! Data files as environments: labelled rows, logged feedback, and what is said about broken files.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use incrowd_sim::{
    Classification, ClassificationConfig, Environment, Estimate, Features, Logged, LoggedConfig,
    LoggedPeople, Person,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;
use rand_distr::{Distribution, StandardNormal};

fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

fn labelled(file: PathBuf) -> ClassificationConfig {
    ClassificationConfig {
        file,
        label: "label".into(),
        features: Features::Shared,
        public: None,
        project: None,
        projection_seed: 1,
    }
}

fn log(file: PathBuf) -> LoggedConfig {
    LoggedConfig { file, context: None, project: None, projection_seed: 1 }
}

/// The person of each row.
fn by_row(data: &Arc<Classification>, seed: u64) -> Vec<Person> {
    let mut people = data.people(seed);
    let mut rows = vec![Person::default(); data.rows()];
    let mut person = Person::default();
    for _ in 0..200 {
        people.next_person(&mut person);
        for (arm, &mean) in person.means.iter().enumerate() {
            assert_eq!(people.reward(arm), Some(mean));
        }
        rows[people.row().unwrap()] = person.clone();
    }
    rows
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }
}

#[test]
fn shared_features_stand_in_the_block_of_the_arm() {
    // A byte order mark, spaces, row numbers without a name, an empty line and no line break at the
    // end. x becomes -1, 1, -1, 1 and y is constant.
    let path =
        file("shared.csv", "\u{feff},x,y,label\n0, 1,10,b\n1,3,10, a\n\n2,1,10,b\r\n3,3,10,a");
    let data = Arc::new(Classification::load(&labelled(path)).unwrap());
    assert_eq!((data.dimension(), data.arms(), data.rows()), (6, 2, 4));
    assert_eq!(data.classes(), ["a", "b"]);
    let c = std::f64::consts::FRAC_1_SQRT_2;
    for (row, person) in by_row(&data, 1).iter().enumerate() {
        let x = if row % 2 == 0 { -c } else { c };
        assert_close(&person.arms, &[c, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, c, x, 0.0]);
        assert_eq!(person.means, if row % 2 == 0 { [0.0, 1.0] } else { [1.0, 0.0] });
    }
}

#[test]
fn columns_of_an_arm_belong_to_it_alone() {
    // Prices are -1 and 1 over both arms, ages -1 and 1.
    let path =
        file("per-arm.csv", "age,a:price,label,b:price\n20,1,a,3\n40,1,b,3\n20,1,b,3\n40,1,a,3\n");
    let config = ClassificationConfig { features: Features::PerArm, ..labelled(path) };
    let data = Arc::new(Classification::load(&config).unwrap());
    assert_eq!((data.dimension(), data.arms()), (3, 2));
    let c = 1.0 / 3.0f64.sqrt();
    for (row, person) in by_row(&data, 2).iter().enumerate() {
        let age = if row % 2 == 0 { -c } else { c };
        assert_close(&person.arms, &[c, age, -c, c, age, c]);
        let label = [0, 1, 1, 0][row];
        assert_eq!(person.means, if label == 0 { [1.0, 0.0] } else { [0.0, 1.0] });
    }
}

#[test]
fn a_projection_is_one_matrix_for_all_rows_arms_and_runs() {
    let path = file("projected.csv", "x,label\n1,a\n2,b\n4,c\n7,a\n");
    let plain = Arc::new(Classification::load(&labelled(path.clone())).unwrap());
    let load = |projection_seed| {
        let config =
            ClassificationConfig { project: Some(3), projection_seed, ..labelled(path.clone()) };
        Arc::new(Classification::load(&config).unwrap())
    };
    let projected = load(5);
    assert_eq!((plain.dimension(), projected.dimension()), (6, 3));

    let mut rng = ChaCha8Rng::seed_from_u64(5);
    rng.set_stream(3);
    let matrix: Vec<f64> = (0..18).map(|_| StandardNormal.sample(&mut rng)).collect();
    let mut expected: Vec<Vec<f64>> = Vec::new();
    for person in by_row(&plain, 1) {
        for x in person.arms.chunks_exact(6) {
            let entry = |i: usize| (0..6).map(|j| x[j] * matrix[3 * j + i]).sum();
            expected.push((0..3).map(entry).collect());
        }
    }
    let norm = |x: &Vec<f64>| x.iter().map(|entry| entry * entry).sum::<f64>().sqrt();
    let largest = expected.iter().map(norm).fold(0.0, f64::max);
    let expected: Vec<f64> = expected.concat().iter().map(|entry| entry / largest).collect();
    for seed in [1, 2] {
        let found: Vec<f64> =
            by_row(&projected, seed).into_iter().flat_map(|person| person.arms).collect();
        assert_close(&found, &expected);
    }
    assert_ne!(by_row(&load(6), 1)[0].arms, by_row(&projected, 1)[0].arms);
    assert_eq!(by_row(&plain, 1)[2].means, by_row(&projected, 1)[2].means);
}

/// Counts of 4 rows in 40,000 draws: by Hoeffding each is off by more than 740 with probability
/// below 3e-12.
#[test]
fn rows_are_drawn_uniformly() {
    let path = file("uniform.csv", "x,label\n1,a\n2,b\n3,a\n4,b\n");
    let data = Arc::new(Classification::load(&labelled(path)).unwrap());
    let mut people = data.people(11);
    let mut counts = [0i64; 4];
    for _ in 0..40_000 {
        people.next_person(&mut Person::default());
        counts[people.row().unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (count - 10_000).abs() <= 740), "{counts:?}");
}

#[test]
fn extreme_numbers_stay_finite() {
    let path = file("extreme.csv", "x,y,label\n1e308,5e-324,a\n-1e308,0,b\n1e308,0,a\n");
    let data = Arc::new(Classification::load(&labelled(path)).unwrap());
    for person in by_row(&data, 1) {
        assert!(person.arms.iter().all(|entry| entry.is_finite()));
    }
}

#[test]
fn logged_contexts_estimates_and_choices_by_hand() {
    let path = file(
        "logged.csv",
        "action,reward,pscore,x,city,y\n0,1,0.5,1,Rome,7\n1,0.5,0.25,3,Oslo,7\n1,0,0.5,1,Oslo,7\n0,0.5,0.25,3,Rome,7\n",
    );
    let data = Arc::new(Logged::load(&log(path.clone())).unwrap());
    // Bias, x and y for two arms; city is text.
    assert_eq!((data.dimension(), data.arms(), data.events()), (6, 2, 4));
    assert!((data.people_per_pass() - 1.0).abs() < 1e-12);
    // Rewards 1, 1/2, 0, 1/2 and weighted 1, 1, 0, 1.
    let close = |found: Estimate, mean: f64, error: f64| {
        assert_close(&[found.mean, found.standard_error], &[mean, error]);
    };
    close(data.logging_policy(), 0.5, (0.5f64 / 3.0 / 4.0).sqrt());
    close(data.uniform_policy(), 0.75, (0.75f64 / 3.0 / 4.0).sqrt());

    let c = std::f64::consts::FRAC_1_SQRT_2;
    let mut people = data.people(3);
    let mut person = Person::default();
    assert_eq!(people.reward(0), None);
    for _ in 0..100 {
        people.next_person(&mut person);
        let x = person.arms[1];
        assert!((x.abs() - c).abs() < 1e-12);
        assert_close(&person.arms, &[c, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, c, x, 0.0]);
        assert!(person.means.is_empty());
        let rewards = [people.reward(0), people.reward(1)];
        assert_eq!(rewards, [people.reward(0), people.reward(1)], "asked again");
        assert!(rewards.contains(&None), "only one action is logged");
        if x > 0.0 {
            // The events with x = 3 have the smallest propensity, so they always count.
            assert!(rewards.contains(&Some(0.5)));
        }
    }
    let only = LoggedConfig { context: Some(vec!["x".into()]), ..log(path.clone()) };
    assert_eq!(Logged::load(&only).unwrap().dimension(), 4);
    let none = LoggedConfig { context: Some(Vec::new()), ..log(path) };
    assert_eq!(Logged::load(&none).unwrap().dimension(), 2);
}

#[test]
fn a_pass_shows_every_event_once() {
    let mut text = String::from("action,reward,pscore,x\n");
    (0..50).for_each(|event| writeln!(text, "{},0,0.5,{event}", event % 2).unwrap());
    let data = Arc::new(Logged::load(&log(file("pass.csv", text))).unwrap());
    let mut people = data.people(4);
    let mut person = Person::default();
    let mut orders = Vec::new();
    for _ in 0..3 {
        let mut order: Vec<f64> = Vec::new();
        for _ in 0..50 {
            people.next_person(&mut person);
            order.push(person.arms[1]);
        }
        orders.push(order.clone());
        order.sort_by(f64::total_cmp);
        order.dedup();
        assert_eq!(order.len(), 50);
    }
    assert_ne!(orders[0], orders[1]);
}

/// Probability of a reward for context x = 0, 1 and action 0, 1.
const CHANCE: [[f64; 2]; 2] = [[0.2, 0.9], [0.7, 0.1]];
/// Probability of action 1 in the log.
const LOGGING: [f64; 2] = [0.9, 0.1];
const EVENTS: usize = 60_000;

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn known_log(name: &str) -> Arc<Logged> {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let mut text = String::from("action,reward,pscore,x\n");
    for _ in 0..EVENTS {
        let x = usize::from(uniform(&mut rng) < 0.5);
        let action = usize::from(uniform(&mut rng) < LOGGING[x]);
        let pscore = if action == 1 { LOGGING[x] } else { 1.0 - LOGGING[x] };
        // 1 - 0.9 is not quite 0.1.
        let pscore = (pscore * 10.0).round() / 10.0;
        let reward = u8::from(uniform(&mut rng) < CHANCE[x][action]);
        writeln!(text, "{action},{reward},{pscore},{x}").unwrap();
    }
    Arc::new(Logged::load(&log(file(name, text))).unwrap())
}

/// Whether one pass of replay gives the true mean reward of choosing action 1 with probability
/// `policy[x]`: the number of people who count is `n`, their rewards are independent draws with the
/// true mean, and by Hoeffding the average is off by more than sqrt(ln(2/1e-10)/(2 n)) with
/// probability 1e-10.
fn unbiased(mut people: LoggedPeople, policy: [f64; 2]) -> bool {
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let mut person = Person::default();
    let (mut n, mut sum) = (0.0, 0.0);
    for _ in 0..EVENTS {
        people.next_person(&mut person);
        let x = usize::from(person.arms[1] > 0.0);
        let arm = usize::from(uniform(&mut rng) < policy[x]);
        if let Some(reward) = people.reward(arm) {
            n += 1.0;
            sum += reward;
        }
    }
    let value = |x: usize| (1.0 - policy[x]) * CHANCE[x][0] + policy[x] * CHANCE[x][1];
    let truth = f64::midpoint(value(0), value(1));
    // The effect to be caught is 0.2 or more, the bound about 0.045.
    assert!(n > 4000.0);
    (sum / n - truth).abs() <= ((2.0f64 / 1e-10).ln() / (2.0 * n)).sqrt()
}

/// 3 checks: a false alarm has probability below 1e-9.
#[test]
fn replay_is_unbiased() {
    let data = known_log("known.csv");
    let policies = [[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]];
    let biased: Vec<_> =
        policies.into_iter().filter(|&policy| !unbiased(data.people(23), policy)).collect();
    assert!(biased.is_empty(), "biased for {biased:?}");
}

/// Terms are at most 1/(2 * 0.1) = 5: by Hoeffding the estimate is off by more than 5
/// sqrt(ln(2/1e-10)/(2 n)) = 0.071 with probability 1e-10; the unweighted mean is off by 0.26.
#[test]
fn inverse_propensities_give_the_uniform_policy() {
    let data = known_log("known-ips.csv");
    let truth = CHANCE.concat().iter().sum::<f64>() / 4.0;
    let bound = 5.0 * ((2.0f64 / 1e-10).ln() / (2.0 * EVENTS as f64)).sqrt();
    let estimate = data.uniform_policy();
    assert!((estimate.mean - truth).abs() <= bound);
    assert!((data.logging_policy().mean - truth).abs() > bound);
}

#[test]
fn the_shipped_data_is_what_its_readme_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/data");
    let config =
        ClassificationConfig { label: "species".into(), ..labelled(folder.join("penguins.csv")) };
    let penguins = Classification::load(&config).unwrap();
    assert_eq!(penguins.classes(), ["Adelie", "Chinstrap", "Gentoo"]);
    assert_eq!((penguins.rows(), penguins.dimension()), (342, 15));
    let log = Logged::load(&log(folder.join("penguins-logged.csv"))).unwrap();
    assert_eq!((log.events(), log.dimension(), log.arms()), (5000, 15, 3));
    let (uniform, logging) = (log.uniform_policy(), log.logging_policy());
    assert_eq!(format!("{:.3} {:.3}", uniform.mean, uniform.standard_error), "0.348 0.007");
    assert_eq!(format!("{:.3} {:.3}", logging.mean, logging.standard_error), "0.399 0.007");
}

#[test]
fn shipped_data_with_public_rows_has_the_sizes_its_readme_states() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/data");
    // File, label, layout, people, public rows, features with the constant, classes.
    let files = [
        ("digits", "digit", Features::PerAction, 1437, 360, 9, 10),
        ("digits-scores", "digit", Features::PerArm, 1437, 180, 3, 10),
        ("digits-shifted", "digit", Features::Hybrid, 1437, 180, 6, 10),
        ("segments", "category", Features::PerAction, 1950, 360, 7, 7),
        ("segments-cut", "category", Features::PerAction, 1950, 360, 7, 7),
        ("segments-scores", "category", Features::PerArm, 1950, 180, 3, 7),
        ("visits", "visits", Features::PerAction, 6000, 360, 10, 3),
        ("visits-scores", "visits", Features::PerArm, 6000, 180, 3, 3),
    ];
    for (name, label, features, people, public, dimension, classes) in files {
        let load = |file: String| {
            let config = labelled(folder.join(file));
            let config = ClassificationConfig { label: label.into(), features, ..config };
            let data = Classification::load(&config).unwrap();
            (data.rows(), data.dimension(), data.classes().len())
        };
        assert_eq!(load(format!("{name}.csv")), (people, dimension, classes), "{name}");
        let found = load(format!("{name}-public.csv"));
        assert_eq!(found, (public, dimension, classes), "{name}-public");
        let config = ClassificationConfig {
            label: label.into(),
            features,
            public: Some(folder.join(format!("{name}-public.csv"))),
            ..labelled(folder.join(format!("{name}.csv")))
        };
        let data = Classification::load(&config).unwrap();
        assert_eq!(data.rows(), people, "{name}: public rows are nobody of a run");
        assert!(data.public_statistic().is_some(), "{name}");
    }
}

/// What is said about a file of labelled rows.
fn complaint(content: impl AsRef<[u8]>, change: impl Fn(&mut ClassificationConfig)) -> String {
    // Tests run at the same time.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut config = labelled(file(&format!("broken-{number}.csv"), content));
    change(&mut config);
    let message = Classification::load(&config).unwrap_err().to_string();
    message.strip_prefix(&config.file.display().to_string()).unwrap().to_owned()
}

fn per_arm(config: &mut ClassificationConfig) {
    config.features = Features::PerArm;
}

#[test]
fn broken_labelled_files_are_explained() {
    let as_is = |_: &mut ClassificationConfig| {};
    let cases = [
        ("", ": found an empty file, expected a header with the names of the columns"),
        ("\u{feff}\n \n", ": found an empty file, expected a header with the names of the columns"),
        ("x,label\n", ": found no row after the header, expected at least 1"),
        ("x,label\n1,a\n2\n", ", line 3: found a row of 1, expected 2 fields as in the header"),
        (
            "x,label\n\n1,a\n2,b,3\n",
            ", line 4: found a row of 3, expected 2 fields as in the header",
        ),
        (
            "x,label\n1,a\nNaN,b\n",
            ", line 3, column \"x\": found \"NaN\", expected a finite number",
        ),
        (
            "x,label\n-inf,a\n1,b\n",
            ", line 2, column \"x\": found \"-inf\", expected a finite number",
        ),
        (
            "x,label\n1e999,a\n1,b\n",
            ", line 2, column \"x\": found \"1e999\", expected a finite number",
        ),
        (
            "x,label\n1,a\n\"one\ntwo\",b\n",
            ", line 3, column \"x\": found \"one\\ntwo\", expected a number",
        ),
        ("x,label\n1,\"a\nb\"\nNA,b\n", ", line 4, column \"x\": found \"NA\", expected a number"),
        ("x,label\n1,a\n,b\n", ", line 3, column \"x\": found \"\", expected a number"),
        ("x,Label\n1,a\n", ", line 1: found no column \"label\", expected one of \"x\", \"Label\""),
        (
            "x,x,label\n1,1,a\n",
            ", line 1, column \"x\": found the name of this column twice, expected different names",
        ),
        (
            "label\na\nb\n",
            ", line 1: found no column besides the label, expected at least 1 column of features",
        ),
        (
            "x,label\n1,a\n2,\n",
            ", line 3, column \"label\": found no label, expected the name of a class",
        ),
        (
            "x,label\n1,a\n2,a\n",
            ", line 1, column \"label\": found only the class \"a\", expected at least 2 classes",
        ),
    ];
    for (content, expected) in cases {
        assert_eq!(complaint(content, as_is), expected);
    }
    assert_eq!(
        complaint(b"x,label\n1,a\n2,\xff\n", as_is),
        ", line 3: found bytes that are not UTF-8, expected UTF-8"
    );

    let cases = [
        (
            "x,label\n1,a\n2,b\n",
            ", line 1: found no column named class:feature, expected at least 1 for each arm (or features = \"shared\")",
        ),
        (
            "a:x,label\n1,a\n2,b\n",
            ", line 1: found no column \"b:x\", expected the same features for every arm",
        ),
        (
            "a:x,c:x,label\n1,1,a\n2,2,b\n",
            ", line 1, column \"c:x\": found no class before the colon, expected one of \"a\", \"b\" (columns of one arm are named class:feature)",
        ),
    ];
    for (content, expected) in cases {
        assert_eq!(complaint(content, per_arm), expected);
    }
}

#[test]
fn files_that_cannot_be_opened_are_explained() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("absent.csv");
    assert_eq!(
        Classification::load(&labelled(path.clone())).unwrap_err().to_string(),
        format!("{}: found no such file, expected a CSV file with a header", path.display())
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf();
    let message = Logged::load(&log(folder.clone())).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: cannot be read (", folder.display())));
    assert!(message.ends_with("), expected a CSV file with a header"));
}

#[test]
fn dimensions_and_projections_out_of_range_are_explained() {
    let names: Vec<String> = (0..500).map(|column| format!("x{column}")).collect();
    let numbers = vec!["1"; 500].join(",");
    let wide = format!("{},label\n{numbers},a\n{numbers},b\n", names.join(","));
    let project = |dimension| move |config: &mut ClassificationConfig| config.project = dimension;
    let small = "x,label\n1,a\n2,b\n";
    let found = [
        complaint(&wide, project(None)),
        complaint(&wide, project(Some(1001))),
        complaint(small, project(Some(1))),
        complaint(small, project(Some(5))),
    ];
    let expected = [
        ": found 1002 dimensions, expected at most 1000 (use `project`)",
        ": found project = 1001, expected from 2 to 1000",
        ": found project = 1, expected from 2 to 4",
        ": found project = 5, expected from 2 to 4",
    ];
    assert_eq!(found, expected);

    let mut many = String::from("x,label\n");
    (0..100_001).for_each(|row| writeln!(many, "1,{row}").unwrap());
    assert_eq!(
        complaint(&many, project(Some(2))),
        ", line 1, column \"label\": found 100001 classes, expected at most 100000"
    );
    let many = many.trim_end().rsplit_once('\n').unwrap().0;
    assert_eq!(
        complaint(many, project(Some(501))),
        ": found a projection with 100200000 entries (200000 dimensions times `project`), expected at most 100000000"
    );
}

#[test]
fn broken_logs_are_explained() {
    let complaint = |content: &str, context: Option<&[&str]>| {
        let context = context.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        let config = LoggedConfig { context, ..log(file("broken-log.csv", content)) };
        let message = Logged::load(&config).unwrap_err().to_string();
        message.strip_prefix(&config.file.display().to_string()).unwrap().to_owned()
    };
    let good = "action,reward,pscore,x\n0,0,0.5,1\n";
    let rows = [
        (
            "1.0,0,0.5,1",
            ", line 3, column \"action\": found \"1.0\", expected an integer from 0 to 99999",
        ),
        (
            "-1,0,0.5,1",
            ", line 3, column \"action\": found \"-1\", expected an integer from 0 to 99999",
        ),
        (
            "100000,0,0.5,1",
            ", line 3, column \"action\": found \"100000\", expected an integer from 0 to 99999",
        ),
        (
            "0,0,0.5,1",
            ", line 1, column \"action\": found only the action 0, expected at least 2 actions",
        ),
        (
            "2,0,0.5,1",
            ", line 1, column \"action\": found no event with action 1, expected each action from 0 to 2 at least once",
        ),
        (
            "1,1.5,0.5,1",
            ", line 3, column \"reward\": found \"1.5\", expected a reward from 0 to 1",
        ),
        (
            "1,-0.1,0.5,1",
            ", line 3, column \"reward\": found \"-0.1\", expected a reward from 0 to 1",
        ),
        ("1,yes,0.5,1", ", line 3, column \"reward\": found \"yes\", expected a number"),
        (
            "1,0,0,1",
            ", line 3, column \"pscore\": found \"0\", expected a probability above 0 and at most 1",
        ),
        (
            "1,0,1.01,1",
            ", line 3, column \"pscore\": found \"1.01\", expected a probability above 0 and at most 1",
        ),
        ("1,0,nan,1", ", line 3, column \"pscore\": found \"nan\", expected a finite number"),
        ("1,0,0.5,far", ", line 3, column \"x\": found \"far\", expected a number"),
    ];
    for (row, expected) in rows {
        assert_eq!(complaint(&format!("{good}{row}\n"), None), expected);
    }
    assert_eq!(
        complaint("action,reward,x\n0,0,1\n1,0,1\n", None),
        ", line 1: found no column \"pscore\", expected one of \"action\", \"reward\", \"x\""
    );
    let good = "action,reward,pscore,x\n0,0,0.5,1\n1,0,0.5,2\n";
    let twice = "expected columns other than action, reward and pscore, each once";
    let contexts = [
        (["x", "z"], ", line 1: found no column \"z\", expected one of \"action\", \"reward\", \"pscore\", \"x\"".to_owned()),
        (["x", "reward"], format!(", line 1, column \"reward\": found this column in `context`, {twice}")),
        (["x", "x"], format!(", line 1, column \"x\": found this column in `context`, {twice}")),
    ];
    for (context, expected) in contexts {
        assert_eq!(complaint(good, Some(&context)), expected);
    }
}

/// Random files of the characters that matter: a file or an error, never a panic, and people if it
/// is a file.
#[test]
fn no_file_is_a_panic() {
    let pieces = [
        ",", ",", ",", "\n", "\n", "\r\n", "\r", "\"", " ", "1", "0", "0.5", "-2", "a", "b", "a:x",
        "b:x", "x", "label", "action", "reward", "pscore", "\u{feff}", "\u{e9}", "NaN", "1e308",
    ];
    let heads = ["", "x,label\n", "a:x,b:x,label\n", "action,reward,pscore\n"];
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let mut pick = |count: usize| (uniform(&mut rng) * count as f64) as usize;
    let mut loaded = [0; 3];
    for round in 0..1500 {
        let mut text = heads[round % heads.len()].to_owned();
        (0..pick(12)).for_each(|_| text += pieces[pick(pieces.len())]);
        if round % 8 >= 4 {
            text += ["", "\n1,a\n2,b", "\n1,2,a\n2,1,b", "\n0,1,0.5\n1,0,0.5"][round % heads.len()];
        }
        let path = file("random.csv", text);
        for (kind, features) in [Features::Shared, Features::PerArm].into_iter().enumerate() {
            let config = ClassificationConfig { features, ..labelled(path.clone()) };
            if let Ok(data) = Classification::load(&config) {
                Arc::new(data).people(1).next_person(&mut Person::default());
                loaded[kind] += 1;
            }
        }
        if let Ok(data) = Logged::load(&log(path)) {
            Arc::new(data).people(1).next_person(&mut Person::default());
            loaded[2] += 1;
        }
    }
    assert!(loaded.iter().all(|&count| count > 10), "{loaded:?}");
}
