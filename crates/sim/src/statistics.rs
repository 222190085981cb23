//! Statistics of a few repeated runs.

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::environment::draw::index;

/// Fewer seeds say too little about how much they differ.
const FEWEST_SEEDS: usize = 10;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;
/// Every interval is the same on every machine.
const BOOTSTRAP_SEED: u64 = 0x1c0d_5eed;

/// Arithmetic mean, or `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard error of the mean, from the sample variance (n - 1); none below two values.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let (n, centre) = (values.len() as f64, mean(values)?);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    Some((squares / (n - 1.0) / n).sqrt())
}

/// Quantile with linear interpolation between order statistics (type 7 of Hyndman and Fan); `share`
/// from 0 to 1.
///
/// `None` for an empty slice, a share outside 0 to 1, or a value that is not a number.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&share) || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share * (sorted.len() - 1) as f64;
    let (below, rest) = (position.floor() as usize, position.fract());
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + rest * (sorted[above] - sorted[below]))
}

/// A straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Value at 0.
    pub intercept: f64,
    /// Rise per unit.
    pub slope: f64,
}

impl Line {
    /// Value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// Ordinary least squares; none unless two abscissas differ.
pub fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    let (sum_x, sum_y) = points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
    let (centre_x, centre_y) = (sum_x / n, sum_y / n);
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in points {
        xx += (x - centre_x).powi(2);
        xy += (x - centre_x) * (y - centre_y);
    }
    // Not a number if there are no points.
    if xx.is_nan() || xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    Some(Line { intercept: centre_y - slope * centre_x, slope })
}

/// Several values of one quantity, one per seed, at one abscissa.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Where.
    pub x: f64,
    /// Seed and value of each run.
    pub values: Vec<(u64, f64)>,
}

/// mean(y) = exp(intercept) x^exponent, fitted to the logarithms of the means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    /// The fitted line: ln mean(y) against ln x.
    pub line: Line,
    /// 95% percentile bootstrap interval of the exponent, over seeds; none if a sample has fewer
    /// than two runs.
    ///
    /// With fewer than about ten seeds such an interval is known to be too narrow.
    pub interval: Option<(f64, f64)>,
}

/// Fits a power law and bootstraps its exponent over the seeds.
///
/// If every sample has the same seeds, a seed is drawn for all abscissas at once: the same seed may
/// mean the same hidden parameter. Otherwise each sample is resampled by itself. None unless there
/// are two different abscissas, and means and abscissas are positive.
pub fn power_law(samples: &[Sample]) -> Option<PowerLaw> {
    let sorted: Vec<Sample> = samples
        .iter()
        .cloned()
        .map(|mut sample| {
            sample.values.sort_by_key(|value| value.0);
            sample
        })
        .collect();
    let line = fit_means(&sorted, |_, run| run)?;
    let seeds = |sample: &Sample| sample.values.iter().map(|value| value.0).collect::<Vec<_>>();
    let together = sorted.iter().all(|sample| seeds(sample) == seeds(&sorted[0]));
    if sorted.iter().any(|sample| sample.values.len() < 2) {
        return Some(PowerLaw { line, interval: None });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(BOOTSTRAP_SEED);
    let mut exponents = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut drawn: Vec<Vec<usize>> = Vec::with_capacity(sorted.len());
        for (i, sample) in sorted.iter().enumerate() {
            if together && i > 0 {
                drawn.push(drawn[0].clone());
            } else {
                let count = sample.values.len();
                drawn.push((0..count).map(|_| index(&mut rng, count)).collect());
            }
        }
        if let Some(line) = fit_means(&sorted, |sample, run| drawn[sample][run]) {
            exponents.push(line.slope);
        }
    }
    let interval = quantile(&exponents, 0.025).zip(quantile(&exponents, 0.975));
    Some(PowerLaw { line, interval })
}

/// The line through (ln x, ln mean), run `pick(sample, i)` taken for the i-th.
fn fit_means(samples: &[Sample], pick: impl Fn(usize, usize) -> usize) -> Option<Line> {
    let mut points = Vec::with_capacity(samples.len());
    for (s, sample) in samples.iter().enumerate() {
        let count = sample.values.len();
        let sum: f64 = (0..count).map(|i| sample.values[pick(s, i)].1).sum();
        let mean = sum / count as f64;
        // Refuses what is not a number, too.
        if !(mean > 0.0 && mean.is_finite() && sample.x > 0.0 && sample.x.is_finite()) {
            return None;
        }
        points.push((sample.x.ln(), mean.ln()));
    }
    least_squares(&points)
}

/// mean(a)/mean(b) and the upper end of its one-sided 95% percentile bootstrap interval; a and b
/// belong to the same seeds, which are drawn together. None unless there are as many of both and
/// the mean of b is positive; no limit below ten seeds.
///
/// The limit is a little too low for few or very skewed values: with 50 log-normal ones whose
/// logarithm has a standard deviation of 0.3 it covers the true ratio in 95% of cases, with 1.0 in
/// about 86%.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<(f64, Option<f64>)> {
    let (value, ratios) = resampled_ratios(a, b)?;
    Some((value, quantile(&ratios, 0.95)))
}

/// As [`ratio`], with both ends of the two-sided 95% interval.
pub fn ratio_interval(a: &[f64], b: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    let (value, ratios) = resampled_ratios(a, b)?;
    Some((value, quantile(&ratios, 0.025).zip(quantile(&ratios, 0.975))))
}

