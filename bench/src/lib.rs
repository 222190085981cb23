//! Measuring a thing and its peer in the same run.

use std::time::Instant;

/// Best time of one call, in nanoseconds, of each contestant: they take turns, so that a slow
/// moment of the machine hits all of them.
pub fn race<const N: usize>(calls: u32, contestants: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    let mut contestants = contestants;
    for _ in 0..21 {
        for (time, contestant) in best.iter_mut().zip(&mut contestants) {
            let start = Instant::now();
            for _ in 0..calls {
                contestant();
            }
            *time = time.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
        }
    }
    best
}

/// One line of the table: what, how long, the peer, the ratio and the goal.
pub fn line(what: &str, nanoseconds: f64, peer: &str, peer_nanoseconds: f64, goal: &str) {
    let ratio = nanoseconds / peer_nanoseconds;
    println!(
        "{what:<44} {nanoseconds:>10.1} ns {peer:<34} {peer_nanoseconds:>10.1} ns {ratio:>7.3} {goal}"
    );
}

/// The limit of a choice: theta'x and the squares of W x with a triangular W for all arms, and
/// nothing else.
pub fn bare_products(theta: &[f64], factor: &[f64], arms: &[f64], scores: &mut [f64]) {
    let d = theta.len();
    let dot = |a: &[f64], b: &[f64]| {
        let mut lanes = [0.0; 4];
        for (a, b) in a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0) {
            (0..4).for_each(|lane| lanes[lane] += a[lane] * b[lane]);
        }
        let rest: f64 =
            a.as_chunks::<4>().1.iter().zip(b.as_chunks::<4>().1).map(|(a, b)| a * b).sum();
        lanes.iter().sum::<f64>() + rest
    };
    for (score, x) in scores.iter_mut().zip(arms.chunks_exact(d)) {
        let mut rest = factor;
        *score = dot(theta, x);
        for i in 0..d {
            let (row, below) = rest.split_at(i + 1);
            *score += dot(row, &x[..=i]).powi(2);
            rest = below;
        }
    }
}
