//! `incrowd-lab demo`: the same table for a seed, to the last digit.

use std::{
    process::{Command, Output},
    sync::Arc,
};

use incrowd_planner::{EncodingChoice, PlanRequest, plan};
use incrowd_sim::{Path, Rewards, Sblb, Simulation, Synthetic};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd-lab")).args(arguments).output().unwrap()
}

#[test]
fn a_seed_gives_its_table_to_the_last_digit() {
    let output = lab(&["demo", "--users", "300000", "--batch-size", "100", "--bits", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = "\
seed                             1
people                      300000
batches released              3000
models published                54
average reward              0.8451
  random arm                0.4999
  best arm                  0.8647
regret                        5899
  random arm                109452
  share of it                 5.4%
";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// The prediction and the real loop on the problem it was fitted to: the same number up to a factor
/// of two, over three seeds, for bits and for words. It notices drift, it does not validate.
#[test]
fn the_demo_confirms_the_predicted_regret() {
    for encoding in [EncodingChoice::Bits, EncodingChoice::Codebook] {
        let request = PlanRequest { central_epsilon: Some(1.0), ..PlanRequest::new(5, 100_000) };
        let plan = plan(&PlanRequest { encoding, ..request }.check().unwrap()).unwrap();
        let task = Arc::new(plan.task.clone());
        let mut regret = 0.0;
        for seed in 1..=3 {
            let people = Synthetic::new(5, 10, Rewards::Bernoulli, seed).unwrap();
            let sblb = Sblb::new(task.clone(), Path::Bulk, seed);
            let mut simulation = Simulation::new(people, sblb).unwrap();
            simulation.run(100_000).unwrap();
            regret += simulation.summary().regret / 3.0;
        }
        let ratio = plan.prediction.regret / regret;
        assert!((0.5..2.0).contains(&ratio), "{encoding:?}: {ratio}");
    }
}
