use std::{
    num::NonZeroU32,
    sync::{Arc, PoisonError},
    time::Duration,
};

use axum::{
    Extension, Json, Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use incrowd_envelope::Document;
use incrowd_protocol::{
    BulkAnswer, MediaType, ProblemDocument, RefusedReport, ReleaseHash, Report, TaskId, paths,
};
use incrowd_shuffler::{Outcome, Refusal};
use serde::Deserialize;

use super::{
    Shuffler, TaskHandle, Upload,
    content::{report_id, reports},
    gateway, unavailable,
    windows::milliseconds,
};
use crate::{
    Bearer, Claim,
    admission::identified,
    http::{Content, ContentType, Guard, LONGEST_WAIT, PathOf, QueryOf, Signed, task_id, wait},
    problem::{Kind, Problem},
    rates::Sender,
    store::Log,
    tokens::Role,
};

pub(super) fn router(shuffler: &Arc<Shuffler>) -> Router {
    let access = &shuffler.access;
    let public = Router::new().route(paths::NOTICE, get(config)).route(paths::ROUND, get(round));
    let uploads = Router::new()
        .route(paths::REPORTS, post(post_reports))
        .route(paths::REPORT, put(put_report));
    let releases = Router::new().route(paths::RELEASE, get(release));
    let admission = shuffler.admission.clone();
    let uploads = uploads.route_layer(middleware::from_fn_with_state(admission, identified));
    let devices = Guard::everyone(access).protect(public).merge(uploads);
    let devices = devices.with_state(shuffler.clone());
    let releases = Guard::only(&[Role::Bandit], access).protect(releases);
    let all = devices.clone().merge(releases.with_state(shuffler.clone()));
    if shuffler.gateway.is_none() {
        return all;
    }
    // A bandit is not a device: nothing behind the gateway waits.
    let models = shuffler.models.get().cloned().unwrap_or_default();
    all.merge(gateway::router(shuffler, &devices.merge(models)))
}

/// What the task is, what it guarantees, and the keys to seal reports to. Signed by the shuffler.
async fn config(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let handle = shuffler.task(&task_id(&task)?)?;
    let notice = handle.notice.read().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(notice.answer(&headers, "public, max-age=60"))
}

/// The round being filled and the law of its reports. Signed by the shuffler.
async fn round(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let handle = shuffler.task(&task_id(&task)?)?;
    shuffler.catch_up(handle).await?;
    Ok(handle
        .round_notice(&shuffler.keys(), shuffler.store.now())
        .answer(&headers, "public, max-age=1"))
}

/// Uploads one report. The answer comes when what becomes of it is durable; a retry, and a report
/// beyond the capacity of a round that closes by time, are answered like one that counts.
async fn put_report(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf((task, id)): PathOf<(String, String)>,
    Extension(bearer): Extension<Bearer>,
    sender: Sender,
    kind: ContentType,
    Content { body, mut memory }: Content,
) -> Result<StatusCode, Problem> {
    let handle = shuffler.task(&task_id(&task)?)?;
    let id = report_id(&id)?;
    let sealed = is_sealed(&kind, handle, MediaType::report)?;
    shuffler.within_rate(handle, 1, sender)?;
    memory.grow(decoded_bytes(handle))?;
    let report = shuffler.decode(handle, sealed, &body).and_then(|report| {
        if report.id() == id {
            Ok(report)
        } else {
            Err(Problem::new(Kind::OtherId, "the report in the body has another id than the path"))
        }
    });
    let report = report.and_then(|report| shuffler.admitted(handle, bearer, report));
    let report = report.inspect_err(|problem| {
        shuffler.metrics.outcomes(&handle.task.id(), problem.kind.name()).inc();
    })?;
    let outcomes = shuffler.count(handle, vec![report]).await?;
    match outcomes.first() {
        Some(Outcome::Refused(refusal)) => Err(shuffler.refused(handle, refusal)),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// Uploads up to 4096 reports, each with its length in front (u32, big-endian). The answer comes
/// when all that count are durable.
async fn post_reports(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf(task): PathOf<String>,
    Extension(bearer): Extension<Bearer>,
    sender: Sender,
    kind: ContentType,
    Content { body, mut memory }: Content,
) -> Result<Json<BulkAnswer>, Problem> {
    let handle = shuffler.task(&task_id(&task)?)?;
    let sealed = is_sealed(&kind, handle, MediaType::reports)?;
    let parts = reports(&body)?;
    let number = parts.len();
    shuffler.within_rate(handle, number, sender)?;
    memory.grow(number.saturating_mul(decoded_bytes(handle)))?;
    let Decoded { places, reports, mut refused } = if sealed {
        // Opening takes tens of microseconds for each report: not on a thread that others wait for.
        let parts: Vec<_> = parts.into_iter().map(|part| body.slice_ref(part)).collect();
        let (shuffler, handle) = (shuffler.clone(), handle.clone());
        let work =
            move || shuffler.decode_all(&handle, bearer, true, parts.iter().map(AsRef::as_ref));
        tokio::task::spawn_blocking(work).await.map_err(|_| unavailable())?
    } else {
        shuffler.decode_all(handle, bearer, false, parts.into_iter())
    };
    let outcomes = shuffler.count(handle, reports).await?;
    for (index, outcome) in places.into_iter().zip(&outcomes) {
        if let Outcome::Refused(refusal) = outcome {
            refused.push((index, refusal.into()));
        }
    }
    refused.sort_by_key(|(index, _)| *index);
    let accepted = number - refused.len();
    let refused = refused
        .into_iter()
        .map(|(index, Problem { kind, detail, .. })| RefusedReport::new(index, kind, detail));
    Ok(Json(BulkAnswer { accepted, refused: refused.collect() }))
}

#[derive(Deserialize)]
struct Wait {
    /// Seconds to wait for a release that is not shown yet, 0 to 60.
    wait: Option<u64>,
    /// The release before it that the caller has.
    after: Option<ReleaseHash>,
}

/// The sums of a full batch, the same bytes for the life of the task. Signed by the shuffler.
async fn release(
    State(shuffler): State<Arc<Shuffler>>,
    PathOf((task, round)): PathOf<(String, String)>,
    QueryOf(query): QueryOf<Wait>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = task_id(&task)?;
    let round: u32 =
        round.parse().map_err(|_| Problem::new(Kind::NotFound, "a round is a number"))?;
    match shuffler.release(&id, round, query.after, wait(query.wait)?).await {
        // Signed, because a bandit stops asking after it.
        Err(ending) if ending.kind == Kind::Finished => Ok(shuffler.ending(&id, &ending)),
        Err(problem) => Err(problem),
        Ok(Some(release)) => {
            Ok(Signed::from(release).answer(&headers, "private, max-age=31536000, immutable"))
        }
        Ok(None) => {
            let left = shuffler.until_shown(shuffler.task(&id)?, round).map_or(0, whole_seconds);
            let retry = left.clamp(1, LONGEST_WAIT);
            let retry = [(header::RETRY_AFTER, HeaderValue::from(retry))];
            Ok((StatusCode::ACCEPTED, retry).into_response())
        }
    }
}

impl Shuffler {
    /// The end of a closed task, signed by this shuffler.
    fn ending(&self, task: &TaskId, problem: &Problem) -> Response {
        let document = serde_json::to_vec(&ProblemDocument::new(problem.kind, &*problem.detail))
            .expect("invariant: a problem is plain data, which can always be written");
        let signed = Signed::new(document, self.keys().signing(), Document::Ending, task);
        signed.problem(StatusCode::GONE)
    }

    /// Whether so many reports may come now.
    fn within_rate(
        &self,
        handle: &TaskHandle,
        reports: usize,
        sender: Sender,
    ) -> Result<(), Problem> {
        let Some(reports) = NonZeroU32::new(reports as u32) else { return Ok(()) };
        self.rates.admit(sender, reports).map_err(|seconds| {
            let counter = self.metrics.outcomes(&handle.task.id(), Kind::RateLimited.name());
            counter.inc_by(u64::from(reports.get()));
            Problem::new(Kind::RateLimited, "more reports a second than this service takes")
                .retry_after(seconds)
        })
    }

    /// The report that an upload's bytes are.
    fn decode(&self, handle: &TaskHandle, sealed: bool, bytes: &[u8]) -> Result<Report, Problem> {
        let invalid = |error: incrowd_protocol::ProtocolError| {
            Problem::new(Kind::InvalidReport, error.to_string())
        };
        if !sealed {
            return Report::decode(bytes, handle.mechanism()).map_err(invalid);
        }
        let (header, opened) = self.keys().open(&handle.task.id(), bytes)?;
        let report = Report::decode(&opened, handle.mechanism()).map_err(invalid)?;
        if (report.round(), report.id()) != (header.round, header.id) {
            return Err(Problem::new(
                Kind::OtherId,
                "the sealed report has another round or id than its header",
            ));
        }
        Ok(report)
    }

    /// The report, if its bearer may still bring it.
    fn admitted(
        &self,
        handle: &TaskHandle,
        bearer: Bearer,
        report: Report,
    ) -> Result<Report, Problem> {
        // When the task is over, that is the answer to every report.
        let Some(open) = handle.open_rounds(self.store.now()) else { return Ok(report) };
        let (task, round) = (handle.task.id(), report.round());
        let claim = Claim { task, round, id: report.id(), open };
        match self.admission.admit(bearer, &claim) {
            Ok(()) => Ok(report),
            Err(problem) => Err(self.come_again(handle, problem, round)),
        }
    }

    /// Decodes the reports of a bulk that their bearer may bring.
    fn decode_all<'a>(
        &self,
        handle: &TaskHandle,
        bearer: Bearer,
        sealed: bool,
        parts: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Decoded {
        let mut decoded = Decoded {
            places: Vec::with_capacity(parts.len()),
            reports: Vec::with_capacity(parts.len()),
            refused: Vec::new(),
        };
        for (index, bytes) in parts.enumerate() {
            let report = self.decode(handle, sealed, bytes);
            match report.and_then(|report| self.admitted(handle, bearer, report)) {
                Ok(report) => {
                    decoded.places.push(index);
                    decoded.reports.push(report);
                }
                Err(problem) => {
                    self.metrics.outcomes(&handle.task.id(), problem.kind.name()).inc();
                    decoded.refused.push((index, problem));
                }
            }
        }
        decoded
    }

    /// The answer to a report that does not count. One that is early may come again when its round
    /// opens.
    fn refused(&self, handle: &TaskHandle, refusal: &Refusal) -> Problem {
        let problem = Problem::from(refusal);
        let &Refusal::Early { round, .. } = refusal else { return problem };
        self.come_again(handle, problem, round)
    }

    /// A problem with when to come again, where the clock tells it: when the report's round opens,
    /// or when the next one does.
    fn come_again(&self, handle: &TaskHandle, problem: Problem, round: u32) -> Problem {
        let Ok(Some(window)) = handle.mechanism().window(round) else { return problem };
        let time = match problem.kind {
            Kind::Early => window.opens,
            Kind::OverQuota => window.closes,
            _ => return problem,
        };
        let left = time.saturating_sub(milliseconds(self.store.now()));
        problem.retry_after(whole_seconds(Duration::from_millis(left)).max(1))
    }

    /// Counts reports, durably.
    async fn count(
        &self,
        handle: &TaskHandle,
        reports: Vec<Report>,
    ) -> Result<Vec<Outcome>, Problem> {
        let task = handle.task.id();
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        self.has_its_history()?;
        self.commits.accept(Upload { task, reports }).await.map_err(|_| unavailable())
    }
}

/// Bytes of memory that a decoded report takes, with what answers it.
fn decoded_bytes(handle: &TaskHandle) -> usize {
    const BESIDE: usize = 256;
    BESIDE + size_of::<u16>() * handle.mechanism().coordinates()
}

/// Seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000) as u64
}

/// The reports of a bulk: the valid ones with their places, and the problems of the others.
struct Decoded {
    places: Vec<usize>,
    reports: Vec<Report>,
    refused: Vec<(usize, Problem)>,
}

/// Whether an upload is sealed, if it may be as it is.
fn is_sealed(
    kind: &ContentType,
    handle: &TaskHandle,
    of: fn(bool) -> MediaType,
) -> Result<bool, Problem> {
    let (plain, sealed) = (of(false), of(true));
    if kind.is(sealed) {
        Ok(true)
    } else if !kind.is(plain) {
        let rule = format!("the content type must be {sealed} or {plain}");
        Err(Problem::new(Kind::UnsupportedType, rule))
    } else if handle.task.config().policy().plain_reports() {
        Ok(false)
    } else {
        Err(Problem::new(Kind::SealedOnly, "the task's policy does not allow plain_reports"))
    }
}
