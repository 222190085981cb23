//! Real clients beside uploads at half of the most that the service takes.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use incrowd_client::{Client, Limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    CONNECTIONS, RUNS,
    load::{percentile, rate, reports},
    median, runtime,
    server::Server,
    single_uploads,
};

/// How long uploads are measured beside the clients.
const SECONDS: f64 = 40.0;
/// A client reports within this time of its decision.
const REWARD_WINDOW: Duration = Duration::from_secs(5);
const JITTER: Duration = Duration::from_secs(30);
/// Clients that connect at the same time.
const CONNECTING: usize = 50;
/// What the service refused or failed at: none of it may happen.
const REFUSALS: [(&str, &str); 6] = [
    ("incrowd_http_requests_refused_total", ""),
    ("incrowd_http_connections_refused_total", ""),
    ("incrowd_http_connections_stalled_total", ""),
    ("incrowd_http_accept_failures_total", ""),
    ("incrowd_http_requests_total", "status=\"5"),
    ("incrowd_http_requests_total", "status=\"4"),
];

/// So many clients ask a node for models, and report once each, while others upload.
pub fn run(number: usize) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::node(&folder.path().join("node"), 1000, 100_000);
    let mechanism = server.notice().task.mechanism().clone();
    let mut seed = 0;
    let mut uploads = |number: usize| {
        seed += 1;
        let each = number.div_ceil(CONNECTIONS);
        single_uploads(&server, &reports(&mechanism, 1, each * CONNECTIONS, seed))
    };
    let most: Vec<f64> =
        (0..RUNS).map(|_| rate(server.address, &uploads(192_000), false, 204)).collect();
    let half = median(most) / 2.0;
    println!("uploads at half of the most                    {half:>12.0} a second");
    let needed = (half * SECONDS) as usize;
    let alone = percentile(server.address, &uploads(needed / 4), half, SECONDS / 4.0, 0.99);
    println!("p99 of uploads, nobody else there              {alone:>12.2} ms");

    let mut people = Command::new(env::current_exe().unwrap())
        .args(["people", &format!("http://{}", server.address), &server.task().to_string()])
        .args([&server.token, &number.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(people.stdout.take().unwrap()).lines();
    println!("{}", said.next().unwrap().unwrap());
    let requests = uploads(needed);
    let get = server.model_request();
    let models = Arc::new(vec![vec![get; (50.0 * SECONDS) as usize]]);
    let before = server.metric("incrowd_http_request_seconds_count", "model");
    let (uploading, asking) = thread::scope(|scope| {
        let models = scope.spawn(|| percentile(server.address, &models, 50.0, SECONDS, 0.99));
        let uploads = percentile(server.address, &requests, half, SECONDS, 0.99);
        (uploads, models.join().unwrap())
    });
    let polls = server.metric("incrowd_http_request_seconds_count", "model") - before;
    println!(
        "requests for models, by clients                {:>12.0} a second",
        polls / SECONDS - 50.0
    );
    println!("p99 of uploads beside the clients              {uploading:>12.2} ms, limit 100 ms");
    println!("p99 of models beside the clients               {asking:>12.2} ms, limit 100 ms");
    for line in said {
        println!("{}", line.unwrap());
    }
    assert!(people.wait().unwrap().success());
    for (metric, label) in REFUSALS {
        let refused = server.metric(metric, label);
        println!("{:<46} {refused:>12.0} limit 0", format!("{metric} {label}"));
    }
}

/// The clients: each ranks once, reports once, and follows the models as often as the service lets
/// it.
pub fn people(arguments: &[String]) {
    let [url, task, token, number] = arguments.first_chunk().unwrap();
    let number: usize = number.parse().unwrap();
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let connect = || {
        let limits = Limits { epsilon_local: 100.0, ..Limits::default() };
        Client::builder(url, task.parse().unwrap())
            .token(token)
            .limits(limits)
            .reward_window(REWARD_WINDOW)
            .jitter(JITTER)
            .model_interval(Duration::ZERO)
            .connect()
    };
    runtime().block_on(async {
        let mut clients = Vec::new();
        while clients.len() < number {
            let now = CONNECTING.min(number - clients.len());
            let connecting: JoinSet<_> = (0..now).map(|_| connect()).collect();
            clients.extend(connecting.join_all().await.into_iter().map(Result::unwrap));
        }
        println!("clients that are connected                     {number:>12}");
        for client in &clients {
            let arms = [[0.3; 10], [-0.3; 10]];
            let decision = client.rank_features(arms.iter().map(|arm| &arm[..])).unwrap();
            decision.reward(1.0).unwrap();
        }
        sleep(Duration::from_secs_f64(SECONDS) + REWARD_WINDOW).await;
        for client in &clients {
            client.flush().await;
        }
        let all: Vec<_> = clients.iter().map(Client::status).collect();
        let counted = |of: &dyn Fn(&incrowd_client::Status) -> bool| {
            all.iter().filter(|status| of(status)).count()
        };
        let newest = all.iter().map(|status| status.model_version).max().flatten();
        let reported = counted(&|status| status.reports_sent == 1);
        let current = counted(&|status| status.model_version == newest);
        let failed = counted(&|status| status.last_error.is_some());
        println!("clients whose report was taken                 {reported:>12} of {number}");
        println!("clients with the newest model                  {current:>12} of {number}");
        println!("clients that saw an error                      {failed:>12} of {number}");
        for error in all.iter().filter_map(|status| status.last_error.as_ref()).take(3) {
            println!("    {error}");
        }
    });
}
