//! The least noise that is certified for an epsilon, and the noise that the baselines' papers
//! print.

use incrowd_privacy::{
    PrivacyError,
    numeric::{Ends, bisect, geometric, try_bisect},
};
use incrowd_protocol::{BatchSize, Delta, Dimension};
use libm::{ceil, log, log2, sqrt};

use super::{
    Baseline, BaselineError, BinomialBatch, NOISE_RANGE, binomial, certificate::shift_upper,
    check_levels, check_releases, check_tree, gaussian,
};

/// How far above the least possible Gaussian noise a search may stop, relatively.
const TOLERANCE: f64 = 1e-6;

fn check(dimension: u32, epsilon: f64, delta: f64) -> Result<(), BaselineError> {
    Dimension::new(dimension)?;
    if !(epsilon > 0.0 && epsilon.is_finite()) {
        return Err(PrivacyError::EpsilonCentral(epsilon).into());
    }
    Delta::new(delta)?;
    Ok(())
}

/// The tree with the least noise that is certified for `epsilon_central`.
pub fn gaussian_tree(
    dimension: u32,
    leaf_size: u32,
    leaves: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    check_tree(leaf_size, leaves)?;
    let with =
        |noise_std| Baseline::GaussianTree { dimension, leaf_size, leaves, noise_std, delta };
    least_noise(with, epsilon_central, "gaussian-tree")
}

/// The factorization with the least noise that is certified for `epsilon_central`.
pub fn gaussian_factorized(
    dimension: u32,
    releases: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    check_releases(releases)?;
    let with = |noise_std| Baseline::GaussianFactorized { dimension, releases, noise_std, delta };
    least_noise(with, epsilon_central, "gaussian-factorized")
}

/// Batches with the least noise that is certified for `epsilon_central`.
pub fn gaussian_batches(
    dimension: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    let with = |noise_std| Baseline::GaussianBatches { dimension, noise_std, delta };
    least_noise(with, epsilon_central, "gaussian-batches")
}

/// The local Gaussian with the least noise that is certified for `epsilon_local`.
pub fn local_gaussian(
    dimension: u32,
    epsilon_local: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_local, delta)?;
    let with = |noise_std| Baseline::LocalGaussian { dimension, noise_std, delta };
    least_noise(with, epsilon_local, "local-gaussian")
}

/// The shuffled Gaussian with the least noise that is certified for `epsilon_central`.
pub fn shuffled_gaussian(
    dimension: u32,
    batch_size: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    BatchSize::new(u64::from(batch_size))?;
    let with = |noise_std| Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta };
    least_noise(with, epsilon_central, "shuffled-gaussian")
}

/// The least Gaussian noise, to a millionth, that is certified for `epsilon`: bisection of its
/// logarithm.
fn least_noise(
    with: impl Fn(f64) -> Baseline,
    epsilon: f64,
    baseline: &'static str,
) -> Result<Baseline, BaselineError> {
    let enough = |noise: f64| -> Result<bool, BaselineError> {
        let baseline = with(noise);
        let found = |shift| gaussian::epsilon_upper(shift, baseline.delta());
        Ok(shift_upper(&baseline)?.is_some_and(|shift| found(shift) <= epsilon))
    };
    let (low, high) = NOISE_RANGE;
    if enough(low)? {
        return Ok(with(low));
    }
    if !enough(high)? {
        let most = "the largest noise_std";
        return Err(BaselineError::EpsilonCentralTooSmall { epsilon, baseline, most });
    }
    let ends = Ends { holds: high, fails: low };
    Ok(with(try_bisect(ends, geometric(TOLERANCE), enough)?.holds))
}

/// Chowdhury and Zhou's steps: v + 1 is rounded to multiples of 1/g, g = max(2 sqrt(B), d, 4), so
/// there are 2g from v = -1 to v = 1.
fn levels(dimension: u32, batch_size: u32) -> Result<u32, BaselineError> {
    let root = ceil(2.0 * sqrt(f64::from(batch_size))) as u32;
    check_levels(2 * root.max(dimension).max(4))
}

/// The shuffled binomial with batches of `sizes` people, the last of which is repeated, each with
/// (to a thousandth) the fewest coins that are certified for `epsilon_central`, and twice as many
/// levels as Chowdhury and Zhou's g = max(2 sqrt(batch_size), d, 4), which is how they round (see
/// [`Baseline::ShuffledBinomial`]).
pub fn shuffled_binomial(
    dimension: u32,
    sizes: &[u32],
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    let mut batches: Vec<BinomialBatch> = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let same = batches.iter().find(|batch| batch.batch_size == size).copied();
        let least = || least_coins(dimension, size, epsilon_central, delta);
        batches.push(same.map_or_else(least, Ok)?);
    }
    checked(Baseline::ShuffledBinomial { dimension, batches, delta })
}

