//! The report: one HTML file that needs nothing else.

use std::fmt::Write;

use incrowd_chart::{
    colour::{HUES, INK, stylesheet},
    escape, grouped, number, thousands,
};

use super::{
    Figure, Palette,
    data::Experiment,
    group::{self, Cell, Epsilons, Guarantee, Measure},
    regret::sentence_case,
    summary,
};
use incrowd_sim::statistics;

use crate::experiment::Row;

const CSS: &str = include_str!("report.css");

/// The whole page, with the figures as SVG.
pub fn html(experiment: &Experiment, palette: &Palette, figures: &[(&Figure, String)]) -> String {
    let (rows, manifest) = (&experiment.rows, &experiment.manifest);
    let name = escape(manifest.name.as_deref().unwrap_or("Experiment"));
    let settings = group::settings(rows);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name}</title>\n<style>\n{CSS}{}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}</h1>\n<p class=\"meta\">{}</p>\n<p class=\"lead\">{}</p>\n",
        stylesheet(HUES.into_iter().chain([INK])),
        escape(&overview(experiment, settings.len())),
        escape(&summary::paragraph(rows, &settings)),
    );
    let regret = |name: &str| name.starts_with("regret-");
    for (heading, file) in [
        ("All settings", "ratios"),
        ("Growth with the number of people", "slope"),
        ("What privacy costs", "epsilon"),
        ("The size of a batch", "batch-size"),
    ] {
        let mut these = figures.iter().filter(|f| !regret(&f.0.name) && f.0.name.starts_with(file));
        if let Some(first) = these.next() {
            let _ = writeln!(page, "<section>\n<h2>{heading}</h2>");
            [first].into_iter().chain(these).for_each(|f| picture(&mut page, f));
            page.push_str("</section>\n");
        }
    }
    let over_time: Vec<_> = figures.iter().filter(|f| regret(&f.0.name)).collect();
    for (i, (setting, runs)) in settings.iter().enumerate() {
        let _ = writeln!(
            page,
            "<section>\n<h2>{}: {} of them</h2>\n<p class=\"where\">{}</p>",
            escape(&sentence_case(&group::people(&setting.environment))),
            thousands(setting.horizon as f64),
            escape(&group::words(setting, "people")),
        );
        if let Some(figure) = over_time.get(i) {
            picture(&mut page, figure);
        }
        table(&mut page, rows, palette, runs);
        page.push_str("</section>\n");
    }
    closing(&mut page, experiment);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn overview(experiment: &Experiment, settings: usize) -> String {
    let rows = &experiment.rows;
    let mut algorithms: Vec<&str> = rows.iter().map(|row| row.algorithm.as_str()).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    let plural = |count: usize, word: &str| {
        let ending = if count == 1 { "" } else { "s" };
        format!("{} {word}{ending}", thousands(count as f64))
    };
    let mut text = format!(
        "{}, {}, {}",
        plural(algorithms.len(), "algorithm"),
        plural(settings, "setting"),
        plural(rows.len(), "run"),
    );
    if let Some(delta) = &experiment.manifest.delta {
        let _ = write!(text, ", delta {delta}");
    }
    if let Some(version) = &experiment.manifest.version {
        let _ = write!(text, "; incrowd {version}");
    }
    text
}

fn picture(page: &mut String, (figure, svg): &(&Figure, String)) {
    // Inside HTML the namespace is known.
    let svg = svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    let caption = escape(&figure.caption);
    let _ = writeln!(
        page,
        "<figure>\n<div class=\"card\">\n{svg}</div>\n<figcaption>{caption}</figcaption>\n</figure>"
    );
}

