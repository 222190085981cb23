use serde::Serialize;

/// The 97.5 % quantile of the standard normal law.
pub const Z_95: f64 = 1.959_963_984_540_054;

/// A mean reward with its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// 95 % interval: the value +- 1.96 standard errors.
    pub interval: [f64; 2],
}

impl Estimate {
    /// The ratio of the sums of u y and of u, with the standard error of a ratio of sums of
    /// independent pairs (linearised): sqrt(n/(n-1) sum (u (y - ratio))^2) / |sum u|. For u = 1
    /// that is the mean and its usual standard error. None if all u are 0.
    pub(super) fn ratio(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let (mut count, mut total, mut sum) = (0.0, 0.0, 0.0);
        for (u, y) in pairs.clone() {
            (count, total, sum) = (count + 1.0, total + u, sum + u * y);
        }
        if total == 0.0 {
            return None;
        }
        let value: f64 = sum / total;
        let squares: f64 = pairs.map(|(u, y)| (u * (y - value)).powi(2)).sum();
        let standard_error = (count / (count - 1.0) * squares).sqrt() / total;
        let half = Z_95 * standard_error;
        Some(Self { value, standard_error, interval: [value - half, value + half] })
    }
}
