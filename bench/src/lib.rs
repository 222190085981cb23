//! Measuring a thing and its peer in the same run.

use std::time::Instant;

/// Best time of one call, in nanoseconds, of each contestant: they take turns, so that a slow moment of the machine hits all of them.
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
