use incrowd_privacy::{Certificate, RoundCertificate, certify};
use incrowd_protocol::{HonestFraction, Mechanism, Report, Stage, TaskConfig};

use crate::{
    Advice, Alternative, LocalLimit, PaperStatement, PlanError, PlanRequest, Prediction, Request,
    TimedStage, Timetable, WEAK, advice, alternatives,
    budget::{Budget, mu_of},
    comparison, predicted_regret, preset,
    search::{self, Draft, DraftStage},
};

/// Certificates that are tried, each with a little more noise.
const ATTEMPTS: usize = 6;

/// Limit over certified value above which less noise is tried.
const UNUSED: f64 = 1.01;

/// A report that moves between two stages may tell more than each of them: those with at least this
/// share of the worst stage's epsilon get more noise then.
const NEAR_WORST: f64 = 0.9;

/// A mechanism that keeps to a request, with its certificate and what it costs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// What was asked.
    pub request: Request,
    /// Mechanism, learner and policy: what the services read.
    pub task: TaskConfig,
    /// What is proved about `task`.
    pub certificate: Certificate,
    /// Bytes of the longest report.
    pub report_bytes: usize,
    /// Windows and what to expect in them, where batches close by time.
    pub timetable: Option<Timetable>,
    /// Days to fill the smallest and the largest batch, where batches close by count; known with
    /// the users per day.
    pub fill_days: Option<(f64, f64)>,
    /// Share of the reports that do not count, at most; known with the users per day.
    ///
    /// Where batches close by time see [`Timetable::lost_share`]. By count a report is lost when it
    /// arrives more than `grace` rounds after its own, or after the law of reports has changed.
    /// With u reports an hour and at most w hours from decision to report, at most w u of a round's
    /// reports arrive after its end, and at most w u - g l after g further rounds of l.
    pub lost_share: Option<f64>,
    /// What it will lose.
    pub prediction: Prediction,
    /// Of a comparison: half of the length that the 95 % interval of the difference has at the end,
    /// if mean rewards are near one half and half of the people are in each group. Nothing is lost
    /// or learned then.
    pub half_width: Option<f64>,
    /// What the honest fraction costs: predicted regret, of a comparison `half_width`, of the best
    /// draft for the same request if every report was surely honest. Searched, not certified;
    /// nothing where the plan assumes that, or a preset fixes the randomizer.
    pub if_all_honest: Option<f64>,
    /// What would help most, the best first; empty for a plan that learns well.
    pub advice: Vec<Advice>,
    /// The price of each choice.
    pub alternatives: Vec<Alternative>,
    /// With a preset: what the paper says.
    pub paper: Option<PaperStatement>,
    /// What a person should know before using it, in words.
    pub notes: Vec<String>,
}

impl Plan {
    /// The task that the services read.
    pub fn task(&self) -> &TaskConfig {
        &self.task
    }

    /// Whether it will learn, in words.
    pub fn learning(&self) -> String {
        advice::words(&self.prediction)
    }

    /// What to say about a plan that hardly learns.
    pub fn warning(&self) -> Option<String> {
        if self.half_width.is_some() || self.prediction.share() <= WEAK {
            return None;
        }
        let share = 100.0 * self.prediction.share();
        Some(format!(
            "WARNING: this plan hardly learns: it is predicted to lose {share:.0} % of what uniform choices lose"
        ))
    }

    /// The kind of round whose reports tell most, which is what the local epsilon is about.
    pub fn most_telling(&self) -> &RoundCertificate {
        let most = |a: &&RoundCertificate, b: &&RoundCertificate| {
            a.epsilon_local.total_cmp(&b.epsilon_local)
        };
        let rounds = self.certificate.rounds().iter();
        rounds.max_by(most).expect("invariant: a certificate has at least one stage")
    }
}

