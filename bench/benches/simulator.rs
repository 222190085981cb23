//! Rounds of the simulator, against the limit of their arithmetic and against themselves: `cargo
//! bench -p incrowd-bench --bench simulator`.
//!
//! - `-- --rounds` is only the first of it, rounds for several d and m.
//! - `-- --people 100000000` is one long run, with its time per round and its memory.
//! - `-- --contexts FILE` plays people that `bench/peers.py` wrote, and prints seconds for it to
//!   read.

use std::{
    env, fs,
    hint::black_box,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use incrowd_bench::{bare_products, line, race};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, Stage, TaskConfig,
    triangle,
};
use incrowd_sim::{
    Algorithm, Choice, Environment, Path, Person, Rewards, Sblb, Simulation, Synthetic,
};

/// d, K and l of the comparison with others.
const DIMENSION: usize = 10;
const ARMS: usize = 10;
const BATCH: u32 = 100;

fn task(dimension: u32, bits: u32) -> Arc<TaskConfig> {
    let mechanism = MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage {
            rounds: u32::MAX - 1,
            size: BATCH,
            window: None,
            law: Law::bits(bits, FlipProbability::new(53, 100).unwrap()),
        }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default()).unwrap(),
    )
}

fn simulation(dimension: u32, bits: u32, seed: u64) -> Simulation<Synthetic, Sblb> {
    let people = Synthetic::new(dimension, ARMS as u32, Rewards::Bernoulli, seed).unwrap();
    Simulation::new(people, Sblb::new(task(dimension, bits), Path::Bulk, seed)).unwrap()
}

/// Time this thread was on a processor; where the system does not tell, time on the clock.
fn processor_time(start: Instant) -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|line| line.split(' ').next()?.parse().ok())
        .map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Seconds on a processor.
fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    let before = processor_time(start);
    work();
    processor_time(start).saturating_sub(before).as_secs_f64()
}

/// Most memory this process ever had, in MB.
fn peak_memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1e3)
}

/// People whose features and rewards are known before the clock starts.
struct Table {
    dimension: usize,
    arms: Vec<f64>,
    rewards: Vec<f64>,
}

impl Table {
    /// Doubles, little-endian, person after person: the rows of the arms, then the rewards of the
    /// arms.
    fn read(file: &str) -> Self {
        let bytes = fs::read(file).unwrap();
        let doubles: Vec<f64> =
            bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let (mut arms, mut rewards) = (Vec::new(), Vec::new());
        for person in doubles.chunks_exact((DIMENSION + 1) * ARMS) {
            let (features, outcomes) = person.split_at(DIMENSION * ARMS);
            arms.extend(features);
            rewards.extend(outcomes);
        }
        Self { dimension: DIMENSION, arms, rewards }
    }

    fn synthetic(dimension: usize, arms: usize, people: usize) -> Self {
        let mut source =
            Synthetic::new(dimension as u32, arms as u32, Rewards::Bernoulli, 1).unwrap();
        let mut person = Person::default();
        let mut table = Self { dimension, arms: Vec::new(), rewards: Vec::new() };
        for _ in 0..people {
            source.next_person(&mut person);
            table.arms.extend(&person.arms);
            table.rewards.extend((0..arms).map(|arm| source.reward(arm).unwrap()));
        }
        table
    }

    /// Choose, report, count and absorb for `rounds` people, over and over the table.
    fn play(&self, algorithm: &mut Sblb, arms: usize, rounds: usize) {
        let d = self.dimension;
        let people = self.arms.chunks_exact(d * arms).zip(self.rewards.chunks_exact(arms));
        for (features, rewards) in people.cycle().take(rounds) {
            let Choice::Arm(arm) = algorithm.choose(features).unwrap() else { unreachable!() };
            algorithm.learn(features[arm * d..(arm + 1) * d].into(), rewards[arm]).unwrap();
        }
    }
}

/// For `bench/peers.py`: seconds for a round on known people, and for one with drawing the people.
fn peers(file: &str) {
    const ROUNDS: usize = 500_000;
    let table = Table::read(file);
    let mut algorithm = Sblb::new(task(DIMENSION as u32, 1), Path::Bulk, 1);
    let known = seconds(|| table.play(&mut algorithm, ARMS, ROUNDS));
    let mut simulation = simulation(DIMENSION as u32, 1, 1);
    let drawn = seconds(|| simulation.run(ROUNDS as u64).unwrap());
    println!("{:e} {:e}", known / ROUNDS as f64, drawn / ROUNDS as f64);
}

