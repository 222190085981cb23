use std::fmt;

use incrowd_planner::{EncodingChoice, LocalLimit, Preset};
use incrowd_protocol::{BatchSize, Bits};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{ExperimentError, range::check as range};

/// Every algorithm that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmName {
    /// SBLB, equal batches, a model when the determinant has grown (the paper's Algorithm 1).
    Sblb,
    /// SBLB, equal batches, a model from every batch (the appendix's FixedBatchedShuffling-LinUCB).
    SblbFixed,
    /// SBLB, growing batches.
    SblbGrowing,
    /// LinUCB without privacy.
    Linucb,
    /// LinUCB without privacy that rarely changes its model.
    LinucbLowswitch,
    /// Shariff, Sheffet 2018: a trusted server and a binary tree.
    JdpTree,
    /// A trusted server with growing batches: what `sblb-growing` would be if the shuffler could be
    /// trusted with raw data.
    JdpGrowing,
    /// A trusted server and prefix sums with correlated noise (Denisov et al. 2022), equal leaves.
    JdpFactorized,
    /// The same with growing leaves.
    JdpFactorizedGrowing,
    /// Zheng et al. 2020: everyone adds Gaussian noise.
    LdpGaussian,
    /// Asi, Feldman, Talwar 2022: everyone sends PrivUnitG of the statistic of codebook reports.
    LdpPrivunit,
    /// Chowdhury, Zhou 2022: shuffled Gaussian reports, of which only the sum is released.
    SdpAmp,
    /// Chowdhury, Zhou 2022: shuffled sums with binomial noise.
    SdpVec,
    /// The same with growing batches, each certified by itself.
    SdpVecGrowing,
    /// The model of the environment's public rows, never changed.
    Frozen,
    /// Regression without exploration and without privacy.
    Greedy,
    /// A random arm.
    Random,
    /// The best arm.
    Oracle,
}

impl AlgorithmName {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Sblb,
        Self::SblbFixed,
        Self::SblbGrowing,
        Self::Linucb,
        Self::LinucbLowswitch,
        Self::JdpTree,
        Self::JdpGrowing,
        Self::JdpFactorized,
        Self::JdpFactorizedGrowing,
        Self::LdpGaussian,
        Self::LdpPrivunit,
        Self::SdpAmp,
        Self::SdpVec,
        Self::SdpVecGrowing,
        Self::Frozen,
        Self::Greedy,
        Self::Random,
        Self::Oracle,
    ];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sblb => "sblb",
            Self::SblbFixed => "sblb-fixed",
            Self::SblbGrowing => "sblb-growing",
            Self::Linucb => "linucb",
            Self::LinucbLowswitch => "linucb-lowswitch",
            Self::JdpTree => "jdp-tree",
            Self::JdpGrowing => "jdp-growing",
            Self::JdpFactorized => "jdp-factorized",
            Self::JdpFactorizedGrowing => "jdp-factorized-growing",
            Self::LdpGaussian => "ldp-gaussian",
            Self::LdpPrivunit => "ldp-privunit",
            Self::SdpAmp => "sdp-amp",
            Self::SdpVec => "sdp-vec",
            Self::SdpVecGrowing => "sdp-vec-growing",
            Self::Frozen => "frozen",
            Self::Greedy => "greedy",
            Self::Random => "random",
            Self::Oracle => "oracle",
        }
    }

    /// Whether it has a confidence width to scale.
    pub fn explores(self) -> bool {
        !matches!(self, Self::Frozen | Self::Greedy | Self::Random | Self::Oracle)
    }

    /// Whether anything of it depends on a privacy level.
    pub fn is_private(self) -> bool {
        self.explores() && !matches!(self, Self::Linucb | Self::LinucbLowswitch)
    }

    /// Whether it is the product.
    pub fn is_sblb(self) -> bool {
        matches!(self, Self::Sblb | Self::SblbFixed | Self::SblbGrowing)
    }

    /// Whether its noise comes from many people's devices, each of which adds a share.
    pub fn has_shared_noise(self) -> bool {
        matches!(self, Self::SdpAmp | Self::SdpVec | Self::SdpVecGrowing)
    }

    /// Whether every person's report is all that protects them.
    pub fn is_local(self) -> bool {
        matches!(self, Self::LdpGaussian | Self::LdpPrivunit)
    }

    /// Whether its batch size can be asked for.
    pub fn has_batches(self) -> bool {
        let own = matches!(
            self,
            Self::SblbGrowing | Self::JdpGrowing | Self::JdpFactorizedGrowing | Self::SdpVecGrowing
        );
        self.is_private() && !own && !self.is_local()
    }
}