/// One row for each algorithm and variant, the best first.
fn table(page: &mut String, rows: &[Row], palette: &Palette, runs: &[usize]) {
    let measure = Measure::of(rows, runs);
    let mut cells = group::cells(rows, runs);
    let variants = cells.iter().any(|cell| cell.variant != cells[0].variant);
    cells.sort_by(|a, b| {
        let order = a.mean(rows, measure).total_cmp(&b.mean(rows, measure));
        if measure == Measure::Regret { order } else { order.reverse() }
    });
    let (value, share) = match measure {
        Measure::Regret => ("Regret", "Of random&#39;s<br>regret"),
        Measure::Reward => ("Reward<br>per person", "Of random&#39;s<br>reward"),
    };
    let _ = writeln!(
        page,
        "<div class=\"table\">\n<table>\n<thead><tr><th>Algorithm</th><th class=\"mark\">Guarantee</th>\
         <th>Local<br>epsilon</th><th>Central<br>epsilon</th><th>Delta</th><th class=\"value\">{value}</th>\
         <th class=\"error\">&plusmn; s.e.</th><th>{share}</th><th>Runs</th><th>Batches</th>\
         <th>Models</th><th>Noise<br>(s.d.)</th></tr></thead>\n<tbody>"
    );
    let random = summary::random_level(rows, &cells, measure);
    // As many decimals as the smallest value needs, the same in every row: the numbers line up.
    let smallest = cells.iter().map(|c| c.mean(rows, measure).abs()).fold(f64::INFINITY, f64::min);
    let decimals = match smallest {
        _ if measure == Measure::Reward => 4,
        10.0..100.0 => 1,
        0.0..10.0 => 2,
        _ => 0,
    };
    for cell in &cells {
        let columns = Columns { measure, random, decimals, variants };
        let _ = writeln!(page, "{}", line(rows, palette, cell, &columns));
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
}

/// What the rows of a table have in common.
struct Columns {
    measure: Measure,
    /// What random choice gets.
    random: Option<f64>,
    decimals: usize,
    /// Whether the variant is said.
    variants: bool,
}

fn line(rows: &[Row], palette: &Palette, cell: &Cell, columns: &Columns) -> String {
    let &Columns { measure, random, decimals, variants } = columns;
    let values = cell.values(rows, measure);
    let mean = cell.mean(rows, measure);
    let error = statistics::standard_error(&values)
        .map_or(String::new(), |error| format!("&plusmn; {}", grouped(error, decimals)));
    let share =
        random.filter(|random| *random > 0.0).map_or(dash(), |random| percent(mean / random));
    let (tag, epsilons) = match cell.guarantee(rows) {
        Guarantee::NoData => ("<span class=\"tag none\">uses no data</span>", None),
        Guarantee::None => ("<span class=\"tag none\">none</span>", None),
        Guarantee::Certified(epsilons) => {
            ("<span class=\"tag certified\">certified</span>", Some(epsilons))
        }
        Guarantee::NotCertified(epsilons) => {
            ("<span class=\"tag uncertified\">not certified</span>", Some(epsilons))
        }
    };
    let epsilon = |get: fn(Epsilons) -> Option<f64>| {
        epsilons.and_then(get).map_or(dash(), incrowd_privacy::format_epsilon)
    };
    let delta = epsilons.and_then(|epsilons| epsilons.delta);
    let variant = if variants {
        format!(" <span class=\"variant\">{}</span>", escape(cell.variant))
    } else {
        String::new()
    };
    let count = |quantity: fn(&Row) -> u64| {
        cell.mean_of(rows, |row| Some(quantity(row) as f64)).map_or(dash(), thousands)
    };
    format!(
        "<tr><th scope=\"row\"><span class=\"swatch {}\"></span>{}{variant}</th>\
         <td class=\"mark\">{tag}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"value\">{}</td>\
         <td class=\"error\">{error}</td><td>{share}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        palette.style(cell.algorithm).colour.class(),
        escape(cell.algorithm),
        epsilon(|epsilons| epsilons.local),
        epsilon(|epsilons| epsilons.central),
        delta.map_or(dash(), |delta| format!("{delta:e}")),
        grouped(mean, decimals),
        cell.runs.len(),
        count(|row| row.batches),
        count(|row| row.model_versions),
        cell.mean_of(rows, |row| row.noise_std).map_or(dash(), number),
    )
}

fn dash() -> String {
    "&ndash;".into()
}

pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{}%", thousands(percent)) }
}

fn closing(page: &mut String, experiment: &Experiment) {
    let manifest = &experiment.manifest;
    page.push_str("<section>\n<h2>How to reproduce</h2>\n");
    match &manifest.command {
        Some(command) => {
            let version = manifest
                .version
                .as_ref()
                .map_or(String::new(), |v| format!(", version {}", escape(v)));
            let _ = writeln!(
                page,
                "<p>With incrowd{version}; the seeds are in the table.</p>\n\
                 <pre>{}</pre>",
                escape(command)
            );
        }
        None => {
            page.push_str("<p>The manifest of this experiment does not name its command.</p>\n");
        }
    }
    page.push_str(
        "<p>Numbers: <code>table.csv</code> has one row for each run, <code>curves.csv</code> the points of \
         its curve. <code>incrowd-lab figures</code> draws this report from them.</p>\n</section>\n\
         <section>\n<h2>What the guarantees mean</h2>\n<dl>\n\
         <dt>Certified</dt><dd>The epsilons are proved for the very mechanism that ran, with the parameters it ran with. Local epsilon is about one report on its way; central epsilon, with delta, is about \
         everything that is released. Smaller is more private.</dd>\n\
         <dt>Not certified</dt><dd>Noise was added, but less than the guarantee that was asked for needs. Nothing is proved \
         for the mechanism that ran; do not rely on it for people&#39;s data.</dd>\n\
         <dt>None</dt><dd>The algorithm sees everybody&#39;s data as it is. It is here to show what privacy costs.</dd>\n\
         <dt>Uses no data</dt><dd>Random choice learns nothing about anybody, and nothing at all.</dd>\n\
         </dl>\n\
         <p>Regret is the expected reward lost against always making the best choice; lower is better. Noise is the standard \
         deviation per coordinate of the final sums. Exploration is called tuned if its factor was the best one on \
         other seeds, and default otherwise.</p>\n</section>\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percent(0.0123), "1.2%");
        assert_eq!(percent(0.55), "55%");
        assert_eq!(percent(12.0), "1,200%");
    }
}
