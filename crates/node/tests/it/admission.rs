//! R30: whose reports are taken, over real HTTP.

use incrowd_node::{AdmissionKind, Issuer, Role, Roles, Serial};
use incrowd_protocol::{MediaType, Report, paths};
use incrowd_transport::{Address, Route, ShufflerApi, Trust};

use crate::{
    common::{
        Place, Running, eventually, four_hot, hot, joined, mechanism, metric, one_hot, outcomes,
        plain, problem, sums, timed,
    },
    gateway::relay,
};

/// A place whose shuffler takes so many reports a round from each device, and its issuing secret.
fn quotas(mut place: Place, reports: u32) -> (Place, Issuer) {
    let issuer = Issuer::generate().unwrap();
    issuer.save(&place.files().issuer, false).unwrap();
    place.config.shuffler.admission = AdmissionKind::DeviceTokens;
    place.config.shuffler.reports_per_round = reports;
    (place, issuer)
}

async fn put(node: &Running, token: &str, report: &Report) -> reqwest::Response {
    let path = paths::report(&node.task.id(), report.id());
    let request = node.client.put(format!("{}{path}", node.base)).bearer_auth(token);
    let request = request.header("content-type", MediaType::Report.as_str());
    request.body(report.encode(node.mechanism()).unwrap()).send().await.unwrap()
}

