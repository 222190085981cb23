use std::fmt;

use incrowd_protocol::{
    BitsLaw, Closes, CodebookLaw, Law, Mechanism, MechanismHash, Participations, Stage,
};
use serde::Serialize;

use crate::{
    BoundName, PrivacyError,
    central::{self, Curve, StageSetting, Together},
    numeric::{format_epsilon, up},
};

/// What a mechanism guarantees against the paper's three adversaries, proved. Only [`certify`]
/// makes one, and it carries the hash of the mechanism it is about: no other mechanism can claim
/// it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certificate {
    mechanism: MechanismHash,
    /// (a) On the wire: one report.
    epsilon_local: f64,
    epsilon_local_bound: BoundName,
    /// (a) On the wire: all reports of one person together.
    epsilon_local_all_reports: f64,
    /// (b) Behind the shuffler, and (c) in the published models: all releases together.
    epsilon_central: f64,
    epsilon_central_bound: BoundName,
    delta: f64,
    /// (b), (c) however the reports of one person are placed, also all in one batch.
    epsilon_central_same_batch: f64,
    participations: u32,
    honest_fraction: f64,
    rounds: Vec<RoundCertificate>,
    trust: Vec<Trust>,
    /// What is proved at every epsilon: the largest of these.
    #[serde(skip)]
    curves: Vec<Curve>,
}

/// The guarantee of one stage's rounds by itself. The certificate is the worst of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "RoundFields")]
pub struct RoundCertificate {
    /// The batches that this is about.
    pub stage: Stage,
    /// Of one report.
    pub epsilon_local: f64,
    /// Of the releases, for a person who takes part in k batches like this one.
    pub epsilon_central: f64,
    /// Where `epsilon_central` comes from.
    pub epsilon_central_bound: BoundName,
}

/// A [`RoundCertificate`] as it is written: the numbers of its law, probabilities as floats.
#[derive(Serialize)]
struct RoundFields {
    rounds: u32,
    size: u32,
    #[serde(flatten)]
    law: LawFields,
    epsilon_local: f64,
    epsilon_central: f64,
    epsilon_central_bound: BoundName,
}

#[derive(Serialize)]
#[serde(tag = "encoding", rename_all = "kebab-case")]
enum LawFields {
    Bits { bits: u32, flip_probability: f64 },
    Codebook { words: u32, chosen: u32, outside_probability: f64, moment_weight: u32 },
}

impl From<Law> for LawFields {
    fn from(law: Law) -> Self {
        match law {
            Law::Bits(BitsLaw { bits, flip }) => {
                Self::Bits { bits, flip_probability: flip.value() }
            }
            Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight }) => {
                Self::Codebook {
                    words,
                    chosen,
                    outside_probability: outside.value(),
                    moment_weight,
                }
            }
        }
    }
}

impl From<RoundCertificate> for RoundFields {
    fn from(certificate: RoundCertificate) -> Self {
        let Stage { rounds, size, law, .. } = certificate.stage;
        Self {
            rounds,
            size,
            law: law.into(),
            epsilon_local: certificate.epsilon_local,
            epsilon_central: certificate.epsilon_central,
            epsilon_central_bound: certificate.epsilon_central_bound,
        }
    }
}

/// An assumption that a guarantee needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trust {
    /// The device runs the published code with a good random generator.
    DeviceIsHonest,
    /// The shuffler does not show single reports to anyone, and releases each full batch once.
    ShufflerKeepsReports,
    /// At least the honest fraction of every batch is not the adversary's.
    HonestFraction,
    /// At most one report per device and batch, at most k in all.
    ParticipationIsKept,
    /// Whether and when a device reports does not depend on its context or reward: needed where
    /// batches close by count.
    SilenceTellsNothing,
    /// Rounds close at their public times and are filled up; nothing tells how full they were.
    RoundsCloseByTime,
    /// No round gets more reports than it has room for.
    CapacityIsEnough,
    /// Other people's data depend on one person only through releases.
    OthersAreIndependent,
    /// The same for when other people arrive, which matters where rounds close by time.
    ArrivalsAreIndependent,
    /// The words that secret seeds expand to are as good as random ones: needed where only the sum
    /// of codebook reports is private enough, and for blind words in place of missing reports.
    WordsAreRandom,
}

