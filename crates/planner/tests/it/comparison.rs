//! Plans of comparison tasks: what they promise, and what they can tell.

use incrowd_bandit::comparison_half_width;
use incrowd_planner::{ClosingRule, LocalLimit, PlanError, PlanRequest, Shape};
use incrowd_protocol::Layout;

use crate::plan::{keeps_its_promises, planned, refused};

fn request(users_per_day: f64) -> PlanRequest {
    PlanRequest {
        horizon: None,
        users_per_day: Some(users_per_day),
        days: Some(30.0),
        opens: Some(1_800_000_000_000),
        central_epsilon: Some(1.0),
        ..PlanRequest::comparison(0)
    }
}

#[test]
fn a_comparison_is_a_task_of_its_own_that_keeps_its_limits() {
    let counted = PlanRequest { central_epsilon: Some(0.5), ..PlanRequest::comparison(50_000) };
    let local = PlanRequest { local_epsilon: LocalLimit::AtMost(5.0), ..request(3000.0) };
    let trusted = PlanRequest { local_epsilon: LocalLimit::Unlimited, ..request(3000.0) };
    for request in [request(3000.0), counted, local, trusted] {
        let plan = planned(request);
        keeps_its_promises(&plan);
        assert!(plan.task().is_comparison());
        assert!(plan.advice.is_empty() && plan.alternatives.is_empty() && plan.warning().is_none());
        let people = plan.request.horizon() as f64;
        let told = comparison_half_width(plan.task(), people, 0.95).unwrap();
        let half = plan.half_width.unwrap();
        assert!((half / told - 1.0).abs() < 0.02, "{half} {told}");
        // Nothing tells more than rewards themselves would without any noise.
        assert!(half > 1.96 / people.sqrt(), "{half}");
    }
}

/// Four times the people, or no cap, tell a smaller difference; shorter rounds never do.
#[test]
fn what_it_can_tell_follows_people_and_noise() {
    let half = |request: PlanRequest| planned(request).half_width.unwrap();
    let usual = half(request(3000.0));
    let more = half(request(12_000.0));
    assert!((usual / more - 2.0).abs() < 0.1, "{usual} {more}");
    let trusted = PlanRequest { local_epsilon: LocalLimit::Unlimited, ..request(3000.0) };
    assert!(half(trusted) < 0.6 * usual);
    let weekly = PlanRequest { latency_days: Some(7.0), ..request(3000.0) };
    let (weeks, whole) = (planned(weekly), planned(request(3000.0)));
    assert!(weeks.half_width.unwrap() >= usual);
    let rounds = |plan: &incrowd_planner::Plan| plan.task().mechanism().schedule().last_round();
    assert!(rounds(&weeks) >= 4 && rounds(&whole) == 1);
    assert!(whole.notes.iter().any(|note| note.starts_with("there is one round")));
    assert_eq!(whole.request.closing_rule(), ClosingRule::Time);
}

#[test]
fn anything_else_is_no_comparison() {
    let good = PlanRequest::comparison(10_000);
    for request in [
        PlanRequest { dimension: 2, ..good.clone() },
        PlanRequest { layout: Layout::PerAction { slots: 3 }, ..good.clone() },
        PlanRequest { shape: Shape::Growing, ..good.clone() },
        PlanRequest { half_life: Some(1000.0), ..good.clone() },
    ] {
        assert_eq!(refused(request), PlanError::Comparison);
    }
}
