//! Device, shuffler and bandit against limits measured in the same run: `cargo bench -p
//! incrowd-bench`; only some of it with the names of functions here, as in `cargo bench -p
//! incrowd-bench --bench heart -- reports many_bits`.

use std::{env, hint::black_box, sync::Arc};

use incrowd_bandit::Bandit;
use incrowd_bench::{bare_products, line, race};
use incrowd_device::{BitsRandomizer, Device};
use incrowd_protocol::{
    BatchSums, Closes, CodebookLaw, FlipProbability, Law, Layout, Learner, MechanismConfig, Model,
    ModelParts, OutsideProbability, Payload, Policy, Report, ReportId, Stage, TaskConfig,
    add_counts, triangle,
};
use incrowd_shuffler::{Accumulator, Batch, Outcome};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng, rand_core::SeedableRng};
use rand_core::Rng;

fn task(dimension: u32, size: u32, rounds: u32) -> Arc<TaskConfig> {
    task_of_bits(1, dimension, size, rounds)
}

fn task_of_bits(bits: u32, dimension: u32, size: u32, rounds: u32) -> Arc<TaskConfig> {
    task_of(Law::bits(bits, FlipProbability::new(53, 100).unwrap()), dimension, size, rounds)
}

/// The most words that a codebook can have.
fn task_of_words(dimension: u32, size: u32, rounds: u32) -> Arc<TaskConfig> {
    let outside = OutsideProbability::new(1, 5).unwrap();
    let law = CodebookLaw { words: 256, chosen: 16, outside, moment_weight: 144 };
    task_of(Law::Codebook(law), dimension, size, rounds)
}

fn task_of(law: Law, dimension: u32, size: u32, rounds: u32) -> Arc<TaskConfig> {
    let mechanism = MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds, size, window: None, law }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: u32::MAX,
        honest_fraction: 1.0,
    };
    Arc::new(
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default()).unwrap(),
    )
}

fn context(dimension: usize) -> Vec<f64> {
    let norm = (dimension as f64).sqrt();
    (0..dimension).map(|i| if i % 3 == 0 { -0.9 } else { 0.7 } / norm).collect()
}

