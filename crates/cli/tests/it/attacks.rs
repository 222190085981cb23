//! A crowd of connections that wait, stall and send too much, against the program as it is started:
//! R29. Short in `./test`; the numbers of the record in docs/requirements-map.md come from
//!
//!     ulimit -n 20000; INCROWD_ATTACKS=long cargo test -p incrowd --test it attacks -- --nocapture

use std::{
    fs,
    io::Write,
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use incrowd_protocol::{MediaType, paths, push_report};
use incrowd_transport::Method;

use crate::support::{Caller, Service, Site, clean, incrowd};

/// How large the crowds are.
struct Scale {
    /// Open files that the service may have.
    files: usize,
    stalled: usize,
    waiting: usize,
    bulks: usize,
}

fn scale() -> Scale {
    match std::env::var("INCROWD_ATTACKS").as_deref() {
        Ok("long") => Scale { files: 1024, stalled: 1100, waiting: 5000, bulks: 100 },
        _ => Scale { files: 80, stalled: 50, waiting: 100, bulks: 10 },
    }
}

/// The shuffler of a site with a limit of open files.
fn start(site: &Site, files: usize) -> Service {
    let mut command = Command::new("sh");
    clean(&mut command);
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
    command.arg(incrowd().get_program()).args(site.arguments("shuffler", 0));
    site.start(command.env("INCROWD_HTTP__WRITE_SECONDS", "2"))
}

/// Sends a request on a connection of its own, whose answer nobody reads.
fn send(service: &Service, request: &[u8]) -> Option<TcpStream> {
    let address = service.url.trim_start_matches("http://");
    let stream = TcpStream::connect(address).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    // The other side may have enough before it has all of it.
    let _ = (&stream).write_all(request);
    Some(stream)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: service\r\n\r\n")
}

/// Memory of a process in MiB.
fn resident(service: &Service) -> usize {
    let statm = fs::read_to_string(format!("/proc/{}/statm", service.id())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 / 1024
}

fn healthy(caller: &Caller, service: &Service, path: &str) -> bool {
    let answer = caller.get(&format!("{}{path}", service.admin), None);
    answer.is_ok_and(|answer| answer.status == 200)
}

#[test]
fn r29_connections_that_never_read_keep_others_out_for_seconds_only() {
    let Scale { files, stalled, .. } = scale();
    let site = Site::new(2, 10, 1000);
    let service = start(&site, files);
    let (caller, greedy) = (Caller::new(), get("/openapi.json").repeat(1000));
    let began = Instant::now();
    let held: Vec<_> = (0..stalled).filter_map(|_| send(&service, greedy.as_bytes())).collect();
    assert!(held.len() > stalled / 2, "{} of {stalled} connected", held.len());
    assert!(healthy(&caller, &service, "/healthz"), "the operator has a listener of their own");
    let mut tries = 0;
    while site.one_hot(1, 1).put(&caller, &site, &service.url).map_or(0, |a| a.status) != 204 {
        tries += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "kept out");
        thread::sleep(Duration::from_millis(100));
    }
    println!(
        "{} connections that never read, {files} files: an upload after {:.1} s and {tries} tries",
        held.len(),
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn r29_a_crowd_that_waits_keeps_no_upload_out() {
    let Scale { waiting, .. } = scale();
    let site = Site::new(2, 10, 1000);
    // As many connections as the default allows from one address stay open.
    let service = start(&site, 20_000.min(2 * waiting + 1000));
    let caller = Caller::new();
    let task = site.task.id();
    let requests = [
        format!("{}?wait=60", paths::round(&task)),
        format!("/v1/tasks/{task}/model?wait=60"),
        paths::release(&task, 1, None, 60),
    ];
    let mut held = Vec::new();
    for number in 0..waiting {
        held.extend(send(&service, get(&requests[number % 3]).as_bytes()));
        // Others than those of the attacker's address would come in.
        if held.len() >= 900 {
            held.drain(..450);
        }
    }
    let uploads = 49;
    for number in 0..uploads {
        let answer = site.one_hot(1, number).put(&caller, &site, &service.url).unwrap();
        assert_eq!(answer.status, 204, "upload {number}: {answer}");
    }
    assert!(healthy(&caller, &service, "/readyz"));
    println!("{waiting} requests that ask to wait: {uploads} of {uploads} uploads counted");
}

#[test]
fn r29_large_uploads_have_bounded_memory() {
    let Scale { bulks, .. } = scale();
    // 5,150 coordinates: a report has 673 bytes, and 10 kB when it is decoded.
    let site = Site::new(100, 2, 1_000_000);
    let service = start(&site, 4096);
    let store = lock_store(&site);
    let mut body = Vec::new();
    for number in 0..1500 {
        push_report(&mut body, &site.one_hot(1, number).bytes);
    }
    let (before, token) = (resident(&service), site.token("device"));
    let url = format!("{}{}", service.url, paths::reports(&site.task.id()));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let post = || {
            let body = Some((MediaType::Reports, body.as_slice()));
            let answer = Caller::new().ask(Method::POST, &url, Some(&token), body);
            answer.map_or(0, |answer| answer.status)
        };
        let posts: Vec<_> = (0..bulks).map(|_| scope.spawn(post)).collect();
        thread::sleep(Duration::from_secs(1));
        let grown = resident(&service).saturating_sub(before);
        println!("{bulks} uploads of {} kB and a store that waits: {grown} MiB", body.len() / 1000);
        // http.memory_bytes is 256 MiB; buffers and their growth come on top.
        assert!(grown < 700, "{grown} MiB");
        drop(store);
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
}

/// Keeps the shuffler's store from being written until it is dropped.
fn lock_store(site: &Site) -> rusqlite::Connection {
    let store = rusqlite::Connection::open(site.path("shuffler").join("shuffler.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    store
}
