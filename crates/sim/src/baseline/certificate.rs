//! What is proved about a baseline's mechanism.

use incrowd_privacy::local;
use incrowd_protocol::{BatchSize, Dimension, MechanismHash};
use libm::sqrt;
use serde::Serialize;

use super::{Baseline, BaselineError, BinomialBatch, amplified, factorized, gaussian, tree_levels};

/// What a baseline's mechanism guarantees, proved. Only [`certify`] makes one, and it carries the
/// hash of the mechanism it is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineCertificate {
    mechanism: MechanismHash,
    epsilon_local: Option<f64>,
    epsilon_central: Option<f64>,
    delta: f64,
    adversary: &'static str,
}

impl BaselineCertificate {
    /// Hash of the mechanism this is about.
    pub fn mechanism(&self) -> MechanismHash {
        self.mechanism
    }

    /// Epsilon of what one person sends, at [`Self::delta`]. None if raw data leave the device or
    /// nothing is proved.
    pub fn epsilon_local(&self) -> Option<f64> {
        self.epsilon_local
    }

    /// Epsilon of all that is released, at [`Self::delta`]. None if nothing is proved.
    pub fn epsilon_central(&self) -> Option<f64> {
        self.epsilon_central
    }

    /// Delta of both.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// Against whom the central guarantee holds, and who is trusted.
    pub fn adversary(&self) -> &'static str {
        self.adversary
    }
}

/// The certificate of a baseline's mechanism.
///
/// # Privacy
/// Protects one person who takes part once: all other people may be the worst possible, and other
/// people's data may depend on what was released. A person's own choices depend on their own
/// context, as they must; everyone else sees post-processing (joint differential privacy).
pub fn certify(baseline: &Baseline) -> Result<BaselineCertificate, BaselineError> {
    baseline.check()?;
    let delta = baseline.delta();
    let (epsilon_local, epsilon_central) = match *baseline {
        Baseline::GaussianTree { .. }
        | Baseline::GaussianFactorized { .. }
        | Baseline::GaussianBatches { .. } => (None, epsilon_central(baseline)?),
        Baseline::LocalGaussian { .. } => {
            let epsilon = epsilon_central(baseline)?;
            (epsilon, epsilon)
        }
        Baseline::ShuffledGaussian { dimension, noise_std, .. } => {
            let local = Baseline::LocalGaussian { dimension, noise_std, delta };
            (epsilon_central(&local)?, epsilon_central(baseline)?)
        }
        Baseline::ShuffledBinomial { dimension, ref batches, .. } => {
            let d = Dimension::new(dimension)?;
            // One person is in one batch: the worst one counts, and nothing is composed.
            let each = distinct(batches).map(|batch| batch.epsilons(d, delta));
            each.reduce(|a, b| (largest(a.0, b.0), largest(a.1, b.1))).unwrap_or((None, None))
        }
    };
    Ok(BaselineCertificate {
        mechanism: baseline.hash(),
        epsilon_local,
        epsilon_central,
        delta,
        adversary: adversary(baseline),
    })
}

/// Epsilon of all that a mechanism with checked numbers and Gaussian noise releases.
pub(super) fn epsilon_central(baseline: &Baseline) -> Result<Option<f64>, BaselineError> {
    let dimension = Dimension::new(baseline.dimension())?;
    let diameter = local::exact_diameter_2(dimension);
    Ok(match *baseline {
        Baseline::GaussianTree { leaves, noise_std, delta, .. } => {
            let shift = diameter * sqrt(f64::from(tree_levels(leaves))) / noise_std;
            Some(gaussian::epsilon_upper(shift, delta))
        }
        Baseline::GaussianFactorized { releases, noise_std, delta, .. } => {
            let shift = diameter * factorized::column_norm_upper(releases) / noise_std;
            Some(gaussian::epsilon_upper(shift, delta))
        }
        Baseline::GaussianBatches { noise_std, delta, .. }
        | Baseline::LocalGaussian { noise_std, delta, .. } => {
            Some(gaussian::epsilon_upper(diameter / noise_std, delta))
        }
        Baseline::ShuffledGaussian { batch_size, noise_std, delta, .. } => {
            let shift = diameter / noise_std;
            Some(amplified::epsilon_upper(shift, BatchSize::new(u64::from(batch_size))?, delta)?)
        }
        Baseline::ShuffledBinomial { .. } => None,
    })
}

/// Batches without repetitions.
fn distinct(batches: &[BinomialBatch]) -> impl Iterator<Item = &BinomialBatch> {
    let is_new = |&(i, batch): &(usize, &BinomialBatch)| !batches[..i].contains(batch);
    batches.iter().enumerate().filter(is_new).map(|(_, batch)| batch)
}

/// The larger one; nothing is proved of both if nothing is proved of one.
fn largest(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a?.max(b?))
}

fn adversary(baseline: &Baseline) -> &'static str {
    match baseline {
        Baseline::GaussianTree { .. }
        | Baseline::GaussianFactorized { .. }
        | Baseline::GaussianBatches { .. } => {
            "whoever sees every model and everyone else's choices; the server sees all raw data and is trusted"
        }
        Baseline::LocalGaussian { .. } => {
            "whoever sees every report and who sent it; only the person's own device is trusted"
        }
        Baseline::ShuffledGaussian { .. } => {
            "whoever sees the reports of a batch without their senders; the shuffler and all other devices of the batch are trusted"
        }
        Baseline::ShuffledBinomial { .. } => {
            "whoever sees the sums of a batch; the shuffler and all other devices of the batch are trusted, since the noise is made by everyone together"
        }
    }
}
