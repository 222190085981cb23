//! From an algorithm's name and a setting to something that runs, with its certificate.

use std::sync::Arc;

use incrowd_planner::{
    LocalLimit, PaperStatement, PlanError, PlanRequest, SMALLEST_BATCH, Shape, paper::Randomizer,
    plan, sizes,
};
use incrowd_privacy::certify;
use incrowd_protocol::{
    Bits, Blocks, Closes, Confidence, Dimension, FlipProbability, Law, Layout, Learner,
    LearnerConfig, MechanismConfig, PolicyConfig, Prior, ProtocolError, Selection, Stage,
    TaskConfig, UpdateRule,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Accounting, AlgorithmConfig, AlgorithmName, Assumptions, ClosedBy, ExperimentError, Setting,
    WidthMode, baseline::start_baseline, config::local_limit, units::InUnitsOf,
};
use incrowd_sim::{
    Algorithm, Arrivals, Frozen, Guarantee, LinUcb, Oracle, Path, Random, Sblb, Trusted,
    baseline::{Baseline, BaselineError},
    public_data::frozen_model,
};

/// An algorithm in a setting, planned and certified once for all its runs.
#[derive(Serialize, Deserialize)]
pub struct Prepared {
    guarantee: Guarantee,
    /// What is proved, with everything it depends on.
    certificate: Value,
    learner: LearnerConfig,
    selection: Selection,
    dimension: u32,
    layout: Layout,
    kind: Kind,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Kind {
    Sblb(Box<TaskConfig>),
    /// With the sizes of its batches, where they are not part of the mechanism; the last one is
    /// repeated.
    Baseline(Baseline, Vec<u32>),
    LinUcb {
        rarely_switching: bool,
    },
    /// The environment's public rows, and nothing else.
    Frozen,
    Random,
    Oracle,
}

/// What is to be prepared.
pub(super) struct Preparation<'a> {
    pub algorithm: &'a AlgorithmConfig,
    pub setting: &'a Setting,
    pub blocks: Blocks,
    pub layout: Layout,
    pub delta: f64,
    pub arrivals: Option<&'a Arrivals>,
}

impl Prepared {
    /// Plans and certifies. Rounds that close by time need arrivals.
    pub fn new(
        algorithm: &AlgorithmConfig,
        setting: &Setting,
        layout: Layout,
        delta: f64,
        arrivals: Option<&Arrivals>,
    ) -> Result<Self, ExperimentError> {
        let wrong =
            |error| ExperimentError::Protocol { algorithm: algorithm.label().into(), error };
        let dimension = Dimension::new(setting.dimension)?;
        let blocks = Blocks::new(dimension, layout).map_err(wrong)?;
        Preparation { algorithm, setting, blocks, layout, delta, arrivals }.prepare()
    }

    /// What it promises.
    pub fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    /// The mechanism and what is proved about it.
    pub fn certificate(&self) -> &Value {
        &self.certificate
    }

    /// Whether guarantee and certificate are about the mechanism that would run, if there is one.
    pub(super) fn is_about_itself(&self) -> bool {
        let running = match &self.kind {
            Kind::Sblb(task) => task.mechanism().hash(),
            Kind::Baseline(baseline, _) => baseline.hash(),
            Kind::LinUcb { .. } | Kind::Frozen | Kind::Random | Kind::Oracle => {
                return self.guarantee.mechanism().is_none() && self.certificate.is_null();
            }
        };
        let certified = self.certificate["certificate"]["mechanism"].as_str();
        self.guarantee.mechanism() == Some(running) && certified == Some(&running.to_string())
    }

