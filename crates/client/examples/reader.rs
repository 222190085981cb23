//! A reader that learns which article people like, without anyone learning who likes what:
//! `reader URL TASK_ID`, the token in `INCROWD_TOKEN`, the reward (0 to 1) on standard input.

use std::{env, error::Error, io, time::Duration};

use incrowd_client::{FeatureMap, Fields, Value, blocking::Client};

const FEATURES: &str = r#"{"context_bound": 1.0, "bias": true,
    "context": [{"name": "hour", "kind": "number", "min": 0, "max": 24}],
    "action": [{"name": "topic", "kind": "category", "values": ["news", "sport", "science"]}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let [url, task] = [1, 2].map(|n| env::args().nth(n).ok_or("usage: reader URL TASK_ID"));
    let map: FeatureMap = serde_json::from_str(FEATURES)?;
    let client = Client::builder(&url?, task?.parse()?)
        .token(env::var("INCROWD_TOKEN")?)
        .state_file("reader.json")
        .features(map)
        .reward_window(Duration::from_secs(30))
        .jitter(Duration::from_secs(30))
        .connect_blocking()?;
    client.refresh()?;

    let topics = ["news", "sport", "science"];
    let field = |name: &str, value| Fields::from([(name.to_owned(), value)]);
    let articles = topics.map(|topic| field("topic", Value::Text(topic.to_owned())));
    let decision = client.rank(&field("hour", Value::Number(20.0)), &articles)?;
    println!("{}", topics[decision.action()]);

    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if let Ok(reward) = answer.trim().parse() {
        decision.reward(reward)?;
    }
    client.flush();
    eprintln!("{:?}", client.status());
    Ok(())
}