/// The attack of one token holder who puts 99 known reports beside the one of somebody else, so that
/// the release less the own ones is that person's report.
#[tokio::test(flavor = "multi_thread")]
async fn r30_a_token_holder_with_99_known_reports_gets_no_more_than_its_quota() {
    const QUOTA: u32 = 2;
    let mechanism = mechanism(6, 0, &[(2, 100, 1)]);
    let (place, issuer) = quotas(Place::new(plain(mechanism)), QUOTA);
    let node = place.start(Roles::Shuffler);
    let (attacker, person) = (issuer.mint().unwrap(), issuer.mint().unwrap());
    let report = |number| one_hot(place.mechanism(), 1, number);
    let mut taken = 0;
    for number in 0..50 {
        let answer = put(&node, &attacker, &report(number)).await;
        if answer.status() == 204 {
            taken += 1;
        } else {
            assert!(!answer.headers().contains_key("retry-after"), "nobody knows when");
            assert_eq!(problem(answer).await, (429, "over-quota".into()));
        }
    }
    assert_eq!(taken, QUOTA);
    // A bulk, also with reports that it has brought already, and one twice.
    let numbers = (0..99).chain([99, 99]);
    let body = joined(numbers.map(|number| report(number).encode(place.mechanism()).unwrap()));
    let bulk = node.client.post(format!("{}{}", node.base, paths::reports(&place.task.id())));
    let bulk = bulk.bearer_auth(attacker.as_str());
    let bulk = bulk.header("content-type", MediaType::Reports.as_str()).body(body);
    let (accepted, refused) = outcomes(bulk.send().await.unwrap()).await;
    assert_eq!((accepted, refused.len()), (u64::from(QUOTA), 99));
    assert!(refused.iter().all(|(_, kind)| kind == "over-quota"), "{refused:?}");
    // Over relay and gateway.
    let relay = relay(&node.base, place.token(Role::Relay)).await;
    let address = |url: &str| Address::new(url, "url", false).unwrap();
    let route = Route::Oblivious {
        relay: address(&format!("http://{}", relay.address())),
        target: address("http://127.0.0.1:1"),
    };
    let hidden = ShufflerApi::new(route, Some(attacker.to_string()), &Trust::Nobody).unwrap();
    hidden.notice(&place.task.id()).await.unwrap();
    let body = report(98).encode(place.mechanism()).unwrap();
    let refused = hidden.put(&place.task.id(), report(98).id(), false, body).await.unwrap_err();
    assert!(refused.to_string().contains("over-quota") && !refused.is_final(), "{refused}");
    // Others are not touched by it.
    assert_eq!(put(&node, &person, &report(200)).await.status(), 204);
    assert_eq!(node.filled().await, (Some(1), Some(QUOTA + 1)));
    let text = node.metrics().await;
    let name =
        format!("incrowd_reports_total{{task=\"{}\",outcome=\"over-quota\"}}", place.task.id());
    assert!((metric(&text, &name) - (48.0 + 99.0 + 1.0)).abs() < 0.5, "{text}");
    let serial: Serial = attacker.parse().unwrap();
    assert!(!text.contains(&hex::encode(serial.0)), "nobody's serial is measured");
    relay.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r30_quotas_are_for_one_round_and_a_restart_forgets_them() {
    let (place, issuer) = quotas(Place::new(plain(mechanism(6, 0, &[(4, 2, 1)]))), 1);
    let node = place.start(Roles::Shuffler);
    let [first, second] = [(); 2].map(|()| issuer.mint().unwrap());
    let report = |round, number| one_hot(place.mechanism(), round, number);
    for round in 1..=2 {
        let number = 10 * round;
        assert_eq!(put(&node, &first, &report(round, number)).await.status(), 204);
        let again = put(&node, &first, &report(round, number + 1)).await;
        assert_eq!(problem(again).await, (429, "over-quota".into()));
        // The next round is open to it as soon as it begins, and not before.
        let early = put(&node, &first, &report(round + 1, number + 10)).await;
        assert_eq!(problem(early).await, (409, "early".into()));
        let far = put(&node, &first, &report(round + 2, number + 2)).await;
        assert_eq!(problem(far).await, (409, "early".into()));
        assert_eq!(put(&node, &second, &report(round, number + 3)).await.status(), 204);
        assert_eq!(sums(&node.released(round).await), hot(place.mechanism(), [number, number + 3]));
        let late = put(&node, &first, &report(round, number + 4)).await;
        assert_eq!(problem(late).await.1, "late");
    }
    node.stop().await;
    let node = place.start(Roles::Shuffler);
    assert_eq!(put(&node, &first, &report(3, 90)).await.status(), 204);
    assert_eq!(problem(put(&node, &first, &report(3, 91)).await).await.1, "over-quota");
    node.stop().await;
    let node = place.start(Roles::Shuffler);
    let told = "a restart forgets quotas, so this is the second report of the round, as documented";
    assert_eq!(put(&node, &first, &report(3, 91)).await.status(), 204, "{told}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_r30_an_answer_over_the_quota_tells_the_next_round_and_nothing_of_the_fill() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let opens = now.as_millis() as u64 - 1000;
    // A capacity of one, so that most reports are surplus.
    let (place, issuer) = quotas(Place::new(plain(timed(6, opens, 600_000, 2, 1))), 1);
    let node = place.start(Roles::Shuffler);
    let mut seen = Vec::new();
    for device in 0..4 {
        let token = issuer.mint().unwrap();
        let own = four_hot(place.mechanism(), 1, 10 * device);
        assert_eq!(put(&node, &token, &own).await.status(), 204, "counted or surplus");
        assert_eq!(put(&node, &token, &own).await.status(), 204, "again");
        let other = put(&node, &token, &four_hot(place.mechanism(), 1, 10 * device + 1)).await;
        let after: u64 = other.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((500..=600).contains(&after), "{after}");
        seen.push(problem(other).await);
    }
    assert!(seen.iter().all(|found| *found == (429, "over-quota".into())), "{seen:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r30_r35_tokens_of_devices_are_refused_when_they_are_revoked_or_of_another_secret() {
    let (place, issuer) = quotas(Place::new(plain(mechanism(6, 0, &[(1, 100, 1)]))), 1000);
    let node = place.start(Roles::Both);
    let report = |number| one_hot(place.mechanism(), 1, number);
    let (good, bad) = (issuer.mint().unwrap(), issuer.mint().unwrap());
    for (number, token) in [&good, &bad].into_iter().enumerate() {
        assert_eq!(put(&node, token, &report(number as u32)).await.status(), 204);
    }
    // The token that all devices could share would have no quota.
    let shared = put(&node, place.token(Role::Device), &report(2)).await;
    assert_eq!(problem(shared).await, (403, "forbidden".into()));
    let stranger = Issuer::generate().unwrap().mint().unwrap();
    assert_eq!(problem(put(&node, &stranger, &report(2)).await).await.0, 401);
    // It is for reports alone.
    let url = format!("{}/metrics", node.admin);
    let asked = node.client.get(url).bearer_auth(good.as_str()).send().await.unwrap();
    assert_eq!(asked.status(), 403);

    let mut tokens = incrowd_node::Tokens::load(&place.files().tokens).unwrap();
    assert!(tokens.revoke_device(bad.parse().unwrap()));
    tokens.save(&place.files().tokens).unwrap();
    eventually("the revoked token is refused", async || {
        put(&node, &bad, &report(1)).await.status() == 401
    })
    .await;
    assert_eq!(put(&node, &good, &report(0)).await.status(), 204);
    // A new secret revokes all.
    Issuer::generate().unwrap().save(&place.files().issuer, true).unwrap();
    eventually("the tokens of the old secret are refused", async || {
        put(&node, &good, &report(0)).await.status() == 401
    })
    .await;
    node.stop().await;
}

/// Tokens as an application's backend makes them, from the description of the format alone.
#[test]
fn r30_tokens_are_those_of_the_vectors() {
    let path = format!("{}/../../vectors/v1/device_tokens.json", env!("CARGO_MANIFEST_DIR"));
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() > 8);
    for case in cases {
        let text = |key: &str| case[key].as_str().unwrap();
        let issuer = hex::decode(text("secret")).unwrap().try_into().unwrap();
        let (issuer, token) = (Issuer::from_bytes(issuer), text("token"));
        if case.get("error").is_some() {
            assert_eq!(issuer.verify(token.as_bytes()), None, "{}", case["name"]);
        } else {
            let serial: Serial = text("serial").parse().unwrap();
            assert_eq!(issuer.token(serial).as_str(), token, "{}", case["name"]);
            assert_eq!(issuer.verify(token.as_bytes()), Some(serial), "{}", case["name"]);
        }
    }
}
