//! Codebook reports over HTTP: the same promises as for bits, with sums of words.

use std::{sync::Arc, time::SystemTime};

use crate::common::{Place, eventually, id, joined, outcomes, plain, sealed, sums};
use incrowd_device::Device;
use incrowd_node::Roles;
use incrowd_protocol::{
    CLIP, Closes, CodebookLaw, FlipProbability, Law, Layout, Mechanism, MechanismConfig, MediaType,
    Model, OutsideProbability, Payload, Report, Stage,
};

fn words() -> Law {
    let outside = OutsideProbability::new(1, 5).unwrap();
    Law::Codebook(CodebookLaw { words: 64, chosen: 4, outside, moment_weight: 144 })
}

fn mechanism(closes: Closes, schedule: Vec<Stage>) -> Mechanism {
    let config = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule,
        layout: Layout::Shared,
        closes,
        central_delta: 1e-6,
        participations: 100,
        honest_fraction: 1.0,
    };
    config.check().unwrap()
}

fn report(mechanism: &Mechanism, round: u32, number: u32) -> Report {
    let payload = Payload::Word { seed: [number as u8; 16], index: (number % 64) as u8 };
    Report::new(mechanism, round, id(number), payload).unwrap()
}

fn total(mechanism: &Mechanism, reports: &[Report]) -> Vec<i64> {
    let mut sums = vec![0; mechanism.coordinates()];
    reports.iter().for_each(|report| report.payload().add_to(&mut sums));
    sums
}

/// One by one, in bulk, twice, and over a restart in the middle of a batch whose sums are negative:
/// the release is the sum of each word once. A round of bits follows in the same task.
#[tokio::test(flavor = "multi_thread")]
async fn words_count_once_over_a_restart_and_become_models() {
    let bits = Law::bits(1, FlipProbability::new(1, 2).unwrap());
    let stage = |rounds, size, law| Stage { rounds, size, window: None, law };
    let schedule = vec![stage(1, 40, words()), stage(1, 2, bits)];
    let place = Place::new(sealed(mechanism(Closes::Count { grace: 0 }, schedule)));
    let node = place.start(Roles::Both);
    let reports: Vec<Report> = (0..40).map(|n| report(place.mechanism(), 1, n)).collect();
    let expected = total(place.mechanism(), &reports);
    assert!(expected.iter().any(|sum| *sum < 0) && expected.iter().any(|sum| *sum > 0));
    for one in &reports[..3] {
        assert_eq!(node.put_sealed(one).await.status(), 204);
        assert_eq!(node.put_sealed(one).await.status(), 204, "a retry, sealed anew");
    }
    node.stop().await;
    let node = place.start(Roles::Both);
    assert_eq!(node.filled().await, (Some(1), Some(3)));
    let mut bodies = Vec::new();
    for one in &reports {
        bodies.push(node.seal(one).await);
    }
    let answer = node.post(MediaType::SealedReports, joined(bodies)).await;
    assert_eq!(outcomes(answer).await, (40, vec![]));
    assert_eq!(sums(&node.released(1).await), expected);
    let model: Model = serde_json::from_slice(&node.model_of(1).await).unwrap();
    assert_eq!(model.round(), 1);
    // What a real device makes counts as well, in the round of bits too.
    for _ in 0..2 {
        let mut device = Device::new(Arc::new(place.task.config().clone())).unwrap();
        let made = device.report(2, &[0.6, -0.3], 1.0).unwrap().report;
        assert_eq!(node.put_sealed(&made).await.status(), 204);
    }
    node.released(2).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_a_word_that_the_codebook_does_not_have_counts_nowhere() {
    let stage = Stage { rounds: 1, size: 2, window: None, law: words() };
    let place = Place::new(plain(mechanism(Closes::Count { grace: 0 }, vec![stage])));
    let node = place.start(Roles::Shuffler);
    let mut bytes = report(place.mechanism(), 1, 0).encode(place.mechanism()).unwrap();
    assert_eq!(bytes.len(), 46);
    *bytes.last_mut().unwrap() = 64;
    let longer = [bytes.as_slice(), &[0]].concat();
    for bad in [bytes.clone(), longer, bytes[..45].to_vec()] {
        let answer = node.upload(id(0), MediaType::Report, bad).send().await.unwrap();
        assert_eq!(answer.status(), 422);
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;
}

/// R1, R23: a round that closes by time is filled up with words, and no entry of a pad or a report
/// is above the clip.
#[tokio::test(flavor = "multi_thread")]
async fn r1_rounds_of_words_close_by_the_clock() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let opens = now.as_millis() as u64;
    let size = 50;
    let stage = Stage { rounds: 100, size, window: Some(300), law: words() };
    let place = Place::new(plain(mechanism(Closes::Time { opens }, vec![stage])));
    let node = place.start(Roles::Both);
    // Nobody comes: all pads.
    let release = sums(&node.released(1).await);
    assert!(release.iter().all(|sum| sum.abs() <= i64::from(size) * i64::from(CLIP)));
    assert!(release.iter().any(|sum| *sum != 0));
    eventually("a model from pads", async || node.model().await.status() == 200).await;
    node.stop().await;
}