/// mean(a)/mean(b), and the same of resamples; none of them below ten seeds.
fn resampled_ratios(a: &[f64], b: &[f64]) -> Option<(f64, Vec<f64>)> {
    let value = mean(a)? / mean(b).filter(|&mean| mean > 0.0)?;
    let count = a.len();
    if b.len() != count {
        return None;
    }
    if count < FEWEST_SEEDS {
        return Some((value, Vec::new()));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(BOOTSTRAP_SEED);
    let draw = |_| {
        let draws = (0..count).map(|_| index(&mut rng, count));
        let (x, y) = draws.fold((0.0, 0.0), |sum, i| (sum.0 + a[i], sum.1 + b[i]));
        x / y
    };
    Some((value, (0..RESAMPLES).map(draw).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn mean_and_standard_error_by_hand() {
        // Mean 5, squares 9+1+1+1+0+0+4+16 = 32, variance 32/7, standard error sqrt(32/56).
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!(close(mean(&values).unwrap(), 5.0));
        assert!(close(standard_error(&values).unwrap(), (4.0f64 / 7.0).sqrt()));
        assert_eq!(mean(&[]), None);
        assert_eq!(standard_error(&[1.0]), None);
    }

    #[test]
    fn quantiles_by_hand() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert!(close(quantile(&values, 0.0).unwrap(), 10.0));
        assert!(close(quantile(&values, 0.1).unwrap(), 13.0));
        assert!(close(quantile(&values, 0.5).unwrap(), 25.0));
        assert!(close(quantile(&values, 0.9).unwrap(), 37.0));
        assert!(close(quantile(&values, 1.0).unwrap(), 40.0));
        assert_eq!(quantile(&values, 1.1), None);
        assert_eq!(quantile(&[f64::NAN, 1.0], 0.5), None);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn least_squares_by_hand() {
        // Centres 2 and 4; xx = 2, xy = 3; slope 1.5, intercept 1.
        let line = least_squares(&[(1.0, 3.0), (2.0, 3.0), (3.0, 6.0)]).unwrap();
        assert!(close(line.slope, 1.5) && close(line.intercept, 1.0) && close(line.at(4.0), 7.0));
        assert_eq!(least_squares(&[]), None);
        assert_eq!(least_squares(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn ratios_of_the_same_seeds() {
        let b: [f64; 12] = std::array::from_fn(|i| 1.0 + i as f64);
        let twice = b.map(|x| 2.0 * x);
        let (value, upper) = ratio(&twice, &b).unwrap();
        assert!(close(value, 2.0) && close(upper.unwrap(), 2.0), "seeds are drawn together");
        let fair: [f64; 12] = std::array::from_fn(|i| if i % 2 == 0 { 1.0 } else { 3.0 });
        let (value, upper) = ratio(&fair, &[2.0; 12]).unwrap();
        // Of twelve fair draws of 1 or 3, at most 9 are 3 with probability 0.981, at most 8 with
        // 0.927: the mean is 2.5 then.
        assert!(close(value, 1.0) && close(upper.unwrap(), 1.25), "{upper:?}");
        // The lower end: of twelve at most 3 are 3 with probability 0.073, at most 2 with 0.019.
        // The upper end is alike.
        let (value, interval) = ratio_interval(&fair, &[2.0; 12]).unwrap();
        let (low, high) = interval.unwrap();
        assert!(close(value, 1.0) && close(low, 0.75) && close(high, 1.25), "{low} {high}");
        assert_eq!(ratio_interval(&b[..9], &b[..9]), Some((1.0, None)));
        assert_eq!(ratio(&b[..9], &b[..9]), Some((1.0, None)), "too few for a limit");
        assert_eq!(ratio(&b, &b[..3]), None);
        assert_eq!(ratio(&[1.0], &[0.0]), None);
    }

    #[test]
    fn exact_power_law_has_a_point_interval() {
        let sample = |x: f64| Sample { x, values: vec![(0, 3.0 * x.sqrt()); 1] };
        let law = power_law(&[sample(100.0), sample(1000.0), sample(10_000.0)]).unwrap();
        assert!(close(law.line.slope, 0.5) && close(law.line.intercept, 3f64.ln()));
        assert_eq!(law.interval, None);
    }

    #[test]
    fn shared_seeds_are_resampled_together() {
        // Each seed is an exact power law with its own factor: together the exponent never moves,
        // apart it does.
        let sample = |x: f64, first: u64| Sample {
            x,
            values: (0..10).map(|i| (first + i, (i + 1) as f64 * x.sqrt())).collect(),
        };
        let together = power_law(&[sample(100.0, 0), sample(10_000.0, 0)]).unwrap();
        let (low, high) = together.interval.unwrap();
        assert!(close(low, 0.5) && close(high, 0.5));
        let apart = power_law(&[sample(100.0, 0), sample(10_000.0, 50)]).unwrap();
        let (low, high) = apart.interval.unwrap();
        assert!(low < 0.45 && high > 0.55, "{low} {high}");
    }

    #[test]
    fn power_laws_need_positive_means_and_two_abscissas() {
        let sample = |x: f64, y: f64| Sample { x, values: vec![(0, y), (1, y)] };
        assert_eq!(power_law(&[sample(1.0, 1.0)]), None);
        assert_eq!(power_law(&[sample(1.0, 1.0), sample(2.0, 0.0)]), None);
        assert_eq!(power_law(&[sample(1.0, 1.0), sample(2.0, f64::NAN)]), None);
        assert_eq!(power_law(&[]), None);
    }
}
