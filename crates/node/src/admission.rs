//! Whose reports are taken: see `docs/decisions/0010-admission.md`.

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::HeaderMap,
    middleware::Next,
    response::{IntoResponse, Response},
};
use incrowd_protocol::{ReportId, TaskId};
use serde::{Deserialize, Serialize};

use crate::{
    access::Access,
    device_tokens::Serial,
    http::{Guard, bearer_token},
    problem::{Kind, Problem},
    tokens::{Role, Verdict},
};

/// Reports that are remembered at the same time, of all tasks: about 250 MB.
const MOST: usize = 1 << 22;

/// Who may bring reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionKind {
    /// Everyone.
    Open,
    /// Who has the token that all devices share.
    #[default]
    SharedToken,
    /// Who has a token of a device, so many reports a round each.
    DeviceTokens,
}

impl FromStr for AdmissionKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "open" => Ok(Self::Open),
            "shared-token" => Ok(Self::SharedToken),
            "device-tokens" => Ok(Self::DeviceTokens),
            _ => Err("must be open, shared-token or device-tokens".into()),
        }
    }
}

/// What is known of who brings reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer {
    /// Somebody who may.
    Somebody,
    /// The device with a token of its own.
    Device(Serial),
}

/// A report that somebody wants to bring.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// The round it was made for.
    pub round: u32,
    /// Its id.
    pub id: ReportId,
    /// Rounds whose reports can count, now or when the next round has begun.
    pub open: RangeInclusive<u32>,
}

/// Decides whose reports are taken, in two steps: who brings them, before the body of a request is
/// read; and whether this one may still bring this report, before it is counted.
///
/// # Privacy
/// An answer depends on the bearer's own reports only, never on those of others, and not on whether
/// a report counted, was surplus or came before; but above four million remembered reports new ones
/// are refused whosever they are. Nothing of a bearer is stored, logged or measured.
pub trait Admission: Send + Sync {
    /// Who brings the reports of a request, from its credentials.
    fn identify(&self, headers: &HeaderMap) -> Result<Bearer, Problem>;

    /// Whether the bearer may still bring this report. Asking again for the same one costs nothing.
    fn admit(&self, bearer: Bearer, claim: &Claim) -> Result<(), Problem>;

    /// Rounds of a task before this one take no more reports.
    fn forget_before(&self, task: &TaskId, round: u32);
}

/// The admission of a setting.
pub(crate) fn new(
    kind: AdmissionKind,
    reports_per_round: u32,
    access: &Arc<Access>,
) -> Arc<dyn Admission> {
    match kind {
        AdmissionKind::Open => Arc::new(Guard::preferably(&[Role::Device], access)),
        AdmissionKind::SharedToken => Arc::new(Guard::only(&[Role::Device], access)),
        AdmissionKind::DeviceTokens => {
            Arc::new(DeviceTokens::new(reports_per_round as usize, access.clone()))
        }
    }
}

/// Everyone whom the guard lets pass, without a limit.
impl Admission for Guard {
    fn identify(&self, headers: &HeaderMap) -> Result<Bearer, Problem> {
        self.admit(headers).map(|()| Bearer::Somebody)
    }

    fn admit(&self, _: Bearer, _: &Claim) -> Result<(), Problem> {
        Ok(())
    }

    fn forget_before(&self, _: &TaskId, _: u32) {}
}

/// A quota of reports for each device's token, task and round.
///
/// # Privacy
/// Serials and ids are in memory only, as long as their round is open; a restart forgets them.
struct DeviceTokens {
    access: Arc<Access>,
    quota: usize,
    brought: Mutex<Brought>,
}

/// In order, so that those of one device are together.
type Reports = BTreeSet<(Serial, [u8; 16])>;

#[derive(Default)]
struct Brought {
    rounds: HashMap<(TaskId, u32), Reports>,
    /// In all rounds.
    reports: usize,
}

impl DeviceTokens {
    fn new(quota: usize, access: Arc<Access>) -> Self {
        Self { access, quota, brought: Mutex::default() }
    }
}

impl Admission for DeviceTokens {
    fn identify(&self, headers: &HeaderMap) -> Result<Bearer, Problem> {
        let Some(token) = bearer_token(headers) else {
            return Err(Problem::new(Kind::Unauthorized, "the header authorization is missing"));
        };
        match self.access.verdict(token) {
            Verdict::OneDevice(serial) => Ok(Bearer::Device(serial)),
            Verdict::Unknown => {
                Err(Problem::new(Kind::Unauthorized, "the token is not one of this service's"))
            }
            Verdict::Known(_) => {
                Err(Problem::new(Kind::Forbidden, "this needs a token of one device's own"))
            }
        }
    }

