//! Bits or words: which plan is made for which limits.

use incrowd_planner::{EncodingChoice, LocalLimit, PlanError, PlanRequest, Shape};
use incrowd_protocol::{Law, Report};

use super::plan::{keeps_its_promises, planned, refused};

fn capped(dimension: u32, cap: f64) -> PlanRequest {
    PlanRequest {
        central_epsilon: Some(1.0),
        local_epsilon: LocalLimit::AtMost(cap),
        ..PlanRequest::new(dimension, 100_000)
    }
}

fn is_words(law: Law) -> bool {
    law.as_bits().is_none()
}

#[test]
fn a_capped_plan_has_words_and_says_why() {
    for (dimension, cap, gain) in [(5, 4.0, 2.0), (10, 4.0, 3.0), (5, 8.0, 2.0), (10, 8.0, 2.5)] {
        let plan = planned(capped(dimension, cap));
        keeps_its_promises(&plan);
        let stages = plan.task().mechanism().schedule().stages();
        assert!(stages.iter().all(|stage| is_words(stage.law)), "d = {dimension}, cap {cap}");
        assert_eq!(plan.report_bytes, 46, "seed and index, whatever the dimension");
        let length = Report::encoded_len(plan.task().mechanism(), stages[0].law);
        assert_eq!(plan.report_bytes, length);
        assert!(plan.notes.iter().any(|note| note.contains("one word of a random codebook")));
        let bits =
            planned(PlanRequest { encoding: EncodingChoice::Bits, ..capped(dimension, cap) });
        keeps_its_promises(&bits);
        let ratio = bits.prediction.regret / plan.prediction.regret;
        assert!(ratio > gain, "d = {dimension}, cap {cap}: {ratio}");
        // One of the limits is used up.
        let certificate = &plan.certificate;
        let used = (certificate.epsilon_central()).max(certificate.epsilon_local() / cap);
        assert!(used > 0.97, "d = {dimension}, cap {cap}: {used}");
    }
}

#[test]
fn without_a_cap_a_plan_has_bits() {
    let request = PlanRequest { local_epsilon: LocalLimit::Unlimited, ..capped(5, 1.0) };
    let plan = planned(request.clone());
    let stages = plan.task().mechanism().schedule().stages();
    assert!(stages.iter().all(|stage| !is_words(stage.law)));
    let words = planned(PlanRequest { encoding: EncodingChoice::Codebook, ..request });
    keeps_its_promises(&words);
    assert!(is_words(words.most_telling().stage.law));
    assert!(words.prediction.regret > plan.prediction.regret);
}

#[test]
fn what_is_asked_for_is_taken() {
    let bits = planned(PlanRequest { bits: Some(1), ..capped(5, 4.0) });
    assert!(!is_words(bits.most_telling().stage.law), "a number of bits asks for bits");
    let both = PlanRequest { bits: Some(1), encoding: EncodingChoice::Codebook, ..capped(5, 4.0) };
    assert_eq!(refused(both), PlanError::BitsOfCodebook(1));
}

/// Several reports per person, half of the people honest, growing batches.
#[test]
fn words_are_certified_for_several_reports_and_liars() {
    let plan = planned(PlanRequest {
        participations: 3,
        honest_fraction: 0.5,
        shape: Shape::Growing,
        ..capped(5, 6.0)
    });
    keeps_its_promises(&plan);
    assert!(is_words(plan.most_telling().stage.law));
    assert!(plan.certificate.epsilon_central() > 0.9);
}
