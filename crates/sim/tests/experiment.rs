//! Experiments: the same files whatever the threads and interruptions, and errors that explain themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use incrowd_sim::experiment::{Event, ExperimentConfig, Finished, run};

const SMALL: &str = r#"
algorithms = ["sblb", "sblb-fixed", "jdp-tree", "jdp-growing", "ldp-gaussian", "sdp-vec", "sdp-amp-tuned", "linucb-lowswitch", "greedy", "random", "oracle",
    { name = "sblb", label = "sampled", sampled = 0.5 }]
horizons = [1500]
central_epsilons = [1, 2]
batch_sizes = [300]
dimensions = [3]
runs = 2
against = "random"
environment = { kind = "synthetic", arms = 4 }
tuning = { explorations = [0.1, 0.4], runs = 1 }
"#;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("incrowd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn experiment(text: &str, directory: &Path, threads: usize) -> Finished {
    let config: ExperimentConfig = toml::from_str(text).unwrap();
    let experiment = config.check(Path::new(".")).unwrap();
    run(&experiment, directory, Some(threads), "test", &|_| {}).unwrap()
}

fn files(directory: &Path) -> Vec<Vec<u8>> {
    ["table.csv", "curves.csv", "manifest.json"]
        .map(|name| fs::read(directory.join(name)).unwrap())
        .to_vec()
}

#[test]
fn files_do_not_depend_on_threads_or_interruptions() {
    let (one, two) = (Scratch::new("one"), Scratch::new("two"));
    let first = experiment(SMALL, &one.0, 1);
    let second = experiment(SMALL, &two.0, 2);
    assert_eq!((first.reused, first.ran), (0, second.ran));
    assert_eq!(files(&one.0), files(&two.0));

    // As if it had been killed: half of the runs are missing, one file is torn, one is empty.
    let mut cells: Vec<PathBuf> =
        fs::read_dir(two.0.join("cells")).unwrap().map(|entry| entry.unwrap().path()).collect();
    cells.sort();
    assert_eq!(cells.len(), first.ran);
    for cell in cells.iter().step_by(2) {
        fs::remove_file(cell).unwrap();
    }
    let torn = fs::read(&cells[1]).unwrap();
    fs::write(&cells[1], &torn[..torn.len() / 2]).unwrap();
    fs::write(&cells[3], "").unwrap();
    fs::write(cells[0].with_extension("99.tmp"), "left over").unwrap();
    for name in ["table.csv", "curves.csv", "manifest.json"] {
        fs::remove_file(two.0.join(name)).unwrap();
    }
    let again = experiment(SMALL, &two.0, 2);
    assert_eq!(again.ran, cells.len().div_ceil(2) + 2);
    assert_eq!(files(&one.0), files(&two.0));
    assert_eq!(experiment(SMALL, &two.0, 1).ran, 0, "a finished run is not run again");
}

#[test]
fn guarantees_and_tuning_are_reported_as_they_are() {
    let directory = Scratch::new("guarantees");
    let finished = experiment(SMALL, &directory.0, 2);
    assert_eq!(finished.summary.len(), 2 * (12 + 9), "9 of 12 algorithms can be tuned");
    for row in &finished.summary {
        let private =
            ["sblb", "sblb-fixed", "sampled", "jdp-tree", "jdp-growing", "ldp-gaussian", "sdp-vec"];
        let name = row.algorithm.as_str();
        assert_eq!(row.certified, private.contains(&name), "{name}");
        let asked = row.setting.central_epsilon.unwrap();
        if row.certified {
            assert!(row.epsilon_central_certified.unwrap() <= asked, "{name}");
        }
        match name {
            "ldp-gaussian" => assert!(row.epsilon_local_certified.unwrap() <= asked),
            "jdp-tree" | "jdp-growing" => assert_eq!(row.epsilon_local_certified, None),
            "sdp-amp-tuned" => assert_eq!(row.epsilon_central_certified, None),
            "sblb" => assert!(row.epsilon_local_certified.unwrap() <= 8.0),
            "greedy" | "linucb-lowswitch" => assert_eq!(row.epsilon_central_certified, None),
            "oracle" => assert_eq!(row.regret_mean, Some(0.0)),
            "random" => assert!((row.ratio.as_ref().unwrap().ratio - 1.0).abs() < 1e-12),
            _ => {}
        }
        match row.variant.as_str() {
            "tuned" => assert!([Some(0.1), Some(0.4)].contains(&row.exploration)),
            _ => assert_eq!(
                row.exploration.is_some(),
                !["greedy", "random", "oracle"].contains(&name)
            ),
        }
    }
}

