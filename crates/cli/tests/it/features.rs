//! `incrowd plan --features`: from the devices' map to a task, and what is wrong with a map.

use std::{fs, path::Path};

use incrowd_device::FeatureMap;
use incrowd_protocol::{Layout, TaskConfig};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{good, refused};

const LIMITS: &str = "--horizon 20000 --central-epsilon 1 --batch-size 2000";

/// The hour adds the same to every topic.
const SAME: &str = r#"{"bias": true,
    "context": [{"name": "hour", "kind": "number", "min": 0, "max": 24}],
    "action": [{"name": "topic", "kind": "category", "values": ["news", "sport"]}]}"#;

const HYBRID: &str = r#"
model = "hybrid"
actions = ["news", "sport"]
spare_slots = 2
bias = true
interactions = [["hour", "length"]]

[[context]]
name = "hour"
kind = "number"
min = 0
max = 24

[[action]]
name = "length"
kind = "number"
min = 0
max = 10
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&good(&format!("plan --output json {LIMITS} {arguments}"))).unwrap()
}

fn notes(value: &Value) -> Vec<&str> {
    value["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect()
}

fn map(path: &str) -> FeatureMap {
    let text = fs::read_to_string(path).unwrap();
    match Path::new(path).extension().unwrap().to_str().unwrap() {
        "json" => serde_json::from_str(&text).unwrap(),
        _ => toml::from_str(&text).unwrap(),
    }
}

#[test]
fn a_whole_text_and_the_files() {
    let folder = Folder::new();
    let features = folder.write("map.toml", HYBRID);
    // Nobody reads at the ends of the day, and lengths are near the middle.
    let sample = folder.write(
        "sample.csv",
        "hour,news:length,sport:length,comment\n6,5,5,a\n12,5,6,b\n18,7,5,c\n",
    );
    let (task, better) = (folder.path("task.toml"), folder.path("better.toml"));
    let said = good(&format!(
        "plan --features {features} --sample {sample} {LIMITS} --task-file {task} --write-features {better}"
    ));
    let expected = "\
Plan for 20000 people, 4 features
Model     hybrid: each action has weights of its own for 2 features, 2 features
          have one weight for all
Features  bias, hour (from 0 to 24), length (from 0 to 10), hour times length
Actions   news, sport, and 2 spare slots
Sample    3 rows, largest norm 1.2042 before scaling; scale 0.830454 makes all
          features 1.66 times as long as 0.500000 does

  rounds   reports      local   central  a report has
";
    assert!(said.starts_with(expected), "{said}");
    let notes = "\nNotes\n  - everyone reads the feature map: ranges, values and scale must come from\n    public or made-up people\n  - the local epsilon was capped";
    assert!(said.contains(notes), "{said}");

    let task: TaskConfig = toml::from_str(&fs::read_to_string(task).unwrap()).unwrap();
    assert_eq!(task.mechanism().layout(), Layout::Hybrid { slots: 4, shared: 2 });
    let actions = task.actions();
    let actions: Vec<Option<&str>> = actions.iter().map(Option::as_deref).collect();
    assert_eq!(actions, [Some("news"), Some("sport"), None, None]);
    let (old, new) = (map(&features), map(&better));
    assert!(new.fits(task.mechanism()));
    assert_eq!(new.clone().with_scale(None).unwrap(), old, "only the scale is new");
    assert!((new.scale() - 0.830_454).abs() < 1e-12);

    // With the better map nothing is left to say, and JSON has the same.
    let value = json(&format!("--features {better} --sample {sample}"));
    assert_eq!(value["features"]["sample"]["proposed_scale"], value["features"]["sample"]["scale"]);
    assert_eq!(value["features"]["personalises"], true);
    assert_eq!(value["features"]["actions"], serde_json::json!(["news", "sport"]));
    assert_eq!(value["dimension"], 4);
    let said = good(&format!("plan --features {better} --sample {sample} {LIMITS}"));
    assert!(
        said.contains("\nSample    3 rows, largest norm 1.2042 before scaling; scale 0.830454\n")
    );
    // A map may also be JSON, and be written as JSON.
    let (as_json, again) = (folder.path("map.json"), folder.path("again.json"));
    fs::write(&as_json, serde_json::to_string(&old).unwrap()).unwrap();
    good(&format!("plan --features {as_json} --sample {sample} {LIMITS} --write-features {again}"));
    assert_eq!(map(&again), new);
}

#[test]
fn a_map_that_is_the_same_for_everyone_is_named() {
    let folder = Folder::new();
    let features = folder.write("map.json", SAME);
    let same = "the best action is the same for everyone";
    let value = json(&format!("--features {features}"));
    let first = notes(&value)[0];
    assert!(first.starts_with(same) && first.ends_with("--sample shows that)"), "{first}");
    assert_eq!(value["features"]["personalises"], false);
    // Topics are what they are, whoever asks.
    let rows = "hour,a:topic,b:topic\n1,news,sport\n20,news,sport\n";
    let sample = folder.write("sample.csv", rows);
    let value = json(&format!("--features {features} --sample {sample}"));
    let first = notes(&value)[0];
    assert!(first.starts_with(same) && !first.contains("--sample"), "{first}");
    // Action a is another one for the second person.
    let sample = folder.write("sample.csv", &rows.replace("20,news", "20,sport"));
    let value = json(&format!("--features {features} --sample {sample}"));
    assert!(notes(&value).iter().all(|note| !note.contains(same)), "{value:#}");
    // With an interaction the hour matters.
    let better = SAME.replace("]}]}", "]}], \"interactions\": [[\"hour\", \"topic\"]]}");
    let features = folder.write("map.json", &better);
    let value = json(&format!("--features {features}"));
    assert!(notes(&value).iter().all(|note| !note.contains(same)), "{value:#}");
    // Without a map nothing is said about it.
    assert_eq!(json("--dimension 4")["features"], Value::Null);
}

#[test]
fn a_sample_shows_what_is_wrong_with_a_map() {
    let folder = Folder::new();
    let features = folder.write("map.toml", &HYBRID.replace("bias", "scale = 0.9\nbias"));
    let sample =
        folder.write("sample.csv", "hour,news:length,sport:length\n0,5,5\n1,5,5\n2,5,5\n25,5,5\n");
    let value = json(&format!("--features {features} --sample {sample}"));
    let notes = notes(&value);
    assert_eq!(
        notes[..3],
        [
            "context field \"hour\" is clipped in 25.0% of the sample: widen its range",
            "action field \"length\" is constant: it tells nobody apart",
            "scale 0.9 is too large: features of the sample are shortened, which is not linear; it should be at most 0.707107",
        ]
    );
    let features = folder.write("map.toml", HYBRID);
    let value = json(&format!("--features {features} --sample {sample}"));
    let better = "features are shorter than they may be, and noise does not shrink with them: scale = 0.707106 in the map is better (--write-features)";
    assert!(self::notes(&value).contains(&better), "{value:#}");
}

#[test]
fn bad_maps_are_exit_code_2() {
    let folder = Folder::new();
    let good_map = folder.write("map.toml", HYBRID);
    let plan = |arguments: &str| refused(&format!("plan {LIMITS} {arguments}"));
    let said = plan(&format!("--features {}", folder.path("map.yaml")));
    assert!(said.contains("map.yaml: a feature map must be a file .toml or .json"), "{said}");
    let said = plan(&format!("--features {}", folder.path("none.toml")));
    assert!(said.contains("none.toml: No such file"), "{said}");
    let other = folder.write("other.toml", &format!("context_bound = 2.0\n{HYBRID}"));
    let said = plan(&format!("--features {other}"));
    assert!(said.contains("other.toml: context_bound is 2, must be 1 for a plan"), "{said}");
    let sample = folder.write("sample.csv", "hour,news:length\n1,2\n");
    let said = plan(&format!("--features {good_map} --sample {sample}"));
    assert!(said.contains("line 1: found no column \"sport:length\""), "{said}");
    for wrong in [
        format!("--features {good_map} --dimension 5"),
        format!("--features {good_map} --slots 5"),
        format!("--dimension 5 --sample {sample}"),
        format!("--features {good_map} --write-features {}", folder.path("new.toml")),
        String::new(),
    ] {
        let said = plan(wrong.trim_end());
        assert!(said.contains("Usage: incrowd plan"), "{wrong}: {said}");
    }
}
