//! Certificates against their time limits: `cargo bench -p incrowd-bench --bench privacy`.

use std::{hint::black_box, time::Instant};

use incrowd_bench::line;
use incrowd_privacy::{
    central::{self, Setting},
    clones, local,
};
use incrowd_protocol::{BatchSize, Bits, Delta, Dimension, Keep};

/// Best of three, in nanoseconds.
fn time<T>(mut work: impl FnMut() -> T) -> f64 {
    let once = |()| {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_nanos() as f64
    };
    [(); 3].map(once).into_iter().fold(f64::INFINITY, f64::min)
}

fn setting(dimension: u32, bits: u32, keep: f64, size: u64) -> Setting {
    Setting::new(
        Dimension::new(dimension).unwrap(),
        Bits::new(bits).unwrap(),
        Keep::new(keep).unwrap(),
        BatchSize::new(size).unwrap(),
        Delta::new(1e-6).unwrap(),
    )
}

fn main() {
    println!("{:<44} {:>13} {:<34} {:>13} {:>7}", "what", "time", "limit", "time", "ratio");
    let millisecond = 1e6;
    for (d, m, keep, size, limit) in [
        (10, 1, 0.5, 1_000_000, 50.0),
        (10, 1, 0.5, 1000, 50.0),
        (10, 8, 0.5, 1000, 1000.0),
        (10, 32, 0.5, 100_000, 2000.0),
        (200, 1, 0.05, 100_000, 1000.0),
        (10, 256, 0.5, 10_000, 100.0),
        (10, 1024, 0.1, 1000, 100.0),
        (10, 1, 0.5, 1_000_000_000, 2000.0),
    ] {
        let setting = setting(d, m, keep, size);
        let taken = time(|| central::certify(&setting).unwrap());
        let what = format!("certify, d={d} m={m} c={keep} l={size}");
        line(&what, taken, &format!("{limit} ms"), limit * millisecond, "goal about 1");
    }
    let many = setting(10, 1024, 0.1, 10_000);
    let taken = time(|| central::approx_mu(&many));
    line("the planner's mu, d=10 m=1024 l=10000", taken, "5 ms", 5.0 * millisecond, "goal about 1");
    let one = setting(10, 1, 0.5, 10_000);
    let guess = time(|| central::approx_epsilon(&one));
    let certified = time(|| central::certify(&one).unwrap());
    line(
        "the planner's guess, d=10 l=10000",
        guess,
        "certify, the same",
        certified,
        "(for information)",
    );
    let Setting { blocks, bits, keep, delta, .. } = setting(200, 1, 0.05, 1);
    let million = BatchSize::new(1_000_000).unwrap();
    let taken = time(|| clones::epsilon_upper(4.0, million, delta).unwrap());
    line("clones, n=1e6 eps0=4", taken, "18 s, a public Python script", 18e9, "goal 0.01");
    let taken = time(|| local::certify(blocks, bits, keep));
    line("local certificate, d=200", taken, "1 s", 1e9, "(for information)");
}
