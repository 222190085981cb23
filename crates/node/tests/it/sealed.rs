//! R17: sealed reports over HTTP, and the life of the keys they are sealed to.

use std::time::Duration;

use crate::common::{
    Place, hot, id, joined, mechanism, one_hot, outcomes, plain, problem, sealed, sums,
};
use incrowd_envelope::{SealedHeader, seal};
use incrowd_node::{KeyRole, Keys, Roles};
use incrowd_protocol::{KeyState, MediaType, Task};

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_task_takes_sealed_reports_and_plain_ones_only_when_its_policy_says_so() {
    let place = Place::new(sealed(mechanism(3, 0, &[(1, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = one_hot(place.mechanism(), 1, 0);
    assert_eq!(problem(node.put(&report).await).await, (415, "sealed-only".into()));
    let bytes = report.encode(place.mechanism()).unwrap();
    let answer = node.post(MediaType::Reports, joined([bytes])).await;
    assert_eq!(problem(answer).await, (415, "sealed-only".into()));
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    assert_eq!(node.put_sealed(&report).await.status(), 204);
    assert_eq!(node.put_sealed(&report).await.status(), 204, "a retry, sealed anew");
    let second = node.seal(&one_hot(place.mechanism(), 1, 1)).await;
    let again = node.seal(&report).await;
    let answer = node.post(MediaType::SealedReports, joined([again, second])).await;
    assert_eq!(outcomes(answer).await, (2, vec![]));
    assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), 0..2));
    node.stop().await;

    let place = Place::new(plain(mechanism(3, 0, &[(1, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.put(&one_hot(place.mechanism(), 1, 0)).await.status(), 204);
    assert_eq!(node.put_sealed(&one_hot(place.mechanism(), 1, 1)).await.status(), 204);
    assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), 0..2));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_any_flipped_bit_is_refused_and_counts_nowhere() {
    let place = Place::new(sealed(mechanism(2, 0, &[(3, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = one_hot(place.mechanism(), 1, 0);
    let good = node.seal(&report).await;
    let flipped: Vec<Vec<u8>> = (0..good.len() * 8)
        .map(|bit| {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        })
        .collect();
    let (accepted, refused) =
        outcomes(node.post(MediaType::SealedReports, joined(&flipped)).await).await;
    assert_eq!((accepted, refused.len()), (0, flipped.len()));
    let kind = |bit: usize| refused[bit].1.as_str();
    assert_eq!(kind(0), "invalid-report", "the version");
    assert_eq!(kind(8), "unknown-key", "the key's number");
    assert!((16..good.len() * 8).all(|bit| kind(bit) == "cannot-open"), "everything else");
    for byte in (0..good.len()).step_by(7) {
        let body = flipped[byte * 8 + byte % 8].clone();
        let answer = node.upload(report.id(), MediaType::SealedReport, body).send().await.unwrap();
        assert_eq!(problem(answer).await.0, 422, "byte {byte}");
    }
    for cut in [0, 21, 53, 69, good.len() - 1] {
        let answer = node
            .upload(report.id(), MediaType::SealedReport, good[..cut].to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(problem(answer).await.0, 422, "{cut} bytes");
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    let answer = node.upload(report.id(), MediaType::SealedReport, good).send().await.unwrap();
    assert_eq!(answer.status(), 204);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_sealed_report_is_bound_to_its_id_round_and_task() {
    let place = Place::new(sealed(mechanism(2, 1, &[(3, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = one_hot(place.mechanism(), 1, 0);
    let sealed = node.seal(&report).await;
    let elsewhere = node.upload(id(1), MediaType::SealedReport, sealed).send().await.unwrap();
    assert_eq!(problem(elsewhere).await, (422, "other-id".into()), "the path has another id");

    let notice = node.notice().await;
    let key = notice.sealing_key().unwrap();
    let bytes = report.encode(place.mechanism()).unwrap();
    let task = place.task.id();
    let send = async |sealed: Vec<u8>, path| {
        let header = SealedHeader::decode(&sealed).unwrap();
        let path = if path { header.id } else { report.id() };
        problem(node.upload(path, MediaType::SealedReport, sealed).send().await.unwrap()).await
    };
    let other_id = || seal(&task, key, 1, id(1), &bytes).unwrap();
    assert_eq!(send(other_id(), true).await, (422, "other-id".into()));
    assert_eq!(send(other_id(), false).await, (422, "other-id".into()));
    let other_round = seal(&task, key, 2, report.id(), &bytes).unwrap();
    assert_eq!(send(other_round, true).await, (422, "other-id".into()));
    let keys = incrowd_protocol::VerificationKeys {
        shuffler: place.task.keys().bandit,
        bandit: place.task.keys().shuffler,
    };
    let other_task = Task::new(place.task.config().clone(), keys).id();
    let other_task = seal(&other_task, key, 1, report.id(), &bytes).unwrap();
    assert_eq!(send(other_task, true).await, (422, "cannot-open".into()));
    let noise = seal(&task, key, 1, report.id(), b"sealed well, but no report").unwrap();
    assert_eq!(send(noise, true).await, (422, "invalid-report".into()));
    let plain =
        node.upload(report.id(), MediaType::SealedReport, bytes.clone()).send().await.unwrap();
    assert_eq!(problem(plain).await.0, 422, "not sealed at all");
    let typed = node.upload(report.id(), MediaType::Report, bytes).send().await.unwrap();
    assert_eq!(problem(typed).await.0, 415);
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_keys_rotate_without_losing_a_report_and_expired_ones_open_nothing() {
    let place = Place::new(sealed(mechanism(3, 0, &[(1, 9, 1)])));
    let node = place.start(Roles::Shuffler);
    let path = place.files().shuffler_keys;
    let mut number = 0;
    let mut report = || {
        number += 1;
        one_hot(place.mechanism(), 1, number - 1)
    };
    let states = async || -> Vec<(u8, KeyState)> {
        node.notice().await.sealing_keys.iter().map(|key| (key.id, key.state)).collect()
    };
    let to = async |number: u8, report: &incrowd_protocol::Report| {
        let notice = node.notice().await;
        let key = notice.sealing_keys.iter().find(|key| key.id == number).unwrap();
        let bytes = report.encode(place.mechanism()).unwrap();
        let sealed = seal(&place.task.id(), key, 1, report.id(), &bytes).unwrap();
        node.upload(report.id(), MediaType::SealedReport, sealed).send().await.unwrap()
    };
    let (active, pending, expired) = (KeyState::Active, KeyState::Pending, KeyState::Expired);
    assert_eq!(states().await, [(1, active)]);
    let on_its_way = report();
    let early = node.seal(&on_its_way).await;

    let mut keys = Keys::load(&path, KeyRole::Shuffler).unwrap();
    keys.add_pending().unwrap();
    assert_eq!(states().await, [(1, active)], "a file that was not read again changes nothing");
    node.node.reload().unwrap();
    assert_eq!(states().await, [(1, active), (2, pending)]);
    assert_eq!(node.notice().await.sealing_key().unwrap().id, 1);
    assert_eq!(to(1, &report()).await.status(), 204);
    assert_eq!(to(2, &report()).await.status(), 204, "a pending key opens");

    let activated = std::time::SystemTime::now();
    keys.activate_pending(activated).unwrap();
    node.node.reload().unwrap();
    assert_eq!(states().await, [(1, active), (2, active)]);
    assert_eq!(node.notice().await.sealing_key().unwrap().id, 2);
    assert_eq!(to(2, &report()).await.status(), 204);
    let answer =
        node.upload(on_its_way.id(), MediaType::SealedReport, early.clone()).send().await.unwrap();
    assert_eq!(answer.status(), 204, "what was on its way still opens");
    assert_eq!(node.filled().await, (Some(1), Some(4)));

    let before = std::fs::read_to_string(&path).unwrap();
    let after = |seconds| activated + Duration::from_secs(seconds);
    for seconds in [0, 119] {
        let early = keys.expire_old(after(seconds), false).unwrap_err().to_string();
        let told = format!("keys 2 have been active for {seconds} s, must be for 120 s");
        assert!(early.contains(&told), "{early}");
    }
    assert!(keys.expire_old(activated - Duration::from_secs(60), false).is_err(), "a clock back");
    assert_eq!(keys.expire_old(after(121), false).unwrap(), [1]);
    node.node.reload().unwrap();
    assert_eq!(states().await, [(1, expired), (2, active)]);
    let late = report();
    assert_eq!(problem(to(1, &late).await).await, (422, "unknown-key".into()));
    assert_eq!(to(2, &late).await.status(), 204);
    let secrets = |text: &str| text.matches("secret = ").count();
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!((secrets(&before), secrets(&after)), (2, 1), "the expired secret is erased");
    node.stop().await;

    let node = place.start(Roles::Shuffler);
    let retry = node.upload(on_its_way.id(), MediaType::SealedReport, early).send().await.unwrap();
    assert_eq!(problem(retry).await, (422, "unknown-key".into()), "also after a restart");
    assert_eq!(node.filled().await, (Some(1), Some(5)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_another_signing_key_is_not_taken_into_use() {
    let place = Place::new(sealed(mechanism(3, 0, &[(1, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let path = place.files().shuffler_keys;
    std::fs::remove_file(&path).unwrap();
    Keys::create(&path, KeyRole::Shuffler).unwrap();
    let before = node.notice().await;
    assert!(node.node.reload().is_err());
    assert_eq!(node.notice().await, before, "the signature is still the task's");
    assert_eq!(node.put_sealed(&one_hot(place.mechanism(), 1, 0)).await.status(), 204);
    node.stop().await;
}
