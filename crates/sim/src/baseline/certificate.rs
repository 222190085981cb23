//! What is proved about a baseline's mechanism.

use incrowd_privacy::local;
use incrowd_protocol::{Dimension, MechanismHash};
use libm::sqrt;
use serde::Serialize;

use super::{Baseline, BaselineError, BinomialBatch, PrivUnit, factorized, gaussian, tree_levels};

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
    let of_shift = |shift: f64| gaussian::epsilon_upper(shift, delta);
    let released = shift_upper(baseline)?.map(of_shift);
    let (epsilon_local, epsilon_central) = match *baseline {
        Baseline::GaussianTree { .. }
        | Baseline::GaussianFactorized { .. }
        | Baseline::GaussianBatches { .. } => (None, released),
        Baseline::LocalGaussian { .. } => (released, released),
        Baseline::LocalPrivUnit { outside, above, .. } => {
            let epsilon = PrivUnit::new(outside, above)?.epsilon_upper();
            (Some(epsilon), Some(epsilon))
        }
        Baseline::ShuffledGaussian { dimension, noise_std, .. } => {
            let report = Baseline::LocalGaussian { dimension, noise_std, delta };
            (shift_upper(&report)?.map(of_shift), released)
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

/// At most by how many standard deviations one person moves all that is released, where the noise
/// is Gaussian and the numbers are checked.
pub(super) fn shift_upper(baseline: &Baseline) -> Result<Option<f64>, BaselineError> {
    let diameter = local::exact_diameter_2(Dimension::new(baseline.dimension())?);
    Ok(match *baseline {
        Baseline::GaussianTree { leaves, noise_std, .. } => {
            Some(diameter * sqrt(f64::from(tree_levels(leaves))) / noise_std)
        }
        Baseline::GaussianFactorized { releases, noise_std, .. } => {
            Some(diameter * factorized::column_norm_upper(releases) / noise_std)
        }
        Baseline::GaussianBatches { .. }
        | Baseline::LocalGaussian { .. }
        | Baseline::ShuffledGaussian { .. } => Some(diameter / baseline.noise_std()),
        Baseline::LocalPrivUnit { .. } | Baseline::ShuffledBinomial { .. } => None,
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
        Baseline::LocalGaussian { .. } | Baseline::LocalPrivUnit { .. } => {
            "whoever sees every report and who sent it; only the person's own device is trusted"
        }
        Baseline::ShuffledGaussian { .. } | Baseline::ShuffledBinomial { .. } => {
            "whoever sees the sums of a batch; the shuffler and all other devices of the batch are trusted, since the noise is made by everyone together"
        }
    }
}
