//! From an algorithm's name and a setting to something that runs, with its certificate.

use std::{iter, sync::Arc};

use incrowd_planner::{
    LocalLimit, PaperStatement, PlanRequest, Preset, Shape, plan, predicted_regret_with,
};
use incrowd_privacy::{
    PrivacyError,
    baseline::{self, Baseline},
    certify,
    paper::Randomizer,
};
use incrowd_protocol::{
    Confidence, FlipProbability, Learner, LearnerConfig, MechanismConfig, PolicyConfig, Schedule,
    Selection, TaskConfig, UpdateRule,
};
use serde_json::{Value, json};

use super::{
    Accounting, AlgorithmConfig, AlgorithmName, ExperimentError, LocalEpsilon, PaperPreset,
    Setting, WidthMode, config::local_limit,
};
use crate::{
    Algorithm, BinomialCrowd, GaussianCrowd, GaussianNoise, Guarantee, LinUcb, Oracle, Path,
    Random, Sblb, Tree, Trusted, Untrusted,
};

const CENTRAL: &str = "a central epsilon\nhint: --central-epsilon 1, or central_epsilons = [1]";
/// People between two models where nothing else sets it.
const LOCAL_INTERVAL: u32 = 100;
/// Noise of a tuned variant, as a share of what its guarantee needs.
const TUNED_NOISE: f64 = 0.1;
/// Batch sizes that are tried grow by this factor.
const BATCH_STEP: f64 = 1.3;
const GROWTHS: [f64; 5] = [1.25, 1.5, 2.0, 3.0, 5.0];
/// As for sblb: a crowd of fewer hides nobody.
const SMALLEST_BATCH: f64 = 100.0;

/// An algorithm in a setting, planned and certified once for all its runs.
pub struct Prepared {
    guarantee: Guarantee,
    /// What is proved, with everything it depends on.
    certificate: Value,
    learner: LearnerConfig,
    selection: Selection,
    dimension: usize,
    kind: Kind,
}

enum Kind {
    Sblb(Arc<TaskConfig>),
    /// With the sizes of its batches, where they are not part of the mechanism; the last one is repeated.
    Baseline(Baseline, Vec<u32>),
    LinUcb {
        rarely_switching: bool,
    },
    Random,
    Oracle,
}

/// Turns errors into those of the experiment.
struct Preparation<'a> {
    algorithm: &'a AlgorithmConfig,
    setting: &'a Setting,
    delta: f64,
}

impl Prepared {
    /// Plans and certifies.
    pub fn new(
        algorithm: &AlgorithmConfig,
        setting: &Setting,
        delta: f64,
    ) -> Result<Self, ExperimentError> {
        Preparation { algorithm, setting, delta }.prepare()
    }

    /// What it promises.
    pub fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    /// The mechanism and what is proved about it.
    pub fn certificate(&self) -> &Value {
        &self.certificate
    }

    /// A run with all its coins from `seed`.
    pub fn start(
        &self,
        exploration: Option<f64>,
        seed: u64,
    ) -> Result<Box<dyn Algorithm + Send>, incrowd_protocol::ProtocolError> {
        let (d, selection) = (self.dimension, self.selection);
        let learner = with_exploration(self.learner, exploration);
        Ok(match &self.kind {
            Kind::Sblb(task) => {
                let learner = learner.check()?;
                let task = TaskConfig::new(task.mechanism().clone(), learner, *task.policy())?;
                Box::new(Sblb::new(Arc::new(task), Path::Bulk, seed))
            }
            Kind::Baseline(baseline, sizes) => {
                start_baseline(baseline, sizes, learner, selection, seed)
            }
            Kind::LinUcb { rarely_switching } => {
                let server = LinUcb::new(d, learner, *rarely_switching);
                Box::new(Trusted::new(server, d, selection, seed))
            }
            Kind::Random => Box::new(Random::new(d, seed)),
            Kind::Oracle => Box::new(Oracle),
        })
    }
}

