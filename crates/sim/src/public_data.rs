//! What files of public or consented data tell before the first report: a prior, and whether a
//! feature map suits the people it is for.
//!
//! ```no_run
//! use incrowd_sim::public_data::{Examples, FitConfig, fit};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let map: incrowd_device::FeatureMap = serde_json::from_str("{}")?;
//! let examples = Examples::read("public.csv".as_ref(), &map, Some("topic"))?;
//! let fit = fit(&examples, &FitConfig::default())?;
//! println!("{}", serde_json::to_string(&fit.prior)?);
//! # Ok(()) }
//! ```
//!
//! # Privacy
//! Nothing here protects the people in a file: a prior and a scale are published as they are. Files
//! must be public, made up, or of people who have agreed.

mod error;
mod examples;
mod fit;
mod held_out;
mod survey;

pub use error::PublicDataError;
pub use examples::{DataKind, Examples};
pub use fit::{Fit, FitConfig, first_model, fit, frozen_model};
pub use held_out::{HeldOut, MeanReward};
pub use survey::{FieldSurvey, Survey, survey};