impl Trust {
    /// The assumption in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::DeviceIsHonest => {
                "local and central: the person's own device runs the published code with the operating system's randomness, and never sends a second, freshly randomized report for the same data"
            }
            Self::ShufflerKeepsReports => {
                "central only: the shuffler does not collude with whoever reads releases or models; it shows single reports to no one and releases each full batch once"
            }
            Self::HonestFraction => {
                "central only: at least the stated fraction of every batch comes from honest devices whose reports the adversary does not know"
            }
            Self::ParticipationIsKept => {
                "central only: each device sends at most one report in a batch and at most the stated number in all (the value for all of them in one batch holds however they are placed)"
            }
            Self::SilenceTellsNothing => {
                "central only: whether and when a device reports does not depend on its context or reward; an app that is closed more often after a bad choice breaks this (rounds that close by time do not need it)"
            }
            Self::RoundsCloseByTime => {
                "central only: the shuffler closes each round at its public time, fills it up to its size with reports of the zero vector from its own randomness, and releases it once; a report counts in the round that was open when its decision was due or nowhere; no answer, notice, metric or time tells others how many reports were real"
            }
            Self::CapacityIsEnough => {
                "central only, about presence: no round gets more reports than its size; if honest devices exceed it, whether and when a person reports costs up to 1.42 times the shift mu; if an attacker fills it, that is not protected, and what a person reported still is"
            }
            Self::OthersAreIndependent => {
                "central only: other people's contexts and rewards depend on this person only through what was released"
            }
            Self::ArrivalsAreIndependent => {
                "central only: other people's contexts, rewards and times of arrival depend on this person only through what was released; that a device sent something is not hidden from the network, a relay or the shuffler"
            }
            Self::WordsAreRandom => {
                "central only: the words that the secret seed of a report expands to are as good as random ones, which is assumed of the generator (ChaCha20)"
            }
        }
    }
}

/// What the guarantees of a mechanism assume.
fn trust(mechanism: &Mechanism, needs_words: bool) -> Vec<Trust> {
    let mut trust = vec![
        Trust::DeviceIsHonest,
        Trust::ShufflerKeepsReports,
        Trust::HonestFraction,
        Trust::ParticipationIsKept,
    ];
    trust.extend_from_slice(match mechanism.closes() {
        Closes::Count { .. } => &[Trust::SilenceTellsNothing, Trust::OthersAreIndependent],
        Closes::Time { .. } => {
            &[Trust::RoundsCloseByTime, Trust::CapacityIsEnough, Trust::ArrivalsAreIndependent][..]
        }
    });
    if needs_words {
        trust.push(Trust::WordsAreRandom);
    }
    trust
}

/// The certificate of a mechanism: the worst stage, each certified by itself.
///
/// # Privacy
/// A person is in at most k batches, with one report in each. Releases before have the same law
/// whatever that person's data, each of the k is as private as its stage says given the past, and
/// everything else depends on the person only through releases; so k batches compose, and never all
/// of them. For k > 1 the k batches may be of different stages, which is accounted for.
pub fn certify(mechanism: &Mechanism) -> Result<Certificate, PrivacyError> {
    let k = mechanism.participations();
    let mut rounds = Vec::new();
    let mut settings = Vec::new();
    let (mut locals, mut proofs) = (Vec::new(), Vec::new());
    for stage in mechanism.schedule().stages() {
        let setting = StageSetting::of_stage(mechanism, stage);
        let local = setting.of_one_report();
        let (central, curve) = setting.prove()?;
        rounds.push(RoundCertificate {
            stage: *stage,
            epsilon_local: local.epsilon,
            epsilon_central: central.epsilon,
            epsilon_central_bound: central.bound,
        });
        settings.push(setting);
        locals.push(local);
        proofs.push((central, curve));
    }
    let local = locals.into_iter().max_by(|a, b| a.epsilon.total_cmp(&b.epsilon));
    let local = local.expect("invariant: a checked schedule has a stage");
    let all_reports = up(local.epsilon * f64::from(k.get()));
    let has_pads = matches!(mechanism.closes(), Closes::Time { .. })
        && settings.iter().any(|setting| matches!(setting, StageSetting::Codebook(_)));
    let mut needs_words = has_pads || proofs.iter().any(|(_, curve)| curve.needs_words());
    let (central, curves) = central::prove_any_of(&settings, proofs);
    let (same_batch, same_needs_words) = same_batch(&settings, central.epsilon);
    needs_words |= same_needs_words || curves.iter().any(Curve::needs_words);
    Ok(Certificate {
        mechanism: mechanism.hash(),
        epsilon_local: local.epsilon,
        epsilon_local_bound: local.bound,
        epsilon_local_all_reports: all_reports,
        epsilon_central: central.epsilon,
        epsilon_central_bound: central.bound,
        delta: mechanism.central_delta().get(),
        epsilon_central_same_batch: same_batch,
        participations: k.get(),
        honest_fraction: mechanism.honest_fraction().get(),
        rounds,
        trust: trust(mechanism, needs_words),
        curves,
    })
}

