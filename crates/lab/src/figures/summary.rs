//! An experiment in one paragraph of plain language.

use incrowd_chart::thousands;

use super::{
    group::{self, Cell, Epsilons, Guarantee, Measure},
    is_random,
    report::percent,
};
use crate::experiment::{Row, Setting};

/// A larger local epsilon protects a single report in name only.
const MEANINGFUL: f64 = 10.0;

/// The best of each kind in a setting, and what random choice gets.
struct Standing<'a> {
    measure: Measure,
    certified: Option<(Cell<'a>, Epsilons, f64)>,
    /// Among the certified, the best that protects a report on its way, too.
    local: Option<(&'a str, Epsilons, f64)>,
    uncertified: Option<(Cell<'a>, Epsilons, f64)>,
    without: Option<(Cell<'a>, f64)>,
    random: Option<f64>,
}

impl<'a> Standing<'a> {
    fn of(rows: &'a [Row], runs: &[usize]) -> Self {
        let measure = Measure::of(rows, runs);
        let (cells, _) = group::preferred(rows, runs);
        let random = random_level(rows, &cells, measure);
        let mut standing = Self {
            measure,
            certified: None,
            local: None,
            uncertified: None,
            without: None,
            random,
        };
        // The oracle is no algorithm, and who exceeds the limit does not compete.
        let competes = |cell: &Cell| {
            let within = cell.runs.iter().all(|&run| rows[run].keeps_the_limit());
            let certified = matches!(cell.guarantee(rows), Guarantee::Certified(_));
            !cell.algorithm.eq_ignore_ascii_case("oracle") && (within || !certified)
        };
        for cell in cells.into_iter().filter(competes) {
            let value = cell.mean(rows, measure);
            let ahead = |best: Option<f64>| best.is_none_or(|best| measure.better(value, best));
            let guarantee = cell.guarantee(rows);
            if let Guarantee::Certified(epsilons) = guarantee
                && epsilons.local.is_some_and(|local| local <= MEANINGFUL)
                && ahead(standing.local.map(|best| best.2))
            {
                standing.local = Some((cell.algorithm, epsilons, value));
            }
            match guarantee {
                Guarantee::None if ahead(standing.without.as_ref().map(|best| best.1)) => {
                    standing.without = Some((cell, value));
                }
                Guarantee::Certified(epsilons)
                    if ahead(standing.certified.as_ref().map(|best| best.2)) =>
                {
                    standing.certified = Some((cell, epsilons, value));
                }
                Guarantee::NotCertified(epsilons)
                    if ahead(standing.uncertified.as_ref().map(|best| best.2)) =>
                {
                    standing.uncertified = Some((cell, epsilons, value));
                }
                _ => {}
            }
        }
        standing
    }

    /// Regret of the best certified algorithm over that of the best without privacy.
    fn cost(&self) -> Option<f64> {
        let (private, without) = (self.certified.as_ref()?.2, self.without.as_ref()?.1);
        (self.measure == Measure::Regret && without > 0.0).then(|| private / without)
    }
}

/// What random choice gets: as every run says about it, or where that is unknown from its own runs.
pub fn random_level(rows: &[Row], cells: &[Cell], measure: Measure) -> Option<f64> {
    if measure == Measure::Regret {
        return cells.first()?.mean_of(rows, |row| row.regret_random);
    }
    let random = cells.iter().find(|cell| is_random(cell.algorithm))?;
    Some(random.mean(rows, measure))
}

/// The best private algorithm, and what privacy costs against no privacy and against random choice.
///
/// About the largest setting, the first of them in the table; the range over all of them follows.
pub fn paragraph(rows: &[Row], settings: &[(Setting, Vec<usize>)]) -> String {
    let mut largest: Option<&(Setting, Vec<usize>)> = None;
    for candidate in settings {
        if largest.is_none_or(|best| candidate.0.horizon > best.0.horizon) {
            largest = Some(candidate);
        }
    }
    let Some((setting, runs)) = largest else { return String::new() };
    let standing = Standing::of(rows, runs);
    let mut sentences = vec![private(setting, &standing)];
    sentences.extend(against_none(&standing));
    sentences.extend(on_the_wire(&standing));
    sentences.extend(not_certified(&standing));
    let costs: Vec<f64> =
        settings.iter().filter_map(|(_, runs)| Standing::of(rows, runs).cost()).collect();
    if costs.len() > 1 {
        let low = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = costs.iter().copied().fold(0.0, f64::max);
        sentences.push(format!(
            "Over the {} settings with both, the best certified algorithm has {} to {} times the regret of the best one without privacy.",
            costs.len(),
            factor(low),
            factor(high),
        ));
    }
    sentences.join(" ")
}

/// The best private algorithm of a setting in one line, as the title of a figure.
pub fn headline(rows: &[Row], runs: &[usize]) -> String {
    let standing = Standing::of(rows, runs);
    let random = standing.random.filter(|random| *random > 0.0);
    let Some((cell, _, value)) = &standing.certified else {
        return match standing.measure {
            Measure::Regret => "Reward lost while learning".into(),
            Measure::Reward => "Reward earned while learning".into(),
        };
    };
    let name = cell.algorithm;
    match (standing.measure, random) {
        (Measure::Regret, Some(random)) if *value >= random => {
            "Nothing with certified privacy learns here: all lose as much as random choice".into()
        }
        (Measure::Regret, Some(random)) => format!(
            "Least lost with certified privacy: {name}, {} of what random choice loses",
            percent(value / random)
        ),
        (Measure::Regret, None) => format!("Least lost with certified privacy: {name}"),
        (Measure::Reward, Some(random)) => format!(
            "Most earned with certified privacy: {name}, {} of what random choice earns",
            percent(value / random)
        ),
        (Measure::Reward, None) => format!("Most earned with certified privacy: {name}"),
    }
}

fn private(setting: &Setting, standing: &Standing) -> String {
    let place =
        format!("With {} ({})", group::people(&setting.environment), group::words(setting, ""));
    let measure = standing.measure;
    let Some((cell, epsilons, value)) = &standing.certified else {
        return format!("{place}, no algorithm with a certified guarantee was run.");
    };
    let random = standing.random.filter(|random| *random > 0.0);
    let result = match (measure, random) {
        (Measure::Regret, Some(random)) if *value >= random => format!(
            "it loses {} of expected reward, no less than choosing at random ({}), so here it does not learn",
            measure.shown(*value),
            measure.shown(random)
        ),
        (Measure::Regret, Some(random)) => format!(
            "it loses {} of expected reward, {} of what choosing at random loses",
            measure.shown(*value),
            percent(value / random)
        ),
        (Measure::Regret, None) => format!("it loses {} of expected reward", measure.shown(*value)),
        (Measure::Reward, Some(random)) => format!(
            "it earns {} per person, {} of what choosing at random earns",
            measure.shown(*value),
            percent(value / random)
        ),
        (Measure::Reward, None) => format!("it earns {} per person", measure.shown(*value)),
    };
    format!(
        "{place}, the best algorithm with a certified guarantee is {} ({}): {result}.",
        cell.algorithm,
        proved(epsilons)
    )
}

fn against_none(standing: &Standing) -> Option<String> {
    let (cell, without) = standing.without.as_ref()?;
    let (_, _, private) = standing.certified.as_ref()?;
    let shown = standing.measure.shown(*without);
    let name = cell.algorithm;
    Some(match standing.measure {
        Measure::Regret if *private <= *without => format!(
            "The best one without privacy, {name}, loses {shown}: here privacy costs nothing."
        ),
        Measure::Regret if *without > 0.0 => format!(
            "The best one without privacy, {name}, loses {shown}: privacy multiplies the regret by {}.",
            factor(private / without)
        ),
        Measure::Regret => format!("The best one without privacy, {name}, loses nothing."),
        Measure::Reward => format!(
            "The best one without privacy, {name}, earns {shown}: with privacy it is {} of that.",
            percent(private / without)
        ),
    })
}

/// The best that trusts nobody with a report, if the best of all does.
fn on_the_wire(standing: &Standing) -> Option<String> {
    let (best, epsilon) =
        standing.certified.as_ref().map(|best| (best.0.algorithm, best.1.local))?;
    let about = match epsilon {
        Some(local) if local <= MEANINGFUL => return None,
        Some(_) => "A single report tells almost everything with",
        None => "Nothing is proved about the single reports of",
    };
    let (name, epsilons, value) = standing.local.as_ref()?;
    let verb = match standing.measure {
        Measure::Regret => "loses",
        Measure::Reward => "earns",
    };
    Some(format!(
        "{about} {best}; of those that protect them, too, the best is {name} ({}), which {verb} {}.",
        proved(epsilons),
        standing.measure.shown(*value)
    ))
}

/// A better number that nobody should rely on.
fn not_certified(standing: &Standing) -> Option<String> {
    let (cell, _, value) = standing.uncertified.as_ref()?;
    let shown = standing.measure.shown(*value);
    let Some(best) = &standing.certified else {
        return Some(format!(
            "The best private one, {} ({shown}), has a guarantee that is not certified for what ran.",
            cell.algorithm
        ));
    };
    standing.measure.better(*value, best.2).then(|| {
        format!(
            "{} does better ({shown}), but its guarantee is not certified for what ran.",
            cell.algorithm
        )
    })
}

fn proved(epsilons: &Epsilons) -> String {
    let mut parts = Vec::new();
    if let Some(central) = epsilons.central {
        parts.push(format!("central epsilon {}", incrowd_privacy::format_epsilon(central)));
    }
    if let Some(local) = epsilons.local {
        parts.push(format!("local epsilon {}", incrowd_privacy::format_epsilon(local)));
    }
    parts.join(", ")
}

fn factor(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { thousands(value) }
}
