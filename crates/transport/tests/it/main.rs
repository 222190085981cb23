//! What a request's error says when a server is not there, is another one, or refuses.

use std::time::Duration;

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use incrowd_protocol::{
    MediaType, ProblemDocument, ProblemKind, ReportId, SIGNATURE_HEADER, TaskId, paths,
};
use incrowd_transport::{
    Address, Http, Method, NetworkFailure, Refusal, Request, Route, ShufflerApi, TlsFailure,
    TransportError, Trust,
};
use tokio::net::TcpListener;

async fn serve(app: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

async fn failure(url: &str) -> TransportError {
    let address = Address::new(url, "url", true).unwrap();
    let http = Http::new(address, &Trust::Pem(Vec::new())).unwrap();
    http.send(Request::get("/").wait(Duration::from_secs(30))).await.map(drop).unwrap_err()
}

fn task() -> TaskId {
    "ab".repeat(32).parse().unwrap()
}

fn shuffler(port: u16) -> ShufflerApi {
    let address = Address::new(&format!("http://127.0.0.1:{port}"), "url", false).unwrap();
    ShufflerApi::new(Route::Direct(address), Some("token".into()), &Trust::Nobody).unwrap()
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = failure(&format!("http://127.0.0.1:{port}")).await;
    assert_eq!(error, TransportError::Network(NetworkFailure::Refused));
    assert_eq!(error.to_string(), "no answer from the server: the connection was refused");
    assert!(error.is_passing() && !error.is_final());
}

#[tokio::test]
async fn an_unknown_host_is_told() {
    // No label of a host name has 64 letters, so no name server is asked.
    let error = failure(&format!("http://{}.example", "a".repeat(64))).await;
    assert_eq!(error, TransportError::Network(NetworkFailure::Host));
    assert_eq!(error.to_string(), "no answer from the server: the host name cannot be resolved");
}

#[tokio::test]
async fn tls_to_a_plain_port_is_told() {
    let port = serve(Router::new()).await;
    let error = failure(&format!("https://127.0.0.1:{port}")).await;
    assert_eq!(error, TransportError::Network(NetworkFailure::Tls(TlsFailure::NotTls)));
    let text = "no answer from the server: TLS failed: the server does not speak TLS at this port";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn what_is_no_http_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.try_write(b"SSH-2.0\r\n").unwrap();
        }
    });
    let error = failure(&format!("http://127.0.0.1:{port}")).await;
    assert_eq!(error, TransportError::Network(NetworkFailure::Broken));
}

fn problem(kind: ProblemKind, detail: &str) -> Response {
    let body = serde_json::to_string(&ProblemDocument::new(kind, detail)).unwrap();
    let headers = [("content-type", MediaType::Problem.as_str()), ("retry-after", "7")];
    (StatusCode::from_u16(kind.status()).unwrap(), headers, body).into_response()
}

#[tokio::test]
async fn a_problem_is_told_with_its_detail() {
    let app = Router::new()
        .route(paths::REPORT, put(async || problem(ProblemKind::Late, "round 3 is over")))
        .route(paths::NOTICE, get(async || (StatusCode::FORBIDDEN, "a proxy says no")));
    let shuffler = shuffler(serve(app).await);
    let late = shuffler.put(&task(), ReportId([0; 16]), true, vec![1]).await.unwrap_err();
    assert_eq!(late.to_string(), "the server answered 409 (late): round 3 is over");
    assert!(late.is_final() && !late.is_passing());
    let refusal = Refusal { kind: ProblemKind::Late, detail: "round 3 is over".into() };
    let retry_after = Some(Duration::from_secs(7));
    let expected = TransportError::Refused { status: 409, problem: Some(refusal), retry_after };
    assert_eq!(late, expected);

    let forbidden = shuffler.notice(&task()).await.map(drop).unwrap_err();
    assert_eq!(forbidden.to_string(), "the server answered 403");
    assert!(!forbidden.is_final() && !forbidden.is_passing());
}

#[tokio::test]
async fn a_servers_text_is_one_short_line() {
    let long = format!("a\nb\u{1b}[2J{}", "x".repeat(1000));
    let app = Router::new()
        .route(paths::ROUND, put(async move || problem(ProblemKind::Unavailable, &long)));
    let port = serve(app).await;
    let address = Address::new(&format!("http://127.0.0.1:{port}"), "url", false).unwrap();
    let http = Http::new(address, &Trust::Nobody).unwrap();
    let request = Request::new(Method::PUT, paths::round(&task()));
    let text = http.send(request).await.unwrap().success().unwrap_err().to_string();
    assert!(text.starts_with("the server answered 503 (unavailable): a b [2Jxxx"), "{text}");
    assert!(text.len() < 300 && !text.contains(char::is_control), "{text}");
}

#[tokio::test]
async fn r31_an_answer_is_read_only_as_far_as_it_can_be_one() {
    let app = Router::new()
        .route(paths::NOTICE, get(async || ([(SIGNATURE_HEADER, "x")], vec![b' '; 5 << 20])))
        .route("/", get(async || vec![b' '; 65 << 10]));
    let port = serve(app).await;
    let error = shuffler(port).notice(&task()).await.map(drop).unwrap_err();
    assert_eq!(error, TransportError::Network(NetworkFailure::TooLong));
    let address = Address::new(&format!("http://127.0.0.1:{port}"), "url", false).unwrap();
    let http = Http::new(address, &Trust::Nobody).unwrap();
    let short = http.send(Request::get("/")).await.map(drop).unwrap_err();
    assert_eq!(short, TransportError::Network(NetworkFailure::TooLong));
    let long = http.send(Request::get("/").limit(65 << 10)).await.unwrap();
    assert_eq!(long.body.len(), 65 << 10);
}
