//! What learner and mechanism are told: lists are grids, units are units, and what comes out of a
//! run can be compared with the truth.

use std::{collections::HashSet, fs, path::Path};

use incrowd_lab::{
    experiment::{CurvePoint, ExperimentConfig, Finished, Row},
    figures::draw,
};

use crate::experiment::{Scratch, experiment};

fn rows<'a>(finished: &'a Finished, algorithm: &str) -> Vec<&'a Row> {
    finished.rows.iter().filter(|row| row.algorithm == algorithm).collect()
}

const HEAD: &str = "horizons = [3000]\ndimensions = [3]\ncentral_epsilons = [2]\n\
                    local_epsilons = ['unlimited']\nruns = 1\n";

#[test]
fn lists_are_grids_and_what_the_learner_is_told_needs_no_plan() {
    let text = format!(
        "algorithms = ['sblb', 'jdp-tree', 'linucb', 'random']\n{HEAD}parameter_bounds = [1, 30]\n\
         reward_noises = [0.5, 9]\ndeterminant_growths = [0.5, 3]\nfailure_probabilities = [0.05, 1e-9]"
    );
    let directory = Scratch::new("told");
    let finished = experiment(&text, &directory.0, 2);
    assert_eq!((finished.rows.len(), finished.planned), (4 * 16, 4));
    // One run for each value that matters, and no more.
    assert_eq!(finished.ran, 16 + 8 + 8 + 1);
    let differ = |algorithm: &str, told: fn(&Row) -> [f64; 3]| {
        let all = rows(&finished, algorithm);
        let regrets: HashSet<u64> = all.iter().map(|row| row.regret.unwrap().to_bits()).collect();
        let told: HashSet<[u64; 3]> = all.iter().map(|row| told(row).map(f64::to_bits)).collect();
        assert_eq!(told.len(), 8, "{algorithm}");
        regrets.len()
    };
    let told = |row: &Row| [row.parameter_bound, row.reward_noise, row.failure_probability];
    assert!(differ("sblb", told) >= 8 && differ("jdp-tree", told) >= 4);
    assert_eq!(differ("random", told), 1);
    let models = |growth: f64| -> u64 {
        let all = rows(&finished, "sblb")
            .into_iter()
            .filter(|row| row.determinant_growth.total_cmp(&growth).is_eq());
        all.map(|row| row.model_versions).sum()
    };
    assert!(models(3.0) < models(0.5), "a larger growth publishes fewer models");
}