/// Nanoseconds of a round, whichever of five runs of `rounds` was best.
fn best_of_five(rounds: u64, mut run: impl FnMut()) -> f64 {
    (0..5).map(|_| seconds(&mut run)).fold(f64::INFINITY, f64::min) * 1e9 / rounds as f64
}

fn rounds() {
    const ROUNDS: u64 = 500_000;
    println!(
        "{:<44} {:>13} {:>16}",
        "one round, K=10, batches of 100", "CPU time", "rounds a second"
    );
    for (d, bits) in [(5, 1), (5, 8), (10, 1), (10, 8), (10, 256)] {
        let table = Table::synthetic(d as usize, ARMS, 10_000);
        let mut algorithm = Sblb::new(task(d, bits), Path::Bulk, 1);
        let known = best_of_five(ROUNDS, || table.play(&mut algorithm, ARMS, ROUNDS as usize));
        let mut simulation = simulation(d, bits, 1);
        let drawn = best_of_five(ROUNDS, || simulation.run(ROUNDS).unwrap());
        for (what, time) in [("known people", known), ("people drawn", drawn)] {
            let what = format!("{what}, d={d} m={bits}");
            println!("{what:<44} {time:>10.1} ns {:>16.0}", 1e9 / time);
        }
    }
}

/// One long run in a process of its own, so that its memory is its own.
fn people(people: u64) {
    let mut simulation = simulation(DIMENSION as u32, 1, 1);
    let time = seconds(|| simulation.run(people).unwrap()) * 1e9 / people as f64;
    let memory = peak_memory().map_or("unknown".into(), |memory| format!("{memory:.1} MB"));
    let what = format!("{people} people, d=10 K=10");
    println!("{what:<44} {time:>10.1} ns  peak memory {memory} (goal: flat, below 200 MB)");
}

fn long_runs() {
    for number in ["1000000", "10000000"] {
        let program = env::current_exe().unwrap();
        assert!(Command::new(program).args(["--people", number]).status().unwrap().success());
    }
}

/// The same two runs, one after the other and side by side. On a busy machine the clock says
/// little; that a run takes no more processor time beside another one than alone says what two free
/// cores would give.
fn threads() {
    const PEOPLE: u64 = 1_000_000;
    let run = |seed| seconds(|| simulation(5, 1, seed).run(PEOPLE).unwrap());
    let [mut one, mut two, mut alone, mut beside] = [f64::INFINITY; 4];
    for _ in 0..5 {
        let start = Instant::now();
        let both = run(1) + run(2);
        (one, alone) = (one.min(start.elapsed().as_secs_f64()), alone.min(both));
        let start = Instant::now();
        let longest = thread::scope(|scope| {
            let threads = [1, 2].map(|seed| scope.spawn(move || run(seed)));
            threads.map(|thread| thread.join().unwrap()).into_iter().fold(0.0, f64::max)
        });
        (two, beside) = (two.min(start.elapsed().as_secs_f64()), beside.min(longest));
    }
    println!(
        "{:<44} {one:>11.2} s  on two threads {two:.2} s: {:.2} times as fast, by CPU time {:.2} (goal 1.8, best of 5)",
        "two runs of 1000000 people, one thread",
        one / two,
        alone / beside
    );
}

fn many_arms() {
    let (d, arms) = (50, 1000);
    let table = Table::synthetic(d, arms, 10);
    let (theta, factor) = (vec![0.1; d], vec![0.01; triangle(d)]);
    let mut scores = vec![0.0; arms];
    let mut algorithm = Sblb::new(task(d as u32, 1), Path::Bulk, 1);
    table.play(&mut algorithm, arms, BATCH as usize);
    let mut people = table.arms.chunks_exact(d * arms).cycle();
    let [bare, round] = race(
        10,
        [
            &mut || {
                let features = people.next().unwrap();
                bare_products(&theta, &factor, black_box(features), black_box(&mut scores));
            },
            &mut || table.play(&mut algorithm, arms, 1),
        ],
    );
    line("one round, d=50 K=1000", round, "bare products, triangular W", bare, "goal 1.67");
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            rounds();
            long_runs();
            threads();
            many_arms();
        }
        ["--rounds"] => rounds(),
        ["--people", number] => people(number.parse().unwrap()),
        ["--contexts", file] => peers(file),
        _ => panic!("only --rounds, --people NUMBER or --contexts FILE"),
    }
}
