//! Plans whose rounds close by time: windows, capacity, what is lost, and the same promises.

use incrowd_planner::{ClosingRule, LocalLimit, Plan, PlanError, PlanRequest, Preset, Shape};
use incrowd_protocol::Closes;
use proptest::prelude::*;

use super::plan::{keeps_its_promises, planned, refused};

/// 2027-01-15T08:00:00Z.
const OPENS: u64 = 1_800_000_000_000;

fn request(dimension: u32, users_per_day: f64, days: f64) -> PlanRequest {
    PlanRequest {
        horizon: None,
        users_per_day: Some(users_per_day),
        days: Some(days),
        opens: Some(OPENS),
        ..PlanRequest::new(dimension, 0)
    }
}

/// Windows add up to the days, every window has the reports that arrive in it, every capacity has
/// room for the peak, and the task says the same.
fn keeps_its_timetable(plan: &Plan) {
    keeps_its_promises(plan);
    let config = plan.request.config();
    let (users, peak) = (config.users_per_day.unwrap(), config.peak.unwrap_or(2.0));
    let mechanism = plan.task().mechanism();
    assert_eq!(mechanism.closes(), Closes::Time { opens: OPENS });
    let timetable = plan.timetable.as_ref().unwrap();
    let stages = mechanism.schedule().stages();
    assert_eq!(timetable.stages.len(), stages.len());
    let (mut rounds, mut released) = (0.0, 0.0);
    for (timed, stage) in timetable.stages.iter().zip(stages) {
        assert_eq!((timed.rounds, Some(timed.window)), (stage.rounds, stage.window));
        assert_eq!(timed.capacity, stage.size);
        let expected = users * f64::from(timed.window) / 86_400_000.0;
        assert!((timed.expected / expected - 1.0).abs() < 1e-12);
        let mean = peak * expected;
        let deviations = (f64::from(timed.capacity) - mean) / mean.sqrt();
        assert!(deviations > 4.75, "chance of a surplus at the peak: {deviations} deviations");
        assert!(deviations < 6.0 + 12.0 / mean.sqrt(), "room for nobody: {deviations}");
        assert!(expected <= 1.001 * f64::from(plan.request.largest_batch()) + 1.0);
        rounds += f64::from(timed.rounds);
        released += f64::from(timed.rounds) * f64::from(timed.capacity);
    }
    let total = plan.request.horizon() as f64;
    let milliseconds = (timetable.closes - timetable.opens) as f64;
    assert!((milliseconds - total / users * 86_400_000.0).abs() <= rounds, "{milliseconds}");
    assert!((timetable.padding_share - (1.0 - total / released)).abs() < 1e-3);
    assert!(timetable.surplus_share < 1e-5 && timetable.surplus_chance <= 1e-6);
    let in_flight = config.upload_seconds.unwrap_or(10.0) * 1000.0 * rounds / milliseconds;
    let in_flight = in_flight.min(1.0);
    assert!((timetable.in_flight_share - in_flight).abs() < 1e-9);
    assert!((plan.lost_share.unwrap() - timetable.lost_share()).abs() < 1e-15);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_by_time_keeps_its_promises(
        dimension in 1u32..12,
        users_per_day in 300f64..30_000.0,
        days in 5f64..60.0,
        central in prop::option::of(0.1f64..4.0),
        local in prop::option::of(0.5f64..10.0),
        peak in 1f64..4.0,
        honest_fraction in 0.5f64..1.0,
        latency in prop::option::of(1f64..3.0),
    ) {
        keeps_its_timetable(&planned(PlanRequest {
            central_epsilon: central,
            local_epsilon: match (local, central) {
                (Some(local), _) => LocalLimit::AtMost(local),
                (None, Some(_)) => LocalLimit::Unlimited,
                (None, None) => LocalLimit::Default,
            },
            peak: Some(peak),
            honest_fraction,
            latency_days: latency,
            ..request(dimension, users_per_day, days)
        }));
    }
}

