//! Priors and surveys of public files: what a weight means, what is held out, and what is said about
//! files that do not fit the map.

use std::{fmt::Write as _, path::Path, sync::Arc};

use incrowd_bandit::Bandit;
use incrowd_device::{Arm, FeatureMap, Fields, Score, Value};
use incrowd_planner::{PlanRequest, plan};
use incrowd_protocol::{Model, Prior};
use incrowd_sim::public_data::{
    DataKind, Examples, Fit, FitConfig, PublicDataError, Survey, fit, survey,
};

const SHARED: &str = r#"{"bias": true,
    "context": [{"name": "age", "kind": "number", "min": 0, "max": 100}],
    "action": [{"name": "price", "kind": "number", "min": 0, "max": 10},
               {"name": "action", "kind": "category", "values": ["news", "sport", "art"]}],
    "interactions": [["age", "action"]]}"#;
const PER_ACTION: &str = r#"{"model": "per-action", "actions": ["news", "sport", "art"],
    "spare_slots": 2, "bias": true,
    "context": [{"name": "age", "kind": "number", "min": 0, "max": 100}]}"#;
const HYBRID: &str = r#"{"model": "hybrid", "actions": ["news", "sport", "art"], "bias": true,
    "context": [{"name": "age", "kind": "number", "min": 0, "max": 100}],
    "action": [{"name": "price", "kind": "number", "min": 0, "max": 10}]}"#;
const PRICES: &str = "news:price,sport:price,art:price";

fn map(json: &str) -> FeatureMap {
    serde_json::from_str(json).unwrap()
}

fn examples<'a>(
    map: &'a FeatureMap,
    file: &str,
    label: Option<&str>,
) -> Result<Examples<'a>, PublicDataError> {
    Examples::parse(Path::new("public.csv"), file.as_bytes(), map, label)
}

fn fitted(map: &FeatureMap, file: &str, label: Option<&str>) -> Result<Fit, PublicDataError> {
    fit(&examples(map, file, label)?, &FitConfig::default())
}

fn surveyed(map: &FeatureMap, file: &str) -> Result<Survey, PublicDataError> {
    survey(&Examples::parse_sample(Path::new("sample.csv"), file.as_bytes(), map)?)
}

/// The first model of a planned task.
fn first_model(map: &FeatureMap, prior: Prior) -> Model {
    let request = PlanRequest {
        layout: map.layout(),
        batch_size: Some(500),
        ..PlanRequest::new(map.dimension() as u32, 1000)
    };
    let task = plan(&request.check().unwrap()).unwrap().task;
    let task = task.with_actions(map.config().actions.clone()).unwrap();
    Bandit::new(Arc::new(task.with_prior(prior).unwrap())).start().unwrap()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-12, "{i}: {found}, not {expected}");
    }
}

/// Three people, shown each action with probability 1/2: the sums that they would report.
#[test]
fn a_prior_for_n_people_has_the_sums_of_n_reports() {
    let map =
        map(r#"{"model": "per-action", "actions": ["a", "b"], "spare_slots": 1, "bias": true,
                      "context": [{"name": "new", "kind": "number", "min": 0, "max": 1}]}"#);
    let fit = fitted(&map, "new,best\n1,a\n1,a\n0,b\n", Some("best")).unwrap();
    assert_eq!((fit.kind, fit.rows, fit.answers), (DataKind::Labelled, 3, 6));
    assert!((fit.prior.people() - 3.0).abs() < 1e-15);
    let sums: Vec<f64> = fit.prior.values().iter().map(|value| 3.0 * value).collect();
    // Bias and field are 1/sqrt(2) each, the field of the third person -1/sqrt(2). A slot has two
    // moments and the squares and the product of two features.
    let u = 0.5f64.sqrt();
    #[rustfmt::skip]
    let expected = [
        0.5 * 2.0 * u, 0.5 * 2.0 * u, 0.5 * 1.5, 0.5 * 0.5, 0.5 * 1.5,
        0.5 * u, 0.5 * -u, 0.5 * 1.5, 0.5 * 0.5, 0.5 * 1.5,
        0.0, 0.0, 0.0, 0.0, 0.0,
    ];
    close(&sums, &expected);
    // The squares of one person's features add up to 1, over all slots.
    let values = fit.prior.values();
    assert!((values[2] + values[4] + values[7] + values[9] - 1.0).abs() < 1e-12);
}