fn with_exploration(learner: LearnerConfig, exploration: Option<f64>) -> LearnerConfig {
    match (learner.confidence, exploration) {
        (Confidence::Calibrated { .. }, Some(exploration)) => {
            LearnerConfig { confidence: Confidence::Calibrated { exploration }, ..learner }
        }
        _ => learner,
    }
}

fn start_baseline(
    baseline: &Baseline,
    sizes: &[u32],
    learner: LearnerConfig,
    selection: Selection,
    seed: u64,
) -> Box<dyn Algorithm + Send> {
    let (d, hash) = (baseline.dimension() as usize, baseline.hash());
    match *baseline {
        Baseline::GaussianTree { leaf_size, leaves, noise_std, .. } => {
            let tree = Tree::new(d, (leaf_size, leaves), noise_std, learner, hash, seed);
            Box::new(Trusted::new(tree, d, selection, seed))
        }
        Baseline::GaussianBatches { noise_std, .. } => {
            let noise = GaussianNoise::PerBatch(noise_std);
            let crowd = GaussianCrowd::new(d, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(crowd, hash, learner, selection, seed))
        }
        Baseline::LocalGaussian { noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let crowd = GaussianCrowd::new(d, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(crowd, hash, learner, selection, seed))
        }
        Baseline::ShuffledGaussian { batch_size, noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let crowd = GaussianCrowd::new(d, vec![batch_size], noise, seed);
            Box::new(Untrusted::new(crowd, hash, learner, selection, seed))
        }
        Baseline::ShuffledBinomial { batch_size, levels, coins, .. } => {
            let crowd = BinomialCrowd::new(d, batch_size, (levels, coins), seed);
            Box::new(Untrusted::new(crowd, hash, learner, selection, seed))
        }
    }
}