/// At a fixed central epsilon the noise of many bits hardly depends on the capacity.
#[test]
fn room_is_cheap_without_a_local_cap() {
    let lifted = PlanRequest {
        central_epsilon: Some(1.0),
        local_epsilon: LocalLimit::Unlimited,
        ..request(5, 10_000.0, 10.0)
    };
    let regret = |request: PlanRequest| planned(request).prediction.regret;
    let roomy = planned(lifted.clone());
    keeps_its_timetable(&roomy);
    let packed = regret(PlanRequest {
        opens: None,
        users_per_day: None,
        days: None,
        horizon: Some(100_000),
        ..lifted.clone()
    });
    let ratio = roomy.prediction.regret / packed;
    assert!((0.99..1.02).contains(&ratio), "{ratio}");
    assert!(regret(PlanRequest { peak: Some(4.0), ..lifted }) < 1.04 * packed);
    let says = |plan: &Plan, words: &str| plan.notes.iter().any(|note| note.contains(words));
    assert!(says(&roomy, "is no protection; everything rests on the shuffler"));
    // With a local cap a pad is as noisy as a report, and the plan says so.
    let capped = planned(PlanRequest { central_epsilon: Some(1.0), ..request(5, 10_000.0, 10.0) });
    assert!(says(&capped, "each pad adds as much noise as a report"));
    assert!(!says(&capped, "is no protection"));
}

/// With a local cap each pad costs variance. Whoever knows that days are alike needs room for peaks
/// only in rounds shorter than a day, and the plan has such rounds where they learn faster.
#[test]
fn days_alike_need_less_room() {
    let everyone = PlanRequest { honest_fraction: 1.0, ..request(5, 20_000.0, 30.0) };
    let capped = PlanRequest { central_epsilon: Some(1.0), ..everyone };
    let roomy = planned(capped.clone());
    let alike = planned(PlanRequest { busiest_day: Some(1.0), ..capped.clone() });
    keeps_its_promises(&alike);
    let share = |plan: &Plan| plan.timetable.as_ref().unwrap().padding_share;
    assert!(share(&roomy) > 0.5 && share(&alike) < 0.1, "{} {}", share(&roomy), share(&alike));
    let gain = alike.prediction.regret / roomy.prediction.regret;
    assert!((0.8..0.95).contains(&gain), "{gain}");
    let price = |change: &str| {
        let named = |other: &&incrowd_planner::Alternative| other.change.starts_with(change);
        roomy.alternatives.iter().find(named).unwrap().predicted_regret
    };
    // A price is searched, not certified.
    assert!((price("days alike") / alike.prediction.regret - 1.0).abs() < 0.03);
    // The first rounds are short and have room for the peak, the last ones are of about a day.
    let stages = &alike.timetable.as_ref().unwrap().stages;
    let room = |stage: &incrowd_planner::TimedStage| f64::from(stage.capacity) / stage.expected;
    assert!(room(&stages[0]) > 2.0 && room(stages.last().unwrap()) < 1.1);
    for wrong in [0.9, 2.1, f64::NAN] {
        let error = refused(PlanRequest { busiest_day: Some(wrong), ..capped.clone() });
        assert!(matches!(error, PlanError::BusiestDay { peak: 2.0, .. }), "{error}");
    }
}

#[test]
fn a_plan_is_the_same_every_time() {
    let request = PlanRequest { central_epsilon: Some(1.0), ..request(4, 5000.0, 7.0) };
    assert_eq!(planned(request.clone()), planned(request));
}

