use incrowd_privacy::Certificate;
use incrowd_protocol::{Mechanism, MechanismHash};
use serde::{Deserialize, Serialize};

use crate::baseline::{Baseline, BaselineCertificate};

/// What a run promises to whom. `certified` only if it was proved for the very mechanism that ran;
/// so it is made from certificates alone. A file's is believed only by whoever can tell that the
/// same program wrote it for the same mechanism (`docs/decisions/0004-fair-baselines.md`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    epsilon_local: Option<f64>,
    epsilon_central: Option<f64>,
    delta: Option<f64>,
    certified: bool,
    adversary: String,
    mechanism: Option<MechanismHash>,
}

/// What the sblb certificates are about.
const SHUFFLED: &str = "local: whoever reads one report; central: whoever reads all releases and models, if the shuffler shows single reports to no one";
const NOTHING: &str =
    "nobody: raw data reach the server, and models follow from them without noise";

impl Guarantee {
    /// Of a mechanism with its certificate; nothing is promised if the certificate is of another
    /// one.
    pub fn of_mechanism(running: &Mechanism, certificate: &Certificate) -> Self {
        let epsilons = (Some(certificate.epsilon_local()), Some(certificate.epsilon_central()));
        let certified = certificate.mechanism() == running.hash();
        Self::new(running.hash(), certified.then_some(epsilons), certificate.delta(), SHUFFLED)
    }

    /// Of a baseline's mechanism with its certificate; nothing is promised if the certificate is of
    /// another one or proves nothing.
    pub fn of_baseline(running: &Baseline, certificate: &BaselineCertificate) -> Self {
        let epsilons = (certificate.epsilon_local(), certificate.epsilon_central());
        let certified =
            certificate.mechanism() == running.hash() && certificate.epsilon_central().is_some();
        let epsilons = certified.then_some(epsilons);
        Self::new(running.hash(), epsilons, certificate.delta(), certificate.adversary())
    }

    /// Certified if there are epsilons (local, central).
    fn new(
        running: MechanismHash,
        epsilons: Option<(Option<f64>, Option<f64>)>,
        delta: f64,
        adversary: &str,
    ) -> Self {
        let (epsilon_local, epsilon_central) = epsilons.unwrap_or_default();
        Self {
            epsilon_local,
            epsilon_central,
            delta: epsilons.map(|_| delta),
            certified: epsilons.is_some(),
            adversary: adversary.into(),
            mechanism: Some(running),
        }
    }

    /// Of an algorithm that learns without noise.
    pub fn none() -> Self {
        Self::without_mechanism(NOTHING)
    }

    /// Of an algorithm that learns nothing: perfect, with nothing to prove.
    pub fn of_silence() -> Self {
        Self::without_mechanism("everybody: no data are used")
    }

    /// Of whoever knows the answer.
    pub fn of_oracle() -> Self {
        Self::without_mechanism("nobody: it is told the best arm")
    }

    fn without_mechanism(adversary: &str) -> Self {
        Self {
            epsilon_local: None,
            epsilon_central: None,
            delta: None,
            certified: false,
            adversary: adversary.into(),
            mechanism: None,
        }
    }

    /// Proved about one report on the wire.
    pub fn epsilon_local(&self) -> Option<f64> {
        self.epsilon_local
    }

    /// Proved about releases and models.
    pub fn epsilon_central(&self) -> Option<f64> {
        self.epsilon_central
    }

    /// Delta of what is proved.
    pub fn delta(&self) -> Option<f64> {
        self.delta
    }

    /// Whether the certificate is of the mechanism that ran.
    pub fn is_certified(&self) -> bool {
        self.certified
    }

    /// The mechanism that ran, if there is one.
    pub fn mechanism(&self) -> Option<MechanismHash> {
        self.mechanism
    }

    /// Against whom, and who is trusted.
    pub fn adversary(&self) -> &str {
        &self.adversary
    }
}
