//! Rates over the last second of what has no rate counter of its own: handshakes, bytes, CPU time.

use super::snapshot::Paces;
use crate::{Shared, counters::Part};
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Intervals shorter than this are too inaccurate.
const STRETCH: Duration = Duration::from_millis(900);

/// The counts at one time.
#[derive(Debug)]
struct Mark {
    at: Instant,
    sums: Sums,
    cpu: Duration,
    paces: Paces,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    tls: u64,
    resumed: u64,
    servers_full: u64,
    bytes_out: u64,
}

/// Computes rates from counters that are read from time to time.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Mark>>);

impl Pace {
    /// The rates now. If it is not called once a second, they cover a longer interval.
    pub fn look(&self, shared: &Shared) -> Paces {
        let (now, cpu) = (Instant::now(), cpu());
        let workers = shared.loads.len();
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = mark.as_mut() else {
            let paces = Paces { idle_percent: 100, ..Paces::default() };
            *mark = Some(Mark { at: now, sums: sums(shared), cpu, paces });
            return paces;
        };
        let stretch = now.saturating_duration_since(last.at);
        if stretch < STRETCH {
            return last.paces;
        }
        let sums = sums(shared);
        let per_second =
            |now: u64, before: u64| (u128::from(now.saturating_sub(before)) * 1000 / stretch.as_millis().max(1)) as u64;
        let rate = |now: u64, before: u64, (_, most): (u32, u32)| {
            let rate = per_second(now, before) as u32;
            (rate, most.max(rate))
        };
        let before = last.sums;
        let busy = cpu.saturating_sub(last.cpu).as_secs_f64() / (stretch.as_secs_f64() * workers.max(1) as f64);
        let full = |sums: &Sums| sums.tls.saturating_sub(sums.resumed);
        let paces = Paces {
            tls: rate(sums.tls, before.tls, last.paces.tls),
            tls_full: rate(full(&sums), full(&before), last.paces.tls_full),
            tls_servers_full: rate(sums.servers_full, before.servers_full, last.paces.tls_servers_full),
            bytes_out: per_second(sums.bytes_out, before.bytes_out),
            idle_percent: (100.0 * (1.0 - busy)).round().clamp(0.0, 100.0) as u32,
        };
        shared.compressing.rested(paces.idle_percent);
        *last = Mark { at: now, sums, cpu, paces };
        paces
    }
}

fn sums(shared: &Shared) -> Sums {
    let mut sums = Sums::default();
    let counters = &shared.counters;
    for (id, proxy) in shared.config.proxies.entries().filter(|(_, proxy)| !proxy.disabled) {
        if proxy.kind.has_frontend() {
            let [tls, resumed, bytes_out] = counters.sum_of(id, Part::Frontend, |cells| {
                [&cells.ssl_sessions, &cells.ssl_reused_sessions, &cells.bytes_out]
            });
            sums.tls += tls;
            sums.resumed += resumed;
            sums.bytes_out += bytes_out;
        }
        let Some(backend) = shared.backends.get(id) else { continue };
        for cells in backend.servers().iter().flat_map(|server| &server.with.cells) {
            sums.servers_full += cells.ssl_sessions.read().saturating_sub(cells.ssl_reused_sessions.read());
        }
    }
    sums
}

/// CPU time used by the process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