#[test]
fn the_batch_size_is_what_is_expected() {
    let plan = planned(PlanRequest {
        batch_size: Some(500),
        upload_seconds: Some(60.0),
        ..request(3, 12_000.0, 10.0)
    });
    keeps_its_timetable(&plan);
    let timetable = plan.timetable.unwrap();
    assert_eq!(timetable.stages.len(), 1);
    // An hour each: 500 expected, 1000 at the peak, and 5.5 deviations.
    let stage = timetable.stages[0];
    assert_eq!((stage.rounds, stage.window, stage.capacity), (240, 3_600_000, 1171));
    assert_eq!(timetable.latency_days, (2.0 / 24.0, 2.0 / 24.0), "reward window and round");
    assert!((timetable.in_flight_share - 1.0 / 60.0).abs() < 1e-12);
}

/// The closing rule follows from what is known, and what does not fit is refused by name.
#[test]
fn what_closes_a_batch() {
    let timed = PlanRequest { central_epsilon: Some(1.0), ..request(3, 2000.0, 10.0) };
    let rule = |request: PlanRequest| request.check().unwrap().closing_rule();
    assert_eq!(rule(timed.clone()), ClosingRule::Time);
    let counted = PlanRequest { closes: Some(ClosingRule::Count), opens: None, ..timed.clone() };
    assert_eq!(rule(counted.clone()), ClosingRule::Count);
    let plan = planned(counted.clone());
    assert!(plan.timetable.is_none() && plan.fill_days.is_some());
    let by_count = |plan: &Plan| {
        plan.notes
            .iter()
            .any(|note| note.contains("batches that close by count protect what a person reports"))
    };
    assert!(by_count(&plan));
    let simulated =
        planned(PlanRequest { central_epsilon: Some(1.0), ..PlanRequest::new(3, 20_000) });
    assert!(by_count(&simulated));
    assert!(simulated.notes.iter().any(|note| note.contains("such a plan is for simulations")));
    let preset = PlanRequest {
        preset: Some(Preset::PaperRegret),
        opens: None,
        central_epsilon: None,
        ..timed.clone()
    };
    assert_eq!(rule(preset.clone()), ClosingRule::Count);
    assert!(by_count(&planned(preset.clone())));

    for (request, error) in [
        (
            PlanRequest { closes: Some(ClosingRule::Time), ..preset },
            PlanError::PresetClosesByCount("paper-regret"),
        ),
        (PlanRequest { grace: Some(1), ..timed.clone() }, PlanError::GraceWithTime(1)),
        (PlanRequest { opens: None, ..timed.clone() }, PlanError::NoOpens),
        (PlanRequest { opens: Some(OPENS), ..counted.clone() }, PlanError::NeedsTime("opens")),
        (PlanRequest { peak: Some(2.0), ..counted.clone() }, PlanError::NeedsTime("peak")),
        (
            PlanRequest { upload_seconds: Some(2.0), ..counted },
            PlanError::NeedsTime("upload seconds"),
        ),
        (PlanRequest { peak: Some(0.5), ..timed.clone() }, PlanError::Peak(0.5)),
        (
            PlanRequest { upload_seconds: Some(-1.0), ..timed.clone() },
            PlanError::UploadSeconds(-1.0),
        ),
        (
            PlanRequest { closes: Some(ClosingRule::Time), ..PlanRequest::new(3, 1000) },
            PlanError::TimeNeedsRate,
        ),
    ] {
        assert_eq!(refused(request), error);
    }
    assert_eq!(rule(PlanRequest { grace: Some(0), ..timed }), ClosingRule::Time);
}

/// Windows of at most 49.7 days, and one of 10 milliseconds at a rate beyond any service.
#[test]
fn extreme_rates_have_windows_in_range() {
    let slow = planned(PlanRequest { central_epsilon: Some(1.0), ..request(2, 3.0, 2000.0) });
    keeps_its_timetable(&slow);
    let fast = PlanRequest { shape: Shape::Fixed, ..request(1, 2e11, 1.0) };
    keeps_its_timetable(&planned(fast));
    let slower = PlanRequest { batch_size: Some(200), ..request(2, 3.0, 2000.0) };
    assert_eq!(refused(slower), PlanError::BatchAboveWindow { size: 200, most: 149 });
}
