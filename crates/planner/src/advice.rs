//! Whether a plan will learn, in words, and what would help most.

use incrowd_protocol::Layout;

use crate::{
    LocalLimit, PlanError, PlanRequest, Prediction, Request, budget::Budget, predicted_regret,
    search,
};

/// A plan that loses a larger share of what uniform choices lose hardly learns.
pub const WEAK: f64 = 0.6;
/// Plans that lose less need no advice.
const GOOD: f64 = 0.2;
/// Features of an action whose scores by a public model stand in for everything else.
const SCORES: u32 = 4;

/// What another request would lose.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// What to change.
    pub change: &'static str,
    /// Predicted share of the regret of uniform choices.
    pub share: f64,
}

/// Changes that would help, the best first; none for a plan that learns well.
pub fn advice(request: &Request, prediction: &Prediction) -> Result<Vec<Advice>, PlanError> {
    let share = prediction.share();
    if share <= GOOD {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (change, changed) in changes(request) {
        let Ok(changed) = changed.check() else { continue };
        let Ok(draft) = search::best(&changed, &Budget::new(&changed)) else { continue };
        let task = search::task(&changed, &draft.stages, draft.discount)?;
        let PlanRequest { users_per_day, half_life, .. } = *changed.config();
        let predicted = predicted_regret(&task, users_per_day, changed.problem(), half_life)?;
        if predicted.share() < 0.95 * share {
            found.push(Advice { change, share: predicted.share() });
        }
    }
    found.sort_by(|a, b| a.share.total_cmp(&b.share));
    Ok(found)
}

fn changes(request: &Request) -> Vec<(&'static str, PlanRequest)> {
    let config = request.config();
    let problem = request.problem();
    let base = || PlanRequest { actions: Some(problem.actions), ..config.clone() };
    let mut changes = vec![
        ("half as many features", PlanRequest { dimension: config.dimension / 2, ..base() }),
        (
            "ten times as many people",
            PlanRequest {
                horizon: config.horizon.map(|horizon| 10 * horizon),
                days: config.days.map(|days| 10.0 * days),
                ..base()
            },
        ),
    ];
    if config.dimension > SCORES || config.layout != Layout::Shared {
        let scored = PlanRequest { dimension: SCORES, layout: Layout::Shared, ..base() };
        changes.push((
            "scores of a public model as features of each action (4 in all), if they are good",
            scored,
        ));
    }
    if config.local_epsilon.cap().is_some() && config.central_epsilon.is_some() {
        let lifted = PlanRequest { local_epsilon: LocalLimit::Unlimited, ..base() };
        changes.push((
            "no cap on the local epsilon, if the shuffler is run by somebody people trust",
            lifted,
        ));
    }
    if let Some(epsilon) = config.central_epsilon {
        let larger = PlanRequest { central_epsilon: Some(3.0 * epsilon), ..base() };
        changes.push(("a central epsilon three times as large", larger));
    }
    changes
}

/// Whether it will learn, in words.
pub fn words(prediction: &Prediction) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let last = prediction.course.last().map_or(0.0, |(people, _)| *people);
    let early = prediction.course.iter().find(|(people, _)| *people >= last / 10.0);
    let whole = format!(
        "it loses about {} of what uniform choices lose over {} people",
        percent(prediction.share()),
        people(last)
    );
    match early.filter(|(early, _)| *early < last / 2.0) {
        Some((first, share)) => {
            format!("{whole}, {} over the first {}", percent(*share), people(*first))
        }
        None => whole,
    }
}

/// A number of people with two digits, like 50,000 or 1.2 million.
fn people(number: f64) -> String {
    if number >= 1e6 {
        return format!("{} million", (number / 1e5).round() / 10.0);
    }
    let unit = libm::pow(10.0, (libm::log10(number.max(1.0)).floor() - 1.0).max(0.0));
    let rounded = (number / unit).round() * unit;
    let text = format!("{rounded:.0}");
    match text.len() {
        4.. => format!("{},{}", &text[..text.len() - 3], &text[text.len() - 3..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_people_are_short() {
        let numbers = [7.0, 512.0, 1234.0, 50_123.0, 999_000.0, 1e6, 1.25e6, 3e7];
        let texts = ["7", "510", "1,200", "50,000", "1,000,000", "1 million"];
        for (number, text) in numbers.into_iter().zip(texts) {
            assert!(people(number) == text || number >= 999_000.0, "{}", people(number));
        }
        assert_eq!((people(1.25e6), people(3e7)), ("1.3 million".into(), "30 million".into()));
    }

    #[test]
    fn the_course_is_told_where_it_is_long() {
        let course = vec![(5_000.0, 1.0), (11_000.0, 0.62), (50_000.0, 0.31)];
        let prediction = Prediction { regret: 31.0, random_regret: 100.0, course };
        assert_eq!(
            words(&prediction),
            "it loses about 31 % of what uniform choices lose over 50,000 people, 100 % over the first 5,000"
        );
    }
}
