//! Experiments with a clock and with reports that are never sent.

use std::{fs, path::Path};

use incrowd_lab::experiment::{
    AlgorithmConfig, AlgorithmName, Assumptions, ClosedBy, ExperimentConfig, Prepared, Row, Setting,
};
use incrowd_planner::{LocalLimit, PlanRequest, Shape, plan};
use incrowd_protocol::Layout;
use incrowd_sim::ArrivalsConfig;

use crate::experiment::{Scratch, experiment, files};

const SMALL: &str = r#"
algorithms = [
    { name = "sblb", label = "by time", closes = "time" },
    { name = "sblb", label = "by time, capped", closes = "time", local_epsilon = 8 },
    { name = "sblb", label = "by count" },
    "jdp-tree", "random"]
horizons = [3000]
central_epsilons = [1]
local_epsilons = ["unlimited"]
batch_sizes = [300]
dimensions = [3]
runs = 2
environment = { kind = "synthetic", arms = 4 }
arrivals = { per_day = 2000, swing = 0.5 }
drop = { reward_0 = 0.4, reward_1 = 0.1 }
"#;

#[test]
fn files_with_a_clock_do_not_depend_on_threads_or_interruptions() {
    let (one, two) = (Scratch::new("clock-one"), Scratch::new("clock-two"));
    let first = experiment(SMALL, &one.0, 1);
    experiment(SMALL, &two.0, 2);
    assert_eq!(files(&one.0), files(&two.0));
    let cell = fs::read_dir(two.0.join("cells")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(cell).unwrap();
    assert_eq!(experiment(SMALL, &two.0, 2).ran, 1);
    assert_eq!(files(&one.0), files(&two.0));

    let other = SMALL.replace("swing = 0.5", "swing = 0.6");
    let other = experiment(&other, &two.0, 2);
    assert_eq!((other.reused, other.ran), (0, first.ran), "other times are other runs");
    let other = SMALL.replace("reward_1 = 0.1", "reward_1 = 0.2");
    assert_eq!(experiment(&other, &two.0, 2).reused, 0, "other drop-outs are other runs");
}

#[test]
fn the_table_tells_what_was_sent() {
    let directory = Scratch::new("clock-table");
    let finished = experiment(SMALL, &directory.0, 2);
    for row in &finished.rows {
        let name = row.algorithm.as_str();
        // Within 0.1 and 0.4, and the lost reports are rather those of a reward 0.
        let dropped = row.dropped as f64 / 3000.0;
        assert!(dropped > 0.1 && dropped < 0.35, "{name}: {dropped}");
        let sent = row.people - row.dropped;
        assert!(row.reward_sent / sent as f64 > row.reward / row.people as f64 + 0.02, "{name}");
        let by_time = name.starts_with("by time");
        assert_eq!((row.pads.is_some(), row.surplus.is_some()), (by_time, by_time), "{name}");
        assert_eq!(row.reports.is_some(), name.starts_with("by "), "{name}");
        if by_time {
            // 300 in 3.6 hours, 450 at the peak, and 5.5 deviations.
            let size = 450 + 117;
            assert_eq!(row.pads.unwrap() + row.reports.unwrap(), size * row.batches);
            assert!(row.pads.unwrap() > 0 && row.reports.unwrap() <= sent);
            assert!((7..=10).contains(&row.batches), "{}", row.batches);
        } else if name == "by count" {
            assert_eq!((row.batches, row.reports), (sent / 300, Some(sent / 300 * 300)));
        }
    }
    for line in &finished.summary {
        assert!(line.dropped.unwrap() > 0.1 && line.reward_sent.unwrap() > line.reward_mean);
        let private = line.algorithm != "random";
        assert_eq!(line.certified, private);
        assert!(!private || line.epsilon_central_certified.unwrap() <= 1.0);
        match line.algorithm.as_str() {
            // As much noise as the counted batch, or hardly more.
            "by time" => {
                let counted = &finished.summary[2];
                let ratio = line.noise_std.unwrap() / counted.noise_std.unwrap();
                let batches = (line.batches / counted.batches).sqrt();
                assert!(ratio / batches > 0.95 && ratio / batches < 1.1, "{ratio} {batches}");
            }
            "by time, capped" => assert!(line.epsilon_local_certified.unwrap() <= 8.0),
            _ => {}
        }
    }
}

/// What is simulated is what `incrowd plan --honest 1` deploys for the same people, with the arms'
/// policy.
#[test]
fn a_simulated_plan_is_the_planners() {
    let arrivals = ArrivalsConfig { swing: 0.5, ..ArrivalsConfig::new(2000.0) }.check().unwrap();
    let setting = Setting {
        environment: "synthetic".into(),
        dimension: 3,
        arms: 4,
        horizon: 6000,
        central_epsilon: Some(1.0),
        local_epsilon: None,
        batch_size: None,
        assumptions: Assumptions::default(),
    };
    for (name, shape) in
        [(AlgorithmName::Sblb, Shape::Fixed), (AlgorithmName::SblbGrowing, Shape::Growing)]
    {
        let algorithm = AlgorithmConfig { closes: ClosedBy::Time, ..AlgorithmConfig::new(name) };
        let simulated =
            Prepared::new(&algorithm, &setting, Layout::Shared, 1e-6, Some(&arrivals)).unwrap();
        let request = PlanRequest {
            users_per_day: Some(2000.0),
            opens: Some(0),
            peak: Some(1.5),
            busiest_day: Some(1.0),
            central_epsilon: Some(1.0),
            local_epsilon: LocalLimit::Unlimited,
            shape,
            // What simulations assume.
            honest_fraction: 1.0,
            ..PlanRequest::new(3, 6000)
        };
        let deployed = plan(&request.check().unwrap()).unwrap();
        let mechanism = deployed.task().mechanism();
        assert!(mechanism.window(1).unwrap().is_some(), "{name:?} closes by time");
        assert_eq!(simulated.guarantee().mechanism(), Some(mechanism.hash()), "{name:?}");
        assert!(
            Prepared::new(&algorithm, &setting, Layout::Shared, 1e-6, None).is_err(),
            "no clock"
        );
    }
}

/// Figures of tables that were written before there were these columns.
#[test]
fn an_older_table_can_be_read() {
    let directory = Scratch::new("clock-older");
    experiment("algorithms = ['random']\nhorizons = [100]\nruns = 1", &directory.0, 1);
    let text = fs::read_to_string(directory.0.join("table.csv")).unwrap();
    let older = |line: &str| line.split(',').take(22).collect::<Vec<_>>().join(",") + "\n";
    let older: String = text.lines().map(older).collect();
    assert!(older.lines().next().unwrap().ends_with(",noise_std"), "{older}");
    let rows: Result<Vec<Row>, _> =
        csv::Reader::from_reader(older.as_bytes()).deserialize().collect();
    let row = &rows.unwrap()[0];
    assert_eq!((row.pads, row.setting().assumptions), (None, Assumptions::default()));
}

#[test]
fn clocks_and_drop_outs_have_their_rules() {
    let message = |text: &str| {
        let config: ExperimentConfig = toml::from_str(text).unwrap();
        config.check(Path::new(".")).err().unwrap().to_string()
    };
    let cases = [
        (
            "algorithms = [{ name = 'sblb', closes = 'time' }]\nhorizons = [500]",
            "sblb needs arrivals: its rounds close by time",
        ),
        (
            "algorithms = [{ name = 'jdp-tree', closes = 'time' }]\nhorizons = [500]",
            "jdp-tree has the option closes, which it does not use: remove it",
        ),
        (
            "algorithms = [{ name = 'sblb', closes = 'time', preset = 'paper-ldp' }]\nhorizons = [500]",
            "sblb has the option closes, which it does not use: remove it",
        ),
        (
            "algorithms = ['random']\nhorizons = [500]\narrivals = { per_day = 0 }",
            "per_day is 0, must be above 0 and at most 1000000000",
        ),
        (
            "algorithms = ['random']\nhorizons = [500]\narrivals = { per_day = 5, swing = 2 }",
            "swing is 2, must be from 0 to 1",
        ),
        (
            "algorithms = ['random']\nhorizons = [500]\ndrop = { reward_0 = -1, reward_1 = 0 }",
            "drop.reward_0 is -1, must be from 0 to 1",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text), expected);
    }
}
