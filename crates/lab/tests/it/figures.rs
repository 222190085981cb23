//! Figures and report of made-up experiments. Nothing here was measured: every number is a formula.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process,
};

use incrowd_lab::{
    experiment::{CurvePoint, Row},
    figures::{FigureError, draw, slopes},
};

/// Name, factor and exponent of the made-up regret, guarantee: (local, central, certified).
type Fake = (&'static str, f64, f64, Option<(Option<f64>, Option<f64>, bool)>);

const FAKES: [Fake; 12] = [
    ("random", 0.36, 1.0, None),
    ("LinUCB", 0.19, 0.5, None),
    ("LinTS", 0.35, 0.52, None),
    ("incrowd", 2.6, 0.56, Some((Some(2.0), Some(1.0), true))),
    ("incrowd, every batch", 3.4, 0.56, Some((Some(2.0), Some(1.0), true))),
    ("incrowd, 8 bits", 3.9, 0.58, Some((Some(4.0), Some(1.0), true))),
    ("paper's protocol", 1.4, 0.57, Some((Some(3.0), Some(1.0), false))),
    ("local only", 1.6, 0.78, Some((Some(1.0), Some(1.0), true))),
    ("central LinUCB", 1.2, 0.54, Some((None, Some(1.0), true))),
    ("central tree", 2.0, 0.53, Some((None, Some(1.0), true))),
    ("shuffled Gaussian", 2.4, 0.6, Some((Some(6.0), Some(1.0), false))),
    ("explore then commit", 0.5, 0.76, Some((Some(2.0), Some(1.0), true))),
];

/// A directory that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("incrowd-figures-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fake_row(fake: Fake, horizon: u64, epsilon: f64, seed: u64) -> Row {
    let (name, factor, exponent, guarantee) = fake;
    let people = horizon as f64;
    let spread = 1.0 + 0.12 * (seed as f64 * 2.4 + factor).sin();
    let price = if guarantee.is_some() { epsilon.powf(-0.6) } else { 1.0 };
    let regret = (factor * price * people.powf(exponent)).min(0.36 * people) * spread;
    Row {
        algorithm: name.into(),
        variant: "default".into(),
        environment: "synthetic".into(),
        dimension: 5,
        arms: 10,
        horizon,
        central_epsilon: Some(epsilon),
        local_epsilon: None,
        batch_size: None,
        seed,
        exploration: Some(1.0),
        regret: Some(regret),
        regret_random: Some(0.36 * people),
        reward: 0.9 * people - regret,
        people: horizon,
        batches: if guarantee.is_some() { horizon / 500 } else { 0 },
        model_versions: 12,
        epsilon_local_certified: guarantee.and_then(|g| g.0).map(|local| local * epsilon),
        epsilon_central_certified: guarantee.and_then(|g| g.1).map(|central| central * epsilon),
        delta: guarantee.map(|_| 1e-6),
        certified: guarantee.is_some_and(|g| g.2),
        noise_std: guarantee.map(|_| 31.7),
        reports: None,
        pads: None,
        surplus: None,
        dropped: 0,
        reward_sent: 0.9 * people - regret,
        reward_stderr: None,
        theta_error: None,
        covered: None,
        parameter_bound: 1.0,
        context_bound: 1.0,
        reward_noise: 0.5,
        determinant_growth: 0.5,
        failure_probability: 0.05,
        honest_fraction: 1.0,
        participations: 1,
        key: String::new(),
    }
}

/// Follows random choice until the power law of the run's end is below it.
fn fake_curve(run: usize, row: &Row) -> Vec<CurvePoint> {
    let people = row.horizon as f64;
    let regret = row.regret.unwrap_or(row.reward);
    let points = 50;
    let mut curve: Vec<CurvePoint> = Vec::new();
    for i in 0..=points {
        let t = people.powf(f64::from(i) / f64::from(points)).round();
        let value = match row.regret {
            Some(_) => (0.36 * t * regret / row.regret_random.unwrap() * (people / t).powf(0.4))
                .min(0.36 * t),
            None => regret * (t / people).powf(1.02),
        };
        if curve.last().is_none_or(|last| last.people < t as u64) {
            curve.push(CurvePoint {
                run: run as u64,
                people: t as u64,
                regret: value,
                key: String::new(),
            });
        }
    }
    curve
}

