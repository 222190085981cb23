use libm::sqrt;

use super::EnvironmentError;

/// How much there is to learn: the mean reward is `click_rate` + `gap` <z, w>, |z| <= 1 = |w|.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Signal {
    click_rate: f64,
    gap: f64,
}

impl Signal {
    /// Mean rewards around `click_rate`, above 0 and below 1. `gap` is above 0 and at most what
    /// keeps all means from 0 to 1, which is also what it is if not given.
    pub fn new(click_rate: f64, gap: Option<f64>) -> Result<Self, EnvironmentError> {
        if !(click_rate > 0.0 && click_rate < 1.0) {
            return Err(EnvironmentError::ClickRate(click_rate));
        }
        let most = largest_gap(click_rate);
        let gap = gap.unwrap_or(most);
        if !(gap > 0.0 && gap <= most) {
            return Err(EnvironmentError::Gap { gap, most });
        }
        Ok(Self { click_rate, gap })
    }

    /// Mean reward of features that tell nothing.
    pub fn click_rate(self) -> f64 {
        self.click_rate
    }

    /// How far mean rewards are from it at most.
    pub fn gap(self) -> f64 {
        self.gap
    }

    /// Whether the gap is the largest that this click rate allows.
    pub(super) fn is_widest(self) -> bool {
        self.gap.total_cmp(&largest_gap(self.click_rate)).is_eq()
    }

    /// |theta*| for features (1, z)/sqrt 2.
    pub fn parameter_norm(self) -> f64 {
        sqrt(2.0 * (self.click_rate * self.click_rate + self.gap * self.gap))
    }

    /// From (1, w)/sqrt 2 to the parameter with these mean rewards. Both factors are exactly 1 for
    /// the usual signal.
    pub(super) fn scale(self, theta: &mut [f64]) {
        theta[0] *= 2.0 * self.click_rate;
        theta[1..].iter_mut().for_each(|entry| *entry *= 2.0 * self.gap);
    }
}

impl Default for Signal {
    /// Every mean from 0 to 1 occurs.
    fn default() -> Self {
        Self { click_rate: 0.5, gap: 0.5 }
    }
}

fn largest_gap(click_rate: f64) -> f64 {
    click_rate.min(1.0 - click_rate)
}