    /// A run with all its coins from `seed`. The product's mechanism was told L when it was
    /// planned; everything else about `told` is the learner's.
    pub fn start(
        &self,
        exploration: Option<f64>,
        told: &Assumptions,
        prior: Option<Prior>,
        seed: u64,
    ) -> Result<Box<dyn Algorithm + Send>, ProtocolError> {
        let blocks = Blocks::new(Dimension::new(self.dimension)?, self.layout)?;
        let (selection, bound) = (self.selection, told.context_bound);
        let learner = told.learner(with_exploration(self.learner, exploration));
        // Baselines learn from x/L, whose parameter is L theta*.
        let in_units =
            LearnerConfig { parameter_bound: learner.parameter_bound * bound, ..learner };
        Ok(match &self.kind {
            Kind::Sblb(task) => {
                let learner = learner.check()?;
                let task = TaskConfig::new(task.mechanism().clone(), learner, *task.policy())?;
                let task = match prior {
                    Some(prior) => task.with_prior(prior)?,
                    None => task,
                };
                Box::new(Sblb::new(Arc::new(task), Path::Bulk, seed))
            }
            Kind::Baseline(baseline, sizes) => {
                let baseline = start_baseline(baseline, blocks, sizes, in_units, selection, seed);
                InUnitsOf::wrap(bound, baseline)
            }
            Kind::LinUcb { rarely_switching } => {
                let server = LinUcb::new(blocks, in_units, *rarely_switching);
                InUnitsOf::wrap(bound, Box::new(Trusted::new(server, blocks, selection, seed)))
            }
            Kind::Frozen => {
                let model = match prior {
                    Some(prior) => {
                        frozen_model(self.dimension, 1.0, self.layout, Vec::new(), prior)?
                    }
                    None => None,
                };
                let frozen = Frozen::new(blocks, model, selection, seed);
                InUnitsOf::wrap(bound, Box::new(frozen))
            }
            Kind::Random => Box::new(Random::new(blocks, seed)),
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

impl Preparation<'_> {
    fn prepare(&self) -> Result<Prepared, ExperimentError> {
        use AlgorithmName as Name;
        match self.algorithm.name {
            Name::Sblb | Name::SblbFixed | Name::SblbGrowing => self.sblb(),
            Name::JdpTree
            | Name::JdpGrowing
            | Name::JdpFactorized
            | Name::JdpFactorizedGrowing
            | Name::LdpGaussian
            | Name::LdpPrivunit
            | Name::SdpAmp
            | Name::SdpVec
            | Name::SdpVecGrowing => self.baseline(),
            Name::Linucb | Name::Greedy => Ok(self.without_privacy(false)),
            Name::LinucbLowswitch => Ok(self.without_privacy(true)),
            Name::Frozen => Ok(self.finish(Guarantee::of_silence(), Value::Null, Kind::Frozen)),
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

    pub fn finish(&self, guarantee: Guarantee, certificate: Value, kind: Kind) -> Prepared {
        let learner = LearnerConfig::default();
        Prepared {
            guarantee,
            certificate,
            learner: with_exploration(learner, self.algorithm.exploration),
            selection: self.selection(),
            dimension: self.setting.dimension,
            layout: self.layout,
            kind,
        }
    }

    fn selection(&self) -> Selection {
        self.algorithm.sampled.map_or(Selection::Ucb {}, |scale| Selection::Sampled { scale })
    }

    pub fn central(&self) -> Option<f64> {
        self.algorithm.central_epsilon.or(self.setting.central_epsilon)
    }

    pub fn batch_size(&self) -> Option<u32> {
        self.algorithm.batch_size.or(self.setting.batch_size)
    }

    pub fn needs(&self, needs: &'static str) -> ExperimentError {
        ExperimentError::Needs { algorithm: self.algorithm.label().into(), needs }
    }

    pub fn privacy(&self, error: impl Into<BaselineError>) -> ExperimentError {
        ExperimentError::Privacy { algorithm: self.algorithm.label().into(), error: error.into() }
    }

    fn plan(&self, error: PlanError) -> ExperimentError {
        ExperimentError::Plan { algorithm: self.algorithm.label().into(), error }
    }

    pub fn protocol(&self, error: ProtocolError) -> ExperimentError {
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
        let mut prepared = self.finish(guarantee, value, Kind::Sblb(Box::new(task)));
        prepared.learner = learner;
        Ok(prepared)
    }

    /// The planner's task, and with a preset what the paper says about it.
    fn planned(&self) -> Result<(TaskConfig, Option<PaperStatement>), ExperimentError> {
        let algorithm = self.algorithm;
        let limit =
            algorithm.local_epsilon.unwrap_or_else(|| local_limit(self.setting.local_epsilon));
        let growing = algorithm.name == AlgorithmName::SblbGrowing;
        if growing && algorithm.batch_size.is_some() {
            return Err(self.needs("no batch_size: its batches grow"));
        }
        let arrivals = match algorithm.closes {
            ClosedBy::Count => None,
            ClosedBy::Time => Some(self.arrivals.ok_or_else(|| self.needs("arrivals"))?.config()),
        };
        let told = &self.setting.assumptions;
        let request = PlanRequest {
            users_per_day: arrivals.map(|arrivals| arrivals.per_day),
            opens: arrivals.map(|_| 0),
            // The rate swings within the day, and all days are alike.
            peak: arrivals.map(|arrivals| 1.0 + arrivals.swing),
            busiest_day: arrivals.map(|_| 1.0),
            reward_window_hours: arrivals.map_or(0.0, |arrivals| arrivals.reward_window / 3600.0),
            central_epsilon: self.central(),
            local_epsilon: limit,
            delta: self.delta,
            batch_size: if growing { None } else { self.batch_size() },
            bits: algorithm.bits,
            encoding: algorithm.encoding.unwrap_or_default(),
            shape: if growing { Shape::Growing } else { Shape::Fixed },
            preset: algorithm.preset,
            layout: self.layout,
            half_life: algorithm.half_life,
            participations: told.participations,
            honest_fraction: told.honest_fraction,
            ..PlanRequest::new(self.setting.dimension, self.setting.horizon)
        };
        let failed = |error| self.plan(error);
        let planned = plan(&request.check().map_err(failed)?).map_err(failed)?;
        let task = planned.task();
        let policy = PolicyConfig { selection: self.selection(), ..(*task.policy()).into() };
        let policy = policy.check().map_err(|error| self.protocol(error))?;
        let mechanism = told.mechanism(task.mechanism().clone().into());
        let mechanism = mechanism.check().map_err(|error| self.protocol(error))?;
        let task = TaskConfig::new(mechanism, *task.learner(), policy)
            .map_err(|error| self.protocol(error))?;
        Ok((task, planned.paper))
    }

    /// Flip probability from the local epsilon by the paper's Prop. 1, m = 1.
    fn by_proposition_1(&self) -> Result<TaskConfig, ExperimentError> {
        let epsilon = match self.algorithm.local_epsilon {
            Some(LocalLimit::AtMost(epsilon)) => Some(epsilon),
            _ => self.setting.local_epsilon,
        };
        let epsilon =
            epsilon.ok_or_else(|| self.needs("a local epsilon for the paper's Prop. 1"))?;
        let dimension =
            Dimension::new(self.setting.dimension).map_err(|error| self.privacy(error))?;
        let randomizer = Randomizer::proposition_1(dimension, Bits::ONE, epsilon)
            .map_err(|error| self.privacy(error))?;
        let (size, horizon) = (self.batch_size().unwrap_or(SMALLEST_BATCH), self.setting.horizon);
        let sizes = sizes::equal_but_last(size, horizon)
            .ok_or_else(|| self.plan(PlanError::BatchAboveHorizon { size, horizon }))?;
        let task = || {
            let law = Law::bits(1, FlipProbability::from_keep(1.0 - randomizer.flip)?);
            let stage = |(rounds, size)| Stage { rounds, size, window: None, law };
            let mechanism = MechanismConfig {
                dimension: self.setting.dimension,
                context_bound: 1.0,
                schedule: sizes.into_iter().map(stage).collect(),
                layout: self.layout,
                closes: Closes::Count { grace: 0 },
                central_delta: self.delta,
                participations: 1,
                honest_fraction: 1.0,
            };
            let policy = PolicyConfig { selection: self.selection(), ..PolicyConfig::default() };
            let mechanism = self.setting.assumptions.mechanism(mechanism).check()?;
            TaskConfig::new(mechanism, Learner::default(), policy.check()?)
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
}
