//! What a task promises, in words and numbers, for those who start it.

use incrowd_node::Roles;
use incrowd_privacy::{Certificate, format_epsilon};
use incrowd_protocol::TaskId;
use serde_json::{Value, json};

use crate::print::wrapped;

/// The guarantees with whom they hold against, in lines that fit a terminal. `roles` is what the
/// reader runs.
pub fn in_words(certificate: &Certificate, roles: Roles) -> String {
    let (local, central) = (certificate.epsilon_local(), certificate.epsilon_central());
    let presence = if certificate.covers_presence() {
        "what a person reported, and whether they did"
    } else {
        "what a person reported, not whether they did"
    };
    let here = match roles {
        Roles::Both => {
            "one operator runs both roles: only the local epsilon protects people against that operator"
        }
        Roles::Shuffler => {
            "this role sees single reports: only the local epsilon protects people against its operator"
        }
        Roles::Bandit => {
            "the central epsilon protects people against this role's operator, if another one runs the shuffler"
        }
    };
    wrapped(&format!(
        "guarantee
  local epsilon    {}: against whoever reads a report by itself (the network, a relay, the shuffler's operator). It changes the odds of anything about its person by a factor of at most {}.
  central epsilon  {} (delta {:e}): against everyone else, who reads all releases and models together. They change such odds by a factor of at most {}, except with a chance of about {:e}. It covers {presence}.
  here             {here}.
  assumes          what `incrowd task show` and `incrowd certify` list.",
        format_epsilon(local),
        factor(local),
        format_epsilon(central),
        certificate.delta(),
        factor(central),
        certificate.delta(),
    ))
}

/// The same for programs that read the log.
pub fn as_json(task: &TaskId, certificate: &Certificate) -> Value {
    json!({
        "task": task,
        "epsilon_local": certificate.epsilon_local(),
        "epsilon_central": certificate.epsilon_central(),
        "delta": certificate.delta(),
        "covers_presence": certificate.covers_presence(),
    })
}

/// e to the power of epsilon, rounded up.
fn factor(epsilon: f64) -> String {
    let factor = epsilon.exp();
    if factor < 100.0 {
        format!("{:.2}", (100.0 * factor).ceil() / 100.0)
    } else if factor < 1e9 {
        format!("{:.0}", factor.ceil())
    } else {
        format!("e^{}", format_epsilon(epsilon))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_never_too_small() {
        for (epsilon, words) in
            [(0.0, "1.00"), (0.5999, "1.83"), (1.0, "2.72"), (8.0, "2981"), (201.8, "e^201.8000")]
        {
            assert_eq!(factor(epsilon), words);
        }
    }
}
