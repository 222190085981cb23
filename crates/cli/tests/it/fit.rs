//! `incrowd fit` as a person uses it, from a public file to the model that is served before the
//! first report.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_bandit::Bandit;
use incrowd_device::{Arm, Device, FeatureMap, Fields, Value};
use incrowd_protocol::{Model, Task, TaskConfig};
use tempfile::TempDir;

use crate::support::{Caller, LIFTED, Service, Site, good, incrowd, output, refused, text};

const ACTIONS: [&str; 3] = ["news", "sport", "science"];

const MAP: &str = r#"
model = "per-action"
actions = ["news", "sport", "science"]
spare_slots = 1
bias = true

[[context]]
name = "hour"
kind = "number"
min = 0
max = 24

[[context]]
name = "plan"
kind = "category"
values = ["free", "paid"]
"#;

/// What the made-up public like: news before noon, later what their plan says.
fn topic(hour: u32, plan: &str) -> &'static str {
    match plan {
        _ if hour < 12 => "news",
        "paid" => "science",
        _ => "sport",
    }
}

/// A folder with `map.toml` and `public.csv`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = String::from("hour,plan,topic\n");
    for row in 0..300 {
        let (hour, plan) = (row * 7 % 24, ["free", "paid"][(row * row % 7 % 2) as usize]);
        // Every tenth has another taste.
        let topic = if row % 10 == 0 { "sport" } else { topic(hour, plan) };
        writeln!(rows, "{hour},{plan},{topic}").unwrap();
    }
    fs::write(folder.path().join("map.toml"), MAP).unwrap();
    fs::write(folder.path().join("public.csv"), rows).unwrap();
    folder
}

fn fit(folder: &Path, more: &str) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    let (data, map, out) = (path("public.csv"), path("map.toml"), path("prior.json"));
    format!("fit --data {data} --features {map} --label topic --out {out}{more}")
}

/// Fits and plans; the path of the task file.
fn planned(folder: &Path) -> PathBuf {
    good(&fit(folder, ""));
    let path = |name: &str| folder.join(name).display().to_string();
    let (map, prior, task) = (path("map.toml"), path("prior.json"), path("task.toml"));
    let said = good(&format!(
        "plan --features {map} --prior {prior} --horizon 20000 --central-epsilon 1 --batch-size 2000 --task-file {task}"
    ));
    assert!(said.contains("\nPrior     counts for 300 people\n"), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the predicted regret is that of a start without it"), "{said}");
    task.into()
}

/// Everyone gets what the public likes.
fn follows_the_prior(task: &TaskConfig, model: &Model) {
    assert_eq!((model.version(), model.round()), (1, 0));
    let actions: Vec<Option<&str>> =
        model.slots().iter().map(|slot| slot.action.as_deref()).collect();
    assert_eq!(actions, [Some("news"), Some("sport"), Some("science"), None]);
    let map: FeatureMap = toml::from_str(MAP).unwrap();
    assert!(map.fits(task.mechanism()));
    let mut device = Device::new(Arc::new(task.clone())).unwrap();
    for (hour, plan) in [(2, "free"), (5, "paid"), (20, "free"), (23, "paid")] {
        let context = Fields::from([
            ("hour".to_owned(), Value::Number(f64::from(hour))),
            ("plan".to_owned(), Value::Text(plan.to_owned())),
        ]);
        let x = map.features(&context, &Fields::new()).x;
        let arms = (0..3).map(|slot| Arm { slot, features: &x });
        let chosen = device.choose(Some(model), arms).unwrap();
        assert_eq!(ACTIONS[chosen], topic(hour, plan), "{hour} {plan}");
    }
}

#[test]
fn a_whole_text() {
    let folder = folder();
    let output = output(&fit(folder.path(), ""));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let wrote = format!("wrote {}\n", folder.path().join("prior.json").display());
    assert_eq!(text(&output.stderr), wrote);
    let expected = "\
Prior from 300 rows with the right action
Actions   news, sport, science
Weight    300 people (the file has 900 rewards)

Mean reward (accuracy) on held-out rows, 5 folds: the prior as a model that
never learns
  prior, largest estimate           0.9033 +- 0.0171  (300 rows)
  uniform choices                   0.3333 +- 0.0000  (300 rows)
  best action of each row           1.0000 +- 0.0000  (300 rows)

Notes
  - the people in the file are not protected by anything: everyone reads the
    prior; public or consented data only
  - the prior fits this feature map only: its fields, actions and scale; make it
    again when they change
  - each row is one person who could have been shown any of the 3 actions, and
    counts as the mean of these reports
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_fit_as_json_has_the_same_numbers() {
    let folder = folder();
    let value: serde_json::Value =
        serde_json::from_str(&good(&fit(folder.path(), " --output json --people 50 --folds 10")))
            .unwrap();
    assert_eq!(value["people"], 50.0);
    assert_eq!((&value["rows"], &value["rewards"]), (&300.into(), &900.into()));
    assert_eq!(value["actions"], serde_json::json!(ACTIONS));
    assert_eq!(value["held_out"]["folds"], 10);
    assert!(value["held_out"]["estimate"]["mean"].as_f64().unwrap() > 0.8);
    let notes = value["notes"].to_string();
    assert!(notes.contains("not protected by anything"), "{notes}");
    let prior = fs::read_to_string(folder.path().join("prior.json")).unwrap();
    assert!(prior.starts_with("{\"people\":50.0,\"values\":["), "{prior}");
}

#[test]
fn a_log_and_rewards_of_all_actions() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let fit = |rows: &str| {
        fs::write(path("log.csv"), rows).unwrap();
        good(&format!(
            "fit --data {} --features {} --out {}",
            path("log.csv"),
            path("map.toml"),
            path("prior.json")
        ))
    };
    let said = fit("hour,plan,action,reward,pscore\n1,free,news,1,0.5\n,paid,sport,0,0.5\n");
    assert!(said.starts_with("Prior from 2 rows of a log\n"), "{said}");
    assert!(said.contains("pscore weights held-out rows; the prior does not need it"), "{said}");
    assert!(said.contains("field \"hour\" is missing (in 1 rows)"), "{said}");
    let said = fit("hour,plan,action,reward\n1,free,news,1\n2,paid,sport,0\n");
    assert!(said.contains("the log has no pscore"), "{said}");
    let said = fit("hour,plan,reward:news,reward:sport,reward:science\n1,free,1,0.5,0\n");
    assert!(said.starts_with("Prior from 1 rows with the rewards of all actions\n"), "{said}");
    assert!(said.contains("There are no rows to hold out."), "{said}");
}

/// The hour adds the same to every topic; a distance is one's own.
#[test]
fn a_prior_that_is_the_same_for_everyone_is_named() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let map = r#"{"context": [{"name": "hour", "kind": "number", "min": 0, "max": 24}],
        "action": [{"name": "distance", "kind": "number", "min": 0, "max": 9}]}"#;
    fs::write(path("map.json"), map).unwrap();
    let fit = |rows: &str| {
        fs::write(path("rows.csv"), rows).unwrap();
        good(&format!(
            "fit --data {} --features {} --label best --people 7 --out {}",
            path("rows.csv"),
            path("map.json"),
            path("prior.json")
        ))
    };
    let same = "the best action is the same for everyone";
    let said = fit("hour,a:distance,b:distance,best\n1,2,3,a\n2,2,3,b\n3,2,3,a\n");
    assert!(said.contains(same), "{said}");
    assert!(said.contains("counts for more people than the file has rewards"), "{said}");
    let said = fit("hour,a:distance,b:distance,best\n1,2,3,a\n2,4,3,b\n3,2,3,a\n4,2,3,a\n");
    assert!(!said.contains(same) && !said.contains("more people than"), "{said}");
}

