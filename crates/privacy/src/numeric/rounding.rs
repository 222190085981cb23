//! Outward rounding: a computed bound is made a little larger than its arithmetic can be wrong.

/// Relative slack added to every epsilon: far above the error of the few thousand float operations behind it, far below what anyone could notice.
const SLACK: f64 = 1e-9;

/// `value`, rounded up.
pub fn up(value: f64) -> f64 {
    value * (1.0 + SLACK) + f64::MIN_POSITIVE
}

/// An epsilon as people see it: four digits after the point, rounded up.
pub fn shown(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}