fn write(folder: &Path, rows: &[Row]) {
    let mut table = csv::Writer::from_path(folder.join("table.csv")).unwrap();
    let mut curves = csv::Writer::from_path(folder.join("curves.csv")).unwrap();
    for (run, row) in rows.iter().enumerate() {
        table.serialize(row).unwrap();
        for point in fake_curve(run, row) {
            curves.serialize(point).unwrap();
        }
    }
    table.flush().unwrap();
    curves.flush().unwrap();
    let manifest = r#"{"name": "made up <test>", "version": "0.1.0", "delta": 1e-6,
        "command": "incrowd-lab simulate --algorithms all --out made-up", "more": [1, 2]}"#;
    fs::write(folder.join("manifest.json"), manifest).unwrap();
}

/// Every algorithm, at three horizons and four limits.
fn large() -> Vec<Row> {
    let mut rows = Vec::new();
    for horizon in [1_000, 10_000, 100_000] {
        for fake in FAKES {
            (0..10).for_each(|seed| rows.push(fake_row(fake, horizon, 1.0, seed)));
        }
    }
    for epsilon in [0.25, 0.5, 2.0] {
        for fake in FAKES {
            (0..10).for_each(|seed| rows.push(fake_row(fake, 100_000, epsilon, seed)));
        }
    }
    rows
}

fn small() -> Vec<Row> {
    let few = &FAKES[..4];
    few.iter().flat_map(|fake| (0..3).map(|seed| fake_row(*fake, 1000, 1.0, seed))).collect()
}

/// Texts of a well-formed SVG.
fn texts(file: &Path) -> Vec<String> {
    let source = fs::read_to_string(file).unwrap();
    let document = roxmltree::Document::parse(&source).unwrap();
    document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text().map(Into::into))
        .collect()
}

/// Every text can be read where the figure is 400 pixels wide, and is inside of it.
fn assert_legible(file: &Path) {
    let source = fs::read_to_string(file).unwrap();
    let document = roxmltree::Document::parse(&source).unwrap();
    let number = |node: &roxmltree::Node, name: &str| -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    };
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    for node in document.descendants().filter(|node| node.has_tag_name("text")) {
        let (x, y, size) = (number(&node, "x"), number(&node, "y"), number(&node, "font-size"));
        let text = node.text().unwrap_or_default();
        let wide = incrowd_chart::text_width(text, size);
        let left = match node.attribute("text-anchor") {
            Some("middle") => x - wide / 2.0,
            Some("end") => x - wide,
            _ => x,
        };
        assert!(size * 400.0 / width >= 10.0, "{}: {text}: {size}", file.display());
        let inside = left >= 0.0 && left + wide <= width && y >= size && y <= height;
        assert!(inside, "{}: {text}", file.display());
    }
    assert!(source.contains("prefers-color-scheme: dark"));
}

/// Classes of the colours of a legend's samples.
fn line_colours(file: &Path) -> BTreeSet<String> {
    let source = fs::read_to_string(file).unwrap();
    let document = roxmltree::Document::parse(&source).unwrap();
    document
        .descendants()
        .filter(|node| {
            node.has_tag_name("polyline") && node.attribute("stroke-width") == Some("3.0")
        })
        .filter_map(|node| node.parent()?.attribute("class").map(Into::into))
        .collect()
}

