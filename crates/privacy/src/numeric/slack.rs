//! How far computed numbers may be wrong, and what is added for it: the whole error budget.
//!
//! Shares are relative. `docs/privacy-proofs.md`, section 7, derives them; an ulp is 2^-52.
//!
//! | name | value | added to | covers |
//! |---|---|---|---|
//! | [`ROUNDING`] | 1e-9 | results, sums, divergences | up to 10^6 roundings of positive numbers (2e-10) |
//! | [`PRODUCT`] | 1e-12 | products of a few factors | a dozen roundings (3e-15) |
//! | [`CLONES`] | 1e-4 | the divergence of the clones | recurrences over up to 10^7 counts, rounded arguments of up to 10^10 |
//! | [`KAPPA`] | 1e-6 | kappa | likelihood differences of at least [`SMALLEST_DIFFERENCE`], off by 4e-12 (4e-7) |
//! | [`LEFT_OUT`] | 1e-6 | mass outside a window | entries below [`NEGLIGIBLE`], rounding of the sum |
//! | [`EXP_EXCESS`] | 1e-8 | the series of e^z - 1 - z | its first missing term below z = 0.01 (3e-11) |
//! | [`MILLS`] | 1e-13 | both Mills ratios of a difference | `erfc` and the continued fraction (2.5e-14) |
//! | [`DIFFERENCE`] | 1e-15 | an epsilon, as a share of mu^2 | the rounding of eps/mu - mu/2 (4 ulp of mu^2) |
//! | [`STEP`] | 1e-14 | a law of coins, for each of its entries | the recurrence and the sums over its entries (45 ulp) |
//! | [`MISSING`] | 1e-10 | (within [`ROUNDING`]) | what a law of coins leaves out, as a share of the smallest level |
//! | [`CANCELLATION`] | 1e-12 | an epsilon from a Renyi divergence, absolutely | the terms of the conversion, which may cancel |
//! | [`LN_GAMMA`] | 1e-4 | a failure probability | the exponent's error at 10^9 trials (2e-5) |
//!
//! Shares of a series, in which its rest is below the share and is added, change no guarantee:
//! [`SERIES_REST`], [`TAIL_REST`].

/// A result of at most a million roundings of positive numbers: an epsilon, a delta, a sum, a
/// divergence.
pub const ROUNDING: f64 = 1e-9;

/// A product of a few factors, or a share that must stay below a whole.
pub const PRODUCT: f64 = 1e-12;

/// The divergence of the clones. Its masses come from recurrences over all counts; costs about 1e-5
/// of an epsilon.
pub const CLONES: f64 = 1e-4;

/// kappa: likelihoods are sums of up to 15,600 products, so that their differences are off by up to
/// 4e-12; where the largest is above [`SMALLEST_DIFFERENCE`] kappa is off by less.
pub const KAPPA: f64 = 1e-6;

/// Share of a tail that pays for entries left out of a law and for the rounding of its sum.
pub const LEFT_OUT: f64 = 1e-6;

/// The series of e^z - 1 - z, cut after its fifth power.
pub const EXP_EXCESS: f64 = 1e-8;

/// A Mills ratio.
pub const MILLS: f64 = 1e-13;

/// A difference of a few terms, as a share of the largest one: some ulp.
pub const DIFFERENCE: f64 = 1e-15;

/// Share of a level that a law may miss beyond it.
pub const MISSING: f64 = 1e-10;

/// One step of the recurrence behind the law of a sum of coins, and of the sums over that law.
pub const STEP: f64 = 1e-14;

/// Absolutely: the conversion from a Renyi divergence to an epsilon is a difference of terms that
/// may be much larger than it.
pub const CANCELLATION: f64 = 1e-12;

/// A failure probability whose logarithm is made of three ln Gammas, for at most 10^9 trials.
pub const LN_GAMMA: f64 = 1e-4;

/// A sum ends where a bound on its rest is below this share of it; the bound is added.
pub const SERIES_REST: f64 = 1e-9;

/// The same for the tail of a confidence bound.
pub const TAIL_REST: f64 = 1e-12;

/// Entries below this share of the largest one are left out of a binomial: their mass is below
/// [`LEFT_OUT`] of every tail that is paid for.
pub const NEGLIGIBLE: f64 = 1e-50;

/// Smaller tails are refused: [`NEGLIGIBLE`] is chosen for them.
pub const SMALLEST_TAIL: f64 = 1e-26;

/// Laws whose likelihoods differ by less are refused: the differences would be rounding errors.
pub const SMALLEST_DIFFERENCE: f64 = 1e-5;
