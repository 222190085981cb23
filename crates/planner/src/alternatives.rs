//! The price of each choice: the same request with one thing changed.

use serde::Serialize;

use crate::{
    EncodingChoice, LocalLimit, PlanError, PlanRequest, Request, Shape,
    budget::Budget,
    search::{self, Draft, DraftStage},
};

/// What another choice would cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// What is different.
    pub change: String,
    /// Reports in the smallest and the largest batch, pads included.
    pub batch_sizes: (u32, u32),
    /// What a report sends, in words.
    pub report: String,
    /// Of one report.
    pub epsilon_local: f64,
    /// A guess, unless `certified`.
    pub epsilon_central: f64,
    /// Whether the epsilons are certified; the search guesses.
    pub certified: bool,
    /// As the plan's.
    pub predicted_regret: f64,
    /// Regret of uniform choices over the same horizon.
    pub random_regret: f64,
}

/// One change at a time; changes that are impossible are left out.
pub fn alternatives(
    request: &Request,
    budget: &Budget,
    chosen: &Draft,
) -> Result<Vec<Alternative>, PlanError> {
    let mut found = Vec::new();
    for (change, changed) in changes(request, chosen) {
        let Ok(changed) = changed.check() else { continue };
        let other;
        let budget = if budget.fits(&changed) {
            budget
        } else {
            other = Budget::new(&changed);
            &other
        };
        let Ok(draft) = search::best(&changed, budget) else { continue };
        found.push(describe(change, &changed, budget, &draft)?);
    }
    Ok(found)
}

fn describe(
    change: String,
    request: &Request,
    budget: &Budget,
    draft: &Draft,
) -> Result<Alternative, PlanError> {
    let blocks = request.units.blocks;
    let mut epsilon_local = 0.0_f64;
    for DraftStage { law, .. } in &draft.stages {
        epsilon_local = epsilon_local.max(law.epsilon_local(blocks)?);
    }
    let PlanRequest { users_per_day, half_life, .. } = *request.config();
    let task = search::task(request, &draft.stages, draft.discount)?;
    let prediction = crate::predicted_regret(&task, users_per_day, request.problem(), half_life)?;
    // The smallest batch hides least; the others were given as much as they can hide.
    let first = draft.stages[0];
    let epsilon_central = match request.config().central_epsilon {
        // The guess was made for this limit, unless the local one decides.
        Some(limit) if !budget.is_at_local_limit(first.law)? => limit,
        _ => budget.approx(first.batches.size, first.law)?,
    };
    Ok(Alternative {
        change,
        batch_sizes: draft.batch_sizes(),
        report: draft.report(),
        epsilon_local,
        epsilon_central,
        certified: false,
        predicted_regret: prediction.regret,
        random_regret: prediction.random_regret,
    })
}

fn changes(request: &Request, chosen: &Draft) -> Vec<(String, PlanRequest)> {
    let config = request.config();
    let mut changes = Vec::new();
    if let Some(epsilon) = config.central_epsilon {
        for factor in [0.5, 2.0] {
            let central_epsilon = Some(factor * epsilon);
            let name = format!("central epsilon {}", factor * epsilon);
            changes.push((name, PlanRequest { central_epsilon, ..config.clone() }));
        }
    }
    if let Some(cap) = config.local_epsilon.cap() {
        for factor in [0.5, 2.0] {
            let local_epsilon = LocalLimit::AtMost(factor * cap);
            let name = format!("local epsilon at most {}", factor * cap);
            changes.push((name, PlanRequest { local_epsilon, ..config.clone() }));
        }
    }
    for (name, factor) in [("half the people", 0.5), ("twice the people", 2.0)] {
        let horizon = Some((factor * request.horizon() as f64) as u64);
        // In the same time.
        let users_per_day = config.users_per_day.map(|users| factor * users);
        let changed = PlanRequest { horizon, users_per_day, days: None, ..config.clone() };
        changes.push((name.into(), changed));
    }
    let (shape, name) = if chosen.is_growing() {
        (Shape::Fixed, "fixed batches")
    } else {
        (Shape::Growing, "growing batches")
    };
    if config.batch_size.is_none() {
        changes.push((name.into(), PlanRequest { shape, ..config.clone() }));
    }
    let first = chosen.stages[0].batches;
    if let (Some(arrivals), Some(window)) = (request.arrivals, first.window) {
        let batch_size = Some((2.0 * arrivals.expected(window)) as u32);
        changes.push((
            "equal windows twice as long".into(),
            PlanRequest { batch_size, shape: Shape::Fixed, ..config.clone() },
        ));
        if arrivals.peak > 1.0 {
            changes.push((
                "no room for peaks (peak 1)".into(),
                PlanRequest { peak: Some(1.0), busiest_day: None, ..config.clone() },
            ));
        }
        if arrivals.busiest_day > 1.0 && config.local_epsilon.cap().is_some() {
            changes.push((
                "days alike (busiest day 1)".into(),
                PlanRequest { busiest_day: Some(1.0), ..config.clone() },
            ));
        }
    } else {
        let double = first.size.saturating_mul(2);
        changes.push((
            format!("fixed batches of {double}"),
            PlanRequest { batch_size: Some(double), shape: Shape::Fixed, ..config.clone() },
        ));
    }
    let (bits, name) = match chosen.most_bits() {
        None => (None, "bits instead of words".into()),
        Some(1) => (Some(2), "2 bits per coordinate".into()),
        Some(_) => (Some(1), "1 bit per coordinate".into()),
    };
    let encoding = EncodingChoice::Bits;
    changes.push((name, PlanRequest { encoding, bits, ..config.clone() }));
    changes
}
