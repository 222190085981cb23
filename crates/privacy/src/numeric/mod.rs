//! The arithmetic behind every bound: binomial laws, special functions, searches, and how far each
//! result may be wrong.
//!
//! Nothing here is about privacy; the crate that certifies other mechanisms (`incrowd-sim`,
//! baselines and audit) uses the same code. `tests/reference/numeric.py` computes the same
//! functions with mpmath, and the tests of this module compare to the tolerances of [`slack`].

mod binomial;
mod bisect;
mod bound;
mod coins;
mod pmf;
pub mod slack;
pub mod special;
#[cfg(test)]
mod tests;

pub use binomial::{Binomial, binomial_at_most_upper};
pub use bisect::{Ends, bisect, geometric, halvings, relative, try_bisect, whole};
pub use bound::{Lower, Upper, format_delta, format_epsilon, up};
pub use coins::Coins;
pub use pmf::Pmf;
