//! Figures can be read on a phone and on a dark page, whatever is drawn.

use std::collections::BTreeSet;

use incrowd_chart::{
    Axis, Chart, Dot, DotPlot, Fill, Marker, Name, Panel, Plot, Series, Style,
    colour::{HUES, PAPER},
    text_width,
};
use roxmltree::Document;

/// Width of a narrow phone, and the smallest text that can be read there.
const PHONE: (f64, f64) = (400.0, 10.0);

fn style(index: usize) -> Style {
    let fill = [Fill::Full, Fill::Hollow, Fill::Target][index % 3];
    let marker = [Marker::Circle, Marker::Star, Marker::Plus, Marker::Left][index % 4];
    Style { colour: HUES[index % HUES.len()], dash: (6.0, 4.0), marker, fill }
}

/// As many lines as asked for, with names and details that are far too long.
fn plot(lines: usize) -> Plot {
    let series = (0..lines).map(|i| {
        let line = (0..40).map(|x| (1.2f64.powi(x), 10.0 + (i * x as usize) as f64)).collect();
        let mut series =
            Series::new(&format!("a name {}", "which goes on ".repeat(i)), style(i), line);
        series.detail = "and-a-detail-of-one-long-word-that-no-column-has-room-for-at-all".into();
        series.band = vec![(1.0, 0.0, 1e9), (1000.0, -5.0, 1e9)];
        series.bars = vec![(2.0, -1.0, 400.0)];
        series
    });
    Plot { title: "a condition".into(), series: series.collect() }
}

fn chart(panels: usize, lines: usize) -> String {
    Chart {
        title: "A title that says in very many words what a shorter one could say, too".into(),
        subtitle: "People, features, choices, and everything else that is equal: ".repeat(4),
        x: Axis::log("what varies, with a long explanation of the unit it is measured in, and why"),
        y: Axis::log("what is measured"),
        plots: (0..panels).map(|_| plot(lines)).collect(),
    }
    .canvas()
    .svg()
}

fn dots(panels: usize, rows: usize, names: usize) -> String {
    let mut x = Axis::log("times the other");
    x.limits = Some((0.25, 4.0));
    let dot = |series: usize| {
        let value = 0.1 * 2f64.powi(series as i32);
        Dot { series, value, interval: Some((value / 2.0, value * 2.0)) }
    };
    let row: Vec<Dot> = (0..names).map(dot).collect();
    let panel = Panel { title: "a condition".into(), rows: vec![row; rows] };
    DotPlot {
        title: "A title".into(),
        subtitle: "A subtitle".into(),
        x,
        centre: 1.0,
        sides: ("loses less".into(), "loses more".into()),
        rows: (0..rows).map(|i| format!("row {}", "of a long name ".repeat(i))).collect(),
        series: (0..names)
            .map(|i| Name { name: format!("name {i}"), detail: "who".into(), style: style(i) })
            .collect(),
        panels: vec![panel; panels],
    }
    .canvas()
    .svg()
}

fn all() -> Vec<String> {
    vec![chart(1, 3), chart(1, 30), chart(4, 5), dots(1, 2, 3), dots(2, 12, 9), dots(1, 0, 0)]
}

fn number(node: &roxmltree::Node, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

#[test]
fn texts_are_large_enough_and_inside() {
    for svg in all() {
        let document = Document::parse(&svg).unwrap();
        let root = document.root_element();
        let (width, height) = (number(&root, "width"), number(&root, "height"));
        assert_eq!(root.attribute("viewBox"), Some(format!("0 0 {width} {height}").as_str()));
        for text in document.descendants().filter(|node| node.has_tag_name("text")) {
            let (x, y) = (number(&text, "x"), number(&text, "y"));
            let size = number(&text, "font-size");
            assert!(size * PHONE.0 / width >= PHONE.1, "{size} of {width}");
            let content = text.text().unwrap_or_default();
            // The widest common font is an eighth wider than ours.
            let wide = 1.125 * text_width(content, size);
            let left = match text.attribute("text-anchor") {
                Some("middle") => x - wide / 2.0,
                Some("end") => x - wide,
                _ => x,
            };
            assert!(left >= 0.0 && left + wide <= width, "{content}: {left} + {wide}");
            assert!(y - size >= 0.0 && y + 0.3 * size <= height, "{content}: {y} of {height}");
        }
    }
}

#[test]
fn shapes_are_inside() {
    for svg in all() {
        let document = Document::parse(&svg).unwrap();
        let root = document.root_element();
        let (width, height) = (number(&root, "width"), number(&root, "height"));
        for node in document.descendants() {
            for point in node.attribute("points").unwrap_or_default().split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{x} {y}");
            }
        }
    }
}

#[test]
fn every_colour_has_a_dark_value() {
    for svg in all() {
        let document = Document::parse(&svg).unwrap();
        let rules = document
            .descendants()
            .find(|node| node.has_tag_name("style"))
            .and_then(|node| node.text())
            .unwrap();
        assert!(rules.starts_with("@media (prefers-color-scheme: dark) {"));
        let classes: BTreeSet<&str> =
            document.descendants().filter_map(|node| node.attribute("class")).collect();
        assert!(classes.contains(PAPER.class().as_str()));
        for class in &classes {
            assert!(rules.contains(&format!(".{class} {{ color: #")), "{class}");
        }
        // Nothing has a colour of its own.
        for node in document.descendants() {
            for paint in ["fill", "stroke"] {
                let paint = node.attribute(paint);
                assert!(matches!(paint, None | Some("none" | "currentColor")), "{paint:?}");
            }
            let coloured = node.attribute("color").is_some();
            assert_eq!(coloured, node.attribute("class").is_some(), "{node:?}");
        }
    }
}

#[test]
fn lines_have_letters_that_the_legend_repeats() {
    let svg = chart(1, 5);
    let document = Document::parse(&svg).unwrap();
    for letter in ["A", "B", "C", "D", "E"] {
        let found = document
            .descendants()
            .filter(|node| node.has_tag_name("text") && node.text() == Some(letter));
        assert_eq!(found.count(), 2, "{letter}");
    }
}

#[test]
fn what_is_beyond_the_axis_has_its_number() {
    let svg = dots(2, 12, 9);
    let document = Document::parse(&svg).unwrap();
    let count =
        |wanted: &str| document.descendants().filter(|node| node.text() == Some(wanted)).count();
    // Two panels of twelve rows: elements and their text nodes.
    assert_eq!((count("0.10×"), count("13×"), count("0.80×")), (48, 48, 0));
}
