//! Prepared requests over bare sockets.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use incrowd_protocol::{Mechanism, ReportId, push_report};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{SECONDS, runtime};

/// The requests of each connection.
pub type Requests = Vec<Vec<Vec<u8>>>;

/// A kept connection that sends prepared bytes and reads whole answers.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::with_capacity(1 << 16) }
    }

    /// Status and body of the answer.
    pub async fn ask(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        self.stream.write_all(request).await.unwrap();
        self.buffer.clear();
        loop {
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end]).unwrap();
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length: ")
                        .map(|n| n.parse().unwrap())
                })
                .unwrap_or(0usize);
            let status = head[9..12].parse().unwrap();
            while self.buffer.len() < end + 4 + length {
                assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
            }
            return (status, self.buffer[end + 4..].to_vec());
        }
    }
}

/// New reports of a round: any bits do, ids are random.
pub fn reports(mechanism: &Mechanism, round: u32, number: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..number)
        .map(|_| {
            let mut report = vec![0; 38];
            report[0] = 1;
            report[1..9].copy_from_slice(mechanism.hash().prefix());
            report[9..13].copy_from_slice(&round.to_be_bytes());
            rng.fill_bytes(&mut report[13..]);
            report[37] &= 1;
            report
        })
        .collect()
}

/// The id inside a plain report.
pub fn id_of(report: &[u8]) -> ReportId {
    ReportId(report[13..29].try_into().unwrap())
}

pub fn bulk(reports: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    reports.iter().for_each(|report| push_report(&mut body, report));
    body
}

/// [`rate_of`] one server.
pub fn rate(address: SocketAddr, requests: &Arc<Requests>, again: bool, expected: u16) -> f64 {
    rate_of(&[address], requests, again, expected)
}

/// Requests a second over all connections, which go to the servers in turn. Each sends its own
/// requests one after the other, round and round if `again`.
pub fn rate_of(
    addresses: &[SocketAddr],
    requests: &Arc<Requests>,
    again: bool,
    expected: u16,
) -> f64 {
    runtime().block_on(async {
        let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut connections = JoinSet::new();
        let started = Instant::now();
        for number in 0..requests.len() {
            let (requests, done, stop) = (requests.clone(), done.clone(), stop.clone());
            let address = addresses[number % addresses.len()];
            connections.spawn(async move {
                let mut connection = Connection::open(address).await;
                loop {
                    for request in &requests[number] {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let (status, body) = connection.ask(request).await;
                        assert_eq!(status, expected, "{}", String::from_utf8_lossy(&body));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    if !again {
                        return;
                    }
                }
            });
        }
        let timer = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::time::sleep(Duration::from_secs_f64(SECONDS)).await;
                stop.store(true, Ordering::Relaxed);
            }
        });
        while connections.join_next().await.is_some() {}
        timer.abort();
        done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
    })
}

/// The p-th percentile in milliseconds at a fixed rate, counted from when each request was due.
pub fn percentile(
    address: SocketAddr,
    requests: &Arc<Requests>,
    rate: f64,
    seconds: f64,
    p: f64,
) -> f64 {
    runtime().block_on(async {
        let started = Instant::now();
        let pause = Duration::from_secs_f64(requests.len() as f64 / rate);
        let mut connections = JoinSet::new();
        for number in 0..requests.len() {
            let requests = requests.clone();
            connections.spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut due = started + pause.mul_f64(number as f64 / requests.len() as f64);
                let mut times = Vec::new();
                for request in &requests[number] {
                    tokio::time::sleep_until(due.into()).await;
                    let (status, body) = connection.ask(request).await;
                    assert!(status < 300, "{status} {}", String::from_utf8_lossy(&body));
                    times.push(due.elapsed().as_secs_f64() * 1e3);
                    due += pause;
                    if started.elapsed().as_secs_f64() > seconds {
                        break;
                    }
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(more) = connections.join_next().await {
            times.extend(more.unwrap());
        }
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * p) as usize]
    })
}
