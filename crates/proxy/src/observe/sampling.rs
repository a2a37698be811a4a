//! Reads the counters for the history once a second, on a low-priority thread of its own; no worker waits for it.

use super::{
    counters::{Cells, Part},
    history::{Graph, Machine, Range, Reading, Subject},
};
use crate::process::{handle::Handle, shared::Shared};
use rustix::time::{ClockId, clock_gettime};
use std::{sync::Arc, time::Duration};

impl Handle {
    /// A subject's history over a range; `None` if none is kept, because there is no statistics page, no traffic yet, or too many
    /// subjects.
    pub fn graph(&self, subject: Subject, range: Range) -> Option<Graph> {
        self.shared().history.lock().graph(subject, range)
    }
    /// The memory of all histories, in bytes.
    pub fn history_memory(&self) -> usize {
        self.shared().history.lock().memory()
    }
}

/// Starts the thread if there is a statistics page to show the history.
pub(crate) fn start(handle: &Handle) -> std::io::Result<()> {
    let is_seen = handle.shared().config.proxies.iter().any(|proxy| !proxy.disabled && proxy.stats.is_some());
    if !is_seen {
        return Ok(());
    }
    let handle = handle.clone();
    handle.clone().beside("history", move || sample(&handle))
}

fn sample(handle: &Handle) {
    let shared: &Arc<Shared> = handle.shared();
    while !handle.has_ended() {
        let now = handle.started().elapsed();
        // The counters are read before the history is locked, so that its readers only wait while they are recorded.
        let readings = read(shared);
        shared.history.lock().record(now.as_secs(), readings);
        let next = Duration::from_secs(now.as_secs() + 1);
        std::thread::sleep(next.saturating_sub(handle.started().elapsed()) + Duration::from_millis(1));
    }
}

fn read(shared: &Shared) -> Vec<(Subject, Reading)> {
    let mut all = Vec::new();
    let mut process = Reading::default();
    for (id, proxy) in shared.config.proxies.entries().filter(|(_, proxy)| !proxy.disabled) {
        let http = proxy.mode == penstock_config::model::Mode::Http;
        if proxy.kind.has_frontend() {
            let reading = sum(shared.counters.cells(id, Part::Frontend), http);
            process.add(&reading);
            all.push((Subject::Frontend(id), reading));
        }
        let Some(backend) = shared.backends.get(id) else { continue };
        let servers = backend.servers();
        let of_servers = servers.iter().map(|server| (Subject::Server(server.at), sum(server.with.cells.iter(), http)));
        all.extend(of_servers);
        let reading = sum(shared.counters.cells(id, Part::Backend), http);
        process.errors += reading.errors;
        all.push((Subject::Backend(id), reading));
    }
    process.machine = machine(shared);
    all.push((Subject::Process, process));
    all
}

impl Reading {
    fn add(&mut self, other: &Reading) {
        self.requests += other.requests;
        self.full += other.full;
        self.resumed += other.resumed;
        self.errors += other.errors;
        self.failures += other.failures;
        self.waits.merge(&other.waits);
        self.responses.merge(&other.responses);
    }
}

/// The sum of all workers' counters for a frontend, a backend or a server.
fn sum<'a>(cells: impl Iterator<Item = &'a Cells>, http: bool) -> Reading {
    let mut sum = Reading::default();
    for cells in cells {
        let (done, resumed) = (cells.ssl_sessions.read(), cells.ssl_reused_sessions.read());
        sum.requests += if http { &cells.requests } else { &cells.sessions }.read();
        sum.full += done.saturating_sub(resumed);
        sum.resumed += resumed;
        let errors = [
            &cells.request_errors,
            &cells.connect_errors,
            &cells.response_errors,
            &cells.internal_errors,
            &cells.ssl_failed_handshakes,
        ];
        sum.errors += errors.iter().map(|count| count.read()).sum::<u64>();
        sum.failures += cells.responses[4].read();
        sum.waits.add(&cells.queue_times);
        sum.responses.add(&cells.response_times);
    }
    sum
}

fn machine(shared: &Shared) -> Machine {
    let engine = shared.engines.sum().counters;
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let batched = |class: &penstock_engine::ClassCounters| -> u64 {
        class.fill.iter().zip(1..).map(|(batches, fill): (_, u64)| batches * fill).sum()
    };
    Machine {
        cpu_us: cpu.tv_sec as u64 * 1_000_000 + cpu.tv_nsec as u64 / 1000,
        engine_us: engine.turns_ns / 1000,
        batches: engine.classes.iter().map(|class| class.batches).sum(),
        batched: engine.classes.iter().map(batched).sum(),
    }
}
