//! The arithmetic that bounds are computed with.

mod pmf;
mod rounding;

pub(crate) use pmf::binomial_lower_quantile;
pub use pmf::{Pmf, SMALLEST_TAIL};
pub use rounding::{shown, up};
