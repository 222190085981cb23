//! What an operator sees of the process, under the names that Prometheus' own libraries use.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use rustix::process::{Resource, getrlimit};

/// Reads the process's numbers when they are asked for.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
        };
        let used = Used::read();
        let seconds = Some(&Unit::Seconds);
        let started = used.as_ref().map(|used| used.started);
        gauge("process_start_time", "When the process started, since 1970", seconds, started)?;
        let memory = used.as_ref().map(|used| used.memory);
        gauge("process_resident_memory", "Memory in use", Some(&Unit::Bytes), memory)?;
        gauge("process_open_fds", "Open files and connections", None, open_files())?;
        gauge("process_max_fds", "Most open files and connections", None, most_files())?;
        let Some(used) = used else { return Ok(()) };
        let cpu = ConstCounter::new(used.cpu);
        let help = "Processor time";
        cpu.encode(encoder.encode_descriptor("process_cpu", help, seconds, cpu.metric_type())?)
    }
}

/// What `/proc` says; nothing on a system without it.
struct Used {
    started: f64,
    memory: f64,
    cpu: f64,
}

impl Used {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // After the program's name, which may hold anything: the state is field 3.
        let rest = stat.rsplit_once(") ")?.1;
        let field = |number: usize| rest.split(' ').nth(number - 3)?.parse::<f64>().ok();
        let system = fs::read_to_string("/proc/stat").ok()?;
        let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            started: boot.trim().parse::<f64>().ok()? + field(22)? / ticks,
            memory: field(24)? * rustix::param::page_size() as f64,
            cpu: (field(14)? + field(15)?) / ticks,
        })
    }
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn most_files() -> Option<f64> {
    getrlimit(Resource::Nofile).current.map(|most| most as f64)
}