    fn admit(&self, bearer: Bearer, claim: &Claim) -> Result<(), Problem> {
        let Bearer::Device(serial) = bearer else {
            return Err(Problem::new(Kind::Forbidden, "this needs a token of one device's own"));
        };
        let Claim { task, round, id, open } = claim;
        if round < open.start() {
            // It is late for good, and need not be remembered.
            return Ok(());
        }
        if round > open.end() {
            return Err(Problem::new(Kind::Early, "the report's round has not begun"));
        }
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let full = brought.reports >= MOST;
        let reports = brought.rounds.entry((*task, *round)).or_default();
        let report = (serial, id.0);
        if reports.contains(&report) {
            return Ok(());
        }
        let own = (serial, [0; 16])..=(serial, [u8::MAX; 16]);
        if reports.range(own).take(self.quota).count() >= self.quota {
            let rule = format!("a device may bring {} reports a round", self.quota);
            return Err(Problem::new(Kind::OverQuota, rule));
        }
        if full {
            return Err(Problem::new(Kind::Unavailable, "too many devices report at once"));
        }
        reports.insert(report);
        brought.reports += 1;
        Ok(())
    }

    fn forget_before(&self, task: &TaskId, round: u32) {
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        brought.rounds.retain(|(of, number), _| of != task || *number >= round);
        brought.reports = brought.rounds.values().map(BTreeSet::len).sum();
    }
}

/// Finds out who brings the reports of a request, before its body is read.
pub(crate) async fn identified(
    State(admission): State<Arc<dyn Admission>>,
    mut request: Request,
    next: Next,
) -> Response {
    match admission.identify(request.headers()) {
        Ok(bearer) => {
            request.extensions_mut().insert(bearer);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device_tokens::Issuer, tokens::Tokens};

    fn devices(quota: usize) -> DeviceTokens {
        let access = Access::new("none".into(), Tokens::default(), None).unwrap();
        DeviceTokens::new(quota, access)
    }

    fn task(number: u8) -> TaskId {
        hex::encode([number; 32]).parse().unwrap()
    }

    fn claim(round: u32, id: u8) -> Claim {
        Claim { task: task(7), round, id: ReportId([id; 16]), open: 3..=5 }
    }

    fn device(number: u8) -> Bearer {
        Bearer::Device(Serial([number; 16]))
    }

    fn kind(found: Result<(), Problem>) -> Option<Kind> {
        found.err().map(|problem| problem.kind)
    }

    #[test]
    fn r30_a_device_has_its_quota_in_each_open_round_and_a_retry_costs_nothing() {
        let devices = devices(2);
        for round in [3, 5] {
            for number in [0, 1, u8::MAX] {
                for id in [1, 2, 1, 2, 1] {
                    assert_eq!(kind(devices.admit(device(number), &claim(round, id))), None);
                }
                let third = kind(devices.admit(device(number), &claim(round, 3)));
                assert_eq!(third, Some(Kind::OverQuota), "{round} {number}");
                assert_eq!(kind(devices.admit(device(number), &claim(round, 2))), None);
            }
        }
        assert_eq!(devices.brought.lock().unwrap().reports, 12);
    }

    #[test]
    fn r30_what_is_remembered_goes_with_its_round_and_reports_of_no_open_round_take_nothing() {
        let devices = devices(1);
        assert_eq!(kind(devices.admit(device(1), &claim(2, 1))), None, "late: refused later");
        assert_eq!(kind(devices.admit(device(1), &claim(6, 1))), Some(Kind::Early));
        for round in 3..=5 {
            assert_eq!(kind(devices.admit(device(1), &claim(round, 1))), None);
        }
        let remembered = || {
            let brought = devices.brought.lock().unwrap();
            let counted: usize = brought.rounds.values().map(BTreeSet::len).sum();
            assert_eq!(counted, brought.reports);
            brought.reports
        };
        assert_eq!(remembered(), 3);
        devices.forget_before(&task(8), 9);
        assert_eq!(remembered(), 3, "another task");
        devices.forget_before(&task(7), 5);
        assert_eq!(remembered(), 1);
        assert_eq!(kind(devices.admit(device(1), &claim(5, 2))), Some(Kind::OverQuota));
    }

    #[test]
    fn r30_a_token_is_of_its_own_secret_and_serial_only() {
        let issuer = Issuer::from_bytes([1; 32]);
        let token = issuer.mint().unwrap();
        let serial: Serial = token.parse().unwrap();
        assert_eq!(issuer.verify(token.as_bytes()), Some(serial));
        assert_ne!(issuer.mint().unwrap(), token, "serials are drawn");
        assert_eq!(Issuer::from_bytes([2; 32]).verify(token.as_bytes()), None);
        for position in 0..token.len() {
            let mut other = token.as_bytes().to_vec();
            other[position] = if other[position] == b'0' { b'1' } else { b'0' };
            assert_eq!(issuer.verify(&other), None, "{position}");
        }
        for length in 0..token.len() {
            assert_eq!(issuer.verify(&token.as_bytes()[..length]), None);
        }
        assert_eq!(issuer.verify(format!("{}0", *token).as_bytes()), None);
    }
}
