//! The crate's functions for plain numbers, as the tests have them: what is no unit is an error.

use incrowd_privacy::{
    Bound, PrivacyError,
    central::{Presence, Setting, honest_others},
};
use incrowd_protocol::{BatchSize, Bits, Delta, Dimension, HonestFraction, Keep, Participations};

pub mod local {
    use incrowd_privacy::local;

    use super::*;

    pub fn certify(d: u32, m: u32, c: f64) -> Result<Bound, PrivacyError> {
        Ok(local::certify(Dimension::new(d)?, Bits::new(m)?, Keep::new(c)?))
    }

    pub fn bounds(d: u32, m: u32, c: f64) -> Result<Vec<Bound>, PrivacyError> {
        Ok(local::bounds(Dimension::new(d)?, Bits::new(m)?, Keep::new(c)?))
    }

    pub fn largest_keep(d: u32, m: u32, epsilon: f64) -> Result<f64, PrivacyError> {
        Ok(local::largest_keep(Dimension::new(d)?, Bits::new(m)?, epsilon)?.get())
    }
}

pub fn setting(
    (d, m, c): (u32, u32, f64),
    size: u64,
    honest: f64,
    k: u32,
    delta: f64,
) -> Result<Setting, PrivacyError> {
    Ok(Setting {
        blocks: Dimension::new(d)?.into(),
        bits: Bits::new(m)?,
        keep: Keep::new(c)?,
        others: honest_others(BatchSize::new(size)?, HonestFraction::new(honest)?),
        participations: Participations::new(k)?,
        delta: Delta::new(delta)?,
        presence: Presence::Fixed,
    })
}

pub fn epsilon_upper(epsilon_local: f64, size: u64, delta: f64) -> Result<f64, PrivacyError> {
    let (size, delta) = (BatchSize::new(size)?, Delta::new(delta)?);
    incrowd_privacy::clones::epsilon_upper(epsilon_local, size, delta)
}

pub fn delta_upper(epsilon_local: f64, size: u64, epsilon: f64) -> Result<f64, PrivacyError> {
    incrowd_privacy::clones::delta_upper(epsilon_local, BatchSize::new(size)?, epsilon)
}

pub mod composition {
    use incrowd_privacy::composition;

    use super::*;

    pub fn compose(epsilon: f64, delta: f64, k: u32, total: f64) -> Result<f64, PrivacyError> {
        composition::compose(epsilon, delta, Participations::new(k)?, total)
    }

    pub fn best_for(
        at: impl Fn(f64) -> Result<f64, PrivacyError>,
        k: u32,
        total: f64,
    ) -> Result<f64, PrivacyError> {
        let at = |delta: Delta| at(delta.get());
        composition::best_for(at, Participations::new(k)?, Delta::new(total)?)
    }

    pub fn same_batch(
        at: impl Fn(f64) -> Result<f64, PrivacyError>,
        k: u32,
        total: f64,
    ) -> Result<f64, PrivacyError> {
        let at = |delta: Delta| at(delta.get());
        composition::same_batch(at, Participations::new(k)?, Delta::new(total)?)
    }
}
