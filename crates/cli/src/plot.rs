//! The figure of `incrowd plan --plot`: central epsilon against batch size, the paper's accounting
//! beside ours.

use std::{
    error::Error,
    fmt::Write,
    path::{Path, PathBuf},
    thread,
};

use incrowd_chart::{Axis, Chart, Colour, Series, Style};
use incrowd_planner::{
    Plan,
    paper::{Randomizer, proposition_3},
};
use incrowd_privacy::{
    PrivacyError,
    central::{Setting, certify, honest_others},
    local,
};
use incrowd_protocol::{BatchSize, Bits, HonestFraction, Participations};

const LOCAL: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const COLOURS: [Colour; 4] =
    [Colour(0, 114, 178), Colour(0, 158, 115), Colour(230, 159, 0), Colour(204, 51, 17)];
/// Batch sizes per factor of ten.
const PER_DECADE: i32 = 2;

/// One line: (batch size, epsilon).
type Line = Vec<(f64, f64)>;

struct Curves {
    title: String,
    subtitle: String,
    /// For each local epsilon: certified, and the paper's.
    lines: Vec<(Line, Line)>,
}

/// Writes `name`.svg and gives its path.
pub fn draw(name: &Path, plan: &Plan) -> Result<PathBuf, Box<dyn Error>> {
    let canvas = chart(&curves(plan)?).canvas();
    Ok(canvas.write(name).map_err(|error| format!("{}: {error}", name.display()))?)
}

fn curves(plan: &Plan) -> Result<Curves, Box<dyn Error>> {
    let mechanism = plan.task.mechanism();
    let (delta, k, h) =
        (mechanism.central_delta(), mechanism.participations(), mechanism.honest_fraction());
    let sizes: Vec<u64> = (2 * PER_DECADE..=6 * PER_DECADE)
        .map(|i| 10f64.powf(f64::from(i) / f64::from(PER_DECADE)).round() as u64)
        .collect();
    let line = &|epsilon: f64| -> Result<(Line, Line), PrivacyError> {
        let (dimension, bits) = (mechanism.dimension_unit(), Bits::ONE);
        let keep = local::largest_keep(dimension, bits, epsilon)?;
        let randomizer = Randomizer::proposition_1(dimension, bits, epsilon)?;
        let (mut ours, mut papers) = (Line::new(), Line::new());
        for &size in &sizes {
            let of = BatchSize::new(size)?;
            let all = Setting::new(dimension, bits, keep, of, delta);
            let setting = Setting { others: honest_others(of, h), participations: k, ..all };
            ours.push((size as f64, certify(&setting)?.epsilon));
            // Where its condition fails the paper says nothing.
            if let Ok(value) = proposition_3(randomizer, size, delta.get()) {
                papers.push((size as f64, value));
            }
        }
        Ok((ours, papers))
    };
    let lines = thread::scope(|scope| {
        let running = LOCAL.map(|epsilon| scope.spawn(move || line(epsilon)));
        running
            .into_iter()
            .map(|line| {
                line.join().map_err(|_| "a curve could not be computed")?.map_err(Into::into)
            })
            .collect::<Result<Vec<_>, Box<dyn Error>>>()
    })?;
    let mut subtitle = format!(
        "dimension {}, 1 bit per coordinate, delta {:e}",
        mechanism.dimension(),
        delta.get()
    );
    if k > Participations::ONE {
        let _ = write!(subtitle, ", {} reports per person", k.get());
    }
    if h < HonestFraction::ALL {
        let _ = write!(subtitle, ", {:.0}% honest", 100.0 * h.get());
    }
    let title = "What one released batch tells about one person".into();
    Ok(Curves { title, subtitle, lines })
}

fn chart(curves: &Curves) -> Chart {
    let mut series = Vec::new();
    for ((epsilon, colour), (ours, papers)) in LOCAL.iter().zip(COLOURS).zip(&curves.lines) {
        let solid = Style { colour, dash: (0.0, 0.0) };
        let dashed = Style { colour, dash: (8.0, 6.0) };
        let ours = Series::new(&format!("certified, local epsilon {epsilon}"), solid, ours.clone());
        let name = format!("paper (Prop. 3), local epsilon {epsilon}");
        series.push(ours);
        if !papers.is_empty() {
            series.push(Series::new(&name, dashed, papers.clone()));
        }
    }
    Chart {
        title: curves.title.clone(),
        subtitle: curves.subtitle.clone(),
        x: Axis::log("batch size (reports)"),
        y: Axis::log("central epsilon (nats, smaller is more private)"),
        series,
    }
}
