//! What personalization is worth, as an operator measures it: two planned tasks, one service, real
//! clients in both groups, and the difference from the releases.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::support::{LIFTED, Service, Site, good, incrowd, output, refused, text};
use incrowd_client::{Client, Group, Limits, TaskId};
use serde_json::Value;
use tokio::task::JoinSet;

/// People whose devices are in one of the two groups, half of them in each on average.
const COMPARED: usize = 200;
const OTHERS: usize = 7;
/// How many of ten are pleased: with the incumbent, with the model.
const PLEASED: [usize; 2] = [2, 9];

fn plan(folder: &Path) -> [String; 2] {
    let limits = "--horizon 200 --batch-size 100 --central-epsilon 8 --local-epsilon unlimited";
    let path = |name: &str| folder.join(name).display().to_string();
    let [main, comparison] = [path("main.toml"), path("comparison.toml")];
    good(&format!("plan --dimension 2 {limits} --task-file {main}"));
    let said = good(&format!("plan --comparison {limits} --task-file {comparison}"));
    assert!(said.starts_with("Plan for 200 people, two groups\n"), "{said}");
    [main, comparison]
}

/// One person: gets an action, is pleased or not, and the device reports.
async fn person(
    url: String,
    tasks: [TaskId; 2],
    token: String,
    state: String,
    share: f64,
) -> Group {
    let limits = Limits { epsilon_local: f64::INFINITY, ..Limits::default() };
    let client = Client::builder(&url, tasks[0])
        .hold_out(share, tasks[1])
        .state_file(&state)
        .token(token)
        .limits(limits)
        .reward_window(Duration::from_secs(2))
        .jitter(Duration::ZERO)
        .connect()
        .await
        .unwrap();
    let group = client.status().group;
    let decision = client.rank_features(&[[1.0, 0.0], [0.0, 1.0]]).unwrap();
    let number: usize = state.rsplit('/').next().unwrap().parse().unwrap();
    let of_ten = PLEASED[usize::from(group == Group::Compared)];
    decision.reward(f64::from(u8::from(number % 10 < of_ten))).unwrap();
    client.flush().await;
    assert_eq!(client.status().reports_sent, 1);
    client.close().await;
    group
}

/// Waits for both releases.
fn uplift(command: &str) -> Value {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let output = output(&format!("{command} --output json"));
        if output.status.success() {
            let value: Value = serde_json::from_slice(&output.stdout).unwrap();
            if value["releases"] == 2 {
                return value;
            }
        }
        assert!(Instant::now() < patience, "{}", text(&output.stderr));
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_uplift_of_two_planned_tasks_is_what_people_were_told() {
    let site = Site::new(2, 1, 10);
    let folder = tempfile::tempdir().unwrap();
    let files = plan(folder.path());
    let data = folder.path().join("data").display().to_string();
    let log = folder.path().join("serve.log");
    let mut serve = incrowd();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    serve.args(LIFTED.split(' ')).args(["--data", &data]);
    serve.arg("--config").arg(site.path("settings.toml"));
    serve.args(["--task", &files[0], "--task", &files[1]]);
    let service = Service::start(&mut serve, &log).unwrap();
    let command = format!("task uplift --data {data} --task {}", files[1]);
    assert_eq!(
        refused(&command),
        "error: nothing is released yet: the uplift is known after the first round\n"
    );
    let main = refused(&format!("task uplift --data {data} --task {}", files[0]));
    assert!(main.starts_with("error: the task is no comparison: it must have one"), "{main}");

    let tasks = [&files[0], &files[1]].map(|file| id(file, &data));
    let token = fs::read_to_string(folder.path().join("data/device.token")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let groups = runtime.block_on(async {
        let mut people = JoinSet::new();
        for number in 0..COMPARED + OTHERS {
            let state = folder.path().join(number.to_string()).display().to_string();
            let share = if number < COMPARED { 0.5 } else { 0.0 };
            people.spawn(person(service.url.clone(), tasks, token.trim().to_owned(), state, share));
        }
        people.join_all().await
    });
    let count = |group: Group| groups.iter().filter(|found| **found == group).count();
    assert_eq!(count(Group::Main), OTHERS);

    let found = uplift(&command);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{found:#}"));
    // Within 6.2 deviations of the noise (1e-9), instead of 1.96: about 2 for a number of reports.
    for (name, group) in [("incumbent", Group::HeldOut), ("model", Group::Compared)] {
        let of_group = &found[name];
        let ends = number(&of_group["upper"]) - number(&of_group["lower"]);
        assert!((number(&of_group["reports"]) - count(group) as f64).abs() < 14.0, "{found:#}");
        assert!(ends > 0.0 && ends < 0.5, "{found:#}");
    }
    let half = (number(&found["upper"]) - number(&found["lower"])) / 2.0;
    let truth = (PLEASED[1] as f64 - PLEASED[0] as f64) / 10.0;
    let error = (number(&found["difference"]) - truth).abs();
    assert!(half < 0.3 && error < 6.2 / 1.96 * half, "{found:#}");

    let shown = |value: &Value| format!("{:.4}", number(value));
    let row = |name: &str, of: &Value| {
        let (lower, upper) = (shown(&of["lower"]), shown(&of["upper"]));
        format!("{name:<20} {:>8}  {lower:>7} to {upper:>7}", shown(&of["mean"]))
    };
    let (d, lower, upper) =
        (shown(&found["difference"]), shown(&found["lower"]), shown(&found["upper"]));
    let expected = format!(
        "After 2 releases

mean reward          estimate  95 % interval          reports
{}  {:>10.0}
{}  {:>10.0}
difference           {d:>8}  {lower:>7} to {upper:>7}

Personalization earns {d} more per decision; with 95 % confidence between
{lower} and {upper}.
",
        row("with the incumbent", &found["incumbent"]),
        number(&found["incumbent"]["reports"]),
        row("with the model", &found["model"]),
        number(&found["model"]["reports"]),
    );
    assert_eq!(good(&command), expected);
    let surer = good(&format!("{command} --confidence 0.99"));
    assert!(surer.contains("99 % interval"), "{surer}");
    assert!(refused(&format!("{command} --confidence 1")).contains("must be from 0.5 to 0.999999"));

    // Those who are not compared are in the other task, and nobody is in both.
    fs::copy(folder.path().join("data/admin.token"), folder.path().join("admin.token")).unwrap();
    let token = folder.path().join("admin.token").display().to_string();
    let list = good(&format!("task list --admin {} --token-file {token}", service.admin));
    assert!(list.contains(&format!("{}\n  round 1 with {OTHERS} reports", tasks[0])), "{list}");
    assert!(list.contains(&format!("{}\n  finished", tasks[1])), "{list}");
    assert!(service.terminate().success());
    let export = format!("task export --data {data} --task {} releases", files[1]);
    assert_eq!(good(&export).lines().count(), 2, "the same file does for exports");
    assert_eq!(good(&command), expected, "also when nothing runs");
}

/// The id of a task file that a service completes with its keys.
fn id(file: &str, data: &str) -> TaskId {
    incrowd_node::Files::of(Path::new(data)).task(Path::new(file)).unwrap().id()
}
