//! The paths of the services: templates for routers (`{name}` is a parameter), and functions that
//! fill them.

use crate::{ReleaseHash, ReportId, TaskId};

/// The task's notice, at the shuffler.
pub const NOTICE: &str = "/v1/tasks/{task}/config";
/// The round being filled, at the shuffler.
pub const ROUND: &str = "/v1/tasks/{task}/round";
/// One report, at the shuffler.
pub const REPORT: &str = "/v1/tasks/{task}/reports/{id}";
/// Many reports, at the shuffler.
pub const REPORTS: &str = "/v1/tasks/{task}/reports";
/// The sums of a batch, at the shuffler.
pub const RELEASE: &str = "/v1/tasks/{task}/releases/{round}";
/// The newest model, at the bandit.
pub const MODEL: &str = "/v1/tasks/{task}/model";
/// The key configurations of the shuffler's gateway.
pub const GATEWAY_KEYS: &str = "/v1/ohttp-keys";
/// Encapsulated requests, at the shuffler's gateway.
pub const GATEWAY: &str = "/v1/gateway";
/// The gateway's key configurations, at a relay.
pub const RELAY_KEYS: &str = "/ohttp-keys";
/// Encapsulated requests, at a relay.
pub const RELAY: &str = "/";
/// The state of all tasks, at the operator's address.
pub const TASKS: &str = "/v1/tasks";
/// Closes a task, at the operator's address.
pub const CLOSE: &str = "/v1/tasks/{task}/close";

/// Fills [`NOTICE`].
pub fn notice(task: &TaskId) -> String {
    of(NOTICE, task)
}

/// Fills [`ROUND`].
pub fn round(task: &TaskId) -> String {
    of(ROUND, task)
}

/// Fills [`REPORT`].
pub fn report(task: &TaskId, id: ReportId) -> String {
    of(REPORT, task).replace("{id}", &id.to_string())
}

/// Fills [`REPORTS`].
pub fn reports(task: &TaskId) -> String {
    of(REPORTS, task)
}

/// Fills [`RELEASE`]; the shuffler waits up to `wait` seconds for a batch that is not full. `after`
/// is the release before it that the caller has.
pub fn release(task: &TaskId, round: u32, after: Option<ReleaseHash>, wait: u64) -> String {
    let path = of(RELEASE, task).replace("{round}", &round.to_string());
    let after = after.map_or_else(String::new, |after| format!("&after={after}"));
    format!("{path}?wait={wait}{after}")
}

/// Fills [`MODEL`].
pub fn model(task: &TaskId) -> String {
    of(MODEL, task)
}

/// Fills [`CLOSE`].
pub fn close(task: &TaskId) -> String {
    of(CLOSE, task)
}

fn of(template: &str, task: &TaskId) -> String {
    template.replace("{task}", &task.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_documented() {
        let task: TaskId = "ab".repeat(32).parse().unwrap();
        let base = format!("/v1/tasks/{}", "ab".repeat(32));
        let id = ReportId([0xc0; 16]);
        for (found, rest) in [
            (notice(&task), "/config".to_owned()),
            (round(&task), "/round".to_owned()),
            (report(&task, id), format!("/reports/{}", "c0".repeat(16))),
            (reports(&task), "/reports".to_owned()),
            (release(&task, 3, None, 20), "/releases/3?wait=20".to_owned()),
            (
                release(&task, 3, Some(ReleaseHash::from_bytes([1; 32])), 20),
                format!("/releases/3?wait=20&after={}", "01".repeat(32)),
            ),
            (model(&task), "/model".to_owned()),
            (close(&task), "/close".to_owned()),
        ] {
            assert_eq!(found, format!("{base}{rest}"));
        }
    }
}
