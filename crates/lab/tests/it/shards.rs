//! Shards of an experiment: joined, they are the experiment, whatever they did before and in
//! whichever folders they ran; nothing is run twice and nothing is left out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use incrowd_lab::experiment::{
    Experiment, ExperimentConfig, ExperimentError, Part, Phase, Shard, ShardError, Work, run,
    run_part,
};

use crate::experiment::{Scratch, experiment, files};

/// 2 horizons, 3 algorithms that are tuned, 2 explorations, 2 seeds: 24 runs of the tuning phase; 2
/// horizons, 5 + 3 lines, 3 seeds: 48 that count. `again` shares all its runs with `linucb`.
const SMALL: &str = r#"
name = "Small"
algorithms = ["ldp-gaussian", "linucb", "linucb-lowswitch", "greedy", "random",
    { name = "linucb", label = "again" }]
horizons = [300, 500]
dimensions = [3]
central_epsilons = [2]
runs = 3
environment = { kind = "synthetic", arms = 4 }
tuning = { explorations = [0.0, 1.0], runs = 2 }
"#;

fn checked(text: &str) -> Experiment {
    toml::from_str::<ExperimentConfig>(text).unwrap().check(Path::new(".")).unwrap()
}

fn shard(text: &str, directory: &Path, phase: Phase, shard: &str) -> Result<Work, ExperimentError> {
    let part = Part { phase, shard: shard.parse().unwrap() };
    run_part(&checked(text), directory, Some(1), part, "simulate --phase tune", &|_| {})
}