/// The same job done naively: for each entry of (r x, lower triangle of x x') one double drawn and
/// compared with 1/2 + c v/2, without a branch and without looking whether the input is valid.
fn naive<R: Rng>(x: &[f64], reward: f64, keep: f64, counts: &mut [u16], rng: &mut R) {
    let mut coin = |value: f64| {
        let uniform = (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        u16::from(uniform < 0.5 + 0.5 * keep * value)
    };
    let (moment, gram) = counts.split_at_mut(x.len());
    for (count, u) in moment.iter_mut().zip(x) {
        *count = coin(reward * u);
    }
    let mut gram = gram.iter_mut();
    for i in 0..x.len() {
        for (k, count) in (0..=i).zip(&mut gram) {
            *count = coin(x[i] * x[k]);
        }
    }
}

fn reports() {
    let task = task(10, 100, 1);
    let law = task.mechanism().round(1).unwrap().law.as_bits().unwrap();
    let x = context(10);
    let mut counts = vec![0u16; 65];
    let (mut a, mut b, mut c) = [1, 2, 3].map(ChaCha20Rng::seed_from_u64).into();
    let mut randomizer = BitsRandomizer::new(task.mechanism());
    let mut rounds = 1..;
    let mut living =
        Device::simulated(self::task(10, 100, u32::MAX - 1), ChaCha20Rng::seed_from_u64(4));
    let [naive_time, one, whole, new] = race(
        20_000,
        [
            &mut || naive(black_box(&x), black_box(0.7), 0.47, black_box(&mut counts), &mut a),
            &mut || {
                black_box(randomizer.randomize(law, black_box(&x), black_box(0.7), &mut b));
            },
            &mut || {
                let round = rounds.next().unwrap();
                let _ = black_box(living.report(round, black_box(&x), black_box(0.7)).unwrap());
            },
            &mut || {
                let mut device = Device::simulated(task.clone(), &mut c);
                let _ = black_box(device.report(1, black_box(&x), black_box(0.7)).unwrap());
            },
        ],
    );
    line("one report, d=10 m=1, ChaCha20", one, "naive loop, ChaCha20", naive_time, "goal 0.4");
    let information = "(for information)";
    line(
        "Device::report: id, rules, report object",
        whole,
        "naive loop, ChaCha20",
        naive_time,
        information,
    );
    line("the same on a new device", new, "naive loop, ChaCha20", naive_time, information);
}

/// The randomness alone is a limit: a byte for every coin, and three more for one in 256.
fn many_bits() {
    let x = context(10);
    for bits in [8, 16, 256, 1024] {
        let task = task_of_bits(bits, 10, 100, u32::MAX - 1);
        let mut bytes = vec![0; task.mechanism().coordinates() * bits as usize];
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut device = Device::simulated(task.clone(), ChaCha20Rng::seed_from_u64(2));
        let mut rounds = 1..;
        let [random, whole] = race(
            20_000 / bits,
            [&mut || rng.fill_bytes(black_box(&mut bytes)), &mut || {
                let round = rounds.next().unwrap();
                let _ = black_box(device.report(round, black_box(&x), black_box(0.7)).unwrap());
            }],
        );
        let what = format!("Device::report, d=10 m={bits}");
        line(&what, whole, "100 us", 1e5, "goal 1 at m=1024");
        line(&what, whole, "its random bytes, ChaCha20", random, "(for information)");
    }
}

/// A report of words costs N (D + 1) normal variables, and its sum D of them.
fn words() {
    let x = context(10);
    let task = task_of_words(10, 100, u32::MAX - 1);
    let mut bytes = vec![0; 256 * 80 * 4];
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut device = Device::simulated(task.clone(), ChaCha20Rng::seed_from_u64(2));
    let mut rounds = 1..;
    let [random, whole] = race(
        200,
        [&mut || rng.fill_bytes(black_box(&mut bytes)), &mut || {
            let round = rounds.next().unwrap();
            let _ = black_box(device.report(round, black_box(&x), black_box(0.7)).unwrap());
        }],
    );
    let what = "Device::report, d=10 N=256";
    line(what, whole, "200 us", 2e5, "goal 1");
    line(what, whole, "its random bytes, ChaCha20", random, "(for information)");
    let each = accept_all(&task_of_words(10, ACCEPTED + 1, 1), |rng| {
        let mut seed = [0; 16];
        rng.fill_bytes(&mut seed);
        Payload::Word { seed, index: rng.next_u32() as u8 }
    });
    line("accept one report's bytes, d=10 words", each, "300 thousand a second", 3333.0, "goal 1");
}

fn bulk() {
    let task = task(10, 100, 1);
    let law = task.mechanism().round(1).unwrap().law.as_bits().unwrap();
    let x = context(10);
    let mut counts = vec![0u16; 65];
    let mut sums = [(); 3].map(|()| Accumulator::new(65, u32::MAX));
    let [naive_sums, sums_20, sums_8] = &mut sums;
    let (mut a, mut b) = [1, 2].map(ChaCha20Rng::seed_from_u64).into();
    let mut c = ChaCha8Rng::seed_from_u64(3);
    let (mut first, mut second) = [(), ()].map(|()| BitsRandomizer::new(task.mechanism())).into();
    let [naive_time, chacha20, chacha8] = race(
        20_000,
        [
            &mut || {
                naive(black_box(&x), black_box(0.7), 0.47, &mut counts, &mut a);
                naive_sums.add(|sums| add_counts(&counts, sums));
            },
            &mut || {
                let (counts, _) = first.randomize(law, black_box(&x), 0.7, &mut b);
                sums_20.add(|sums| add_counts(counts, sums));
            },
            &mut || {
                let (counts, _) = second.randomize(law, black_box(&x), 0.7, &mut c);
                sums_8.add(|sums| add_counts(counts, sums));
            },
        ],
    );
    line(
        "bulk to sums, ChaCha20",
        chacha20,
        "naive loop to sums, ChaCha20",
        naive_time,
        "goal 0.4, stretch 0.2",
    );
    line(
        "bulk to sums, ChaCha8",
        chacha8,
        "naive loop to sums, ChaCha20",
        naive_time,
        "(simulation)",
    );
}

fn model(task: &TaskConfig) -> Model {
    let d = task.mechanism().dimension();
    let mut width_factor = vec![0.01; triangle(d)];
    (0..d).for_each(|i| width_factor[triangle(i + 1) - 1] = 0.1);
    ModelParts {
        mechanism: task.mechanism().hash(),
        version: 1,
        round: 1,
        theta: context(d),
        width_factor,
        confidence_width: 0.5,
        slots: Vec::new(),
    }
    .check()
    .unwrap()
}

fn choose() {
    for (d, arms) in [(5usize, 10), (10, 100), (50, 100)] {
        let task = task(d as u32, 100, 1);
        let (model, features) = (model(&task), context(d * arms));
        let mut scores = vec![0.0; arms];
        let mut device = Device::simulated(task, ChaCha20Rng::seed_from_u64(1));
        let calls = 200_000 / (d * d * arms / 10).max(1) as u32 + 10;
        let [bare, chosen] = race(
            calls,
            [
                &mut || {
                    bare_products(
                        model.theta(),
                        model.width_factor(),
                        black_box(&features),
                        black_box(&mut scores),
                    );
                },
                &mut || {
                    black_box(
                        device.choose(Some(&model), black_box(&features).chunks_exact(d)).unwrap(),
                    );
                },
            ],
        );
        let what = format!("choose, d={d} K={arms}");
        line(&what, chosen, "bare products, triangular W", bare, "goal 2 (half the speed)");
    }
}

fn accept() {
    let each = accept_all(&task(10, ACCEPTED + 1, 1), |rng| {
        Payload::Counts((0..65).map(|_| (rng.next_u32() & 1) as u16).collect())
    });
    line("accept one report's bytes, d=10 m=1", each, "2 million a second", 500.0, "goal 1");
}

const ACCEPTED: u32 = 200_000;

/// Time to accept the bytes of one report out of many.
fn accept_all(task: &TaskConfig, mut payload: impl FnMut(&mut ChaCha8Rng) -> Payload) -> f64 {
    let mechanism = Arc::new(task.mechanism().clone());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut id = [0; 16];
    let mut encoded = Vec::new();
    for _ in 0..ACCEPTED {
        rng.fill_bytes(&mut id);
        let report = Report::new(&mechanism, 1, ReportId(id), payload(&mut rng)).unwrap();
        encoded.push(report.encode(&mechanism).unwrap());
    }
    let [all] = race(
        1,
        [&mut || {
            let mut batch = Batch::new(mechanism.clone());
            for bytes in &encoded {
                assert_eq!(batch.accept_bytes(black_box(bytes)), Outcome::Counted);
            }
            black_box(&batch);
        }],
    );
    all / f64::from(ACCEPTED)
}

fn absorb() {
    let task = task(50, 1_000_000, 1);
    let d = 50;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let coordinates = task.mechanism().coordinates();
    let mut sums: Vec<i64> =
        (0..coordinates).map(|_| 500_000 + i64::from(rng.next_u32() % 2_000)).collect();
    for i in 0..d {
        sums[d + triangle(i + 1) - 1] = 505_000 + i as i64;
        sums[i] = 501_000;
    }
    let release = BatchSums::new(task.mechanism(), 1, sums).unwrap();
    let [time] = race(
        20,
        [&mut || {
            let mut bandit = Bandit::new(task.clone());
            black_box(bandit.absorb(black_box(&release)).unwrap().unwrap());
        }],
    );
    line("absorb and decide, d=50", time, "1 ms", 1e6, "goal about 1");
}

fn main() {
    let parts: [(&str, fn()); 7] = [
        ("reports", reports),
        ("many_bits", many_bits),
        ("words", words),
        ("bulk", bulk),
        ("choose", choose),
        ("accept", accept),
        ("absorb", absorb),
    ];
    let wanted: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("{:<44} {:>13} {:<34} {:>13} {:>7}", "what", "time", "limit", "time", "ratio");
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            part();
        }
    }
}