fn names(written: &[PathBuf]) -> Vec<String> {
    written.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_large_experiment_gets_every_figure_and_a_report() {
    let folder = Folder::new("large");
    let mut rows = large();
    for size in [100, 1000, 10_000] {
        for fake in &FAKES[3..6] {
            for seed in 0..4 {
                let mut row = fake_row(*fake, 100_000, 1.0, seed);
                row.batch_size = Some(size);
                row.regret = row.regret.map(|regret| regret * (f64::from(size) / 500.0).sqrt());
                rows.push(row);
            }
        }
    }
    write(&folder.0, &rows);
    let written = draw(&folder.0).unwrap();
    let names = names(&written);
    for name in ["regret-1", "regret-9", "slope", "epsilon", "batch-size"] {
        assert!(names.contains(&format!("{name}.svg")), "{name}.svg in {names:?}");
    }
    for file in &written {
        if file.extension().unwrap() == "svg" {
            assert!(texts(file).len() > 5);
            assert_legible(file);
        }
    }
    for name in ["regret-1", "slope", "epsilon"] {
        let texts = texts(&folder.0.join("figures").join(format!("{name}.svg")));
        for fake in FAKES {
            assert!(texts.iter().any(|text| text == fake.0), "{} in {name}", fake.0);
        }
    }
    let page = fs::read_to_string(folder.0.join("report.html")).unwrap();
    for outside in ["http://", "https://", "src=", "href=", "<script", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for fake in FAKES {
        assert!(page.contains(&fake.0.replace('\'', "&#39;")), "{}", fake.0);
    }
    assert!(page.contains("made up &lt;test&gt;") && !page.contains("<test>"));
    assert!(page.contains("incrowd-lab simulate --algorithms all --out made-up"));
    assert!(page.contains("not certified") && page.contains("uses no data"));
}

#[test]
fn drawing_twice_gives_the_same_bytes() {
    let folder = Folder::new("twice");
    write(&folder.0, &small());
    let first: Vec<Vec<u8>> =
        draw(&folder.0).unwrap().iter().map(|file| fs::read(file).unwrap()).collect();
    let second: Vec<Vec<u8>> =
        draw(&folder.0).unwrap().iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(first == second);
}

#[test]
fn one_setting_gets_one_figure() {
    let folder = Folder::new("one");
    write(&folder.0, &small());
    let written = draw(&folder.0).unwrap();
    assert_eq!(names(&written), ["regret-1.svg", "report.html"]);
    let page = fs::read_to_string(&written[1]).unwrap();
    assert!(page.contains("the best algorithm with a certified guarantee is incrowd"));
    assert!(page.contains("without privacy, LinUCB"));
    assert!(page.contains("two standard errors"));
}

#[test]
fn an_algorithm_has_one_colour_in_all_figures() {
    let folder = Folder::new("colours");
    let labels = ["sblb-growing", "sblb-growing, local at most 8", "jdp-tree", "random"];
    let mut rows = large();
    rows.retain(|row| FAKES[..4].iter().any(|fake| fake.0 == row.algorithm));
    for row in &mut rows {
        let at = FAKES.iter().position(|fake| fake.0 == row.algorithm).unwrap();
        row.algorithm = labels[3 - at].into();
    }
    write(&folder.0, &rows);
    draw(&folder.0).unwrap();
    let expected: BTreeSet<String> = ["ic-blue", "ic-grey", "ic-vermilion"].map(Into::into).into();
    for name in ["regret-1", "regret-3", "slope", "epsilon"] {
        let file = folder.0.join("figures").join(format!("{name}.svg"));
        assert_eq!(line_colours(&file), expected, "{name}");
    }
    let page = fs::read_to_string(folder.0.join("report.html")).unwrap();
    for (class, label) in [("blue", labels[0]), ("blue", labels[1]), ("vermilion", labels[2])] {
        let swatch = format!("<span class=\"swatch ic-{class}\"></span>{label}<");
        assert!(page.contains(&swatch), "{label}");
    }
    // Cards are as dark as the figures on them.
    assert!(page.contains("--card: #1b1e21") && page.contains(".ic-paper { color: #1b1e21 }"));
    assert!(!page.contains("background: #fff"));
}

#[test]
fn titles_say_what_was_found() {
    let folder = Folder::new("titles");
    write(&folder.0, &small());
    let written = draw(&folder.0).unwrap();
    let texts = texts(&written[0]).join(" ");
    assert!(texts.contains("Least lost with certified privacy: incrowd, "), "{texts}");
    assert!(texts.contains("of what random choice loses"), "{texts}");
    assert!(texts.contains("Simulated people: 5 features") && !texts.contains("synthetic"));
}

#[test]
fn a_named_baseline_gets_ratios_with_numbers() {
    let folder = Folder::new("against");
    write(&folder.0, &small());
    let manifest = r#"{"experiment": {"against": "incrowd"}}"#;
    fs::write(folder.0.join("manifest.json"), manifest).unwrap();
    let written = draw(&folder.0).unwrap();
    assert_eq!(names(&written), ["regret-1.svg", "ratios.svg", "ratios.md", "report.html"]);
    let texts = texts(&written[1]);
    // One setting: a row for each algorithm, and its number.
    for name in ["LinUCB", "LinTS"] {
        assert_eq!(texts.iter().filter(|text| *text == name).count(), 1, "{name}");
    }
    assert_eq!(texts.iter().filter(|text| text.ends_with('×')).count(), 2, "{texts:?}");
    assert!(texts.iter().any(|text| text == "times the reward that incrowd loses"));
    assert_legible(&written[1]);
}

#[test]
fn labels_are_escaped() {
    let folder = Folder::new("escape");
    let mut rows = small();
    for row in &mut rows {
        if row.algorithm == "incrowd" {
            row.algorithm = "a <b> & \"c\"".into();
        }
        row.environment = "clicks </svg><i>".into();
    }
    write(&folder.0, &rows);
    let written = draw(&folder.0).unwrap();
    assert!(texts(&written[0]).iter().any(|text| text == "a <b> & \"c\""));
    let page = fs::read_to_string(&written[1]).unwrap();
    assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
    assert!(!page.contains("<b>") && !page.contains("<i>"));
}

#[test]
fn tuned_is_drawn_and_both_are_in_the_table() {
    let folder = Folder::new("tuned");
    let mut rows = small();
    for mut row in small().into_iter().filter(|row| row.algorithm != "random") {
        row.variant = "tuned".into();
        row.regret = row.regret.map(|regret| regret / 2.0);
        rows.push(row);
    }
    write(&folder.0, &rows);
    let written = draw(&folder.0).unwrap();
    let texts = texts(&written[0]);
    assert_eq!(texts.iter().filter(|text| *text == "incrowd").count(), 1);
    assert!(texts.iter().any(|text| text.contains("tuned exploration")));
    let page = fs::read_to_string(&written[1]).unwrap();
    assert!(page.contains("<span class=\"variant\">tuned</span>"));
    assert!(page.contains("<span class=\"variant\">default</span>"));
}

#[test]
fn without_regret_the_average_reward_is_drawn() {
    let folder = Folder::new("logged");
    let mut rows = small();
    for row in &mut rows {
        (row.regret, row.regret_random, row.noise_std) = (None, None, None);
    }
    write(&folder.0, &rows);
    let written = draw(&folder.0).unwrap();
    assert!(texts(&written[0]).iter().any(|text| text == "average reward per person"));
    assert!(slopes(&rows).is_empty());
    let page = fs::read_to_string(&written[1]).unwrap();
    assert!(page.contains("per person, ") && !page.contains("NaN"));
}

#[test]
fn the_slope_of_a_power_law_is_recovered() {
    let mut rows = Vec::new();
    for horizon in [100u64, 1000, 10_000, 100_000] {
        for seed in 0..5 {
            let mut row = fake_row(FAKES[3], horizon, 1.0, seed);
            row.regret = Some((seed + 1) as f64 * (horizon as f64).sqrt());
            rows.push(row);
        }
    }
    let slopes = slopes(&rows);
    assert_eq!(slopes.len(), 1);
    let slope = &slopes[0];
    assert!((slope.slope - 0.5).abs() < 1e-9);
    assert!(slope.low.unwrap() <= 0.5 + 1e-9 && slope.high.unwrap() >= 0.5 - 1e-9);
    assert_eq!(slope.horizons, [100, 1000, 10_000, 100_000]);
    assert_eq!((slope.algorithm.as_str(), slope.setting.horizon), ("incrowd", 100_000));
    // Deviations that cancel out at every horizon, in another order each time: the same slope, with
    // an interval around it.
    for (i, row) in rows.iter_mut().enumerate() {
        let deviation = ((row.seed as usize * (i / 5 + 1)) % 5) as f64 / 20.0 - 0.1;
        row.regret = Some((1.0 + deviation) * (row.horizon as f64).sqrt());
    }
    let noisy = &incrowd_lab::figures::slopes(&rows)[0];
    let (low, high) = (noisy.low.unwrap(), noisy.high.unwrap());
    assert!((noisy.slope - 0.5).abs() < 1e-9);
    assert!(low < 0.499 && 0.501 < high && high - low < 0.1, "{low} {high}");
    rows.retain(|row| row.seed == 0);
    assert_eq!(incrowd_lab::figures::slopes(&rows)[0].low, None);
}

/// The error after one text in one file is replaced.
fn broken(name: &str, file: &str, change: impl Fn(String) -> String) -> String {
    let folder = Folder::new(name);
    write(&folder.0, &small());
    let path = folder.0.join(file);
    fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
    let message = draw(&folder.0).unwrap_err().to_string();
    assert!(!folder.0.join("report.html").exists());
    message.replace(&format!("{}", folder.0.join("").display()), "")
}

/// Replaces a field of a line (from 1, with the header) by its column.
fn field(text: &str, line: usize, column: &str, value: &str) -> String {
    let at = text.lines().next().unwrap().split(',').position(|name| name == column).unwrap();
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    let mut fields: Vec<&str> = lines[line - 1].split(',').collect();
    fields[at] = value;
    lines[line - 1] = fields.join(",");
    lines.join("\n") + "\n"
}

#[test]
fn bad_rows_are_named_with_file_and_line() {
    let table = |name, line, column, value| {
        broken(name, "table.csv", |text| field(&text, line, column, value))
    };
    assert_eq!(
        table("type", 4, "horizon", "many"),
        "table.csv, line 4: horizon: field 5: invalid digit found in string"
    );
    assert_eq!(
        table("nan", 3, "regret", "NaN"),
        "table.csv, line 3: regret is NaN, must be finite"
    );
    assert_eq!(
        table("limit", 2, "central_epsilon", "-1"),
        "table.csv, line 2: central_epsilon is -1, must be above 0 and finite"
    );
    assert_eq!(
        table("people", 2, "people", "0"),
        "table.csv, line 2: people is 0, must be at least 1"
    );
    assert!(table("mixed", 5, "regret", "").starts_with("table.csv, line 5: regret is missing"));
    let short = broken("short", "table.csv", |text| text + "random,default\n");
    assert!(short.starts_with("table.csv, line 14: ") && short.contains("fields"), "{short}");
    let curves = |name, line, column, value| {
        broken(name, "curves.csv", |text| field(&text, line, column, value))
    };
    assert_eq!(
        curves("run", 6, "run", "12"),
        "curves.csv, line 6: run is 12, must be below 12, the number of rows in table.csv"
    );
    assert_eq!(
        curves("order", 6, "people", "1"),
        "curves.csv, line 6: people is 1, must be above 4, the point before of run 0"
    );
    assert_eq!(
        curves("curve-nan", 6, "regret", "inf"),
        "curves.csv, line 6: regret is inf, must be finite"
    );
}

#[test]
fn missing_parts_are_named() {
    let header = |text: String| text.lines().next().unwrap().to_owned() + "\n";
    assert_eq!(
        broken("empty", "table.csv", header),
        "table.csv: no rows, so there is nothing to draw"
    );
    assert_eq!(
        broken("no-points", "curves.csv", header),
        "curves.csv: no points of run 0 (table.csv, line 2)"
    );
    assert!(broken("json", "manifest.json", |_| "{".into()).starts_with("manifest.json: EOF"));
    let folder = Folder::new("nothing");
    assert!(matches!(draw(&folder.0), Err(FigureError::Read { .. })));
}

#[test]
fn a_missing_manifest_is_no_obstacle() {
    let folder = Folder::new("no-manifest");
    write(&folder.0, &small());
    fs::remove_file(folder.0.join("manifest.json")).unwrap();
    let written = draw(&folder.0).unwrap();
    let page = fs::read_to_string(written.last().unwrap()).unwrap();
    assert!(page.contains("does not name its command"));
}

/// Leaves the large experiment where `INCROWD_FIGURES` says, to be looked at.
#[test]
#[ignore = "for people: INCROWD_FIGURES=DIR cargo test -p incrowd-lab --test it figures -- --ignored"]
fn keep_a_large_experiment() {
    let folder = PathBuf::from(std::env::var_os("INCROWD_FIGURES").unwrap());
    fs::create_dir_all(&folder).unwrap();
    let mut rows = large();
    for size in [100, 300, 1000, 3000, 10_000] {
        for fake in &FAKES[3..8] {
            for seed in 0..4 {
                let mut row = fake_row(*fake, 100_000, 1.0, seed);
                row.batch_size = Some(size);
                let bend = f64::from(size) / 500.0;
                row.regret = row.regret.map(|regret| regret * (bend.sqrt() + 0.7 / bend.sqrt()));
                rows.push(row);
            }
        }
    }
    let mut logged: Vec<Row> = FAKES.iter().map(|f| fake_row(*f, 50_000, 1.0, 0)).collect();
    for row in &mut logged {
        row.environment = "clicks.csv".into();
        (row.regret, row.regret_random) = (None, None);
    }
    rows.extend(logged);
    write(&folder, &rows);
    draw(&folder).unwrap();
}
