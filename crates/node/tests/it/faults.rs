//! R3, R5, R25 over HTTP when a commit fails or nobody knows whether it did: the group is answered
//! 503, and a retry shows whether it counted.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, header},
};
use incrowd_node::{
    Access, KeyRole, Keys, Metrics, Role, Shuffler, Tokens, app,
    role::{self, Role as _},
    store::{MemoryShufflerStore, SqliteShufflerStore},
};
use incrowd_protocol::{MediaType, Report, paths};
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    common::{Place, hot, joined, mechanism, metric, one_hot, plain, sums},
    shelf::{Fault, FaultyStore},
};

struct Service {
    shuffler: Arc<Shuffler>,
    routes: Router,
    metrics: Arc<Metrics>,
}

impl Service {
    fn start(place: &Place, store: Arc<FaultyStore>) -> Self {
        let files = place.files();
        let keys = Keys::load(&files.shuffler_keys, KeyRole::Shuffler).unwrap();
        let tokens = Tokens::load(&files.tokens).unwrap();
        let access = Access::new(files.tokens.clone(), tokens, None).unwrap();
        let metrics = Arc::new(Metrics::default());
        let service = role::Service {
            config: &place.config,
            tasks: std::slice::from_ref(&place.task),
            certificates: &[place.config.limits.admit(&place.task).unwrap()],
            access: &access,
            metrics: &metrics,
        };
        let shuffler = Shuffler::start(&service, store, keys, files.shuffler_keys.clone()).unwrap();
        let routes = app(shuffler.clone().routes(), place.config.http, &metrics);
        Self { shuffler, routes, metrics }
    }

    async fn ask(
        &self,
        place: &Place,
        request: (Method, &str, MediaType, Vec<u8>),
    ) -> (u16, Value) {
        let (method, path, kind, body) = request;
        let role = if method == Method::GET { Role::Bandit } else { Role::Device };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/{}{path}", paths::TASKS, place.task.id()))
            .header(header::AUTHORIZATION, format!("Bearer {}", place.token(role)))
            .header(header::CONTENT_TYPE, kind.as_str())
            .body(Body::from(body))
            .unwrap();
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        if status == 503 {
            assert_eq!(response.headers()["retry-after"], "1");
        }
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn put(&self, place: &Place, report: &Report) -> u16 {
        let path = format!("/reports/{}", report.id());
        let body = report.encode(place.mechanism()).unwrap();
        self.ask(place, (Method::PUT, &path, MediaType::Report, body)).await.0
    }

    async fn bulk(&self, place: &Place, reports: &[Report]) -> (u16, Value) {
        let body = joined(reports.iter().map(|report| report.encode(place.mechanism()).unwrap()));
        self.ask(place, (Method::POST, "/reports", MediaType::Reports, body)).await
    }

    fn outcomes(&self, place: &Place, outcome: &str) -> u32 {
        let label = format!("task=\"{}\",outcome=\"{outcome}\"", place.task.id());
        metric(&self.metrics.text(), &format!("incrowd_reports_total{{{label}}}")) as u32
    }
}

fn stores(place: &Place) -> [Arc<FaultyStore>; 2] {
    let sqlite = SqliteShufflerStore::open(&place.files().shuffler_store).unwrap();
    [FaultyStore::new(Arc::<MemoryShufflerStore>::default()), FaultyStore::new(Arc::new(sqlite))]
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_r5_r25_after_a_failed_or_unknown_commit_a_retry_is_answered_correctly_and_counts_once()
{
    let place = Place::new(plain(mechanism(6, 1, &[(3, 5, 1)])));
    let report = |number: u32| one_hot(place.mechanism(), 1, number);
    for store in stores(&place) {
        let service = Service::start(&place, store.clone());
        let faults = [
            (Fault::Lock, "counted"),
            (Fault::NotCommitted, "counted"),
            (Fault::UnknownWithoutEffect, "counted"),
            (Fault::UnknownWithEffect, "duplicate"),
        ];
        for (number, (fault, retry)) in (0..).zip(faults) {
            let before = service.outcomes(&place, retry);
            store.arm(Some(fault));
            assert_eq!(service.put(&place, &report(number)).await, 503, "{fault:?}");
            assert!(!store.is_armed());
            assert_eq!(service.put(&place, &report(number)).await, 204, "{fault:?}");
            assert_eq!(service.outcomes(&place, retry), before + 1, "{fault:?}");
            assert_eq!(service.put(&place, &report(number)).await, 204, "and once more");
        }
        assert_eq!(service.outcomes(&place, "unavailable"), 4);

        // The whole group of the report that fills the batch: the release is there after the retry,
        // once.
        let group = [report(3), report(4), report(5)];
        store.arm(Some(Fault::UnknownWithEffect));
        assert_eq!(service.bulk(&place, &group).await.0, 503);
        let (status, answer) = service.bulk(&place, &group).await;
        assert_eq!((status, &answer["accepted"]), (200, &Value::from(3)));
        let (status, release) =
            service.ask(&place, (Method::GET, "/releases/1", MediaType::Json, Vec::new())).await;
        assert_eq!(status, 200);
        let body = serde_json::to_vec(&release).unwrap();
        assert_eq!(sums(&body), hot(place.mechanism(), 0..5));
        let (_, progress) = service.shuffler.progress()[0];
        assert_eq!((progress.round, progress.count), (Some(2), 1));
        assert_eq!(
            service.outcomes(&place, "counted"),
            3,
            "the others were answered as duplicates"
        );
        service.shuffler.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_a_close_that_nobody_knows_of_is_told_by_the_next_answer() {
    let place = Place::new(plain(mechanism(6, 1, &[(3, 5, 1)])));
    let report = |number: u32| one_hot(place.mechanism(), 1, number);
    for (fault, closed) in [(Fault::UnknownWithEffect, true), (Fault::UnknownWithoutEffect, false)]
    {
        let store = FaultyStore::new(Arc::<MemoryShufflerStore>::default());
        let service = Service::start(&place, store.clone());
        assert_eq!(service.put(&place, &report(0)).await, 204);
        store.arm(Some(fault));
        assert!(service.shuffler.close(&place.task.id()).await.is_err());
        assert!(!service.shuffler.progress()[0].1.closed, "nothing is said that is not known");
        assert_eq!(service.put(&place, &report(1)).await, if closed { 410 } else { 204 });
        assert_eq!(service.shuffler.progress()[0].1.closed, closed);
        assert!(service.shuffler.close(&place.task.id()).await.is_ok());
        assert!(service.shuffler.progress()[0].1.closed);
        service.shuffler.stop().await;
    }
}