#[test]
fn progress_adds_up() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let directory = Scratch::new("progress");
    let (promised, served) = (AtomicU64::new(0), AtomicU64::new(0));
    let config: ExperimentConfig = toml::from_str(
        "algorithms = ['random', 'linucb']\nhorizons = [500]\nruns = 3\ntuning = { runs = 2 }",
    )
    .unwrap();
    let experiment = config.check(Path::new(".")).unwrap();
    let report = |event| match event {
        Event::Tuning(people) | Event::Running(people) => {
            promised.fetch_add(people, Ordering::Relaxed);
        }
        Event::Served(people) => {
            served.fetch_add(people, Ordering::Relaxed);
        }
        Event::Preparing(_) => {}
    };
    run(&experiment, &directory.0, None, "test", &report).unwrap();
    assert_eq!(promised.load(Ordering::Relaxed), served.load(Ordering::Relaxed));
    assert!(served.load(Ordering::Relaxed) >= 500 * (7 * 2 + 3 + 3));
}

#[test]
fn bad_experiments_are_explained() {
    let directory = Scratch::new("bad");
    let file = directory.0.join("bad.toml");
    let message = |text: &str| {
        fs::write(&file, text).unwrap();
        let result = ExperimentConfig::read(&file).and_then(|config| config.check(&directory.0));
        let error = result.err().unwrap().to_string();
        error
            .replace(file.to_str().unwrap(), "bad.toml")
            .replace(directory.0.to_str().unwrap(), "DIR")
    };
    let cases = [
        (
            "algorithms = ['sblb']\nhorizon = [5]\n",
            "bad.toml: TOML parse error at line 2, column 1\n",
        ),
        (
            "algorithms = ['sblb']\nhorizons = 'many'\n",
            "bad.toml: TOML parse error at line 2, column 12\n",
        ),
        (
            "algorithms = ['sblb', 'scrooge']\nhorizons = [5]\n",
            "bad.toml: TOML parse error at line 1, column 23\n",
        ),
        (
            "algorithms = [{ name = 'sblb', bit = 3 }]\nhorizons = [5]\n",
            "bad.toml: TOML parse error at line 1, column 32\n",
        ),
        (
            "algorithms = []\nhorizons = [5]\n",
            "algorithms is 0, must be a list of at least one entry",
        ),
        ("algorithms = ['sblb', 'sblb']\nhorizons = [5]\n", "the label \"sblb\" is used twice"),
        (
            "algorithms = ['sblb']\nhorizons = [0]\n",
            "horizon is 0, must be from 1 to 1000000000000",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\ndelta = 1\n",
            "delta is 1, must be above 0 and below 1",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\ncentral_epsilons = [-1]\n",
            "central_epsilon is -1, must be above 0 and finite",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\nlocal_epsilons = ['none']\n",
            "bad.toml: TOML parse error at line 3, column 19\n",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\nruns = 0\n",
            "runs is 0, must be from 1 to 1000000",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\nagainst = 'tree'\n",
            "against is \"tree\", must be the label of one of the algorithms",
        ),
        (
            "algorithms = ['sblb']\nhorizons = [5]\nenvironment = { kind = 'classification', file = 'no.csv', label = 'x' }\n",
            "DIR/no.csv",
        ),
    ];
    for (text, expected) in cases {
        let found = message(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    assert!(message(cases[0].0).contains("unknown field `horizon`, expected one of `name`"));
    assert!(message(cases[2].0).contains("unknown variant `scrooge`, expected one of `sblb`"));
    assert!(
        message(cases[9].0).contains("expected a number above 0, \"default\" or \"unlimited\"")
    );
}

#[test]
fn what_cannot_be_planned_fails_before_anything_runs() {
    let directory = Scratch::new("infeasible");
    let config: ExperimentConfig =
        toml::from_str("algorithms = ['linucb', 'jdp-tree']\nhorizons = [500]").unwrap();
    let experiment = config.check(Path::new(".")).unwrap();
    let error = run(&experiment, &directory.0, None, "test", &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "jdp-tree needs a central epsilon");
    assert_eq!(fs::read_dir(directory.0.join("cells")).unwrap().count(), 0);
}