/// K times 1/K is sometimes more than 1 in floats, and a prior must not be.
#[test]
fn any_number_of_actions_has_a_prior() {
    let map = map(r#"{"bias": true}"#);
    for actions in 2..60 {
        let columns: Vec<String> = (0..actions).map(|action| format!("reward:{action}")).collect();
        let file = format!("{}\n{}\n", columns.join(","), vec!["1"; actions].join(","));
        close(fitted(&map, &file, None).unwrap().prior.values(), &[1.0, 1.0]);
    }
}

/// A row with a label says as much as a row of a log for each action, and its weight is that of one
/// person.
#[test]
fn labels_rewards_and_logs_of_all_actions_are_one_prior() {
    let ages = [12.0, 30.0, 55.0, 70.0, 71.0, 95.0];
    let actions = ["news", "sport", "art"];
    for json in [SHARED, PER_ACTION, HYBRID] {
        let map = map(json);
        let mut labelled = format!("age,{PRICES},best\n");
        let mut rewards = format!("age,{PRICES},reward:sport,reward:art,reward:news\n");
        let mut logged = format!("age,{PRICES},action,reward,pscore\n");
        for (row, age) in ages.iter().enumerate() {
            let prices = format!("{},{},3", row, 10 - row);
            let best = row * row % 3;
            let reward = |action: usize| u8::from(action == best);
            writeln!(labelled, "{age},{prices},{}", actions[best]).unwrap();
            writeln!(rewards, "{age},{prices},{},{},{}", reward(1), reward(2), reward(0)).unwrap();
            for (index, action) in actions.iter().enumerate() {
                writeln!(logged, "{age},{prices},{action},{},0.3", reward(index)).unwrap();
            }
        }
        let labelled = fitted(&map, &labelled, Some("best")).unwrap();
        let rewards = fitted(&map, &rewards, None).unwrap();
        let logged = fitted(&map, &logged, None).unwrap();
        close(rewards.prior.values(), labelled.prior.values());
        close(logged.prior.values(), labelled.prior.values());
        assert_eq!((labelled.answers, rewards.answers, logged.answers), (18, 18, 18));
        let people = [labelled, rewards, logged].map(|fit| fit.prior.people());
        close(&people, &[6.0, 6.0, 18.0]);
    }
}

#[test]
fn the_first_model_says_what_the_file_says() {
    let map = map(r#"{"model": "per-action", "actions": ["a", "b"],
        "context": [{"name": "plan", "kind": "category", "values": ["free", "paid"]}]}"#);
    let file = "plan,reward:b,reward:a\nfree,0.1,0.9\nfree,0.3,0.7\npaid,0.8,0.4\n";
    let config = FitConfig { people: Some(1e9), ..FitConfig::default() };
    let fit = fit(&examples(&map, file, None).unwrap(), &config).unwrap();
    assert!((fit.prior.people() - 1e9).abs() < 1e-15);
    let model = first_model(&map, fit.prior);
    assert_eq!((model.version(), model.round()), (1, 0));
    for (plan, rewards) in [("free", [0.8, 0.2]), ("paid", [0.4, 0.8])] {
        let fields = Fields::from([("plan".to_owned(), Value::Text(plan.to_owned()))]);
        let x = map.features(&fields, &Fields::new()).x;
        for (slot, reward) in (0..).zip(rewards) {
            let score = Score::of(&model, Arm { slot, features: &x }).unwrap();
            assert!((score.mean - reward).abs() < 1e-6, "{plan} {slot}: {score:?}");
        }
    }
}

/// The same people are the same prior in any unit, and the held-out model knows its unit.
#[test]
fn the_bound_is_a_unit() {
    let mut file = String::from("age,best\n");
    for row in 0..40 {
        let age = row * 37 % 100;
        writeln!(file, "{age},{}", ["news", "sport", "art"][age / 34]).unwrap();
    }
    let one = map(PER_ACTION);
    let two = map(&PER_ACTION.replacen('{', r#"{"context_bound": 2.0, "#, 1));
    let [one, two] = [one, two].map(|map| fitted(&map, &file, Some("best")).unwrap());
    close(two.prior.values(), one.prior.values());
    let mean = |fit: Fit| fit.held_out.unwrap().estimate.unwrap().mean;
    assert_eq!(mean(one).to_bits(), mean(two).to_bits());
}

#[test]
fn a_prior_is_measured_on_other_rows() {
    // Every row has a value of its own: what is learned from the others says nothing about it.
    let ids: Vec<String> = (0..30).map(|id| format!("\"id{id}\"")).collect();
    let own = map(&format!(
        r#"{{"model": "per-action", "actions": ["a", "b", "c"],
            "context": [{{"name": "id", "kind": "category", "values": [{}]}}]}}"#,
        ids.join(",")
    ));
    let mut file = String::from("id,best\n");
    (0..30).for_each(|id| writeln!(file, "id{id},{}", ["a", "b", "c"][id % 3]).unwrap());
    let fit = fitted(&own, &file, Some("best")).unwrap();
    let held_out = fit.held_out.unwrap();
    let third = |mean: f64| (mean - 1.0 / 3.0).abs() < 1e-12;
    assert_eq!(held_out.folds, 5);
    assert!(third(held_out.estimate.unwrap().mean));
    assert!(third(held_out.uniform.mean));
    assert!((held_out.best.unwrap().mean - 1.0).abs() < 1e-12);
    // In the model of all rows each of them is right.
    let model = first_model(&own, fit.prior);
    for id in 0..30 {
        let fields = Fields::from([("id".to_owned(), Value::Text(format!("id{id}")))]);
        let x = own.features(&fields, &Fields::new()).x;
        let mean = |slot| Score::of(&model, Arm { slot, features: &x }).unwrap().mean;
        assert!((0..3).all(|slot| slot == id % 3 || mean(slot) < mean(id % 3)), "{id}");
    }
}

#[test]
fn what_can_be_learned_is_found_on_held_out_rows() {
    let mut file = format!("age,{PRICES},best\n");
    for row in 0..200 {
        // The young read news, others sport; nobody likes art.
        let age = row * 37 % 101;
        writeln!(file, "{age},1,2,3,{}", if age < 50 { "news" } else { "sport" }).unwrap();
    }
    for json in [SHARED, PER_ACTION, HYBRID] {
        let held_out = fitted(&map(json), &file, Some("best")).unwrap().held_out.unwrap();
        let estimate = held_out.estimate.unwrap();
        assert!(estimate.mean > 0.9 && estimate.rows == 200, "{json}: {estimate:?}");
        assert!((held_out.uniform.mean - 1.0 / 3.0).abs() < 1e-12);
    }
    // Context and action fields without interactions: one action for everyone.
    let same = map(r#"{"bias": true,
        "context": [{"name": "age", "kind": "number", "min": 0, "max": 100}],
        "action": [{"name": "action", "kind": "category", "values": ["news", "sport", "art"]}]}"#);
    let held_out = fitted(&same, &file, Some("best")).unwrap().held_out.unwrap();
    assert!(held_out.estimate.unwrap().mean < 0.6, "{held_out:?}");
}

/// Action b always pays, and was logged in one of five rows with the probability to match.
#[test]
fn propensities_weight_held_out_rows_and_not_the_prior() {
    let map = map(r#"{"model": "per-action", "actions": ["a", "b"], "bias": true}"#);
    let mut with = String::from("action,reward,pscore\n");
    let mut without = String::from("action,reward\n");
    for row in 0..50 {
        let line = if row % 5 == 0 { ("b", 1, 0.2) } else { ("a", 0, 0.8) };
        writeln!(with, "{},{},{}", line.0, line.1, line.2).unwrap();
        writeln!(without, "{},{}", line.0, line.1).unwrap();
    }
    let [with, without] = [with, without].map(|file| fitted(&map, &file, None).unwrap());
    assert_eq!(with.prior, without.prior);
    close(with.prior.values(), &[0.0, 0.8, 0.2, 0.2]);
    let [with, without] = [with, without].map(|fit| fit.held_out.unwrap());
    let estimate = with.estimate.unwrap();
    assert_eq!((estimate.mean.to_bits(), estimate.rows), (1f64.to_bits(), 10));
    assert_eq!(with.best, None);
    close(&[with.uniform.mean, without.uniform.mean], &[0.5, 0.2]);
}

#[test]
fn wrong_files_are_refused_with_their_place() {
    let (shared, per_action) = (map(SHARED), map(PER_ACTION));
    for (map, label, file, message) in [
        (
            &per_action,
            None,
            "age,best\n1,news\n",
            "public.csv, line 1: found no columns `action` and `reward` and none named `reward:ACTION`",
        ),
        (
            &per_action,
            Some("topic"),
            "age,best\n1,news\n",
            "public.csv, line 1: found no column \"topic\", expected one of \"age\", \"best\"",
        ),
        (
            &per_action,
            Some("best"),
            "years,best\n1,news\n",
            "public.csv, line 1: found no column \"age\", expected one for each field of the map",
        ),
        (
            &per_action,
            Some("best"),
            "age,best\n1,news\n\n2,opera\n",
            "public.csv, line 4, column \"best\": found \"opera\", expected one of the actions \"news\", \"sport\", \"art\"",
        ),
        (
            &per_action,
            Some("best"),
            "age,best\n1,news\nold,news\n",
            "public.csv, line 3, column \"age\": found \"old\", expected a number",
        ),
        (
            &per_action,
            Some("age"),
            "age\n1\n",
            "public.csv, line 1, column \"age\": found a context field of the map that is read as the answer",
        ),
        (
            &per_action,
            None,
            "age,reward:news,reward:sport\n1,0,1\n",
            "public.csv, line 1: found no column \"reward:art\", expected the reward of every action",
        ),
        (
            &per_action,
            None,
            "age,reward:opera\n1,0\n",
            "public.csv, line 1, column \"reward:opera\": found \"opera\", expected one of the actions",
        ),
        (
            &per_action,
            None,
            "age,action,reward,reward:news\n1,news,0,1\n",
            "public.csv, line 1: found both `action` with `reward` and columns named `reward:ACTION`",
        ),
        (
            &per_action,
            None,
            "age,action,reward\n1,news,0\n1,sport,1.5\n",
            "public.csv, line 3, column \"reward\": found \"1.5\", expected a reward from 0 to 1",
        ),
        (
            &per_action,
            None,
            "age,action,reward,pscore\n1,news,0,0\n",
            "public.csv, line 2, column \"pscore\": found \"0\", expected a probability above 0",
        ),
        (
            &shared,
            Some("best"),
            "age,news:price,best\n1,2,news\n1,3,sport\n",
            "public.csv, line 1: found no column \"sport:price\", expected one for each field",
        ),
        (
            &shared,
            Some("best"),
            "age,news:price,best\n1,2,news\n1,3,\n",
            "public.csv, line 3, column \"best\": found no label",
        ),
    ] {
        let error = fitted(map, file, label).unwrap_err().to_string();
        assert!(error.contains(message), "{file}: {error}");
    }
    let examples = examples(&per_action, "age,best\n1,news\n", Some("best")).unwrap();
    let folds = |folds| fit(&examples, &FitConfig { folds, people: None });
    assert_eq!(folds(1), Err(PublicDataError::Folds(1)));
    assert_eq!(folds(2).unwrap().held_out, None, "one row");
    let people = |people| fit(&examples, &FitConfig { people: Some(people), folds: 5 });
    assert!(people(0.0).unwrap_err().to_string().contains("people"));
}

#[test]
fn fields_that_could_not_be_used_are_counted() {
    let fit = fitted(&map(PER_ACTION), "age,best\n1,news\n,news\n101,art\n", Some("best")).unwrap();
    let problems: Vec<(&str, usize)> =
        fit.problems.iter().map(|(problem, &rows)| (problem.as_str(), rows)).collect();
    assert_eq!(
        problems,
        [("field \"age\" is missing", 1), ("field \"age\" was clipped to its range", 1)]
    );
}

#[test]
fn a_survey_finds_the_largest_scale_that_shortens_nobody() {
    let hybrid = map(HYBRID);
    let file = format!("age,{PRICES}\n25,5,10,5\n50,5,5,0\n62.5,5,5,2.5\n");
    let found = surveyed(&hybrid, &file).unwrap();
    // Bias 1, age -0.5 and a price of 1 in the first row.
    assert!((found.largest_norm - 1.5).abs() < 1e-12);
    assert!((found.scale - 1.0 / 3f64.sqrt()).abs() < 1e-12);
    let scale = found.proposed_scale.unwrap();
    assert!((scale - 0.666_666).abs() < 1e-12);
    assert!(found.own_fields_vary);
    assert_eq!(found.warnings(), Vec::<String>::new());
    // A larger one would shorten the first row's features: their first entry is the bias.
    let bias = |scale: f64| {
        let map = hybrid.clone().with_scale(Some(scale)).unwrap();
        let number = |name: &str, value| Fields::from([(name.to_owned(), Value::Number(value))]);
        map.features(&number("age", 25.0), &number("price", 10.0)).x[0]
    };
    assert_eq!(bias(scale).to_bits(), scale.to_bits());
    assert!(bias(scale + 2e-6) < scale + 1e-6);
    let again = surveyed(&hybrid.clone().with_scale(Some(scale)).unwrap(), &file).unwrap();
    assert_eq!(again.proposed_scale, Some(scale), "of the map without its scale");
    // Somebody has the largest norm that there can be.
    let file = format!("age,{PRICES}\n25,5,10,5\n100,0,5,0\n");
    assert_eq!(surveyed(&hybrid, &file).unwrap().proposed_scale, None);
}

#[test]
fn a_survey_says_what_is_wrong_with_fields() {
    let map = map(r#"{"context": [
            {"name": "age", "kind": "number", "min": 0, "max": 50},
            {"name": "year", "kind": "number", "min": 0, "max": 3000},
            {"name": "plan", "kind": "category", "values": ["free", "paid", "trial"]},
            {"name": "city", "kind": "category", "values": ["Rome"]}],
        "action": [{"name": "action", "kind": "category", "values": ["news", "sport"]}],
        "interactions": [["age", "action"]]}"#);
    let mut file = String::from("age,year,plan,city\n");
    for row in 0..100 {
        let age = if row < 2 { 60 } else { row % 40 };
        let plan = ["free", "paid", "", "gold"][if row < 96 { row % 2 } else { row - 96 }];
        writeln!(file, "{age},2027,{plan},Oslo").unwrap();
    }
    let found = surveyed(&map, &file).unwrap();
    assert!(!found.own_fields_vary);
    assert_eq!(
        found.warnings(),
        [
            "context field \"age\" is clipped in 2.0% of the sample: widen its range",
            "context field \"year\" is constant: it tells nobody apart",
            "context field \"plan\" has a value that is not listed in 1.0% of the sample",
            "context field \"plan\" is missing in 1.0% of the sample",
            "context field \"plan\" has values that nobody in the sample has: \"trial\"",
            "context field \"city\" is unused: in every row it is missing or has a value that is not listed",
        ]
    );
    let fewer = file.replacen("60,", "40,", 1);
    let warnings = surveyed(&map, &fewer).unwrap().warnings();
    assert!(warnings[0].contains("year"), "1% may be clipped: {warnings:?}");
    // Actions of a sample must be known where they have fields of their own.
    let error = surveyed(&self::map(SHARED), "age\n1\n").err().unwrap().to_string();
    assert!(error.contains("found no column \"art:price\""), "{error}");
}