/// Copies everything in `from` into `to`, as `cp -r from/. to` does.
fn join(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            join(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

fn cells(directory: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(directory.join("cells")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> = names.collect();
    names.sort();
    names
}

#[test]
fn joined_folders_are_the_experiment_to_the_last_byte() {
    let whole = Scratch::new("shards-whole");
    let all = experiment(SMALL, &whole.0, 2).ran;

    let scratch = Scratch::new("shards-apart");
    let folder = |name: &str| scratch.0.join(name);
    let mut ran = Vec::new();
    for i in 1..=3 {
        let own = folder(&format!("tune-{i}"));
        ran.push(shard(SMALL, &own, Phase::Tune, &format!("{i}/3")).unwrap().ran);
        join(&own, &folder("tuned"));
    }
    assert_eq!(ran, [8, 8, 8]);
    // Another number of shards than before.
    for i in 1..=5 {
        let own = folder(&format!("run-{i}"));
        join(&folder("tuned"), &own);
        let work = shard(SMALL, &own, Phase::Run, &format!("{i}/5")).unwrap();
        assert_eq!(work.planned, 0, "the tuning phase planned everything");
        assert!((9..=10).contains(&work.ran) && work.reused == 0, "{work:?}");
        assert!(!own.join("table.csv").exists());
        ran.push(work.ran);
        join(&own, &folder("joined"));
    }
    assert_eq!(ran.iter().sum::<usize>(), all, "nothing is run twice");
    let joined = experiment(SMALL, &folder("joined"), 2);
    assert_eq!((joined.planned, joined.ran, joined.reused), (0, 0, all), "nothing is left out");
    assert_eq!(files(&whole.0), files(&folder("joined")));
}

/// Each shard finds what the others have finished, and one of them was interrupted.
#[test]
fn shards_may_share_a_folder_and_be_repeated() {
    let text = SMALL.replace("horizons = [300, 500]", "horizons = [300]");
    let (whole, shared) = (Scratch::new("shards-one"), Scratch::new("shards-shared"));
    let all = experiment(&text, &whole.0, 2).ran;
    let ran = |phase, name: &str| shard(&text, &shared.0, phase, name).unwrap().ran;
    assert_eq!(ran(Phase::Tune, "1/2") + ran(Phase::Tune, "2/2"), 12);
    let first = ran(Phase::Run, "1/3");
    let before = cells(&shared.0);
    let second = ran(Phase::Run, "2/3");
    let made: Vec<PathBuf> =
        cells(&shared.0).into_iter().filter(|cell| !before.contains(cell)).collect();
    for cell in &made[..3] {
        fs::remove_file(cell).unwrap();
    }
    fs::write(&made[3], "torn").unwrap();
    assert_eq!(ran(Phase::Run, "2/3"), 4);
    assert_eq!(ran(Phase::Run, "2/3"), 0);
    let third = ran(Phase::Run, "3/3");
    let merged = experiment(&text, &shared.0, 2);
    assert_eq!((12 + first + second + third, merged.ran), (all, 0));
    assert_eq!(files(&whole.0), files(&shared.0));
}

#[test]
fn a_shard_that_counts_needs_the_whole_tuning_phase() {
    let directory = Scratch::new("shards-untuned");
    let untuned = || match shard(SMALL, &directory.0, Phase::Run, "1/2") {
        Err(error @ ExperimentError::Untuned { missing, all: 24, .. }) => {
            (missing, error.to_string())
        }
        other => panic!("{other:?}"),
    };
    let (missing, message) = untuned();
    assert_eq!(missing, 24);
    assert!(
        !directory.0.join("shards").exists(),
        "the folder is still free for another experiment"
    );
    assert!(
        message.contains("24 of 24 runs of the tuning phase are missing")
            && message.ends_with("\nhint: simulate --phase tune"),
        "{message}"
    );
    shard(SMALL, &directory.0, Phase::Tune, "1/2").unwrap();
    assert_eq!(untuned().0, 12);
    shard(SMALL, &directory.0, Phase::Tune, "2/2").unwrap();
    let before = cells(&directory.0);
    let content = fs::read(&before[5]).unwrap();
    fs::write(&before[5], &content[..content.len() / 2]).unwrap();
    assert_eq!(untuned().0, 1, "a torn file is no result");
    assert_eq!(cells(&directory.0), before, "nothing was run");
    fs::write(&before[5], content).unwrap();
    shard(SMALL, &directory.0, Phase::Run, "1/2").unwrap();
}

#[test]
fn without_tuning_there_is_only_one_phase() {
    let text = "algorithms = ['random', 'greedy']\nhorizons = [50]\nruns = 2";
    let (whole, shared) = (Scratch::new("shards-plain-whole"), Scratch::new("shards-plain"));
    experiment(text, &whole.0, 1);
    let nothing = shard(text, &shared.0, Phase::Tune, "1/1").unwrap();
    assert_eq!((nothing.ran, nothing.reused), (0, 0));
    let ran = |name| shard(text, &shared.0, Phase::Run, name).unwrap().ran;
    assert_eq!(["1/6", "2/6", "3/6", "4/6", "5/6", "6/6"].map(ran), [1, 1, 1, 1, 0, 0]);
    assert_eq!(experiment(text, &shared.0, 1).ran, 0);
    assert_eq!(files(&whole.0), files(&shared.0));
}

#[test]
fn folders_of_two_experiments_are_not_joined() {
    let plain = "name = 'First'\nalgorithms = ['random']\nhorizons = [50]\nruns = 2";
    let other = plain.replace("First", "Second").replace("[50]", "[60]");
    let scratch = Scratch::new("shards-mixed");
    let folder = |name: &str| scratch.0.join(name);
    shard(plain, &folder("first"), Phase::Run, "1/2").unwrap();
    shard(&other, &folder("second"), Phase::Run, "2/2").unwrap();
    join(&folder("first"), &folder("joined"));
    join(&folder("second"), &folder("joined"));
    let refused = |error: ExperimentError, other: &str| match &error {
        ExperimentError::OtherExperiment { name, differs, .. } => {
            assert_eq!((name.as_str(), differs.as_str()), (other, "horizons, name"));
            assert!(error.to_string().contains("\nhint: join folders of one experiment only"));
        }
        _ => panic!("{error:?}"),
    };
    let merge = |text| run(&checked(text), &folder("joined"), Some(1), "test", &|_| {});
    refused(merge(plain).unwrap_err(), "Second");
    refused(merge(&other).unwrap_err(), "First");
    assert!(!folder("joined").join("table.csv").exists());

    // A shard does not begin there either, and leaves no trace.
    refused(shard(&other, &folder("first"), Phase::Run, "1/2").unwrap_err(), "First");
    shard(plain, &folder("first"), Phase::Run, "2/2").unwrap();
    assert_eq!(run(&checked(plain), &folder("first"), None, "test", &|_| {}).unwrap().ran, 0);

    fs::write(folder("first/shards/other.json"), "torn").unwrap();
    let torn = shard(plain, &folder("first"), Phase::Run, "1/2").unwrap_err();
    assert!(matches!(&torn, ExperimentError::Io { path, .. } if path.ends_with("other.json")));
}

#[test]
fn shards_are_numbered_from_1_to_their_number() {
    let parse = |text: &str| text.parse::<Shard>();
    for text in ["1/1", "4/4", "1/1000000", "1000000/1000000"] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    let index = |index, count| Err(ShardError::Index { index, count });
    assert_eq!(parse("0/4"), index(0, 4));
    assert_eq!(parse("5/4"), index(5, 4));
    assert_eq!(parse("4294967297/4"), index(4_294_967_297, 4));
    assert_eq!(parse("1/0"), Err(ShardError::Count(0)));
    assert_eq!(parse("1/1000001"), Err(ShardError::Count(1_000_001)));
    assert_eq!(parse("1/4294967297"), Err(ShardError::Count(4_294_967_297)));
    for text in ["a/b", "", "/", "1", "1/", "/4", "1/2/3", "-1/4", "1.5/4", " 1/4"] {
        assert_eq!(parse(text), Err(ShardError::Form(text.into())));
    }
    let message = |text| parse(text).unwrap_err().to_string();
    assert_eq!(message("5/4"), "i of a shard i/n is 5, must be from 1 to n, which is 4");
    assert_eq!(message("1/0"), "n of a shard i/n is 0, must be from 1 to 1000000");
    assert_eq!(
        message("a/b"),
        "a shard is i/n with whole numbers i and n, such as 1/4; this is \"a/b\""
    );
}