/// From the public file to the first ranking, in one process.
#[test]
fn a_task_with_a_prior_starts_with_a_model() {
    let folder = folder();
    let text = fs::read_to_string(planned(folder.path())).unwrap();
    let task: TaskConfig = toml::from_str(&text).unwrap();
    let model = Bandit::new(Arc::new(task.clone())).start().unwrap();
    follows_the_prior(&task, &model);
    // Written and read again, with and without keys, nothing is lost.
    assert_eq!(toml::from_str::<TaskConfig>(&toml::to_string(&task).unwrap()).unwrap(), task);
    let site = Site::of(&text);
    assert_eq!(site.task.config().actions(), task.actions());
    assert_eq!(site.task.config().prior(), task.prior());
    assert!(task.prior().is_some());
    let again: Task = toml::from_str(&toml::to_string(&site.task).unwrap()).unwrap();
    assert_eq!(again, site.task);
}

/// The same over HTTP: the model is there before anyone reports.
#[test]
fn a_service_serves_the_prior_before_the_first_report() {
    let folder = folder();
    let file = planned(folder.path());
    let site = Site::new(2, 3, 50);
    let mut serve = incrowd();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    serve.args(LIFTED.split(' ')).arg("--data").arg(site.path("both"));
    serve.arg("--config").arg(site.path("settings.toml")).arg("--task").arg(&file);
    let service = Service::start(&mut serve, &site.path("serve.log")).unwrap();
    let task: TaskConfig = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let id = service.said[4].strip_prefix("task ").unwrap().parse().unwrap();
    let path = incrowd_protocol::paths::model(&id);
    let answer = Caller::new().get(&format!("{}{path}", service.url), None).unwrap();
    assert_eq!(answer.status, 200);
    follows_the_prior(&task, &serde_json::from_slice(&answer.body).unwrap());
    assert!(service.terminate().success());
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_place() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let at = |rows: &str| {
        fs::write(path("public.csv"), rows).unwrap();
        let said = refused(&fit(folder.path(), ""));
        assert!(!folder.path().join("prior.json").exists());
        said.replace(&path(""), "")
    };
    assert_eq!(
        at("hour,plan,topic\n1,free,news\n2,paid,opera\n"),
        "error: public.csv, line 3, column \"topic\": found \"opera\", expected one of the actions \"news\", \"sport\", \"science\"\n"
    );
    assert_eq!(
        at("hour,plan,topic\nnoon,free,news\n"),
        "error: public.csv, line 2, column \"hour\": found \"noon\", expected a number\n"
    );
    assert!(at("plan,topic\nfree,news\n").contains("line 1: found no column \"hour\""));
    fs::write(path("public.csv"), "hour,plan,topic\n1,free,news\n").unwrap();
    let people = refused(&fit(folder.path(), " --people -1"));
    assert!(people.contains("-1, must be above 0"), "{people}");
    fs::write(path("map.toml"), MAP.replace("max = 24", "max = 0")).unwrap();
    let said = refused(&fit(folder.path(), ""));
    assert!(said.contains("map.toml: ") && said.contains("min must be below max"), "{said}");

    // A prior of another map.
    fs::write(path("map.toml"), MAP).unwrap();
    good(&fit(folder.path(), ""));
    let said = refused(&format!(
        "plan --dimension 3 --prior {} --horizon 20000 --central-epsilon 1 --batch-size 2000",
        path("prior.json")
    ));
    assert!(said.contains("values of the prior has 56 entries, must have 9"), "{said}");
}
