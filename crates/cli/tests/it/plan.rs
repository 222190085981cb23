//! `incrowd plan` as a person uses it: whole outputs, exit codes, files, and a prediction that the
//! demo confirms.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use incrowd_protocol::{Closes, TaskConfig};
use serde_json::Value;

fn incrowd(command: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incrowd")).args(command.split(' ')).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &str) -> Value {
    let output = incrowd(&format!("plan --output json {arguments}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value:#}"))
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Of an earlier run: a task file is not written over.
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn the_contract() {
    let value = json("--dimension 5 --horizon 100000 --central-epsilon 1 --delta 1e-6");
    assert!(number(&value, "epsilon_central") <= 1.0);
    assert!(number(&value, "epsilon_local") <= 8.0, "the default cap");
    assert!(number(&value, "predicted_regret") < 0.1 * number(&value, "random_regret"));
    assert_eq!(value["report_bytes"], 46, "a header, a seed and a byte");
    let schedule = value["schedule"].as_array().unwrap();
    let total: u64 = schedule
        .iter()
        .map(|stage| stage["rounds"].as_u64().unwrap() * stage["size"].as_u64().unwrap())
        .sum();
    assert_eq!(total, 100_000);
    assert_eq!(value["law"]["encoding"], "codebook", "words under the default cap");
    assert_eq!(schedule[0]["encoding"], "codebook");
    let bits = json("--dimension 5 --horizon 100000 --central-epsilon 1 --encoding bits");
    assert_eq!((&bits["law"]["encoding"], &bits["report_bytes"]), (&"bits".into(), &32.into()));
    assert!(number(&value, "predicted_regret") < 0.6 * number(&bits, "predicted_regret"));
    for alternative in value["alternatives"].as_array().unwrap() {
        assert_eq!(alternative["certified"], false);
        assert!(number(alternative, "predicted_regret") > 0.0);
    }
    let local = json("--dimension 5 --horizon 100000 --local-epsilon 2");
    assert!(number(&local, "epsilon_local") <= 2.0 && number(&local, "epsilon_local") > 1.99);
    let both = json("--dimension 5 --horizon 100000 --local-epsilon 2 --central-epsilon 0.05");
    assert!(number(&both, "epsilon_local") <= 2.0 && number(&both, "epsilon_central") <= 0.05);
    let preset = json("--dimension 5 --horizon 100000 --preset paper-regret");
    assert!(number(&preset["paper"], "regret_theorem_2") > 0.0);
    assert!(preset["paper"]["warning"].as_str().unwrap().contains("not certified"));
}

#[test]
fn a_whole_text_by_count() {
    let output = incrowd(
        "plan --dimension 5 --users-per-day 10000 --days 10 --central-epsilon 1 --batch-size 400 --closes count",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = text(&output.stdout);
    let (head, rest) =
        text.split_once("\nThe price of each choice (searched, not certified)\n").unwrap();
    let expected = "\
Plan for 100000 people, 5 features

  rounds   reports      local   central  a report has
     250       400     3.7617    0.9966  5 of 64 words
(local, central: certified epsilons of the rounds)

bytes in a report               46
predicted regret               993  (2.7% of uniform choices; a prediction, no
                                    promise)
  uniform choices            36488
  if all were honest           967  (searched, not certified; this plan:
                                    --honest 0.9)
days to fill a batch         0.040  (the largest: 0.040)
reports too late              4.6%  (at most)
will it learn           it loses about 3 % of what uniform choices lose over
                        100,000 people, 15 % over the first 10,000
";
    assert_eq!(head, expected);
    assert!(
        rest.contains("\nNotes\n  - the local epsilon was capped at the default of 8;"),
        "{rest}"
    );
    let words = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("protect what a person reports, not whether or when"));
    assert!(rest.contains("\nThis holds if\n"));
}

/// What is assumed about honest reports is printed with its price, and assuming all of them is
/// warned about.
#[test]
fn a_plan_says_which_reports_it_takes_for_honest() {
    let base = "--dimension 3 --horizon 20000 --central-epsilon 1 --batch-size 500";
    let usual = json(base);
    assert_eq!(usual["honest_fraction"], 0.9);
    assert_eq!(usual["certificate"]["honest_fraction"], 0.9);
    assert!(usual["notes"].to_string().contains("at least 90 % of the reports of a round"));
    let all = json(&format!("{base} --honest 1"));
    assert!(all["notes"].to_string().contains("WARNING: --honest 1 assumes that nobody"));
    assert_eq!(all["if_all_honest"], Value::Null);
    // The price is searched, the plan certified.
    let (without, price) = (number(&all, "predicted_regret"), number(&usual, "if_all_honest"));
    assert!((price / without - 1.0).abs() < 0.02, "{price} {without}");
    assert!(number(&usual, "predicted_regret") > price);
}

/// A plan that takes a while is still made before its first round opens.
#[test]
fn a_plan_for_now_is_not_in_the_past() {
    let plan = |opens: &str| {
        let output = incrowd(&format!(
            "plan --dimension 2 --users-per-day 1000 --days 2 --batch-size 500 --opens {opens}"
        ));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(plan("now"), "");
    let late = "round 1 opens in the past: Friday 15 January 2021, 08:00:00 UTC\n";
    assert_eq!(plan("2021-01-15T08:00:00Z"), late);
}

/// Everything but the certificate, which has its own tests.
#[test]
fn a_whole_text_by_time() {
    let arguments = "plan --dimension 5 --users-per-day 10000 --days 10 --central-epsilon 1 \
                     --local-epsilon unlimited --batches fixed --opens 2027-01-15T08:00:00Z";
    let output = incrowd(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let whole = text(&output.stdout);
    let (plan, certificate) = whole.split_once("\nCertificate for mechanism\n").unwrap();
    let expected = "\
Plan for 100000 people in 10 d, 5 features
Round 1 opens Friday 15 January 2027, 08:00:00 UTC

  rounds       window  expected  capacity      local   central  a report has
     122   1 h 58 min       820      1857   559.4210    0.9999  255 bits
(local, central: certified epsilons of the rounds)

bytes in a report               49
predicted regret               495  (1.4% of uniform choices; a prediction, no
                                    promise)
  uniform choices            36488
  if all were honest           480  (searched, not certified; this plan:
                                    --honest 0.9)
pads                         55.9%  (room for 2 times the mean rate)
surplus, lost                6e-7%  (at most, if all rounds are so busy; any in
                                    a round: chance 1e-6)
under way, lost              0.14%  (at most, when their round closes)
decision to model       at most 2 h 58 min
will it learn           it loses about 1 % of what uniform choices lose over
                        100,000 people, 10 % over the first 11,000

The price of each choice (searched, not certified)
                                 batch size  a report has         local    lost
  central epsilon 0.5                  3060  127 bits          266.3263    2.3%
  central epsilon 2                    1171  511 bits         1188.1856    0.8%
  half the people                      1857  255 bits          559.4210    2.5%
  twice the people                     1857  255 bits          559.4210    0.7%
  growing batches               1137..91887  511 bits         4597.3558    1.0%
  equal windows twice as long          3585  255 bits          768.8497    1.9%
  no room for peaks (peak 1)            975  255 bits          407.5868    1.4%
  1 bit per coordinate                 3060  1 bit              12.4914    6.5%
(local: local epsilon; lost: share of what uniform choices lose)

Notes
  - the local epsilon is unlimited: a report by itself may tell almost
    everything about its person to whoever reads the wire or runs the shuffler;
    all protection then comes from a shuffler that shows nobody single reports,
    and from the size of the batches
  - at least 90 % of the reports of a round come from honest devices and pads:
    the plan assumes it. What the others send adds no privacy and may be known
    to an adversary; if there are more of them, the central epsilon is larger
    than certified. --honest sets another share
  - the local epsilon of 559 is no protection; everything rests on the shuffler
";
    assert_eq!(plan, expected);
    assert!(certificate.contains("(0.9999, 1e-6)-differentially private"));
    assert_eq!(text(&incrowd(arguments).stdout), whole, "the same every time");
}

#[test]
fn a_whole_text_of_a_comparison() {
    let path = scratch("comparison.toml");
    let arguments = "--comparison --users-per-day 2000 --days 30 --latency-days 7 \
                     --central-epsilon 1 --opens 2027-01-15T08:00:00Z";
    let output = incrowd(&format!("plan {arguments} --task-file {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let whole = text(&output.stdout);
    let (plan, certificate) = whole.split_once("\nCertificate for mechanism\n").unwrap();
    assert_eq!(
        plan,
        "\
Plan for 60000 people in 30 d, two groups
Round 1 opens Friday 15 January 2027, 08:00:00 UTC

  rounds       window  expected  capacity      local   central  a report has
       5          6 d     12000     24819     8.0000    0.3820  1 of 256 words
(local, central: certified epsilons of the rounds)

bytes in a report               46
pads                         51.6%  (room for 2 times the mean rate)
surplus, lost                1e-7%  (at most, if all rounds are so busy; any in
                                    a round: chance 1e-6)
under way, lost              0.00%  (at most, when their round closes)
decision to model       at most 6 d 1 h
what it can tell        at the end, with 95 % confidence: mean rewards that
                        differ by 0.0208 or more (near one half, half of the
                        people in each group)
  if all were honest    0.0208  (searched, not certified; this plan: --honest
                                0.9)

Notes
  - the local epsilon was capped at the default of 8; --local-epsilon sets
    another cap, 'unlimited' lifts it
  - at least 90 % of the reports of a round come from honest devices and pads:
    the plan assumes it. What the others send adds no privacy and may be known
    to an adversary; if there are more of them, the central epsilon is larger
    than certified. --honest sets another share
  - 52% of a batch are pads, and each pad adds as much noise as a report: a
    smaller --peak, or a larger local epsilon, learns faster
  - a report is one word of a random codebook: with a local epsilon of at most
    8, randomized bits would have 3.8 times the variance
"
    );
    assert!(certificate.contains("all of them together are (0.3820, 1e-6)-differentially private"));
    let task: TaskConfig = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert!(task.is_comparison());
    let value = json(arguments);
    assert!((number(&value, "comparison_half_width") - 0.0208).abs() < 5e-5);
    for field in ["predicted_regret", "random_regret", "learning"] {
        assert!(value[field].is_null(), "{field}");
    }
    for other in ["--dimension 1", "--slots 2", "--half-life 5", "--batches growing", "--gap 0.1"] {
        let output = incrowd(&format!("plan --comparison --horizon 9000 {other}"));
        assert_eq!(output.status.code(), Some(2), "{other}");
        assert!(text(&output.stderr).contains("cannot be used with"), "{other}");
    }
}

#[test]
fn a_plan_by_time_has_the_same_numbers_in_json_and_file() {
    let path = scratch("timed.toml");
    let value = json(&format!(
        "--dimension 3 --users-per-day 4800 --days 5 --local-epsilon 4 --batch-size 200 --peak 1.5 --upload-seconds 36 --opens 2027-01-15T08:00:00Z --task-file {}",
        path.display()
    ));
    let table = &value["timetable"];
    assert_eq!(value["closes"], "time");
    assert_eq!(table["opens"], 1_800_000_000_000_u64);
    assert_eq!(table["closes"], 1_800_000_000_000_u64 + 5 * 86_400_000);
    // 200 an hour are expected, 300 at the peak.
    let stage = &table["stages"][0];
    assert_eq!((&stage["rounds"], &stage["window"]), (&120.into(), &3_600_000.into()));
    assert!((number(stage, "expected") - 200.0).abs() < 1e-9);
    let capacity = number(stage, "capacity");
    assert!(capacity > 300.0 + 4.75 * 300f64.sqrt(), "{capacity}");
    assert_eq!(value["schedule"][0]["size"], stage["capacity"]);
    assert!((number(table, "padding_share") - (1.0 - 200.0 / capacity)).abs() < 1e-9);
    assert!((number(table, "in_flight_share") - 0.01).abs() < 1e-12);
    assert!((number(&value, "lost_share") - 0.01).abs() < 1e-6);
    assert_eq!(value["smallest_batch_fill_days"], Value::Null);
    let file = fs::read_to_string(&path).unwrap();
    let words = "\nopens = \"1800000000000\" # Friday 15 January 2027, 08:00:00 UTC\n";
    assert!(file.contains(words), "{file}");
    let task: TaskConfig = toml::from_str(&file).unwrap();
    assert_eq!(task.mechanism().closes(), Closes::Time { opens: 1_800_000_000_000 });
    assert_eq!(value["certificate"]["mechanism"], task.mechanism().hash().to_string());

    // Public keys of RFC 8032's tests.
    let keys = "--shuffler-key d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a --bandit-key 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    let task = incrowd(&format!("task new --plan {} {keys}", path.display()));
    assert_eq!(task.status.code(), Some(0), "{}", text(&task.stderr));
    assert!(text(&task.stdout).contains(words));
    fs::write(&path, &task.stdout).unwrap();
    let shown = text(&incrowd(&format!("task show {}", path.display())).stdout);
    let expected = format!(
        "
rounds   close by time
opens    Friday 15 January 2027, 08:00:00 UTC
ends     Wednesday 20 January 2027, 08:00:00 UTC
         120 rounds of 1 h, each filled up to {capacity} reports
"
    );
    assert!(shown.contains(&expected), "{shown}");
}

#[test]
fn unlimited_says_what_it_means() {
    let value = json(
        "--dimension 2 --horizon 20000 --central-epsilon 1 --local-epsilon unlimited --bits 2",
    );
    assert_eq!(value["epsilon_local_limit"], Value::Null);
    let notes = value["notes"].to_string();
    assert!(notes.contains("all protection then comes from a shuffler"), "{notes}");
}

#[test]
fn the_task_file_is_what_was_certified() {
    let path = scratch("planned.toml");
    let value = json(&format!(
        "--dimension 3 --horizon 20000 --central-epsilon 0.5 --task-file {}",
        path.display()
    ));
    let task: TaskConfig = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value["certificate"]["mechanism"], task.mechanism().hash().to_string());
    let output = incrowd(&format!("certify --output json --task-file {}", path.display()));
    let certified: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(certified["epsilon_central"], value["epsilon_central"]);
    assert_eq!(certified["epsilon_local"], value["epsilon_local"]);
}

#[test]
fn the_figure_has_axes_units_and_a_legend() {
    let name = scratch("figure");
    json(&format!("--dimension 2 --horizon 20000 --central-epsilon 0.5 --plot {}", name.display()));
    let svg = fs::read_to_string(name.with_extension("svg")).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text())
        .collect();
    for word in [
        "reports in a batch",
        "central epsilon (lower is more private)",
        "local epsilon 1",
        "local epsilon 8",
        "certified",
        "clones",
        "blanket",
        "paper",
        "no crowd",
        "Dimension 2, 1 bit per coordinate, delta 1e-6, 90% honest",
    ] {
        assert!(texts.contains(&word), "{word} in {texts:?}");
    }
    // Four panels: each bound has one colour, and a line in each of them.
    for colour in ["ic-blue", "ic-orange", "ic-green", "ic-vermilion"] {
        let lines = document.descendants().filter(|node| {
            let drawn = node.has_tag_name("polyline");
            drawn && node.parent().and_then(|group| group.attribute("class")) == Some(colour)
        });
        // And a sample in the legend.
        assert_eq!(lines.count(), 5, "{colour}");
    }
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_rule() {
    for (arguments, message) in [
        ("--dimension 0 --horizon 1000", "dimension is 0, must be from 1 to 1000"),
        ("--dimension 5 --horizon 0", "horizon is 0, must be from 1"),
        ("--dimension 5", "the number of people is missing"),
        (
            "--dimension 5 --horizon 1000 --central-epsilon -1",
            "central epsilon is -1, must be above 0",
        ),
        (
            "--dimension 5 --horizon 1000 --central-epsilon nan",
            "central epsilon is NaN, must be above 0",
        ),
        ("--dimension 5 --horizon 1000 --local-epsilon 0", "local epsilon is 0, must be above 0"),
        (
            "--dimension 5 --horizon 1000 --local-epsilon none",
            "must be a number above 0 or 'unlimited'",
        ),
        ("--dimension 5 --horizon 1000 --local-epsilon unlimited", "there is no privacy limit"),
        ("--dimension 5 --horizon 1000 --delta 0", "delta is 0, must be above 0 and below 1"),
        ("--dimension 5 --horizon 1000 --honest 0", "honest fraction is 0, must be above 0"),
        ("--dimension 5 --horizon 1000 --batch-size 0", "batch size is 0, must be at least 1"),
        (
            "--dimension 5 --horizon 1000 --participations 0",
            "participations is 0, must be at least 1",
        ),
        (
            "--dimension 5 --horizon 1000 --latency-days 2",
            "a latency limit needs the number of users per day",
        ),
        (
            "--dimension 5 --users-per-day 10 --days 100 --latency-days 2",
            "allows at most 20 reports in a batch",
        ),
        (
            "--dimension 5 --users-per-day 1000 --days 10 --grace 1",
            "grace is 1, must be left out where rounds close by time",
        ),
        (
            "--dimension 5 --users-per-day 1000 --days 10 --opens tomorrow",
            "must be 'now' or a time like 2027-01-15T08:00:00Z",
        ),
        (
            "--dimension 5 --users-per-day 1000 --days 10 --peak 0.5",
            "peak is 0.5, must be at least 1",
        ),
        ("--dimension 5 --horizon 1000 --opens now", "opens is given, but batches close by count"),
        (
            "--dimension 5 --horizon 1000 --closes time",
            "rounds that close by time need the number of users per day",
        ),
        ("--dimension 5 --horizon 1000 --bits 4096", "bits is 4096, must be from 1 to 4095"),
        (
            "--dimension 5 --horizon 100000 --central-epsilon 1 --preset paper-regret",
            "Cor. 2 does not hold here",
        ),
        (
            "--dimension 5 --horizon 1000 --preset paper-ldp",
            "preset paper-ldp needs a local epsilon",
        ),
    ] {
        let output = incrowd(&format!("plan --output json {arguments}"));
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {talk}");
        assert!(talk.contains(message) && !talk.contains("panicked"), "{arguments}: {talk}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn a_preset_keeps_to_the_cap_on_the_local_epsilon() {
    let base = [
        "plan",
        "--dimension",
        "20",
        "--horizon",
        "100000",
        "--preset",
        "weaker-adversary",
        "--central-epsilon",
        "0.013",
    ];
    let run = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_incrowd")).args(base).args(more).output().unwrap()
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("above the cap of 8"));
    assert_eq!(run(&["--local-epsilon", "unlimited"]).status.code(), Some(0));
}

/// Ninety features: the plan says that it hardly learns and what would help, and `--strict` fails.
#[test]
fn a_plan_that_hardly_learns_says_so() {
    let arguments = "plan --dimension 9 --slots 10 --horizon 20000 --central-epsilon 1";
    let output = incrowd(arguments);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "WARNING: this plan hardly learns",
        "of what uniform choices lose over 20,000 people",
        "What would help most",
        "ten times as many people",
        "scores of a public model",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(incrowd(&format!("{arguments} --strict")).status.code(), Some(3));
    let good = "plan --dimension 5 --horizon 100000 --central-epsilon 1 --strict";
    let output = incrowd(good);
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stdout).contains("What would help most"));
}

#[test]
fn a_half_life_plans_forgetting() {
    let value = json("--dimension 5 --horizon 100000 --central-epsilon 1 --half-life 60000");
    let discount = number(&value, "discount");
    assert!(discount > 0.5 && discount < 0.99, "{discount}");
    let refused = |more: &str| {
        let output = incrowd(&format!("plan --dimension 5 --horizon 100000 {more}"));
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused("--half-life 60000 --batches growing").contains("growing batches"));
    assert!(refused("--half-life -1").contains("half-life"));
    assert!(refused("--gap 0.7").contains("gap is 0.7, must be above 0 and at most 0.5"));
    assert!(refused("--actions 1").contains("actions is 1, must be from 2 to 100000"));
}
