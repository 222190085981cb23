//! Experiments: the same files whatever the threads and interruptions, and errors that explain
//! themselves.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use incrowd_lab::experiment::{Event, ExperimentConfig, Finished, run};
use incrowd_sim::baseline::PrivUnit;

const SMALL: &str = r#"
algorithms = ["sblb", "sblb-fixed", "jdp-tree", "jdp-growing", "jdp-factorized", "jdp-factorized-growing", "ldp-gaussian", "ldp-privunit", "sdp-vec", "sdp-vec-growing", "sdp-amp", "linucb-lowswitch", "greedy", "random", "oracle",
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
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("incrowd-{name}-{process}-{number}"));
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

pub fn experiment(text: &str, directory: &Path, threads: usize) -> Finished {
    let config: ExperimentConfig = toml::from_str(text).unwrap();
    let experiment = config.check(Path::new(".")).unwrap();
    run(&experiment, directory, Some(threads), "test", &|_| {}).unwrap()
}

pub fn files(directory: &Path) -> Vec<Vec<u8>> {
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
    let again = experiment(SMALL, &two.0, 1);
    assert_eq!((again.planned, again.ran), (0, 0), "a finished run is not run again");
}

#[test]
fn guarantees_and_tuning_are_reported_as_they_are() {
    let directory = Scratch::new("guarantees");
    let finished = experiment(SMALL, &directory.0, 2);
    assert_eq!(finished.summary.len(), 2 * (16 + 13), "13 of 16 algorithms can be tuned");
    for row in &finished.summary {
        let private = [
            "sblb",
            "sblb-fixed",
            "sampled",
            "jdp-tree",
            "jdp-growing",
            "jdp-factorized",
            "jdp-factorized-growing",
            "ldp-gaussian",
            "ldp-privunit",
            "sdp-vec",
            "sdp-vec-growing",
            "sdp-amp",
        ];
        let name = row.algorithm.as_str();
        assert_eq!(row.certified, private.contains(&name), "{name}");
        let asked = row.setting.central_epsilon.unwrap();
        if row.certified {
            assert!(row.epsilon_central_certified.unwrap() <= asked, "{name}");
        }
        match name {
            "ldp-gaussian" | "ldp-privunit" => {
                assert!(row.epsilon_local_certified.unwrap() <= asked);
            }
            "jdp-tree" | "jdp-growing" | "jdp-factorized" | "jdp-factorized-growing" => {
                assert_eq!(row.epsilon_local_certified, None);
            }
            "sblb" => assert!(row.epsilon_local_certified.unwrap() <= 8.0),
            "greedy" | "linucb-lowswitch" => {
                assert_eq!(row.epsilon_central_certified, None);
            }
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
    let report = |event: Event<'_>| match event {
        Event::Tuning(people) | Event::Running(people) => {
            promised.fetch_add(people, Ordering::Relaxed);
        }
        Event::Served(people) => {
            served.fetch_add(people, Ordering::Relaxed);
        }
        Event::Preparing(_) | Event::Planning(_) | Event::Planned(_) => {}
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
        ("algorithms = []\nhorizons = [5]\n", "algorithms is 0, must be at least 1 (entries)"),
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
    assert!(error.to_string().starts_with("jdp-tree needs a central epsilon\nhint: "));
    assert_eq!(fs::read_dir(directory.0.join("cells")).unwrap().count(), 0);
}

/// One algorithm's line of the manifest.
fn proof(directory: &Path, algorithm: &str) -> serde_json::Value {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(directory.join("manifest.json")).unwrap()).unwrap();
    let results = manifest["results"].as_array().unwrap();
    results.iter().find(|line| line["algorithm"] == algorithm).unwrap()["proof"].clone()
}

/// The noise of the runs, as the algorithms themselves account for it, is that of the mechanisms in
/// the manifest.
#[test]
fn what_runs_has_the_noise_that_is_certified() {
    let text = r#"
algorithms = ["jdp-tree", "jdp-growing", "jdp-factorized", "jdp-factorized-growing", "ldp-gaussian", "ldp-privunit", "sdp-amp", "sdp-vec", "sdp-vec-growing", "sblb"]
horizons = [4000]
central_epsilons = [1]
dimensions = [3]
runs = 1
"#;
    let directory = Scratch::new("noise");
    let finished = experiment(text, &directory.0, 2);
    let std = |algorithm: &str| {
        let row = finished.rows.iter().find(|row| row.algorithm == algorithm).unwrap();
        (row.noise_std.unwrap(), row.batches as f64)
    };
    let close = |a: f64, b: f64, what: &str| assert!((a / b - 1.0).abs() < 1e-9, "{what}: {a} {b}");
    let mechanism = |algorithm: &str| proof(&directory.0, algorithm)["mechanism"].clone();
    let number = |algorithm: &str, field: &str| mechanism(algorithm)[field].as_f64().unwrap();

    let (found, leaves) = std("jdp-tree");
    let nodes = f64::from((leaves as u32).count_ones());
    close(found, number("jdp-tree", "noise_std") * nodes.sqrt(), "tree");
    for name in ["jdp-factorized", "jdp-factorized-growing"] {
        let (found, released) = std(name);
        let (mut f, mut squared) = (1.0, 0.0);
        for k in 1..=released as u32 {
            squared += f * f;
            f *= f64::from(2 * k - 1) / f64::from(2 * k);
        }
        close(found, number(name, "noise_std") * f64::sqrt(squared), name);
        close(released, number(name, "releases"), name);
    }
    let (found, batches) = std("jdp-growing");
    close(found, number("jdp-growing", "noise_std") * batches.sqrt(), "growing");
    close(std("ldp-gaussian").0, number("ldp-gaussian", "noise_std") * 4000f64.sqrt(), "local");
    let side = |field: &str| number("ldp-privunit", field);
    let law = PrivUnit::new(side("outside"), side("above")).unwrap();
    let (moment, _) = law.variances(128);
    close(std("ldp-privunit").0, (4000.0 * moment).sqrt(), "privunit");
    let people = std("sdp-amp").1 * number("sdp-amp", "batch_size");
    close(std("sdp-amp").0, number("sdp-amp", "noise_std") * people.sqrt(), "sdp-amp");
    for name in ["sdp-vec", "sdp-vec-growing"] {
        let (found, released) = std(name);
        let planned = mechanism(name)["batches"].as_array().unwrap().clone();
        let mut variance = 0.0;
        for i in 0..released as usize {
            let batch = planned.get(i).or(planned.last()).unwrap();
            let number = |field: &str| batch[field].as_f64().unwrap();
            let person = number("coins") * 3.0 / 16.0 + 0.25;
            variance += number("batch_size") * person * (2.0 / number("levels")).powi(2);
        }
        close(found, variance.sqrt(), name);
    }
    let planned = mechanism("sdp-vec-growing")["batches"].as_array().unwrap().clone();
    let sizes: Vec<u64> = planned.iter().map(|b| b["batch_size"].as_u64().unwrap()).collect();
    assert!(sizes.len() > 2 && sizes.is_sorted() && sizes.iter().sum::<u64>() == 4000, "{sizes:?}");
}

#[test]
fn options_do_what_they_say() {
    let text = r#"
algorithms = ["sblb", "sblb-fixed",
    { name = "sblb", label = "never", exploration = 0.0 }, { name = "sblb", label = "much", exploration = 100.0 },
    { name = "sblb", label = "sampled", sampled = 1.0 },
    { name = "sblb", label = "printed", accounting = "paper" }]
horizons = [3000]
local_epsilons = [4]
batch_sizes = [150]
dimensions = [4]
runs = 2
"#;
    let directory = Scratch::new("options");
    let finished = experiment(text, &directory.0, 2);
    let rows = |algorithm: &str| -> Vec<_> {
        finished.rows.iter().filter(|row| row.algorithm == algorithm).collect()
    };
    let regret = |algorithm: &str| rows(algorithm)[0].regret.unwrap();
    assert!(rows("sblb-fixed").iter().all(|row| row.model_versions == row.batches));
    assert!(rows("sblb").iter().all(|row| row.model_versions < row.batches));
    let distinct =
        ["sblb", "never", "much", "sampled", "printed"].map(|name| regret(name).to_bits());
    assert_eq!(std::collections::HashSet::from(distinct).len(), 5, "each changes something");

    // Prop. 1: p = 2/(e^{2 eps0/(d(d+3))} + 1) at eps0 = 4, d = 4.
    let flip = proof(&directory.0, "printed")["mechanism"]["schedule"][0]["flip"].clone();
    let (numerator, denominator) = flip.as_str().unwrap().split_once('/').unwrap();
    let found = numerator.parse::<f64>().unwrap() / denominator.parse::<f64>().unwrap();
    assert!((found - 2.0 / ((2.0f64 * 4.0 / 28.0).exp() + 1.0)).abs() < 1e-6, "{found}");

    // The curve ends with the regret of its row.
    let curves = fs::read_to_string(directory.0.join("curves.csv")).unwrap();
    for (run, row) in finished.rows.iter().enumerate() {
        let last = curves.lines().rfind(|line| line.starts_with(&format!("{run},"))).unwrap();
        let [_, people, value, key] = last.split(',').collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((people, value.parse::<f64>().unwrap()), ("3000", row.regret.unwrap()));
        assert_eq!(key, row.key);
    }
}

/// Tuning takes the exploration with the least regret over its own seeds: here 0 against 100, which
/// plays at random.
#[test]
fn tuning_takes_the_best() {
    let text = "algorithms = ['linucb']\nhorizons = [2000]\nruns = 2\ntuning = { explorations = [100.0, 0.0], runs = 2 }";
    let directory = Scratch::new("tuning");
    let finished = experiment(text, &directory.0, 2);
    let tuned: Vec<_> = finished.summary.iter().filter(|row| row.variant == "tuned").collect();
    assert_eq!((tuned.len(), tuned[0].exploration), (1, Some(0.0)));
    let seeds: Vec<u64> = finished.rows.iter().map(|row| row.seed).collect();
    assert_eq!(seeds, [1, 2, 1, 2], "results come from other seeds than tuning");
    assert_eq!(finished.ran, 2 * 2 + 2 + 2);
}

/// A changed data file, another mechanism or another delta is another run.
#[test]
fn old_runs_are_not_taken_for_new_ones() {
    let directory = Scratch::new("fingerprint");
    let data = directory.0.join("d.csv");
    let config = || -> ExperimentConfig {
        let text = "algorithms = ['random', 'jdp-tree']\nhorizons = [400]\nruns = 1\ncentral_epsilons = [1]\nbatch_sizes = [100]\n\
                    environment = { kind = 'classification', file = 'd.csv', label = 'y' }";
        toml::from_str(text).unwrap()
    };
    let ran = |config: ExperimentConfig| {
        let experiment = config.check(&directory.0).unwrap();
        run(&experiment, &directory.0, None, "test", &|_| {}).unwrap().ran
    };
    fs::write(&data, "a,y\n1,p\n2,q\n3,q\n").unwrap();
    assert_eq!((ran(config()), ran(config())), (2, 0));
    fs::write(&data, "a,y\n1,p\n2,q\n3,p\n").unwrap();
    assert_eq!(ran(config()), 2, "the data changed");
    assert_eq!(ran(ExperimentConfig { delta: 1e-5, ..config() }), 2, "delta changed");

    for cell in fs::read_dir(directory.0.join("cells")).unwrap() {
        let path = cell.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if let Some(at) = text.find("\"mechanism\":\"") {
            let mut text = text;
            text.replace_range(at + 13..at + 15, "00");
            fs::write(&path, text).unwrap();
        }
    }
    assert_eq!(ran(config()), 1, "the tree's run is of another mechanism now");
}

/// A plan file's name and content.
fn plans(directory: &Path) -> Vec<(PathBuf, serde_json::Value)> {
    let read = |path: PathBuf| {
        let value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        (path, value)
    };
    fs::read_dir(directory.join("plans")).unwrap().map(|e| read(e.unwrap().path())).collect()
}

/// Changes every plan file of the directory; the checksum is made right again.
fn forge(directory: &Path, change: impl Fn(&mut serde_json::Value)) {
    use sha2::{Digest, Sha256};
    for (path, mut value) in plans(directory) {
        change(&mut value);
        let text = format!("{}\n{}", value["identity"], value["plan"]);
        value["checksum"] = hex::encode(Sha256::digest(text)).into();
        fs::write(path, value.to_string()).unwrap();
    }
}

/// Plans and certificates are found again, and give the same files. What another program wrote,
/// what is torn or changed, and a certificate of another mechanism are not believed.
#[test]
fn a_plan_is_found_only_if_it_is_the_same() {
    let text = "algorithms = ['jdp-tree', 'sdp-amp', 'sblb', 'linucb']\nhorizons = [1000]\n\
                dimensions = [3]\ncentral_epsilons = [2]\nlocal_epsilons = ['unlimited']\nruns = 1";
    let directory = Scratch::new("plans");
    let again = || experiment(text, &directory.0, 2).planned;
    assert_eq!(experiment(text, &directory.0, 2).planned, 4);
    let written = files(&directory.0);
    let kept = plans(&directory.0);
    assert_eq!((kept.len(), again()), (4, 0));
    assert_eq!(files(&directory.0), written);

    // Changed, but not its checksum; torn; empty; gone.
    for (path, mut value) in plans(&directory.0) {
        value["plan"]["guarantee"]["epsilon_central"] = 1e-3.into();
        fs::write(path, value.to_string()).unwrap();
    }
    assert_eq!((again(), again()), (4, 0));
    for (i, (path, value)) in plans(&directory.0).into_iter().enumerate() {
        match i {
            0 => fs::write(path, &value.to_string()[..100]).unwrap(),
            1 => fs::write(path, "").unwrap(),
            2 => fs::remove_file(path).unwrap(),
            _ => {}
        }
    }
    assert_eq!((again(), again()), (3, 0));

    // Of another program, or for another request, under the right name.
    forge(&directory.0, |file| file["identity"]["program"] = "0".repeat(64).into());
    assert_eq!((again(), again()), (4, 0));
    forge(&directory.0, |file| file["identity"]["cell"]["delta"] = 1e-5.into());
    assert_eq!((again(), again()), (4, 0));

    // Less noise under the same certificate.
    forge(&directory.0, |file| {
        if let Some(noise) = file.pointer_mut("/plan/kind/Baseline/0/noise_std") {
            *noise = (noise.as_f64().unwrap() / 2.0).into();
        }
    });
    assert_eq!((again(), again()), (2, 0));
    assert_eq!(files(&directory.0), written);
}

#[test]
fn planning_is_told() {
    use std::sync::Mutex;
    let directory = Scratch::new("planning");
    let text =
        "algorithms = ['jdp-tree', 'random']\nhorizons = [500]\ncentral_epsilons = [1]\nruns = 1";
    let told = || {
        let config: ExperimentConfig = toml::from_str(text).unwrap();
        let all = Mutex::new(Vec::new());
        let report = |event: Event<'_>| match event {
            Event::Preparing(_) | Event::Planning(_) | Event::Planned(_) => {
                all.lock().unwrap().push(format!("{event:?}"));
            }
            _ => {}
        };
        let experiment = config.check(Path::new(".")).unwrap();
        run(&experiment, &directory.0, Some(1), "test", &report).unwrap();
        let mut all = all.into_inner().unwrap();
        all.sort();
        all
    };
    assert_eq!(
        told(),
        [
            "Planned(\"jdp-tree (d = 5, T = 500, epsilon 1)\")",
            "Planned(\"random (d = 5, T = 500, epsilon 1)\")",
            "Planning(\"jdp-tree (d = 5, T = 500, epsilon 1)\")",
            "Planning(\"random (d = 5, T = 500, epsilon 1)\")",
            "Preparing(2)",
        ]
    );
    assert!(told().is_empty(), "nothing is planned again");
}

