//! The figure of `incrowd plan --plot`: central epsilon against batch size, the paper's accounting beside ours.

use std::{
    error::Error,
    fmt::Write,
    path::{Path, PathBuf},
    thread,
};

use incrowd_planner::Plan;
use incrowd_privacy::{
    PrivacyError,
    central::{Setting, certify},
    local,
    paper::{Randomizer, proposition_3},
};
use plotters::{
    coord::Shift,
    element::DashedPathElement,
    prelude::*,
    style::{FontStyle, register_font},
};

const LOCAL: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(230, 159, 0), RGBColor(204, 51, 17)];
const SIZE: (u32, u32) = (1100, 760);
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

/// Writes `name`.svg and `name`.png.
pub fn draw(name: &Path, dimension: u32, plan: &Plan) -> Result<[PathBuf; 2], Box<dyn Error>> {
    register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| "the embedded font cannot be read")?;
    let curves = curves(dimension, plan)?;
    let with = |extension: &str| {
        let mut path = name.as_os_str().to_owned();
        path.push(extension);
        PathBuf::from(path)
    };
    let (svg, png) = (with(".svg"), with(".png"));
    figure(&SVGBackend::new(&svg, SIZE).into_drawing_area(), &curves)
        .map_err(|error| format!("{}: {error}", svg.display()))?;
    figure(&BitMapBackend::new(&png, SIZE).into_drawing_area(), &curves)
        .map_err(|error| format!("{}: {error}", png.display()))?;
    Ok([svg, png])
}

fn curves(dimension: u32, plan: &Plan) -> Result<Curves, Box<dyn Error>> {
    let mechanism = plan.task.mechanism();
    let (delta, k, h) =
        (mechanism.central_delta(), mechanism.participations(), mechanism.honest_fraction());
    let sizes: Vec<u64> = (2 * PER_DECADE..=6 * PER_DECADE)
        .map(|i| 10f64.powf(f64::from(i) / f64::from(PER_DECADE)).round() as u64)
        .collect();
    let line = &|epsilon: f64| -> Result<(Line, Line), PrivacyError> {
        let keep = local::largest_keep(dimension, 1, epsilon)?;
        let randomizer = Randomizer::proposition_1(dimension, 1, epsilon)?;
        let (mut ours, mut papers) = (Line::new(), Line::new());
        for &size in &sizes {
            let setting = Setting::of_batch((dimension, 1, keep), size, h, k, delta)?;
            ours.push((size as f64, certify(&setting)?.epsilon));
            // Where its condition fails the paper says nothing.
            if let Ok(value) = proposition_3(randomizer, size, delta) {
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
    let mut subtitle = format!("dimension {dimension}, 1 bit per coordinate, delta {delta:e}");
    if k > 1 {
        let _ = write!(subtitle, ", {k} reports per person");
    }
    if h < 1.0 {
        let _ = write!(subtitle, ", {:.0}% honest", 100.0 * h);
    }
    let title = "What one released batch tells about one person".into();
    Ok(Curves { title, subtitle, lines })
}

fn figure<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    curves: &Curves,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let area = area.margin(14, 0, 0, 0).titled(&curves.title, ("sans-serif", 30))?;
    let area = area.titled(&curves.subtitle, ("sans-serif", 20))?;
    let all = || curves.lines.iter().flat_map(|(ours, papers)| ours.iter().chain(papers));
    let lowest = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let highest = all().map(|point| point.1).fold(0.0, f64::max);
    let range = 10f64.powf(lowest.log10().floor())..10f64.powf(highest.log10().ceil());
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .margin_right(56)
        .x_label_area_size(64)
        .y_label_area_size(96)
        .build_cartesian_2d((100f64..1e6).log_scale(), range.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("batch size (reports)")
        .y_desc("central epsilon (nats, smaller is more private)")
        .axis_desc_style(("sans-serif", 22))
        .label_style(("sans-serif", 18))
        .x_label_formatter(&|value| power(*value))
        .y_label_formatter(&|value| power(*value))
        .light_line_style(RGBColor(236, 236, 236))
        .bold_line_style(RGBColor(205, 205, 205))
        .draw()?;
    for ((epsilon, colour), (ours, papers)) in LOCAL.iter().zip(COLOURS).zip(&curves.lines) {
        chart
            .draw_series(LineSeries::new(ours.iter().copied(), colour.stroke_width(3)))?
            .label(format!("certified, local epsilon {epsilon}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 34, y)], colour.stroke_width(3)));
        if papers.is_empty() {
            continue;
        }
        let style = colour.stroke_width(2);
        chart
            .draw_series(DashedLineSeries::new(papers.iter().copied(), 8, 6, style))?
            .label(format!("paper (Prop. 3), local epsilon {epsilon}"))
            .legend(move |(x, y)| {
                DashedPathElement::new([(x, y), (x + 34, y)], 8, 6, colour.stroke_width(2))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .legend_area_size(44)
        .margin(8)
        .label_font(("sans-serif", 16))
        .background_style(WHITE.mix(0.95))
        .border_style(RGBColor(160, 160, 160))
        .draw()?;
    area.present()?;
    Ok(())
}

/// 1000 as 1,000; 0.01 as it is.
fn power(value: f64) -> String {
    if value < 1.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