#[test]
fn honest_fraction_and_participations_are_certified_and_cost_noise() {
    let text = format!(
        "algorithms = ['sblb', 'linucb', {{ name = 'sblb', label = 'printed', accounting = 'paper', local_epsilon = 4 }}]\n\
         {HEAD}batch_sizes = [500]\nhonest_fractions = [1, 0.5]\nparticipations = [1, 4]"
    );
    let directory = Scratch::new("honest");
    let finished = experiment(&text, &directory.0, 2);
    // Nothing is to be certified about linucb.
    assert_eq!((finished.rows.len(), finished.planned, finished.ran), (12, 9, 9));
    let noise: Vec<f64> =
        rows(&finished, "sblb").iter().map(|row| row.noise_std.unwrap()).collect();
    assert!(rows(&finished, "sblb").iter().all(|row| row.keeps_the_limit()));
    // (1, 1), (1, 4), (0.5, 1), (0.5, 4)
    assert!(noise[0] < noise[1] && noise[0] < noise[2], "{noise:?}");
    assert!(noise[1] < noise[3] && noise[2] < noise[3], "{noise:?}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(directory.0.join("manifest.json")).unwrap()).unwrap();
    for name in ["sblb", "printed"] {
        let mut lines = manifest["results"].as_array().unwrap().iter();
        let mechanism =
            &lines.rfind(|line| line["algorithm"] == name).unwrap()["proof"]["mechanism"];
        assert_eq!(
            (&mechanism["honest_fraction"], &mechanism["participations"]),
            (&0.5.into(), &4.into()),
            "{name}"
        );
    }
}

/// Contexts twice as long, a parameter half as long and a learner that is told so: powers of two
/// are exact, so everything is the same to the last bit, but for the error of the parameter.
#[test]
fn a_context_bound_is_a_unit() {
    let algorithms = "algorithms = ['sblb', 'jdp-tree', 'ldp-gaussian', 'sdp-vec', 'linucb', 'random',\n\
                      { name = 'sblb', label = 'proven', width = 'proven' }]\n";
    // One directory: the plans of baselines are found again, because they do not know L.
    let directory = Scratch::new("units");
    let run = |told: &str| {
        // Contexts of every length: what is longer than 1 would be cut, and hide a mistake.
        let people = "environment = { kind = 'synthetic', contexts = 'heavy-tailed' }\n";
        experiment(&format!("{algorithms}{HEAD}{people}{told}"), &directory.0, 2)
    };
    let usual = run("");
    let other = run("context_bounds = [2]\nparameter_bounds = [0.5]");
    let wrong = run("context_bounds = [2]");
    assert_eq!((usual.rows.len(), usual.planned, other.planned, wrong.planned), (7, 7, 2, 0));
    for (usual, other) in usual.rows.iter().zip(&other.rows) {
        let name = &usual.algorithm;
        assert_eq!((usual.regret, usual.reward), (other.regret, other.reward), "{name}");
        assert_eq!((usual.noise_std, usual.covered), (other.noise_std, other.covered), "{name}");
        let half = usual.theta_error.map(|error| error / 2.0);
        assert_eq!(half, other.theta_error, "{name}");
        assert_eq!(half.is_none(), name == "random", "random has no model");
    }
    let differ = |name: &str| {
        let regret = |finished| rows(finished, name)[0].regret;
        regret(&usual) != regret(&wrong)
    };
    assert!(differ("sblb") && differ("jdp-tree") && differ("linucb") && !differ("random"));
}

/// Without exploration the width is 0 and covers nothing; the proven one covers. The error falls
/// with people and is small without noise: 20000 rewards, each with a standard deviation of at most
/// 1/2, and a direction that is rarely played.
#[test]
fn errors_of_theta_and_coverage_are_told() {
    let text = "algorithms = ['greedy', 'linucb-lowswitch', 'random',\n\
                { name = 'sblb', label = 'proven', width = 'proven' }]\n\
                horizons = [200, 20000]\ndimensions = [3]\ncentral_epsilons = [2]\n\
                local_epsilons = ['unlimited']\nruns = 3";
    let directory = Scratch::new("coverage");
    let finished = experiment(text, &directory.0, 2);
    let summary = |name: &str, horizon: u64| {
        let fits = |row: &&_| row_is(row, name, horizon);
        finished.summary.iter().find(fits).unwrap()
    };
    for horizon in [200, 20_000] {
        assert_eq!(summary("greedy", horizon).coverage, Some(0.0));
        assert_eq!(summary("proven", horizon).coverage, Some(1.0));
        let random = summary("random", horizon);
        assert_eq!((random.theta_error, random.coverage), (None, None));
    }
    let error = |horizon| summary("linucb-lowswitch", horizon).theta_error.unwrap();
    assert!(error(20_000) < 0.2 && error(20_000) < error(200), "{} {}", error(200), error(20_000));
}

fn row_is(row: &incrowd_lab::experiment::SummaryRow, name: &str, horizon: u64) -> bool {
    row.algorithm == name && row.setting.horizon == horizon
}

/// Rewards of 0 and 1 have the standard error sqrt(p (1 - p)/(n - 1)); runs on one log are not
/// independent, so many of them are not more certain than one.
#[test]
fn rewards_have_standard_errors_also_on_a_log() {
    let text = "algorithms = ['random']\nhorizons = [1000]\nruns = 4\n\
                environments = [{ kind = 'synthetic' }, { kind = 'logged', file = 'penguins-logged.csv' }]";
    let directory = Scratch::new("stderr");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/data");
    let config: ExperimentConfig = toml::from_str(text).unwrap();
    let experiment = config.check(&data).unwrap();
    let finished =
        incrowd_lab::experiment::run(&experiment, &directory.0, Some(2), "test", &|_| {}).unwrap();
    for row in &finished.rows {
        let (n, share) = (row.people as f64, row.reward / row.people as f64);
        let expected = (share * (1.0 - share) / (n - 1.0)).sqrt();
        assert!((row.reward_stderr.unwrap() / expected - 1.0).abs() < 1e-9);
    }
    let [synthetic, log] = finished.summary.as_slice() else { panic!() };
    let own = |from: usize| {
        let all = finished.rows[from..from + 4].iter().map(|row| row.reward_stderr.unwrap());
        all.sum::<f64>() / 4.0
    };
    assert_eq!(log.reward_stderr, Some(own(4)));
    let means = finished.rows[..4].iter().map(|row| row.reward / 1000.0).collect::<Vec<_>>();
    assert_eq!(synthetic.reward_stderr, incrowd_sim::statistics::standard_error(&means));
}

#[test]
fn curves_name_their_run() {
    let text = format!(
        "algorithms = ['sblb', 'linucb', 'random']\n{HEAD}parameter_bounds = [1, 2]\nagainst = 'linucb'"
    );
    let directory = Scratch::new("keys");
    let finished = experiment(&text, &directory.0, 2);
    let keys: HashSet<&str> = finished.rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys.len(), 6, "every row has a key of its own");
    assert!(keys.iter().all(|key| key.len() == 16));
    let file = directory.0.join("curves.csv");
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let points: Vec<CurvePoint> = reader.deserialize().map(Result::unwrap).collect();
    for point in &points {
        assert_eq!(point.key, finished.rows[point.run as usize].key);
    }
    // Settings that differ in nothing else are told apart in figures.
    draw(&directory.0).unwrap();
    let page = fs::read_to_string(directory.0.join("report.html")).unwrap();
    assert!(page.contains("simulated people, S = 2"));

    let table = directory.0.join("table.csv");
    let text = fs::read_to_string(&table).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let missing = [lines[0], lines[1], lines[2]].join("\n");
    fs::write(&table, missing).unwrap();
    let refused = draw(&directory.0).unwrap_err().to_string();
    assert!(refused.contains("key is") && refused.contains("must be that of a row"), "{refused}");
}