/// The plan with the least predicted regret among those that keep to the request.
///
/// # Privacy
/// The search guesses; the returned certificate does not, and both of its epsilons are at most the
/// request's (the certificate is rounded up, the limits are taken as they are). A preset is the
/// exception: it reproduces the paper and says so in `notes`.
pub fn plan(request: &Request) -> Result<Plan, PlanError> {
    if let Some(preset) = request.config().preset {
        return preset::plan(request, preset);
    }
    let budget = Budget::new(request);
    let draft = search::refine(request, &budget, &search::best(request, &budget)?)?;
    let (mechanism, certificate) = certified(request, draft.stages.clone())?;
    let task = search::task_with(mechanism, search::learner(draft.discount)?)?;
    let mut plan = describe(request, task, certificate)?;
    if request.config().comparison {
        plan.task = comparison::named(plan.task)?;
        plan.half_width = Some(comparison::half_width(&plan.task, request.config().users_per_day)?);
    } else {
        plan.alternatives = alternatives::alternatives(request, &budget, &draft)?;
        plan.advice = advice::advice(request, &plan.prediction)?;
    }
    plan.if_all_honest = if_all_honest(request)?;
    plan.notes = notes(&plan, &draft);
    plan.notes.extend(search::why(request, &budget, &draft)?);
    Ok(plan)
}

/// Everything but alternatives and notes.
pub fn describe(
    request: &Request,
    task: TaskConfig,
    certificate: Certificate,
) -> Result<Plan, PlanError> {
    let stages = task.mechanism().schedule().stages();
    let report_bytes = stages
        .iter()
        .map(|stage| Report::encoded_len(task.mechanism(), stage.law))
        .max()
        .expect("invariant: a schedule has at least one stage");
    let sizes = || stages.iter().map(|stage| f64::from(stage.size));
    let smallest = sizes().fold(f64::INFINITY, f64::min);
    let largest = sizes().fold(0.0, f64::max);
    let timetable = timetable(request, task.mechanism());
    let users = request.config().users_per_day.filter(|_| timetable.is_none());
    let lost_share = match &timetable {
        Some(timetable) => Some(timetable.lost_share()),
        None => lost_share(request, task.mechanism()),
    };
    let PlanRequest { users_per_day, half_life, .. } = *request.config();
    Ok(Plan {
        lost_share,
        prediction: predicted_regret(&task, users_per_day, request.problem(), half_life)?,
        request: request.clone(),
        task,
        certificate,
        report_bytes,
        half_width: None,
        if_all_honest: None,
        fill_days: users.map(|users| (smallest / users, largest / users)),
        timetable,
        alternatives: Vec::new(),
        advice: Vec::new(),
        paper: None,
        notes: Vec::new(),
    })
}

/// See [`Plan::if_all_honest`].
fn if_all_honest(request: &Request) -> Result<Option<f64>, PlanError> {
    let config = request.config();
    let changed = PlanRequest { honest_fraction: HonestFraction::ALL.get(), ..config.clone() };
    let changed = changed.check()?;
    if changed.units == request.units {
        return Ok(None);
    }
    let budget = Budget::new(&changed);
    let draft = search::refine(&changed, &budget, &search::best(&changed, &budget)?)?;
    let task = search::task(&changed, &draft.stages, draft.discount)?;
    let PlanRequest { users_per_day, half_life, comparison, .. } = *config;
    Ok(Some(if comparison {
        comparison::half_width(&task, users_per_day)?
    } else {
        predicted_regret(&task, users_per_day, changed.problem(), half_life)?.regret
    }))
}

