//! `incrowd-lab simulate --shard` as a person uses it, and the array jobs of `experiments/cluster`.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::experiment::{Scratch, files};

const EXPERIMENT: &str = r#"
algorithms = ["linucb", "greedy", "random"]
horizons = [100]
runs = 3
tuning = { explorations = [0.0, 0.2, 1.0], runs = 1 }
"#;

/// `sbatch` for a cluster that has no queue: notes its options, runs all tasks of a job at once,
/// and refuses a job whose predecessor is not there.
const SBATCH: &str = r#"#!/usr/bin/env bash
set -euo pipefail
echo "$@" >> jobs
tasks=
while [[ $1 == --* ]]; do
    case $1 in
    --array=1-*) tasks=${1#--array=1-} ;;
    --dependency=afterok:*) [ "${1##*:}" -lt "$(wc -l < jobs)" ] ;;
    esac
    shift
done
export SLURM_CPUS_PER_TASK=1
if [ -n "$tasks" ]; then
    for ((i = 1; i <= tasks; i++)); do SLURM_ARRAY_TASK_ID=$i bash "$@"; done
else
    bash "$@"
fi > log 2>&1
echo "$(wc -l < jobs);cluster"
"#;

/// Runs a shell command in a folder, with the program on the path before everything else.
fn shell(command: &str, folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_incrowd-lab")).parent().unwrap();
    let path = format!("{}:{}:{}", folder.display(), program.display(), env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", command]).current_dir(folder).env("PATH", path).output().unwrap()
}

/// What a command that must succeed prints.
fn stdout(command: &str, folder: &Path) -> String {
    let output = shell(command, folder);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that must fail.
fn message(command: &str, folder: &Path) -> String {
    let output = shell(command, folder);
    assert_eq!(output.status.code(), Some(2), "{command}");
    assert!(output.stdout.is_empty(), "{command}");
    String::from_utf8(output.stderr).unwrap()
}

/// A folder with the experiment in a file.
fn folder(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.0.join(name);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("e.toml"), EXPERIMENT).unwrap();
    path
}

#[test]
fn array_jobs_give_the_tables_of_one_command() {
    let scratch = Scratch::new("cluster");
    let (one, many) = (folder(&scratch, "one"), folder(&scratch, "many"));
    stdout("incrowd-lab simulate e.toml --out out", &one);

    let sbatch = many.join("sbatch");
    fs::write(&sbatch, SBATCH).unwrap();
    fs::set_permissions(&sbatch, fs::Permissions::from_mode(0o755)).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("experiments/cluster/simulate.sbatch");
    let said = stdout(&format!("bash '{}' e.toml out 2", script.display()), &many);
    assert_eq!(said, "jobs 1, 2 and 3; the last one writes out/table.csv\n");
    let jobs = fs::read_to_string(many.join("jobs")).unwrap();
    let options: Vec<&str> =
        jobs.lines().filter_map(|job| job.split_once(" /")).map(|job| job.0).collect();
    let always = "--parsable --kill-on-invalid-dep=yes --job-name=incrowd-";
    assert_eq!(
        options,
        [
            format!("{always}tune --array=1-2"),
            format!("{always}run --array=1-2 --dependency=afterok:1"),
            format!("{always}tables --dependency=afterok:2"),
        ]
    );
    let log = fs::read_to_string(many.join("log")).unwrap();
    assert!(log.contains("0 plans and 0 runs now, 15 runs found finished"), "{log}");
    assert_eq!(files(&one.join("out")), files(&many.join("out")));
}

#[test]
fn a_shard_says_what_it_did_and_what_is_missing() {
    let scratch = Scratch::new("cluster-command");
    let folder = folder(&scratch, "a folder");
    let simulate = |flags: &str| format!("incrowd-lab simulate e.toml --out 'the results' {flags}");
    for (shard, rule) in [
        ("0/4", "i of a shard i/n is 0, must be from 1 to n, which is 4"),
        ("5/4", "i of a shard i/n is 5, must be from 1 to n, which is 4"),
        ("1/0", "n of a shard i/n is 0, must be from 1 to 1000000"),
        ("a/b", "a shard is i/n with whole numbers i and n"),
    ] {
        let message = message(&simulate(&format!("--shard {shard}")), &folder);
        assert!(message.contains(rule), "{message}");
    }
    assert_eq!(
        message(&simulate("--shard 1/2"), &folder),
        "error: the results: 3 of 3 runs of the tuning phase are missing, must all be there before the shards \
         of the runs that count\n\
         hint: incrowd-lab simulate e.toml --out 'the results' --phase tune\n"
    );
    let did = |flags: &str| stdout(&simulate(&format!("--output json {flags}")), &folder);
    let line = |phase: &str, ran: u32, reused: u32, shard: &str| {
        format!(
            "{{\"phase\":\"{phase}\",\"planned\":0,\"ran\":{ran},\"reused\":{reused},\"shard\":\"{shard}\"}}\n"
        )
    };
    assert!(did("--phase tune --shard 2/2").contains("\"ran\":1,"));
    assert_eq!(did("--phase tune"), line("tune", 2, 1, "1/1"));
    assert_eq!(did("--shard 2/2"), line("run", 6, 0, "2/2"));
    assert_eq!(did("--shard 2/2"), line("run", 0, 6, "2/2"));
    assert_eq!(did("--phase run"), line("run", 6, 6, "1/1"));
    assert!(!folder.join("the results/table.csv").exists());
    assert!(
        message(&simulate("--seed 2"), &folder).ends_with(
            "these keys differ: seed\nhint: join folders of one experiment only, or give another --out\n"
        )
    );
}