/// A batch with (to a thousandth) the fewest coins that are certified.
fn least_coins(
    dimension: u32,
    batch_size: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<BinomialBatch, BaselineError> {
    BatchSize::new(u64::from(batch_size))?;
    let d = Dimension::new(dimension)?;
    // The binomial is nearly a Gaussian: start from the noise that one needs.
    let alone = local_gaussian(dimension, epsilon_central, delta)?.noise_std();
    let levels = levels(dimension, batch_size)?;
    let steps = alone * f64::from(levels) / 2.0;
    let variance = f64::from(batch_size) * binomial::CHANCE * (1.0 - binomial::CHANCE);
    let certified = |coins: u64| {
        let all = coins * u64::from(batch_size);
        binomial::epsilon_upper(d, levels, all, delta).unwrap_or(f64::INFINITY)
    };
    let is_enough = |coins: u64| certified(coins) <= epsilon_central;
    let most = (binomial::MOST_COINS / u64::from(batch_size)).clamp(1, u64::from(u32::MAX));
    let mut enough = (ceil(steps * steps / variance) as u64).clamp(1, most);
    let mut few = 0;
    // Gallop away from the guess, up or down, then bisect.
    let mut gap = enough / 20 + 1;
    while !is_enough(enough) {
        if enough == most {
            return Err(BaselineError::EpsilonCentralTooSmall {
                epsilon: epsilon_central,
                baseline: "shuffled-binomial",
                most: "2^34 coins in a batch",
            });
        }
        few = enough;
        enough = enough.saturating_add(gap).min(most);
        gap = gap.saturating_mul(2);
    }
    while few == 0 && enough > 1 {
        let fewer = enough.saturating_sub(gap).max(1);
        if is_enough(fewer) {
            enough = fewer;
        } else {
            few = fewer;
        }
        gap = gap.saturating_mul(2);
    }
    let middle = |Ends { holds: enough, fails: few }: Ends<u64>| {
        (enough - few > 1 + enough / 1000).then(|| few + (enough - few) / 2)
    };
    let coins = bisect(Ends { holds: enough, fails: few }, middle, is_enough).holds as u32;
    Ok(BinomialBatch { batch_size, levels, coins })
}

/// The tree with the noise that Shariff and Sheffet print: sigma^2 = 16 m Ltilde^4
/// ln(4/delta)^2/eps^2, m = 1 + ceil(log2 n) with n = `leaves`, and Ltilde^2 = L^2 + 1 = 2 the
/// squared norm of (x, r).
///
/// # Reference
/// Shariff, Sheffet 2018, Section 4.2. From memory: the form is certain, the constant 16 and the 4
/// in the logarithm were not compared with the printed page.
///
/// # Deviation
/// They draw a square matrix and add its transpose, divided by sqrt(2): the diagonal has twice this
/// variance. Here all coordinates have the smaller one.
pub fn gaussian_tree_as_printed(
    dimension: u32,
    leaf_size: u32,
    leaves: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    check_tree(leaf_size, leaves)?;
    let m = 1.0 + ceil(log2(f64::from(leaves)));
    let noise_std = 4.0 * sqrt(m) * 2.0 * log(4.0 / delta) / epsilon_central;
    checked(Baseline::GaussianTree { dimension, leaf_size, leaves, noise_std, delta })
}

/// The shuffled Gaussian with the noise that Chowdhury and Zhou print: sigma = 4 sqrt(2 ln(2.5
/// B/delta) ln(2/delta))/(eps sqrt(B)).
///
/// # Reference
/// Chowdhury, Zhou 2022, the theorem on SDP-Amp, which is about the multiset of reports. From
/// memory: their published code has sqrt(ln(2.5 B/delta))/(eps sqrt(B)), which agrees in form; the
/// factor 4 sqrt(2 ln(2/delta)) was not compared with the printed page.
pub fn shuffled_gaussian_as_printed(
    dimension: u32,
    batch_size: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    BatchSize::new(u64::from(batch_size))?;
    let b = f64::from(batch_size);
    let logarithms = log(2.5 * b / delta) * log(2.0 / delta);
    let noise_std = 4.0 * sqrt(2.0 * logarithms) / (epsilon_central * sqrt(b));
    checked(Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta })
}

/// The shuffled binomial with the coins that Chowdhury and Zhou print: g = max(2 sqrt(B), d, 4), b
/// = 24e4 g^2 ln(4(d^2+1)/delta)^2/(eps^2 B), p = 1/4.
///
/// # Reference
/// Chowdhury, Zhou 2022, the theorem on SDP-Vec, after Cheu et al. 2022. g, p and the form of b
/// agree with their published code, which has a tuned factor of 1 or 10 and ln(d/delta) in place of
/// 24e4 and the logarithm here; these two are from memory.
pub fn shuffled_binomial_as_printed(
    dimension: u32,
    batch_size: u32,
    epsilon_central: f64,
    delta: f64,
) -> Result<Baseline, BaselineError> {
    check(dimension, epsilon_central, delta)?;
    BatchSize::new(u64::from(batch_size))?;
    let levels = levels(dimension, batch_size)?;
    let (g, d) = (f64::from(levels) / 2.0, f64::from(dimension));
    let logarithm = log(4.0 * (d * d + 1.0) / delta);
    let scale = g * logarithm / epsilon_central;
    let coins = ceil(24e4 * scale * scale / f64::from(batch_size));
    if coins.is_nan() || coins > f64::from(u32::MAX) {
        return Err(BaselineError::Coins(coins));
    }
    let batches = vec![BinomialBatch { batch_size, levels, coins: coins as u32 }];
    checked(Baseline::ShuffledBinomial { dimension, batches, delta })
}

fn checked(baseline: Baseline) -> Result<Baseline, BaselineError> {
    baseline.check()?;
    Ok(baseline)
}
