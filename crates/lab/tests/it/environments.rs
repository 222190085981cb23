//! Several environments in one experiment: one table, one figure, and plans that know nothing of
//! them.

use std::{fs, path::Path};

use incrowd_lab::{
    experiment::{ExperimentConfig, ExperimentError},
    figures::draw,
};

use crate::experiment::{Scratch, experiment};

const LAWS: &str = r#"
algorithms = ["sblb-growing", "jdp-growing", "jdp-tree", "random"]
horizons = [1500]
central_epsilons = [2]
local_epsilons = ["unlimited"]
dimensions = [3]
runs = 10
against = "jdp-growing"
environments = [
    { kind = "synthetic" },
    { kind = "synthetic", gap = 0.1 },
    { kind = "synthetic", contexts = "one-hot" },
    { kind = "synthetic", contexts = "one-hot", dimension = 4 },
    { kind = "ordered", gap = 0.1 },
]
tuning = { explorations = [0.0, 1.0], runs = 1 }
"#;

fn check(text: &str) -> Result<(), ExperimentError> {
    let config: ExperimentConfig = toml::from_str(text).unwrap();
    config.check(Path::new(".")).map(|_| ())
}

#[test]
fn one_run_gives_one_table_and_one_figure() {
    let directory = Scratch::new("laws");
    let finished = experiment(LAWS, &directory.0, 2);
    let mut settings: Vec<(&str, u32)> =
        finished.rows.iter().map(|row| (row.environment.as_str(), row.dimension)).collect();
    settings.dedup();
    let expected = [
        ("synthetic", 3),
        ("synthetic, gap 0.1", 3),
        ("synthetic, one-hot", 3),
        ("synthetic, one-hot", 4),
        ("ordered, gap 0.1", 3),
    ];
    assert_eq!(settings, expected);
    // Four algorithms at two dimensions: a plan does not know the gap or the law.
    assert_eq!(finished.planned, 8);
    // Regret of a random choice is smaller by the gap.
    let random = |environment: &str| {
        let row = finished.summary.iter().find(|row| row.setting.environment == environment);
        row.unwrap().regret_random.unwrap()
    };
    let ratio = random("synthetic, gap 0.1") / random("synthetic");
    assert!((ratio - 0.2).abs() < 1e-9, "{ratio}");

    let written = draw(&directory.0).unwrap();
    assert!(written.iter().any(|path| path.ends_with("figures/ratios.svg")));
    let table = fs::read_to_string(directory.0.join("ratios.md")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2 + 2 * expected.len());
    assert!(lines[0].ends_with("| regret of jdp-growing | sblb-growing | jdp-tree |"));
    assert!(lines[5].starts_with("| synthetic, one-hot, d = 4 | default | "), "{}", lines[5]);
    assert!(lines[11].starts_with("| ordered, gap 0.1, d = 3 | tuned | "), "{}", lines[11]);
    // The ratio of the table is that of the summary.
    let row = finished.summary.iter().find(|row| row.algorithm == "jdp-tree").unwrap();
    let shown = format!(" {:.2} [", row.ratio.as_ref().unwrap().ratio);
    assert!(lines[2].split('|').nth(5).unwrap().starts_with(&shown), "{} {shown}", lines[2]);
    let figure = fs::read_to_string(directory.0.join("figures/ratios.svg")).unwrap();
    for text in
        ["simulated people, gap 0.1, 3 features", "default exploration", "tuned exploration"]
    {
        assert!(figure.contains(text), "{text}");
    }
}

#[test]
fn environments_that_cannot_be_told_apart_are_refused() {
    let head = "algorithms = ['random']\nhorizons = [5]\n";
    let twice = "environments = [{ kind = 'ordered' }, { kind = 'ordered', dimension = 5 }]";
    let cases = [
        (
            "environment = { kind = 'ordered' }\nenvironments = [{ kind = 'fixed-arms' }]",
            "environment and environments are both given, must be one of them",
        ),
        (twice, "environments has \"ordered\" twice, must have it once"),
        (
            "environments = [{ kind = 'synthetic', gap = 2.0 }]",
            "gap is 2, must be above 0 and at most 0.5",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(check(&format!("{head}{text}")).unwrap_err().to_string(), expected);
    }
    check(&format!("{head}dimensions = [4]\n{twice}")).unwrap();
}

#[test]
fn every_file_of_ours_is_an_experiment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut checked = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let config = ExperimentConfig::read(&path).unwrap();
            let found = config.check(&folder).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(found, Ok(()), "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked >= 11, "{checked}");
}
