//! One batch against two Gaussians: every release is at least as private as a Gaussian that moves
//! by mu. Proof: `docs/privacy-proofs.md`, section 9.
//!
//! A coin whose tilt moves by x moves every quantile of its sum, on the scale of a Gaussian, by at
//! most theta x; the m coins of one value move by m |v - v'| together.

use libm::sqrt;

use super::{Setting, StageSetting, steepness::steepest};
use crate::{
    gaussian::{delta_upper, epsilon_upper},
    numeric::{
        Coins, Upper, slack,
        special::{normal_quantile, normal_tail},
    },
    renyi::Ideal,
};

/// Shares of delta that may pay for the tails of the sums. Small sums have steep tails, and want
/// more.
const SHARES: [f64; 3] = [1e-3, 1e-2, 5e-2];
/// From so many coins on the tails do not matter.
const MANY_COINS: u64 = 1 << 14;
/// More coins are not used; using fewer is sound.
const MOST_COINS: u64 = 1 << 32;
/// How much above the unanimous others' theta every split of the others' coins is.
const SLACK: f64 = 0.005;
/// From so many coins on the cover is coarser, since laws are larger.
const LARGE: f64 = (1u64 << 26) as f64;
/// Most laws that are looked at for one theta.
const BUDGET: usize = 1000;
/// Smaller levels end the search: floats end soon below.
const SMALLEST_LEVEL: f64 = 1e-250;

/// Two Gaussians that are easier to tell apart than all that a person changes, but for an event of
/// probability `spent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GaussianBound {
    /// Their distance in standard deviations.
    pub mu: f64,
    /// What is paid for in delta.
    pub spent: f64,
    /// What the releases have to do with those that this is about.
    pub ideal: Ideal,
}

impl GaussianBound {
    /// At least the epsilon at `delta`; none if delta is spent.
    pub fn epsilon(self, delta: f64) -> Option<f64> {
        self.ideal.epsilon(delta, |delta| {
            let left = delta - self.spent;
            (left > 0.0).then(|| epsilon_upper(self.mu, left * (1.0 - slack::PRODUCT)))
        })
    }

    /// At least the delta at `epsilon`.
    pub fn delta(self, epsilon: f64) -> f64 {
        self.ideal.delta(epsilon, self.spent, |epsilon| {
            (delta_upper(self.mu, epsilon) + Upper::of(self.spent)).value()
        })
    }
}

/// How one person's reports are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// One report in each of k batches.
    Apart,
    /// However they like, also k in one batch.
    Anyhow,
}

/// The best of [`SHARES`], by guesses, for k batches of any of these kinds, which have the same
/// delta and the same k.
pub(super) fn bound(settings: &[StageSetting], placed: Placed) -> Option<GaussianBound> {
    let delta = settings.first()?.delta().get();
    let many = settings.iter().all(has_many_coins);
    let shares = if many { &SHARES[..1] } else { &SHARES[..] };
    let mut best: Option<(f64, f64)> = None;
    for share in shares {
        let spent = share * delta;
        let guess = if many { None } else { largest(settings, placed, spent, Others::Unanimous) };
        let epsilon = guess.and_then(|bound| bound.epsilon(delta));
        let epsilon = epsilon.unwrap_or(f64::INFINITY);
        if best.is_none_or(|(least, _)| epsilon < least) {
            best = Some((epsilon, spent));
        }
    }
    with_share(settings, placed, best?.1)
}

/// The bound that spends so much of a delta: the largest mu of all kinds.
pub(super) fn with_share(
    settings: &[StageSetting],
    placed: Placed,
    spent: f64,
) -> Option<GaussianBound> {
    largest(settings, placed, spent, Others::Worst)
}

fn largest(
    settings: &[StageSetting],
    placed: Placed,
    spent: f64,
    others: Others,
) -> Option<GaussianBound> {
    let mut largest = GaussianBound { mu: 0.0, spent, ideal: Ideal::NONE };
    for setting in settings {
        let found = match setting {
            StageSetting::Bits(setting) => of_bits(setting, placed, spent, others)?,
            StageSetting::Codebook(_) if placed == Placed::Anyhow => return None,
            StageSetting::Codebook(setting) => setting.gaussian(spent)?,
        };
        largest.mu = largest.mu.max(found.mu);
        largest.ideal = largest.ideal.max(found.ideal);
    }
    Some(largest)
}

/// Where tails need no more than the smallest share of delta.
fn has_many_coins(setting: &StageSetting) -> bool {
    match setting {
        StageSetting::Bits(setting) => coins(setting) >= MANY_COINS,
        StageSetting::Codebook(_) => true,
    }
}

/// One of k releases, all of which together spend so much of a delta.
pub(super) fn of_one_release(setting: &StageSetting, spent: f64) -> Option<GaussianBound> {
    let k = f64::from(setting.participations().get());
    let all = with_share(&[*setting], Placed::Apart, spent)?;
    Some(GaussianBound { mu: Upper::of(all.mu / sqrt(k)).value(), ..all })
}

fn of_bits(setting: &Setting, placed: Placed, spent: f64, others: Others) -> Option<GaussianBound> {
    let mu = of_one(setting, placed, spent, others)?;
    Some(GaussianBound { mu, spent, ideal: Ideal::NONE })
}

/// The same with the others unanimous, which is not proved to be the worst: a guess.
pub(super) fn guess(setting: &Setting) -> Option<GaussianBound> {
    let spent = SHARES[0] * setting.delta.get();
    of_bits(setting, Placed::Apart, spent, Others::Unanimous)
}

