//! A reader that learns which topic suits whom at which hour, without anyone learning who reads
//! what: `reader URL TASK_ID hour=7 age=34 ...` prints a topic. The token is in `INCROWD_TOKEN`,
//! the reward (0 to 1) comes on standard input.

use std::{env, error::Error, io, time::Duration};

use incrowd_client::{FeatureMap, Fields, Value, blocking::Client};

/// What is known about the person, and the topics. `docs/tutorial.md` plans a task for it.
const FEATURES: &str = include_str!("reader.toml");

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: reader URL TASK_ID [FIELD=NUMBER ...]";
    let mut arguments = env::args().skip(1);
    let (url, task) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let mut context = Fields::new();
    for argument in arguments {
        let (field, number) = argument.split_once('=').ok_or(usage)?;
        context.insert(field.to_owned(), Value::Number(number.parse()?));
    }

    let map: FeatureMap = toml::from_str(FEATURES)?;
    let topics = map.config().actions.clone();
    let client = Client::builder(&url, task.parse()?)
        .token(env::var("INCROWD_TOKEN")?)
        .state_file("reader.json")
        .features(map)
        .reward_window(Duration::from_secs(30))
        .jitter(Duration::from_secs(30))
        .connect_blocking()?;
    client.refresh()?;

    let decision = client.rank(&context, &topics)?;
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
