//! Draws from the operating system.

use incrowd_device::DeviceError;

use crate::ClientError;

fn word() -> Result<u64, ClientError> {
    getrandom::u64().map_err(|error| ClientError::Device(DeviceError::Randomness(error)))
}

/// A uniform number in [0, 1), in steps of 2^-53.
pub(crate) fn unit() -> Result<f64, ClientError> {
    Ok((word()? >> 11) as f64 / (1u64 << 53) as f64)
}

/// A uniform index below `count` (up to count / 2^64), which must not be 0.
pub(crate) fn index(count: usize) -> Result<usize, ClientError> {
    Ok(((u128::from(word()?) * count as u128) >> 64) as usize)
}