impl Preparation<'_> {
    fn prepare(&self) -> Result<Prepared, ExperimentError> {
        use AlgorithmName as Name;
        match self.algorithm.name {
            Name::Sblb | Name::SblbFixed | Name::SblbGrowing => self.sblb(),
            Name::JdpTree
            | Name::JdpGrowing
            | Name::LdpGaussian
            | Name::SdpAmp
            | Name::SdpVec
            | Name::SdpAmpTuned
            | Name::SdpVecTuned => self.baseline(),
            Name::Linucb | Name::Greedy => Ok(self.without_privacy(false)),
            Name::LinucbLowswitch => Ok(self.without_privacy(true)),
            Name::Random => Ok(self.finish(Guarantee::of_silence(), Value::Null, Kind::Random)),
            Name::Oracle => Ok(self.finish(Guarantee::of_oracle(), Value::Null, Kind::Oracle)),
        }
    }

    fn without_privacy(&self, rarely_switching: bool) -> Prepared {
        let kind = Kind::LinUcb { rarely_switching };
        let mut prepared = self.finish(Guarantee::none(), Value::Null, kind);
        if self.algorithm.name == AlgorithmName::Greedy {
            prepared.learner = with_exploration(prepared.learner, Some(0.0));
        }
        prepared
    }

    fn finish(&self, guarantee: Guarantee, certificate: Value, kind: Kind) -> Prepared {
        let learner = LearnerConfig::default();
        Prepared {
            guarantee,
            certificate,
            learner: with_exploration(learner, self.algorithm.exploration),
            selection: self.selection(),
            dimension: self.setting.dimension as usize,
            kind,
        }
    }

    fn selection(&self) -> Selection {
        self.algorithm.sampled.map_or(Selection::Ucb, |scale| Selection::Sampled { scale })
    }

    fn central(&self) -> Option<f64> {
        self.algorithm.central_epsilon.or(self.setting.central_epsilon)
    }

    fn batch_size(&self) -> Option<u32> {
        self.algorithm.batch_size.or(self.setting.batch_size)
    }

    fn needs(&self, needs: &'static str) -> ExperimentError {
        ExperimentError::Needs { algorithm: self.algorithm.label().into(), needs }
    }

    fn privacy(&self, error: PrivacyError) -> ExperimentError {
        ExperimentError::Privacy { algorithm: self.algorithm.label().into(), error }
    }

    fn protocol(&self, error: incrowd_protocol::ProtocolError) -> ExperimentError {
        ExperimentError::Protocol { algorithm: self.algorithm.label().into(), error }
    }

    /// The product: planned by its own planner.
    fn sblb(&self) -> Result<Prepared, ExperimentError> {
        let (task, paper) = match self.algorithm.accounting {
            Accounting::Certified => self.planned()?,
            Accounting::Paper => (self.by_proposition_1()?, None),
        };
        let certificate = certify(task.mechanism()).map_err(|error| self.privacy(error))?;
        let guarantee = Guarantee::of_mechanism(task.mechanism(), &certificate);
        let learner = self.learner(*task.learner().config());
        let value =
            json!({ "mechanism": task.mechanism(), "certificate": certificate, "paper": paper });
        let mut prepared = self.finish(guarantee, value, Kind::Sblb(Arc::new(task)));
        prepared.learner = learner;
        Ok(prepared)
    }

    /// The planner's task, and with a preset what the paper says about it.
    fn planned(&self) -> Result<(TaskConfig, Option<PaperStatement>), ExperimentError> {
        let algorithm = self.algorithm;
        let limit = algorithm
            .local_epsilon
            .map_or_else(|| local_limit(self.setting.local_epsilon), |LocalEpsilon(limit)| limit);
        let growing = algorithm.name == AlgorithmName::SblbGrowing;
        if growing && algorithm.batch_size.is_some() {
            return Err(self.needs("no batch_size: its batches grow"));
        }
        let request = PlanRequest {
            central_epsilon: self.central(),
            local_epsilon: limit,
            delta: self.delta,
            batch_size: if growing { None } else { self.batch_size() },
            bits: algorithm.bits,
            shape: if growing { Shape::Growing } else { Shape::Fixed },
            preset: algorithm.preset.map(|preset| match preset {
                PaperPreset::PaperLdp => Preset::PaperLdp,
                PaperPreset::PaperRegret => Preset::PaperRegret,
                PaperPreset::WeakerAdversary => Preset::WeakerAdversary,
            }),
            ..PlanRequest::new(self.setting.dimension, self.setting.horizon)
        };
        let failed = |error| ExperimentError::Plan { algorithm: algorithm.label().into(), error };
        let planned = plan(&request.check().map_err(failed)?).map_err(failed)?;
        let task = planned.task();
        let smallest_batch = task.mechanism().schedule().smallest_batch();
        let policy = PolicyConfig { selection: self.selection(), smallest_batch };
        let policy = policy.check().map_err(|error| self.protocol(error))?;
        let task = TaskConfig::new(task.mechanism().clone(), *task.learner(), policy)
            .map_err(|error| self.protocol(error))?;
        Ok((task, planned.paper))
    }

    /// Flip probability from the local epsilon by the paper's Prop. 1, m = 1.
    fn by_proposition_1(&self) -> Result<TaskConfig, ExperimentError> {
        let epsilon = match self.algorithm.local_epsilon {
            Some(LocalEpsilon(LocalLimit::AtMost(epsilon))) => Some(epsilon),
            _ => self.setting.local_epsilon,
        };
        let epsilon =
            epsilon.ok_or_else(|| self.needs("a local epsilon for the paper's Prop. 1"))?;
        let randomizer = Randomizer::proposition_1(self.setting.dimension, 1, epsilon)
            .map_err(|error| self.privacy(error))?;
        let size = self.batch_size().unwrap_or(SMALLEST_BATCH as u32);
        let task = || {
            let flip = FlipProbability::from_keep(1.0 - randomizer.flip)?;
            let mechanism = MechanismConfig {
                dimension: self.setting.dimension,
                context_bound: 1.0,
                schedule: Schedule::growing(size, 1.0, self.setting.horizon, 1, flip)?,
                grace: 0,
                central_delta: self.delta,
                participations: 1,
                honest_fraction: 1.0,
            };
            let policy = PolicyConfig { selection: self.selection(), smallest_batch: 1 };
            TaskConfig::new(mechanism.check()?, Learner::default(), policy.check()?)
        };
        task().map_err(|error| self.protocol(error))
    }

    fn learner(&self, planned: LearnerConfig) -> LearnerConfig {
        let calibrated = LearnerConfig::default().confidence;
        let confidence = match self.algorithm.width {
            WidthMode::Calibrated => calibrated,
            WidthMode::Proven => Confidence::Proven {},
            WidthMode::Paper => Confidence::Paper { ridge: (self.setting.horizon as f64).sqrt() },
        };
        let update = match self.algorithm.name {
            AlgorithmName::SblbFixed => UpdateRule::EveryBatch {},
            _ => planned.update,
        };
        let learner = LearnerConfig { confidence, update, ..planned };
        with_exploration(learner, self.algorithm.exploration)
    }

    /// A rival: the least certified noise, and the batches with the least predicted regret.
    fn baseline(&self) -> Result<Prepared, ExperimentError> {
        use AlgorithmName as Name;
        let epsilon = self.epsilon()?;
        let paper = self.algorithm.accounting == Accounting::Paper;
        let (d, delta) = (self.setting.dimension, self.delta);
        let calibrated = match self.algorithm.name {
            Name::LdpGaussian => baseline::local_gaussian(d, epsilon, delta),
            Name::JdpGrowing => baseline::gaussian_batches(d, epsilon, delta),
            Name::JdpTree => self.with_best_batch(|size| {
                let leaves = self.setting.horizon.div_ceil(u64::from(size));
                let leaves = u32::try_from(leaves).unwrap_or(u32::MAX).max(2);
                if paper {
                    baseline::gaussian_tree_as_printed(d, size, leaves, epsilon, delta)
                } else {
                    baseline::gaussian_tree(d, size, leaves, epsilon, delta)
                }
            }),
            Name::SdpAmp | Name::SdpAmpTuned => self.with_best_batch(|size| {
                if paper {
                    baseline::shuffled_gaussian_as_printed(d, size, epsilon, delta)
                } else {
                    baseline::shuffled_gaussian(d, size, epsilon, delta)
                }
            }),
            _ => self.with_best_batch(|size| {
                if paper {
                    baseline::shuffled_binomial_as_printed(d, size, epsilon, delta)
                } else {
                    baseline::shuffled_binomial(d, size, epsilon, delta)
                }
            }),
        };
        let certified = calibrated.map_err(|error| self.privacy(error))?;
        let certificate = baseline::certify(&certified).map_err(|error| self.privacy(error))?;
        let tuned = matches!(self.algorithm.name, Name::SdpAmpTuned | Name::SdpVecTuned);
        let running = if tuned {
            less_noise(certified, self.algorithm.noise_scale.unwrap_or(TUNED_NOISE))
        } else {
            certified
        };
        // The certificate is not of a tuned variant, which promises nothing.
        let guarantee = Guarantee::of_baseline(&running, &certificate);
        let certificate = guarantee.is_certified().then_some(certificate);
        let value = json!({ "mechanism": running, "certificate": certificate });
        let sizes = match self.algorithm.name {
            Name::JdpGrowing => self.best_growing(running.noise_std())?,
            _ => vec![LOCAL_INTERVAL],
        };
        Ok(self.finish(guarantee, value, Kind::Baseline(running, sizes)))
    }

    /// A local algorithm gives its people the epsilon that the others give behind a shuffler or a trusted server, unless told otherwise.
    fn epsilon(&self) -> Result<f64, ExperimentError> {
        if self.algorithm.name == AlgorithmName::LdpGaussian {
            if let Some(LocalEpsilon(LocalLimit::AtMost(epsilon))) = self.algorithm.local_epsilon {
                return Ok(epsilon);
            }
            let asked = self.central().or(self.setting.local_epsilon);
            return asked.ok_or_else(|| self.needs("an epsilon"));
        }
        self.central().ok_or_else(|| self.needs(CENTRAL))
    }

    /// Growing batches with the least predicted regret.
    fn best_growing(&self, noise_std: f64) -> Result<Vec<u32>, ExperimentError> {
        let horizon = self.setting.horizon;
        // Sizes are all that is asked for.
        let flip = FlipProbability::from_keep(0.5).map_err(|error| self.protocol(error))?;
        let dimension = self.setting.dimension as usize;
        let size = error_size(noise_std, dimension);
        let (mut best, mut least) = (Vec::new(), f64::INFINITY);
        let mut first = SMALLEST_BATCH.min(horizon as f64);
        while first <= (horizon as f64 / 2.0).max(SMALLEST_BATCH) {
            for growth in GROWTHS {
                let stages = Schedule::growing(first as u32, growth, horizon, 1, flip)
                    .map_err(|error| self.protocol(error))?;
                let sizes: Vec<u32> = stages
                    .iter()
                    .flat_map(|stage| iter::repeat_n(stage.size, stage.rounds as usize))
                    .collect();
                let models = sizes.iter().enumerate().scan(0.0, |people, (i, &batch)| {
                    *people += f64::from(batch);
                    Some((*people, size * (i as f64 + 1.0).sqrt()))
                });
                let regret = predicted_regret_with(dimension, horizon as f64, models);
                if regret < least {
                    (best, least) = (sizes, regret);
                }
            }
            first = (first * BATCH_STEP).floor();
        }
        Ok(best)
    }

    /// The batch size asked for, or the one with the least predicted regret.
    fn with_best_batch(
        &self,
        calibrate: impl Fn(u32) -> Result<Baseline, PrivacyError>,
    ) -> Result<Baseline, PrivacyError> {
        let horizon = self.setting.horizon as f64;
        if let Some(size) = self.batch_size() {
            return calibrate(size);
        }
        let mut best = None;
        let mut least = f64::INFINITY;
        let mut size = SMALLEST_BATCH.min(horizon);
        while size <= horizon / 2.0 || best.is_none() {
            let baseline = calibrate(size as u32)?;
            let regret = predicted(&baseline, horizon, size);
            if regret < least {
                (best, least) = (Some(baseline), regret);
            }
            // From here on the first batch alone costs more than that.
            if incrowd_planner::random_regret(self.setting.dimension as usize) * size > least {
                break;
            }
            size = (size * BATCH_STEP).floor();
        }
        best.ok_or(PrivacyError::BatchSize(0))
    }
}