/// Whose formulas set the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accounting {
    /// The least noise that is certified.
    #[default]
    Certified,
    /// The noise that the algorithm's own paper prints; certified for what it gives.
    Paper,
}

/// What closes the batches of sblb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClosedBy {
    /// Their last report.
    #[default]
    Count,
    /// The clock of the experiment's arrivals.
    Time,
}

impl ClosedBy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_count(&self) -> bool {
        *self == Self::Count
    }
}

/// How the confidence width is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WidthMode {
    /// From the law of the noise, times the exploration.
    #[default]
    Calibrated,
    /// With a proof.
    Proven,
    /// The paper's equation, ridge sqrt(T).
    Paper,
}

/// One algorithm of an experiment. In a file it is a name, or a table with more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmConfig {
    /// Which one.
    pub name: AlgorithmName,
    /// How it is called in the results; its name if not given.
    pub label: Option<String>,
    /// Limit on the central epsilon instead of the setting's.
    pub central_epsilon: Option<f64>,
    /// Limit on the local epsilon instead of the setting's.
    pub local_epsilon: Option<LocalLimit>,
    /// Batch size (leaf size of a tree) instead of the setting's.
    pub batch_size: Option<u32>,
    /// Bits per coordinate of sblb.
    pub bits: Option<u32>,
    /// How the reports of sblb are randomized; the planner's choice if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<EncodingChoice>,
    /// Factor on the confidence width; 0.2 if not given. A given one is not tuned.
    pub exploration: Option<f64>,
    /// Draw the parameter on the device with this scale instead of taking the upper confidence
    /// bound.
    pub sampled: Option<f64>,
    /// Whose formulas set the noise.
    #[serde(default)]
    pub accounting: Accounting,
    /// The paper's parameters for sblb.
    pub preset: Option<Preset>,
    /// How the confidence width of sblb is computed.
    #[serde(default)]
    pub width: WidthMode,
    /// What closes the batches of sblb.
    #[serde(default, skip_serializing_if = "ClosedBy::is_count")]
    pub closes: ClosedBy,
    /// People that the environment's public rows count for as a prior of sblb; without it there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<f64>,
    /// People after whom half of a taste is left: sblb forgets as it is planned for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<f64>,
}

impl AlgorithmConfig {
    /// With every default.
    pub fn new(name: AlgorithmName) -> Self {
        Self {
            name,
            label: None,
            central_epsilon: None,
            local_epsilon: None,
            batch_size: None,
            bits: None,
            encoding: None,
            exploration: None,
            sampled: None,
            accounting: Accounting::Certified,
            preset: None,
            width: WidthMode::Calibrated,
            closes: ClosedBy::Count,
            prior: None,
            half_life: None,
        }
    }

    /// How it is called in the results.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(self.name.name())
    }

    /// Whether its exploration is tuned where tuning is asked for.
    pub fn is_tunable(&self) -> bool {
        self.name.explores() && self.exploration.is_none() && self.width == WidthMode::Calibrated
    }

    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        self.check_label()?;
        self.check_options()?;
        let positive = |what, value: Option<f64>| {
            range(what, value, |v| v > 0.0 && v.is_finite(), "above 0 and finite")
        };
        positive("central_epsilon", self.central_epsilon)?;
        positive("half_life", self.half_life)?;
        positive("prior", self.prior)?;
        if let Some(LocalLimit::AtMost(epsilon)) = self.local_epsilon {
            positive("local_epsilon", Some(epsilon))?;
        }
        let factor = |v: f64| (0.0..=100.0).contains(&v);
        range("exploration", self.exploration, factor, "from 0 to 100")?;
        range("sampled", self.sampled, factor, "from 0 to 100")?;
        if let Some(size) = self.batch_size {
            BatchSize::new(u64::from(size))?;
        }
        if let Some(bits) = self.bits {
            Bits::new(bits)?;
        }
        Ok(())
    }
}