/// Adds noise where the certified value is above the limit, until it is not; and takes some away,
/// once, where it is well below.
fn certified(
    request: &Request,
    mut stages: Vec<DraftStage>,
) -> Result<(Mechanism, Certificate), PlanError> {
    let config = request.config();
    let central = config.central_epsilon.unwrap_or(f64::INFINITY);
    let local = config.local_epsilon.cap().unwrap_or(f64::INFINITY);
    let mut last = f64::INFINITY;
    let mut good: Option<(Mechanism, Certificate)> = None;
    for attempt in 0..ATTEMPTS {
        let mechanism = search::mechanism(request, &stages)?;
        let certificate = certify(&mechanism)?;
        last = certificate.epsilon_central();
        let holds = last <= central && certificate.epsilon_local() <= local;
        if let Some(good) = good {
            return Ok(if holds { (mechanism, certificate) } else { good });
        }
        // What is left of the limit, on the scale of mu.
        let left = |epsilon: f64| mu_of(central, config.delta) / mu_of(epsilon, config.delta);
        // A person's batches of different stages together, or a report that moves between them, may
        // exceed the limit where no stage does.
        let worst = certificate.rounds().iter().map(|round| round.epsilon_central);
        let worst = worst.fold(0.0, f64::max);
        let whole = |epsilon: f64| {
            let counts = config.participations > 1 || epsilon > NEAR_WORST * worst;
            if last > worst && counts { left(last) } else { f64::INFINITY }
        };
        let margin = if holds { 0.99 } else { 0.997 - 0.01 * attempt as f64 };
        let mut unused = false;
        for (stage, round) in stages.iter_mut().zip(certificate.rounds()) {
            let ratio = left(round.epsilon_central).min(local / round.epsilon_local);
            let ratio = ratio.min(whole(round.epsilon_central));
            let change = if holds { ratio > UNUSED } else { ratio < 1.0 };
            if change && ratio.is_finite() {
                unused = holds;
                stage.law = stage.law.scaled(ratio * margin);
            }
        }
        if holds {
            if !unused {
                return Ok((mechanism, certificate));
            }
            good = Some((mechanism, certificate));
        }
    }
    good.ok_or(PlanError::NotCertified { target: central, certified: last })
}

/// What to expect of a task whose rounds close by time.
fn timetable(request: &Request, mechanism: &Mechanism) -> Option<Timetable> {
    let arrivals = request.arrivals?;
    let stage = |stage: &Stage| {
        let window = stage.window?;
        let expected = arrivals.expected(window);
        Some(TimedStage { rounds: stage.rounds, window, expected, capacity: stage.size })
    };
    let stages: Option<Vec<TimedStage>> = mechanism.schedule().stages().iter().map(stage).collect();
    Some(Timetable::new(&arrivals, stages?, request.config().reward_window_hours / 24.0))
}

/// The model is in the documentation of [`Plan::lost_share`].
fn lost_share(request: &Request, mechanism: &Mechanism) -> Option<f64> {
    let config = request.config();
    let late = config.users_per_day? / 24.0 * config.reward_window_hours;
    let stages = mechanism.schedule().stages();
    let mut lost = 0.0;
    for (i, stage) in stages.iter().enumerate() {
        let (rounds, size) = (f64::from(stage.rounds), f64::from(stage.size));
        let same_law = stages.get(i + 1).is_some_and(|next| next.law == stage.law);
        let after = f64::from(request.grace()) * size;
        // Rounds so near the end of the law that nothing of the grace is left.
        let ends = if same_law { 0.0 } else { f64::from(request.grace()).min(rounds).max(1.0) };
        lost += ends * late.min(size) + (rounds - ends) * (late - after).clamp(0.0, size);
    }
    Some((lost / request.horizon() as f64).min(1.0))
}