#[test]
fn numbers_out_of_range_and_certificates_that_do_not_exist_are_named() {
    let message = |text: &str| {
        let config: ExperimentConfig = toml::from_str(text).unwrap();
        config.check(Path::new(".")).map(|_| ()).unwrap_err().to_string()
    };
    let told = |text: &str| message(&format!("algorithms = ['sblb']\nhorizons = [5]\n{text}"));
    let cases = [
        ("parameter_bounds = [1, 0]", "parameter_bound is 0, must be from 1e-20 to 1e20"),
        ("reward_noises = [-1]", "reward_noise is -1, must be from 1e-20 to 1e20"),
        ("determinant_growths = [nan]", "determinant_growth is NaN, must be from 1e-20 to 1e20"),
        ("failure_probabilities = [1]", "failure_probability is 1, must be above 0 and below 1"),
        ("context_bounds = [0]", "context_bound is 0, must be from 0.000001 to 1000000"),
        ("honest_fractions = [1.5]", "honest_fraction is 1.5, must be above 0 and at most 1"),
        ("participations = [0]", "participations is 0, must be at least 1"),
        ("participations = [2, 2]", "participations has 2 twice, must have it once"),
        (
            "context_bounds = [1, 0.5]\nenvironment = { kind = 'synthetic', parameter_norm = 1.5 }",
            "parameter_norm is 1.5, must be from 2 to 1000000, so that features are within 0.5",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(told(text), expected);
    }
    assert_eq!(
        message("algorithms = ['linucb', 'jdp-tree']\nhorizons = [5]\nparticipations = [1, 2]"),
        "jdp-tree needs participations = [1]: its certificate is about one report of a person"
    );
    assert_eq!(
        message("algorithms = ['jdp-tree', 'sdp-vec']\nhorizons = [5]\nhonest_fractions = [0.9]"),
        "sdp-vec needs honest_fractions = [1]: its noise is made by everyone together"
    );
}