impl AlgorithmConfig {
    /// Figures know the random choice and the best one by their names, so nobody else may have
    /// them.
    fn check_label(&self) -> Result<(), ExperimentError> {
        let label = self.label();
        let fixed = matches!(self.name, AlgorithmName::Random | AlgorithmName::Oracle);
        let taken = AlgorithmName::ALL.iter().any(|other| other.name() == label);
        if label != self.name.name() && (fixed || taken) {
            return Err(ExperimentError::Rename(self.name.name(), label.into()));
        }
        Ok(())
    }

    /// What an algorithm would ignore is refused.
    fn check_options(&self) -> Result<(), ExperimentError> {
        use AlgorithmName as Name;
        let name = self.name;
        let sblb = name.is_sblb();
        let by_proposition_1 = sblb && self.accounting == Accounting::Paper;
        let words = self.encoding == Some(EncodingChoice::Codebook);
        let printed = matches!(name, Name::JdpTree | Name::SdpAmp | Name::SdpVec)
            || (sblb && name != Name::SblbGrowing);
        let options = [
            (
                "central_epsilon",
                self.central_epsilon.is_some(),
                name.is_private() && !by_proposition_1,
            ),
            ("local_epsilon", self.local_epsilon.is_some(), sblb || name.is_local()),
            ("batch_size", self.batch_size.is_some(), name.has_batches()),
            ("bits", self.bits.is_some(), sblb && !by_proposition_1 && !words),
            (
                "encoding",
                self.encoding.is_some(),
                sblb && !by_proposition_1 && self.preset.is_none(),
            ),
            (
                "exploration",
                self.exploration.is_some(),
                name.explores() && self.width == WidthMode::Calibrated,
            ),
            ("sampled", self.sampled.is_some(), name.explores()),
            ("accounting", self.accounting == Accounting::Paper, printed),
            ("preset", self.preset.is_some(), name == Name::Sblb || name == Name::SblbFixed),
            ("width", self.width != WidthMode::Calibrated, sblb),
            (
                "closes",
                self.closes == ClosedBy::Time,
                sblb && !by_proposition_1 && self.preset.is_none(),
            ),
        ];
        let planned = sblb && !by_proposition_1 && self.preset.is_none();
        let mut options = options.into_iter().chain([
            ("prior", self.prior.is_some(), planned && self.width == WidthMode::Calibrated),
            ("half_life", self.half_life.is_some(), planned && name != Name::SblbGrowing),
        ]);
        match options.find(|&(_, given, used)| given && !used) {
            Some((option, ..)) => {
                Err(ExperimentError::Unused { algorithm: self.label().into(), option })
            }
            None => Ok(()),
        }
    }
}

/// A list of names and tables.
pub(super) fn names_or_tables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<AlgorithmConfig>, D::Error> {
    struct Entry(AlgorithmConfig);
    struct Visitor;
    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Entry;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of an algorithm, or a table with its name")
        }
        fn visit_str<E: de::Error>(self, value: &str) -> Result<Entry, E> {
            let name = AlgorithmName::deserialize(de::value::StrDeserializer::new(value))?;
            Ok(Entry(AlgorithmConfig::new(name)))
        }
        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Entry, A::Error> {
            AlgorithmConfig::deserialize(de::value::MapAccessDeserializer::new(map)).map(Entry)
        }
    }
    impl<'de> Deserialize<'de> for Entry {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Visitor)
        }
    }
    Ok(Vec::<Entry>::deserialize(deserializer)?.into_iter().map(|entry| entry.0).collect())
}