fn notes(plan: &Plan, draft: &Draft) -> Vec<String> {
    let config = plan.request.config();
    let mut notes = Vec::new();
    match config.local_epsilon {
        LocalLimit::Default => notes.push(format!(
            "the local epsilon was capped at the default of {}; --local-epsilon sets another cap, 'unlimited' lifts it",
            crate::DEFAULT_LOCAL_EPSILON
        )),
        LocalLimit::Unlimited => notes.push(UNLIMITED.into()),
        LocalLimit::AtMost(_) => {}
    }
    notes.push(honesty(plan.task.mechanism().honest_fraction()));
    if config.central_epsilon.is_none() {
        notes.push(
            "no central epsilon was asked for: the certified one is what these batches give".into(),
        );
    }
    if plan.certificate.epsilon_local() > VACUOUS {
        notes.push(format!(
            "the local epsilon of {:.0} is no protection; everything rests on the shuffler",
            plan.certificate.epsilon_local()
        ));
    }
    notes.extend(plan.warning());
    if draft.discount < 1.0 {
        notes.push(format!(
            "the bandit forgets: a release counts for {} of itself when the next one comes",
            draft.discount
        ));
    }
    if plan.half_width.is_some() && plan.task.mechanism().schedule().last_round() == 1 {
        notes.push("there is one round, so nothing is known before its end: --latency-days 7 releases every week, for a little more noise".into());
    }
    if draft.is_growing() {
        notes.push("growing batches assume that contexts at the end are like contexts at the beginning: the last batches are large and learn nothing while they fill".into());
    }
    match (&plan.timetable, plan.lost_share.filter(|&lost| lost > 0.05)) {
        (None, Some(lost)) => notes.push(format!("up to {:.0}% of the reports may come too late for their round: allow more grace, a shorter reward window or larger batches", 100.0 * lost)),
        (Some(_), Some(lost)) => notes.push(format!("up to {:.0}% of the reports may be under way when their round closes and are then lost: allow longer windows (--batch-size)", 100.0 * lost)),
        (_, None) => {}
    }
    if let Some(timetable) = &plan.timetable {
        if pads_add_noise(plan, timetable) {
            notes.push(format!("{:.0}% of a batch are pads, and each pad adds as much noise as a report: a smaller --peak, or a larger local epsilon, learns faster", 100.0 * timetable.padding_share));
        }
    } else {
        if config.users_per_day.is_none() {
            notes.push("batches close when they are full: such a plan is for simulations; --users-per-day gives the plan by time that is deployed".into());
        }
        notes.push(BY_COUNT.into());
    }
    notes
}

/// What is assumed about the reports of a round.
pub fn honesty(honest_fraction: HonestFraction) -> String {
    if honest_fraction == HonestFraction::ALL {
        return ALL_HONEST.into();
    }
    let percent = (1e6 * honest_fraction.get()).round() / 1e4;
    format!(
        "at least {percent} % of the reports of a round come from honest devices and pads: the plan assumes it. What the others send adds no privacy and may be known to an adversary; if there are more of them, the central epsilon is larger than certified. --honest sets another share"
    )
}

/// Whether half of a batch are pads, and the local limit decides how noisy the reports of the last
/// stage are, which has most of the people.
fn pads_add_noise(plan: &Plan, timetable: &Timetable) -> bool {
    let central = plan.request.config().central_epsilon.unwrap_or(f64::INFINITY);
    let last = plan.certificate.rounds().last();
    timetable.padding_share > 0.4 && last.is_some_and(|last| last.epsilon_central < 0.9 * central)
}

/// From here on a local epsilon tells a person nothing.
const VACUOUS: f64 = 20.0;

/// What a guarantee assumes where batches close by count.
pub const BY_COUNT: &str = "batches that close by count protect what a person reports, not whether or when: the guarantee assumes that this does not depend on context or reward, which a person who closes the app after a bad reward breaks";

/// What an honest fraction of 1 means.
const ALL_HONEST: &str = "WARNING: --honest 1 assumes that nobody makes up a report and that an adversary knows nobody else's: with a single made-up report in a round the central epsilon is larger than certified. It is for simulations; a service that people can reach needs a smaller share";

/// What lifting the local cap means.
const UNLIMITED: &str = "the local epsilon is unlimited: a report by itself may tell almost everything about its person to whoever reads the wire or runs the shuffler; all protection then comes from a shuffler that shows nobody single reports, and from the size of the batches";