#[test]
fn what_would_be_ignored_or_mislead_is_refused() {
    let message = |text: &str| {
        let config: ExperimentConfig = toml::from_str(text).unwrap();
        config.check(Path::new("../../experiments")).err().unwrap().to_string()
    };
    let with = |algorithm: &str| message(&format!("algorithms = [{algorithm}]\nhorizons = [5]"));
    assert_eq!(
        with("{ name = 'greedy', exploration = 0.5 }"),
        "greedy has the option exploration, which it does not use: remove it"
    );
    assert!(with("{ name = 'jdp-tree', bits = 2 }").contains("option bits"));
    assert_eq!(with("{ name = 'sblb', bits = 4096 }"), "bits is 4096, must be from 1 to 4095");
    for unused in [
        "{ name = 'jdp-tree', encoding = 'bits' }",
        "{ name = 'sblb', encoding = 'codebook', accounting = 'paper' }",
        "{ name = 'sblb', encoding = 'codebook', preset = 'paper-ldp' }",
    ] {
        assert!(with(unused).contains("encoding"), "{unused}");
    }
    assert!(with("{ name = 'sblb', encoding = 'codebook', bits = 3 }").contains("bits"));
    for used in ["bits", "codebook", "auto"] {
        let text =
            format!("algorithms = [{{ name = 'sblb', encoding = '{used}' }}]\nhorizons = [5]");
        let config: ExperimentConfig = toml::from_str(&text).unwrap();
        assert!(config.check(Path::new(".")).is_ok(), "{used}");
    }
    let many: ExperimentConfig =
        toml::from_str("algorithms = [{ name = 'sblb', bits = 4095 }]\nhorizons = [5]").unwrap();
    assert!(many.check(Path::new(".")).is_ok());
    assert!(
        with("{ name = 'sblb', accounting = 'paper', central_epsilon = 1 }")
            .contains("central_epsilon")
    );
    assert!(with("{ name = 'linucb', label = 'random' }").contains("must not have the name"));
    assert!(with("{ name = 'random', label = 'uniform' }").contains("keep theirs"));
    assert_eq!(
        message("algorithms = ['random']\nhorizons = [5, 5]"),
        "horizons has 5 twice, must have it once"
    );
    assert!(
        message("algorithms = ['random']\nhorizons = [5]\nlocal_epsilons = ['default', 8]")
            .contains("twice")
    );
    let logged = "environment = { kind = 'logged', file = 'data/penguins-logged.csv' }";
    assert_eq!(
        message(&format!("algorithms = ['random']\nhorizons = [20000]\n{logged}")),
        "horizon is 20000, must be at most 1250: so many people can be answered without bias from one pass over the log"
    );
}

#[test]
fn few_people_are_enough() {
    for horizon in [1, 2, 50, 150] {
        let directory = Scratch::new(&format!("few-{horizon}"));
        let text = format!(
            "algorithms = ['jdp-tree', 'jdp-growing', 'jdp-factorized', 'jdp-factorized-growing', 'ldp-gaussian', 'ldp-privunit', 'sdp-amp', 'sdp-vec-growing', 'linucb', 'random', 'oracle']\n\
             horizons = [{horizon}]\ncentral_epsilons = [1]\nruns = 1"
        );
        let finished = experiment(&text, &directory.0, 1);
        assert!(finished.rows.iter().all(|row| row.people == horizon));
    }
}