/// What mu would be if the sums were Gaussian.
pub(super) fn limit(setting: &Setting) -> f64 {
    let k = f64::from(setting.participations.get());
    let chain = chain(setting, Placed::Apart, 0.5).map_or(0.0, |chain| chain.limit());
    chain * f64::from(setting.bits.get()) * sqrt(k * setting.squares())
}

/// Which splits of the others' coins are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Worst,
    Unanimous,
}

/// mu of k batches of one kind.
fn of_one(setting: &Setting, placed: Placed, spent: f64, others: Others) -> Option<f64> {
    let k = f64::from(setting.participations.get());
    // Every release that differs pays on both sides of each of its D sums.
    let places = 2.0 * f64::from(setting.releases()) * setting.coordinates();
    let tail = spent / places * (1.0 - slack::PRODUCT);
    let theta = chain(setting, placed, tail)?.theta(others)?;
    let times = if placed == Placed::Anyhow { k } else { sqrt(k) };
    let m = f64::from(setting.bits.get());
    let mu = Upper::of(theta * m * times * sqrt(setting.squares())).value();
    mu.is_finite().then_some(mu)
}

fn chain(setting: &Setting, placed: Placed, tail: f64) -> Option<Chain> {
    if tail < SMALLEST_LEVEL {
        return None;
    }
    let reports = match placed {
        Placed::Apart => 1,
        Placed::Anyhow => setting.participations.get(),
    };
    Some(Chain {
        // A person's other reports in the same batch have one partial coin each, left out.
        coins: coins(setting).checked_sub(u64::from(reports) - 1)?.min(MOST_COINS),
        keep: setting.keep.get(),
        edge: normal_quantile(tail),
        reach: 2.0 * f64::from(setting.bits.get()) * f64::from(reports),
    })
}

/// Coins of one coordinate besides the one that moves: nm of the others, m - 1 of the person.
fn coins(setting: &Setting) -> u64 {
    let m = u64::from(setting.bits.get());
    setting.others.saturating_mul(m).saturating_add(m - 1)
}

/// What theta depends on.
struct Chain {
    /// Coins besides the one that moves.
    coins: u64,
    keep: f64,
    /// Quantile of the tails that are clamped.
    edge: f64,
    /// The most that a coordinate's tilts may move in all.
    reach: f64,
}

impl Chain {
    /// theta if the sum were Gaussian.
    fn limit(&self) -> f64 {
        let variance = (self.coins + 1) as f64 * (1.0 - self.keep) * (1.0 + self.keep);
        self.keep / sqrt(variance)
    }

    /// How much above the unanimous others' theta the cover may be: 0.5 %, 1.4 % for 2^32 coins.
    fn slack(&self) -> f64 {
        SLACK * sqrt(sqrt((self.coins as f64 / LARGE).max(1.0)))
    }

    /// The level down to which quantiles are looked at, if they move by `theta` for each unit of a
    /// tilt.
    fn level(&self, theta: f64) -> Option<f64> {
        let level = normal_tail(self.edge + self.reach * theta) * (1.0 - slack::ROUNDING);
        (level >= SMALLEST_LEVEL).then_some(level)
    }

    /// At least theta for every split of the others' coins; with [`Others::Unanimous`] for one.
    fn theta(&self, others: Others) -> Option<f64> {
        // Levels depend on theta, which depends on levels: `most` grows until it suffices.
        let mut most = self.limit();
        for _ in 0..60 {
            let level = self.level(most)?;
            let alone = self.steepness(0, self.coins, level) * (1.0 + self.slack());
            if alone > most {
                most = if alone <= most * (1.0 + 1e-4) { most * (1.0 + 1e-4) } else { alone };
                continue;
            }
            if others == Others::Unanimous {
                return Some(alone);
            }
            let worst = self.cover(level, alone);
            if worst <= most {
                return Some(worst);
            }
            most = worst * (1.0 + 1e-4);
        }
        None
    }

    /// At least theta for every a from 0 to the number of coins, of which a lean up, and at least
    /// `limit`.
    ///
    /// For a in [low, high] the sum is that of `low` coins of the one kind and n - `high` of the
    /// other, plus independent coins, which lower theta at every level. Exchanging the kinds
    /// mirrors the sum, so a <= n/2 is enough.
    fn cover(&self, level: f64, limit: f64) -> f64 {
        let half = self.coins / 2;
        let mut worst = limit;
        let mut step = (self.coins as f64 * self.slack()) as u64;
        let (mut low, mut spent) = (0, 0);
        while low <= half {
            let high = if spent < BUDGET { low.saturating_add(step).min(half) } else { half };
            let found = self.steepness(low, self.coins - high, level);
            spent += 1;
            if found <= limit || low == high || spent > BUDGET {
                worst = worst.max(found);
                low = high + 1;
                step = step + step / 2 + 1;
            } else {
                step = (high - low) / 2;
            }
        }
        worst
    }

    /// At least theta of a sum of coins, at levels from `level` to 1 - `level`.
    fn steepness(&self, ups: u64, downs: u64, level: f64) -> f64 {
        let law = Coins { ups, downs, keep: self.keep }.law(level * slack::MISSING);
        let error = slack::ROUNDING + 4.0 * slack::STEP * law.values.len() as f64;
        Upper::raised(self.keep / 2.0 * steepest(&law, self.keep, level), error).value()
    }
}
