//! The figure of `incrowd plan --plot`: central epsilon against batch size, our certificate beside
//! the bounds that others have for the same reports.

use std::{
    error::Error,
    fmt::Write,
    path::{Path, PathBuf},
    thread,
};

use incrowd_chart::{
    Axis, Chart, Dash, Fill, Marker, Plot, Series, Style,
    colour::{BLUE, Colour, GREEN, GREY, ORANGE, VERMILION},
};
use incrowd_planner::{
    Plan,
    paper::{Randomizer, proposition_3},
};
use incrowd_privacy::{
    BoundName, PrivacyError,
    central::{Setting, bounds, certify, honest_others},
    local,
};
use incrowd_protocol::{BatchSize, Bits, Dimension, HonestFraction, Participations};

const LOCAL: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Batch sizes per factor of ten.
const PER_DECADE: i32 = 2;
/// Every line, in the order of [`Curves`].
const LINES: [Look; 5] = [
    ("no crowd", GREY, (2.5, 3.0), Marker::Bar, "the local epsilon of a single report"),
    ("paper", VERMILION, (11.0, 4.0), Marker::Up, "Prop. 3 as printed, no more than no crowd"),
    ("clones", ORANGE, (6.0, 4.0), Marker::Down, "Feldman, McMillan, Talwar 2021, for any report"),
    ("blanket", GREEN, (6.0, 4.0), Marker::Diamond, "privacy blanket of these reports, by Renyi"),
    ("certified", BLUE, (0.0, 0.0), Marker::Circle, "what incrowd proves and prints"),
];

/// Name, look and explanation of a line.
type Look = (&'static str, Colour, Dash, Marker, &'static str);

/// One line: (batch size, epsilon).
type Line = Vec<(f64, f64)>;

/// The lines of one local epsilon.
type Curves = [Line; LINES.len()];

/// Writes `name`.svg and gives its path.
pub fn draw(name: &Path, plan: &Plan) -> Result<PathBuf, Box<dyn Error>> {
    let canvas = chart(plan)?.canvas();
    Ok(canvas.write(name).map_err(|error| format!("{}: {error}", name.display()))?)
}

fn curves(plan: &Plan, epsilon: f64) -> Result<Curves, PrivacyError> {
    let mechanism = plan.task.mechanism();
    let (delta, k, h) =
        (mechanism.central_delta(), mechanism.participations(), mechanism.honest_fraction());
    let (blocks, bits) = (mechanism.blocks(), Bits::ONE);
    let dimension = Dimension::new(blocks.parameters() as u32)?;
    let keep = local::largest_keep(blocks, bits, epsilon)?;
    let randomizer = Randomizer::proposition_1(dimension, bits, epsilon)?;
    let mut lines = Curves::default();
    for i in 2 * PER_DECADE..=6 * PER_DECADE {
        let size = 10f64.powf(f64::from(i) / f64::from(PER_DECADE)).round() as u64;
        let of = BatchSize::new(size)?;
        let all = Setting::new(blocks, bits, keep, of, delta);
        let setting = Setting { others: honest_others(of, h), participations: k, ..all };
        let proved = bounds(&setting)?;
        let bound = |name| proved.iter().find(|found| found.bound == name).map(|b| b.epsilon);
        let alone = bound(BoundName::Local);
        // Where its condition fails the paper says nothing; what is above the local epsilon says
        // no more than that.
        let paper = proposition_3(randomizer, size, delta.get()).ok();
        let paper = paper.map(|value| alone.map_or(value, |alone| value.min(alone)));
        let certified = Some(certify(&setting)?.epsilon);
        let values =
            [alone, paper, bound(BoundName::Clones), bound(BoundName::RenyiBlanket), certified];
        for (line, value) in lines.iter_mut().zip(values) {
            line.extend(value.map(|value| (size as f64, value)));
        }
    }
    Ok(lines)
}

fn chart(plan: &Plan) -> Result<Chart, Box<dyn Error>> {
    let all = thread::scope(|scope| {
        let running = LOCAL.map(|epsilon| scope.spawn(move || curves(plan, epsilon)));
        running
            .into_iter()
            .map(|line| {
                line.join().map_err(|_| "a curve could not be computed")?.map_err(Into::into)
            })
            .collect::<Result<Vec<Curves>, Box<dyn Error>>>()
    })?;
    let plots = LOCAL.iter().zip(all).map(|(epsilon, curves)| Plot {
        title: format!("local epsilon {epsilon}"),
        series: LINES.iter().zip(curves).map(series).collect(),
    });
    Ok(Chart {
        title: "How much one released batch tells about one person".into(),
        subtitle: subtitle(plan),
        x: Axis::log("reports in a batch"),
        y: Axis::log("central epsilon (lower is more private)"),
        plots: plots.collect(),
    })
}

fn series((&(name, colour, dash, marker, detail), line): (&Look, Line)) -> Series {
    let style = Style { colour, dash, marker, fill: Fill::Full };
    Series { detail: detail.into(), ..Series::new(name, style, line) }
}

fn subtitle(plan: &Plan) -> String {
    let mechanism = plan.task.mechanism();
    let (k, h) = (mechanism.participations(), mechanism.honest_fraction());
    let mut subtitle = format!(
        "Dimension {}, 1 bit per coordinate, delta {:e}",
        mechanism.dimension(),
        mechanism.central_delta().get()
    );
    if k > Participations::ONE {
        let _ = write!(subtitle, ", {} reports per person", k.get());
    }
    if h < HonestFraction::ALL {
        let _ = write!(subtitle, ", {:.0}% honest", 100.0 * h.get());
    }
    subtitle
}