/// The epsilon however a person's k reports are placed, also all in one batch, or the local
/// guarantee where that is smaller. Not below `central`, which it contains. And whether it needs
/// that words are as good as random.
fn same_batch(settings: &[StageSetting], central: f64) -> (f64, bool) {
    if settings.iter().all(|setting| setting.participations() == Participations::ONE) {
        return (central, false);
    }
    let local = settings.iter().map(|setting| setting.local().epsilon).fold(0.0, f64::max);
    let together = Together::new(settings);
    let epsilon = together.epsilon();
    let epsilon = epsilon.map_or(local, |epsilon| up(epsilon).min(local).max(central));
    (epsilon, epsilon < local && together.needs_words())
}

impl Certificate {
    /// Hash of the mechanism this is about.
    pub fn mechanism(&self) -> MechanismHash {
        self.mechanism
    }

    /// (a) On the wire: epsilon of one report.
    pub fn epsilon_local(&self) -> f64 {
        self.epsilon_local
    }

    /// Which bound gave [`Self::epsilon_local`].
    pub fn epsilon_local_bound(&self) -> BoundName {
        self.epsilon_local_bound
    }

    /// (a) On the wire: epsilon of all reports of one person together.
    pub fn epsilon_local_all_reports(&self) -> f64 {
        self.epsilon_local_all_reports
    }

    /// (b), (c): epsilon of all releases and models together.
    pub fn epsilon_central(&self) -> f64 {
        self.epsilon_central
    }

    /// Which bound gave [`Self::epsilon_central`].
    pub fn epsilon_central_bound(&self) -> BoundName {
        self.epsilon_central_bound
    }

    /// (b), (c): epsilon if all reports of one person land in one batch.
    pub fn epsilon_central_same_batch(&self) -> f64 {
        self.epsilon_central_same_batch
    }

    /// (b), (c): delta.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// (b), (c): at least the delta at any epsilon of at least zero, not only at
    /// [`Self::epsilon_central`]. It falls with epsilon, and is zero from the local guarantee on.
    pub fn delta_upper(&self, epsilon: f64) -> f64 {
        self.curves.iter().map(|curve| curve.delta(epsilon)).fold(0.0, f64::max)
    }

    /// Stage by stage.
    pub fn rounds(&self) -> &[RoundCertificate] {
        &self.rounds
    }

    /// Whether (b), (c) also covers whether and in which rounds a person reports.
    pub fn covers_presence(&self) -> bool {
        self.trust.contains(&Trust::RoundsCloseByTime)
    }

    /// What the guarantees assume.
    pub fn trust(&self) -> &[Trust] {
        &self.trust
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (k, delta) = (self.participations, self.delta);
        writeln!(f, "Certificate for mechanism {}", self.mechanism)?;
        writeln!(f, "(a) whoever reads the wire:")?;
        writeln!(
            f,
            "    each report is {}-locally differentially private",
            format_epsilon(self.epsilon_local)
        )?;
        if k > 1 {
            writeln!(
                f,
                "    all {k} reports of one person together: {}",
                format_epsilon(self.epsilon_local_all_reports)
            )?;
        }
        writeln!(
            f,
            "(b) whoever reads the shuffler's releases, and (c) whoever reads the published models:"
        )?;
        writeln!(
            f,
            "    all of them together are ({}, {delta:e})-differentially private",
            format_epsilon(self.epsilon_central)
        )?;
        if self.covers_presence() {
            writeln!(
                f,
                "    (about what a person reports, and about whether and in which rounds they do)"
            )?;
        }
        if k > 1 {
            let same = format_epsilon(self.epsilon_central_same_batch);
            writeln!(
                f,
                "    if all {k} reports of one person land in one batch: ({same}, {delta:e})"
            )?;
        }
        writeln!(f, "This holds if")?;
        for trust in &self.trust {
            write!(f, "  - {}", trust.words())?;
            if *trust == Trust::HonestFraction {
                write!(f, " (stated: {})", self.honest_fraction)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