fn predicted(baseline: &Baseline, horizon: f64, batch: f64) -> f64 {
    let dimension = baseline.dimension() as usize;
    let size = error_size(baseline.noise_std(), dimension);
    let noise = |releases: f64| match baseline {
        // On average half of the digits of n are 1.
        Baseline::GaussianTree { .. } => size * (1.0 + releases.log2() / 2.0).sqrt(),
        _ => size * releases.sqrt(),
    };
    // Looking at every fiftieth is enough later on.
    let next = |&releases: &f64| Some(releases + (releases / 50.0).floor().max(1.0));
    let models = iter::successors(Some(1.0), next)
        .take_while(|releases| releases * batch <= horizon)
        .map(|releases| (releases * batch, noise(releases)));
    predicted_regret_with(dimension, horizon, models)
}

/// Size of a vector of d errors, as in the calibrated widths: about its 95% quantile.
fn error_size(std: f64, dimension: usize) -> f64 {
    std * (2.0 * dimension as f64).sqrt()
}

fn less_noise(baseline: Baseline, scale: f64) -> Baseline {
    match baseline {
        Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta } => {
            let noise_std = noise_std * scale;
            Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta }
        }
        Baseline::ShuffledBinomial { dimension, batch_size, levels, coins, delta } => {
            let coins = ((f64::from(coins) * scale * scale).round() as u32).max(1);
            Baseline::ShuffledBinomial { dimension, batch_size, levels, coins, delta }
        }
        other => other,
    }
}
