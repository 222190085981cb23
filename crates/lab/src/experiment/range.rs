use std::fmt;

use super::ExperimentError;

/// Refuses a value that is given and does not fit.
pub(super) fn check<T: Copy + fmt::Display>(
    what: &'static str,
    value: Option<T>,
    fits: impl Fn(T) -> bool,
    allowed: &'static str,
) -> Result<(), ExperimentError> {
    match value {
        Some(value) if !fits(value) => {
            Err(ExperimentError::Range { what, value: value.to_string(), allowed })
        }
        _ => Ok(()),
    }
}
