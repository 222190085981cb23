//! The paper's own parameters, for reproduction.

use std::fmt;

use incrowd_bandit::forecast;
use incrowd_privacy::certify;
use incrowd_protocol::{Bits, Confidence, Learner, LearnerConfig, ProtocolError, UpdateRule};
use libm::{pow, sqrt};
use serde::{Deserialize, Serialize};

use crate::{
    LocalLimit, Plan, PlanError, Request,
    law::DraftLaw,
    paper::{self, Choice, Learning, Randomizer, Regret, RegretCase, Target, Theorem1},
    plan::{BY_COUNT, describe, honesty},
    search::{self, DraftStage},
    sizes,
    timetable::Batches,
};

/// Parameters that the paper chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Cor. 1: most local privacy. Needs a local epsilon below ln 2.
    PaperLdp,
    /// Cor. 2: least regret. Central epsilon at most 1/(27 T^(1/4)), which is also the default.
    PaperRegret,
    /// Remark 2: an adversary who sees one release only. Needs a central epsilon.
    WeakerAdversary,
}

impl Preset {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PaperLdp => "paper-ldp",
            Self::PaperRegret => "paper-regret",
            Self::WeakerAdversary => "weaker-adversary",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the paper says about its choice, as it says it. None of it is certified.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaperStatement {
    /// Which choice.
    pub preset: Preset,
    /// The local level that the paper claims.
    pub epsilon_local: f64,
    /// The central level that the paper claims.
    pub epsilon_central: f64,
    /// The batch size of Thm 1 as printed (Prop. 3 for `weaker-adversary`).
    pub batch_size: u64,
    /// The batch size that the paper's Prop. 3 really needs.
    pub batch_size_proposition_3: u64,
    /// Whether the horizon holds one such batch.
    pub feasible: bool,
    /// The rate of the corollary or remark, without constants and logarithms.
    pub regret_rate: f64,
    /// The regret bound of Thm 2 as printed.
    pub regret_theorem_2: f64,
    /// Which of its two cases.
    pub regret_case: &'static str,
    /// The regret bound of the appendix's algorithm with the paper's own widths, as printed.
    pub regret_fixed_schedule: f64,
    /// How far to trust these numbers.
    pub warning: &'static str,
}

const WARNING: &str = "as the paper prints it, not certified: the constants have slips (docs/paper-notes.md, 1 and 8 to 13)";

/// The paper's parameters with our certificate of them.
pub fn plan(request: &Request, preset: Preset) -> Result<Plan, PlanError> {
    let config = request.config();
    let choice = choose(request, preset)?;
    let randomizer =
        Randomizer { dimension: request.units.dimension, bits: choice.bits, flip: choice.flip };
    let accounting = Accounting::new(request, preset, &choice, randomizer)?;
    let wanted = accounting.batch_size.min(u64::from(request.largest_batch())) as u32;
    let size = config.batch_size.unwrap_or(wanted);
    let rounds = request.horizon() / u64::from(size);
    let sizes = sizes::equal(size, request.horizon()).ok_or(ProtocolError::Rounds(rounds))?;
    let law = DraftLaw::Bits { bits: choice.bits.get(), keep: 1.0 - choice.flip };
    let stages: Vec<DraftStage> =
        Batches::counted(&sizes).into_iter().map(|batches| DraftStage { batches, law }).collect();
    let mechanism = search::mechanism(request, &stages)?;
    let certificate = certify(&mechanism)?;
    if let Some(cap) = config.local_epsilon.cap().filter(|&cap| certificate.epsilon_local() > cap) {
        return Err(PlanError::PresetAboveCap {
            preset: preset.name(),
            epsilon: certificate.epsilon_local(),
            cap,
        });
    }
    let task = search::task_with(mechanism, learner(request)?)?;
    let batches = task.mechanism().schedule().last_round();
    let regret_fixed_schedule = paper::fixed_schedule_regret(
        forecast(&task, batches, None)?.confidence_width,
        request.horizon(),
        u64::from(batches),
        request.units.dimension,
    );
    let statement = PaperStatement {
        preset,
        epsilon_local: choice.epsilon_local,
        epsilon_central: choice.epsilon_central,
        batch_size: accounting.batch_size,
        batch_size_proposition_3: accounting.needed,
        feasible: accounting.needed <= request.horizon(),
        regret_rate: choice.regret_rate,
        regret_theorem_2: accounting.regret.regret,
        regret_case: match accounting.regret.case {
            RegretCase::Flip => "first: p^2 (1-p) is small",
            RegretCase::Epsilon => "second: p^2 (1-p) is large",
        },
        regret_fixed_schedule,
        warning: WARNING,
    };
    let mut plan = describe(request, task, certificate)?;
    plan.notes = notes(&plan, &statement);
    plan.paper = Some(statement);
    Ok(plan)
}

fn choose(request: &Request, preset: Preset) -> Result<Choice, PlanError> {
    let (config, horizon) = (request.config(), request.horizon());
    let needs = |needs| PlanError::PresetNeeds { preset: preset.name(), needs };
    let dimension = request.units.dimension;
    let choice = match preset {
        Preset::PaperLdp => {
            let LocalLimit::AtMost(epsilon) = config.local_epsilon else {
                return Err(needs("a local epsilon below ln 2"));
            };
            paper::corollary_1(dimension, Bits::new(config.bits.unwrap_or(1))?, horizon, epsilon)?
        }
        Preset::PaperRegret => {
            let largest = 1.0 / (27.0 * pow(horizon as f64, 0.25));
            let epsilon = config.central_epsilon.unwrap_or(largest * (1.0 - 1e-12));
            paper::corollary_2(dimension, horizon, epsilon)?
        }
        Preset::WeakerAdversary => {
            let epsilon = config.central_epsilon.ok_or_else(|| needs("a central epsilon"))?;
            paper::remark_2(dimension, horizon, epsilon)?
        }
    };
    Ok(choice)
}

/// What the paper prints about its choice before there is a schedule.
struct Accounting {
    batch_size: u64,
    /// The batch size of Prop. 3.
    needed: u64,
    regret: Regret,
}

impl Accounting {
    fn new(
        request: &Request,
        preset: Preset,
        choice: &Choice,
        randomizer: Randomizer,
    ) -> Result<Self, PlanError> {
        let (horizon, delta) = (request.horizon(), request.config().delta);
        let target = Target { horizon, epsilon_central: choice.epsilon_central, delta };
        // One release only: nothing to compose.
        let releases = if preset == Preset::WeakerAdversary { 1 } else { horizon };
        let composed = Target { horizon: releases, ..target };
        let needed = paper::batch_size_proposition_3(randomizer, composed)?.batch_size;
        let batch_size = match preset {
            Preset::WeakerAdversary => needed,
            _ => paper::batch_size_theorem_1(randomizer, target, Theorem1::Printed)?,
        };
        let learning = Learning {
            context_bound: 1.0,
            parameter_bound: 1.0,
            ridge: sqrt(horizon as f64),
            growth: 0.5,
            failure_probability: LearnerConfig::default().failure_probability,
        };
        Ok(Self { batch_size, needed, regret: paper::theorem_2(randomizer, target, learning)? })
    }
}

/// Cor. 2: eta = 0.5, lambda = sqrt(T).
fn learner(request: &Request) -> Result<Learner, PlanError> {
    let ridge = sqrt(request.horizon() as f64);
    let config = LearnerConfig {
        confidence: Confidence::Paper { ridge },
        update: UpdateRule::Determinant { growth: 0.5 },
        ..LearnerConfig::default()
    };
    Ok(config.check()?)
}

fn notes(plan: &Plan, statement: &PaperStatement) -> Vec<String> {
    let mut notes = vec![format!(
        "preset {} reproduces the paper: its batch size and levels are the paper's claims; only the certificate is proved",
        statement.preset
    )];
    notes.push(honesty(plan.task.mechanism().honest_fraction()));
    if plan.certificate.epsilon_central() > statement.epsilon_central {
        notes.push("the certified central epsilon is ABOVE the one the paper claims for these parameters: do not use them to reach that level".into());
    }
    if !statement.feasible {
        notes.push(format!(
            "the paper's own Prop. 3 needs batches of {}, more than the horizon of {}: by its accounting there is no feasible batch",
            statement.batch_size_proposition_3,
            plan.request.horizon()
        ));
    }
    notes.push("the predicted regret is that of calibrated widths; the paper's own widths explore far longer".into());
    notes.push(BY_COUNT.into());
    notes
}
