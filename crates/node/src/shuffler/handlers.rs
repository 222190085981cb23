use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::{Arc, PoisonError},
};

use axum::{
    Extension, Json, Router,
    extract::{ConnectInfo, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use governor::clock::{Clock, DefaultClock};
use incrowd_envelope::{Document, SealedHeader};
use incrowd_protocol::{Report, TaskId};
use serde::{Deserialize, Serialize};

use super::{
    Served, Shuffler,
    content::{PLAIN, PLAIN_MANY, SEALED, SEALED_MANY, report_id, reports},
    gateway, unavailable,
};
use crate::{
    http::{Content, ContentType, Guard, PathOf, QueryOf, Signed, task_id, wait},
    problem::{Kind, Problem},
    store::{Receipt, Upload},
    tokens::Role,
};

pub(super) fn router(shuffler: &Arc<Shuffler>) -> Router {
    let tokens = &shuffler.tokens;
    let public = Router::new()
        .route("/v1/tasks/{task}/config", get(config))
        .route("/v1/tasks/{task}/round", get(round));
    let uploads = Router::new()
        .route("/v1/tasks/{task}/reports", post(post_reports))
        .route("/v1/tasks/{task}/reports/{id}", put(put_report));
    let releases = Router::new().route("/v1/tasks/{task}/releases/{round}", get(release));
    let uploads = if shuffler.open_uploads {
        Guard::preferably(Role::Device, tokens).protect(uploads)
    } else {
        Guard::only(Role::Device, tokens).protect(uploads)
    };
    let inner = Guard::everyone(tokens)
        .protect(public)
        .merge(uploads)
        .merge(Guard::only(Role::Bandit, tokens).protect(releases))
        .with_state(shuffler.clone());
    if shuffler.gateway.is_none() {
        return inner;
    }
    let outer = gateway::router(shuffler, &inner);
    inner.merge(outer)
}

/// What the task is, what it guarantees, and the keys to seal reports to. Signed by the shuffler.
async fn config(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let served = shuffler.served(&task_id(&task)?)?;
    let notice = served.notice.read().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(notice.answer(&headers, "public, max-age=60"))
}

/// The round being filled and the law of its reports. Signed by the shuffler.
async fn round(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let served = shuffler.served(&task_id(&task)?)?;
    Ok(served.round_notice(&shuffler.keys()).answer(&headers, "public, max-age=1"))
}

/// Uploads one report. The answer comes when the report is durable; a retry looks like the first success.
async fn put_report(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf((task, id)): PathOf<(String, String)>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    kind: ContentType,
    Content(body): Content,
) -> Result<StatusCode, Problem> {
    let served = shuffler.served(&task_id(&task)?)?;
    let id = report_id(&id)?;
    let sealed = is_sealed(&kind, served, PLAIN, SEALED)?;
    shuffler.within_rate(served, 1, peer.map(|Extension(ConnectInfo(peer))| peer.ip()))?;
    let report = shuffler.decode(served, sealed, &body).and_then(|report| {
        if report.id() == id {
            Ok(report)
        } else {
            Err(Problem::new(Kind::OtherId, "the report in the body has another id than the path"))
        }
    });
    let report = report.inspect_err(|problem| {
        shuffler.metrics.outcomes(&served.task.id(), problem.kind.name()).inc();
    })?;
    let receipts = shuffler.count(served, vec![report]).await?;
    match receipts.first() {
        Some(Receipt::Refused(refusal)) => Err(refusal.into()),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// What became of many reports.
#[derive(Serialize)]
struct BulkAnswer {
    /// Reports that count, now or before.
    accepted: usize,
    /// The others, by their place in the request.
    refused: Vec<RefusedReport>,
}

/// A report that does not count.
#[derive(Serialize)]
struct RefusedReport {
    /// Place in the request, from 0.
    index: usize,
    /// The problem's type.
    r#type: String,
    /// The violated rule.
    detail: String,
}

/// Uploads up to 4096 reports, each with its length in front (u32, big-endian). The answer comes when all that count are durable.
async fn post_reports(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    kind: ContentType,
    Content(body): Content,
) -> Result<Json<BulkAnswer>, Problem> {
    let id = task_id(&task)?;
    let sealed = is_sealed(&kind, shuffler.served(&id)?, PLAIN_MANY, SEALED_MANY)?;
    let number = reports(&body)?.len();
    let peer = peer.map(|Extension(ConnectInfo(peer))| peer.ip());
    shuffler.within_rate(shuffler.served(&id)?, number, peer)?;
    let (reports, mut refused) = if sealed {
        // Opening takes tens of microseconds for each report: not on a thread that others wait for.
        let shuffler = shuffler.clone();
        let work = move || shuffler.decode_all(&id, true, &body);
        tokio::task::spawn_blocking(work).await.map_err(|_| unavailable())??
    } else {
        shuffler.decode_all(&id, false, &body)?
    };
    let served = shuffler.served(&id)?;
    let places: Vec<usize> = reports.iter().map(|(index, _)| *index).collect();
    let receipts =
        shuffler.count(served, reports.into_iter().map(|(_, report)| report).collect()).await?;
    for (index, receipt) in places.into_iter().zip(&receipts) {
        if let Receipt::Refused(refusal) = receipt {
            refused.push((index, refusal.into()));
        }
    }
    refused.sort_by_key(|(index, _)| *index);
    let accepted = number - refused.len();
    let refused = refused.into_iter().map(|(index, Problem { kind, detail, .. })| RefusedReport {
        index,
        r#type: kind.uri(),
        detail,
    });
    Ok(Json(BulkAnswer { accepted, refused: refused.collect() }))
}

#[derive(Deserialize)]
struct Wait {
    /// Seconds to wait for a batch that is not full yet, 0 to 60.
    wait: Option<u64>,
}

/// The sums of a full batch, the same bytes for the life of the task. Signed by the shuffler.
async fn release(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf((task, round)): PathOf<(String, String)>,
    QueryOf(query): QueryOf<Wait>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = task_id(&task)?;
    let served = shuffler.served(&id)?;
    let unknown = |_| Problem::new(Kind::NotFound, "the task does not have this round");
    let round: u32 =
        round.parse().map_err(|_| Problem::new(Kind::NotFound, "a round is a number"))?;
    served.mechanism().round(round).map_err(unknown)?;
    let mut progress = served.progress.clone();
    let full = progress.wait_for(|now| now.closed || now.round.is_none_or(|now| now > round));
    shuffler.stopping.or(full, wait(query.wait)?).await;
    let now = *served.progress.borrow();
    if !now.closed && now.round.is_some_and(|now| now <= round) {
        let retry = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
        return Ok((StatusCode::ACCEPTED, retry).into_response());
    }
    let store = shuffler.store.clone();
    let read = tokio::task::spawn_blocking(move || store.release(&id, round)).await;
    match read {
        Ok(Ok(Some(bytes))) => {
            let signed = Signed::new(bytes, shuffler.keys().signing(), Document::Release, &id);
            Ok(signed.answer(&headers, "private, max-age=31536000, immutable"))
        }
        Ok(Ok(None)) => {
            Err(Problem::new(Kind::Finished, "the task was closed before this round was full"))
        }
        Ok(Err(_)) | Err(_) => Err(unavailable()),
    }
}

impl Shuffler {
    /// Whether so many reports may come now.
    fn within_rate(
        &self,
        served: &Served,
        reports: usize,
        peer: Option<IpAddr>,
    ) -> Result<(), Problem> {
        let Some(reports) = NonZeroU32::new(reports as u32) else { return Ok(()) };
        let limited = |seconds: u64| {
            let counter = self.metrics.outcomes(&served.task.id(), Kind::RateLimited.name());
            counter.inc_by(u64::from(reports.get()));
            Problem::new(Kind::RateLimited, "more reports a second than this service takes")
                .retry_after(seconds)
        };
        let seconds = |until: governor::NotUntil<_>| {
            until.wait_time_from(DefaultClock::default().now()).as_secs() + 1
        };
        // More at once than the limit of a second never fits: that sender comes again with fewer.
        // The sender's own limit comes first: what it refuses takes nothing from the others.
        if let (Some(limiter), Some(peer)) = (&self.per_peer, peer) {
            // Addresses are in memory only, and only as long as they matter for the limit.
            if limiter.len() > 100_000 {
                limiter.retain_recent();
            }
            limiter
                .check_key_n(&peer, reports)
                .map_err(|_| limited(1))?
                .map_err(|until| limited(seconds(until)))?;
        }
        if let Some(all) = &self.all {
            all.check_n(reports)
                .map_err(|_| limited(1))?
                .map_err(|until| limited(seconds(until)))?;
        }
        Ok(())
    }

    /// The report that an upload's bytes are.
    fn decode(&self, served: &Served, sealed: bool, bytes: &[u8]) -> Result<Report, Problem> {
        let invalid = |error: incrowd_protocol::ProtocolError| {
            Problem::new(Kind::InvalidReport, error.to_string())
        };
        if !sealed {
            return Report::decode(bytes, served.mechanism()).map_err(invalid);
        }
        let SealedHeader { round, id, .. } = SealedHeader::decode(bytes)?;
        let opened = self.keys().open(&served.task.id(), bytes)?;
        let report = Report::decode(&opened, served.mechanism()).map_err(invalid)?;
        if (report.round(), report.id()) != (round, id) {
            return Err(Problem::new(
                Kind::OtherId,
                "the sealed report has another round or id than its header",
            ));
        }
        Ok(report)
    }

    /// The valid reports of a body with their places, and the problems of the others.
    #[allow(clippy::type_complexity)]
    fn decode_all(
        &self,
        task: &TaskId,
        sealed: bool,
        body: &[u8],
    ) -> Result<(Vec<(usize, Report)>, Vec<(usize, Problem)>), Problem> {
        let served = self.served(task)?;
        let (mut valid, mut refused) = (Vec::new(), Vec::new());
        for (index, bytes) in reports(body)?.into_iter().enumerate() {
            match self.decode(served, sealed, bytes) {
                Ok(report) => valid.push((index, report)),
                Err(problem) => {
                    self.metrics.outcomes(task, problem.kind.name()).inc();
                    refused.push((index, problem));
                }
            }
        }
        Ok((valid, refused))
    }

    /// Counts reports, durably.
    async fn count(&self, served: &Served, reports: Vec<Report>) -> Result<Vec<Receipt>, Problem> {
        let task = served.task.id();
        let number = reports.len() as u64;
        if number == 0 {
            return Ok(Vec::new());
        }
        let receipts = self.queue.accept(Upload { task, reports }).await.map_err(|_| {
            self.metrics.outcomes(&task, Kind::Unavailable.name()).inc_by(number);
            unavailable()
        })?;
        let (mut counted, mut duplicate) = (0, 0);
        for receipt in &receipts {
            match receipt {
                Receipt::Counted => counted += 1,
                Receipt::Duplicate => duplicate += 1,
                Receipt::Refused(refusal) => {
                    self.metrics.outcomes(&task, Problem::from(refusal).kind.name()).inc();
                }
            }
        }
        served.counted.inc_by(counted);
        served.duplicate.inc_by(duplicate);
        Ok(receipts)
    }
}

/// Whether an upload is sealed, if it may be as it is.
fn is_sealed(
    kind: &ContentType,
    served: &Served,
    plain: &str,
    sealed: &str,
) -> Result<bool, Problem> {
    if kind.is(sealed) {
        Ok(true)
    } else if !kind.is(plain) {
        let rule = format!("the content type must be {sealed} or {plain}");
        Err(Problem::new(Kind::UnsupportedType, rule))
    } else if served.task.config().policy().plain_reports() {
        Ok(false)
    } else {
        Err(Problem::new(Kind::SealedOnly, "the task's policy does not allow plain_reports"))
    }
}
