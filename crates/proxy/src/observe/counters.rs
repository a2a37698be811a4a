//! Counters of events: each worker writes cells of its own, and they are summed when read.
//!
//! A cell has one writer, so that counting is a load and a store, and no cache line is shared. Counts that must be
//! exact across workers at any moment (connections against a limit, requests on a server) are kept with the limit
//! instead.

use super::histogram::Histogram;
pub use super::means::{Mean, MeanTotal};
use penstock_config::model::{PerProxy, ProxyId};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }
    /// Subtracts one, for counters of current numbers.
    pub fn dec(&self) {
        self.0.store(self.0.load(Relaxed).saturating_sub(1), Relaxed);
    }
    /// Raises the value to at least `n`.
    pub fn raise(&self, n: u64) {
        if n > self.0.load(Relaxed) {
            self.0.store(n, Relaxed);
        }
    }
    /// Sets the value to `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
    /// The current value.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A rate in events per second: those of the current second, and a part of the previous second's, in proportion to the
/// overlap with the last 1000 ms.
#[derive(Debug, Default)]
pub struct Rate {
    second: AtomicU64,
    current: AtomicU32,
    previous: AtomicU32,
    max: AtomicU32,
}

impl Rate {
    /// Counts an event at `now_ms`.
    pub fn hit(&self, now_ms: u64) {
        let second = now_ms / 1000;
        let was = self.second.load(Relaxed);
        if second == was {
            self.current.store(self.current.load(Relaxed) + 1, Relaxed);
        } else {
            let last = if second == was + 1 { self.current.load(Relaxed) } else { 0 };
            self.previous.store(last, Relaxed);
            self.current.store(1, Relaxed);
            self.second.store(second, Relaxed);
        }
        let rate = self.read(now_ms);
        if rate > self.max.load(Relaxed) {
            self.max.store(rate, Relaxed);
        }
    }

    /// The rate at `now_ms`.
    pub fn read(&self, now_ms: u64) -> u32 {
        let (second, left) = (now_ms / 1000, 1000 - now_ms % 1000);
        let was = self.second.load(Relaxed);
        let (current, previous) = match second.checked_sub(was) {
            Some(0) => (self.current.load(Relaxed), self.previous.load(Relaxed)),
            Some(1) => (0, self.current.load(Relaxed)),
            _ => (0, 0),
        };
        if current == 0 && previous <= 1 {
            // Otherwise a rate of one event per second would flicker.
            return previous;
        }
        current + (u64::from(previous) * left / 1000) as u32
    }
}

/// A rate over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateTotal {
    /// The current rate.
    pub rate: u32,
    /// The highest rate so far.
    pub max: u32,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The cells of one worker for one frontend, listener, backend or server. Each of these uses the cells that
        /// apply to it.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Cells {
            $($(#[doc = $doc])+ pub $name: Count,)+
            /// Responses by class: 1xx to 5xx, then any others.
            pub responses: [Count; 6],
            /// When a session was last assigned to this server or backend, in seconds since start plus one; 0 for
            /// never.
            pub last_session: Count,
            /// Sessions per second.
            pub session_rate: Rate,
            /// Connections per second.
            pub connection_rate: Rate,
            /// Requests per second.
            pub request_rate: Rate,
            /// Time in queues.
            pub queue_time: Mean,
            /// Time to connect.
            pub connect_time: Mean,
            /// Time to the first byte of the response.
            pub response_time: Mean,
            /// Duration of the whole session or request.
            pub total_time: Mean,
            /// Times in queue, by how often they occurred.
            pub queue_times: Histogram,
            /// Times to the first byte of the response, likewise.
            pub response_times: Histogram,
        }

        impl Cells {
            /// Resets the largest values, and with `all` everything except current numbers.
            pub(crate) fn clear(&self, all: bool) {
                for rate in [&self.session_rate, &self.connection_rate, &self.request_rate] {
                    rate.max.store(0, Relaxed);
                }
                for mean in [&self.queue_time, &self.connect_time, &self.response_time, &self.total_time] {
                    mean.clear(all);
                }
                if !all {
                    return;
                }
                let gauges = self.gauges().map(|gauge| (gauge, gauge.read()));
                $(self.$name.set(0);)+
                self.responses.iter().for_each(|count| count.set(0));
                self.last_session.set(0);
                gauges.iter().for_each(|(gauge, now)| gauge.set(*now));
            }
        }

        /// [`Cells`] of all workers, summed.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)] // Each is documented in `Cells`.
        pub struct Totals {
            $(pub $name: u64,)+
            pub responses: [u64; 6],
            pub last_session: Option<u64>,
            pub session_rate: RateTotal,
            pub connection_rate: RateTotal,
            pub request_rate: RateTotal,
            pub queue_time: MeanTotal,
            pub connect_time: MeanTotal,
            pub response_time: MeanTotal,
            pub total_time: MeanTotal,
        }

        impl Totals {
            /// Adds the counts of one worker.
            fn add(&mut self, cells: &Cells, now_ms: u64) {
                $(self.$name += cells.$name.read();)+
                for (total, cell) in self.responses.iter_mut().zip(&cells.responses) {
                    *total += cell.read();
                }
                self.last_session = self.last_session.max(cells.last_session.read().checked_sub(1));
                for (total, cell) in [
                    (&mut self.session_rate, &cells.session_rate),
                    (&mut self.connection_rate, &cells.connection_rate),
                    (&mut self.request_rate, &cells.request_rate),
                ] {
                    total.rate += cell.read(now_ms);
                    total.max = total.max.max(cell.max.load(Relaxed));
                }
                for (total, cell) in [
                    (&mut self.queue_time, &cells.queue_time),
                    (&mut self.connect_time, &cells.connect_time),
                    (&mut self.response_time, &cells.response_time),
                    (&mut self.total_time, &cells.total_time),
                ] {
                    total.add(cell);
                }
            }
        }
    };
}

counters! {
    /// Sessions: `stot`.
    sessions,
    /// Connections: `conn_tot`.
    connections,
    /// Requests: `req_tot`.
    requests,
    /// Bytes from clients.
    bytes_in,
    /// Bytes to clients.
    bytes_out,
    /// Requests denied by rules.
    denied_requests,
    /// Responses denied by rules.
    denied_responses,
    /// Connections denied by `tcp-request connection`.
    denied_connections,
    /// Sessions denied by `tcp-request session`.
    denied_sessions,
    /// Requests that could not be parsed: `ereq`.
    request_errors,
    /// Connections to servers that failed: `econ`.
    connect_errors,
    /// Responses that failed: `eresp`.
    response_errors,
    /// Repeated connection attempts: `wretr`.
    retries,
    /// Requests sent to another server: `wredis`.
    redispatches,
    /// Exchanges that the client aborted.
    client_aborts,
    /// Exchanges that the server aborted.
    server_aborts,
    /// Requests answered here: statistics, redirects, `http-request return`.
    intercepted,
    /// Bytes that were compressed: `comp_in`.
    compressed_in,
    /// Bytes that compression produced: `comp_out`.
    compressed_out,
    /// Bytes that were to be compressed and passed as they were: `comp_byp`.
    compression_bypassed,
    /// Responses that were compressed: `comp_rsp`.
    compressed_responses,
    /// Requests that were looked up in a cache: `cache_lookups`.
    cache_lookups,
    /// Requests that a cache has answered: `cache_hits`.
    cache_hits,
    /// Header changes that did not fit.
    failed_rewrites,
    /// Internal errors.
    internal_errors,
    /// Connections opened to servers.
    connects,
    /// Requests sent on an existing connection.
    reuses,
    /// Connections to this server that are idle in pools.
    idle_connections,
    /// Idle connections that have served more than one request.
    safe_idle_connections,
    /// Connections to this server in use.
    used_connections,
    /// Estimate of how many connections to this server are needed: the most that were in use, decreasing with time.
    needed_connections,
    /// TLS handshakes completed.
    ssl_sessions,
    /// TLS handshakes that resumed a session.
    ssl_reused_sessions,
    /// TLS handshakes that failed.
    ssl_failed_handshakes,
    /// HTTP/2: HEADERS frames received.
    h2_headers_received,
    /// HTTP/2: DATA frames received.
    h2_data_received,
    /// HTTP/2: SETTINGS frames received.
    h2_settings_received,
    /// HTTP/2: RST_STREAM frames received.
    h2_resets_received,
    /// HTTP/2: GOAWAY frames received.
    h2_goaways_received,
    /// HTTP/2: connections ended because of a protocol error.
    h2_connection_errors,
    /// HTTP/2: streams ended because of a protocol error.
    h2_stream_errors,
    /// HTTP/2: RST_STREAM frames sent.
    h2_resets_sent,
    /// HTTP/2: GOAWAY frames sent.
    h2_goaways_sent,
    /// HTTP/2: open connections.
    h2_open_connections,
    /// HTTP/2: open streams.
    h2_open_streams,
    /// HTTP/2: connections in total.
    h2_total_connections,
    /// HTTP/2: streams in total.
    h2_total_streams,
    /// HTTP/1: open connections.
    h1_open_connections,
    /// HTTP/1: running exchanges.
    h1_open_streams,
    /// HTTP/1: connections in total.
    h1_total_connections,
    /// HTTP/1: exchanges in total.
    h1_total_streams,
    /// HTTP/1: bytes received.
    h1_bytes_in,
    /// HTTP/1: bytes sent.
    h1_bytes_out,
}

/// A connection to a server while it is in use.
pub(crate) struct InUse<'a>(&'a Cells);

impl<'a> InUse<'a> {
    pub fn of(server: &'a Cells) -> Self {
        server.used_connections.inc();
        server.needed_connections.raise(server.used_connections.read());
        InUse(server)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.used_connections.dec();
    }
}

impl Cells {
    /// The cells that hold current numbers.
    fn gauges(&self) -> [&Count; 8] {
        [
            &self.idle_connections,
            &self.safe_idle_connections,
            &self.used_connections,
            &self.needed_connections,
            &self.h2_open_connections,
            &self.h2_open_streams,
            &self.h1_open_connections,
            &self.h1_open_streams,
        ]
    }
    /// Counts a connection that was accepted.
    pub fn connection(&self, now_ms: u64) {
        self.connections.inc();
        self.connection_rate.hit(now_ms);
    }
    /// Counts a session: of a frontend after its first rules, of a backend or server when it is assigned.
    pub fn session(&self, now_ms: u64) {
        self.sessions.inc();
        self.session_rate.hit(now_ms);
        self.last_session.raise(now_ms / 1000 + 1);
    }
    /// Counts a request that was read.
    pub fn request(&self, now_ms: u64) {
        self.requests.inc();
        self.request_rate.hit(now_ms);
    }
    /// Counts a response with this status.
    pub fn response(&self, status: u16) {
        let class = match status / 100 {
            class @ 1..=5 => usize::from(class) - 1,
            _ => 5,
        };
        self.responses[class].inc();
    }
    /// Counts the end of a session: the milliseconds it spent in queues, connecting, until the response, and in total;
    /// `None` for a stage it never reached.
    pub fn times(&self, queue: Option<u64>, connect: Option<u64>, response: Option<u64>, total: u64) {
        for (mean, ms) in [
            (&self.queue_time, queue),
            (&self.connect_time, connect),
            (&self.response_time, response),
            (&self.total_time, Some(total)),
        ] {
            mean.push(ms.unwrap_or(0));
        }
    }
    /// Counts the time a request spent in queues and, if there was a response, until that, in microseconds.
    pub fn latency(&self, queue: u64, response: Option<u64>) {
        self.queue_times.push(queue);
        response.into_iter().for_each(|us| self.response_times.push(us));
    }
}

/// The number of listeners of each proxy.
#[derive(Clone, Debug, Default)]
pub struct Shape(pub PerProxy<usize>);

/// All cells of one worker.
#[derive(Debug)]
pub struct WorkerCounters {
    proxies: PerProxy<ProxyCells>,
    /// Whether the worker has counted anything for the proxy since rates were last sampled; in one place, since few of many may have.
    touched: PerProxy<AtomicBool>,
}

#[derive(Debug)]
struct ProxyCells {
    frontend: Cells,
    backend: Cells,
    listeners: Box<[Cells]>,
}

impl WorkerCounters {
    /// Counters at zero.
    pub fn new(shape: &Shape) -> WorkerCounters {
        let cells = |n: usize| (0..n).map(|_| Cells::default()).collect();
        let proxy = |&listeners: &usize| ProxyCells {
            frontend: Cells::default(),
            backend: Cells::default(),
            listeners: cells(listeners),
        };
        let touched = shape.0.iter().map(|_| AtomicBool::new(false)).collect();
        WorkerCounters { proxies: shape.0.iter().map(proxy).collect(), touched }
    }

    /// The frontend side of a proxy, to count there.
    pub fn frontend(&self, proxy: ProxyId) -> &Cells {
        self.touched[proxy].store(true, Relaxed);
        &self.proxies[proxy].frontend
    }
    /// The backend side of a proxy, to count there.
    pub fn backend(&self, proxy: ProxyId) -> &Cells {
        self.touched[proxy].store(true, Relaxed);
        &self.proxies[proxy].backend
    }
    /// One `bind` line of a proxy.
    pub fn listener(&self, proxy: ProxyId, bind: usize) -> &Cells {
        &self.proxies[proxy].listeners[bind]
    }
    /// The cells of one part of a proxy, to read them.
    pub(crate) fn part(&self, proxy: ProxyId, part: Part) -> &Cells {
        let cells = &self.proxies[proxy];
        match part {
            Part::Frontend => &cells.frontend,
            Part::Backend => &cells.backend,
            Part::Listener(bind) => &cells.listeners[bind],
        }
    }
    /// Whether anything was counted for a proxy since this was last asked.
    fn was_touched(&self, proxy: ProxyId) -> bool {
        let touched = &self.touched[proxy];
        // Read first: nearly always there is nothing to write.
        touched.load(Relaxed) && touched.swap(false, Relaxed)
    }
}

/// Sums the cells that each worker has for one server.
pub fn sum_cells(cells: &[Cells], now_ms: u64) -> Totals {
    let mut totals = Totals::default();
    cells.iter().for_each(|cells| totals.add(cells, now_ms));
    for total in [&mut totals.session_rate, &mut totals.connection_rate, &mut totals.request_rate] {
        total.max = total.max.max(total.rate);
    }
    totals
}

/// Selects the cells to sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Frontend,
    Backend,
    Listener(usize),
}

/// The counters of all workers.
#[derive(Debug)]
pub struct Counters {
    workers: Box<[WorkerCounters]>,
    /// By proxy: the largest session, connection and request rates of frontend and backend across all workers, as
    /// sampled; a worker's own maximum covers only its share.
    peaks: PerProxy<[[AtomicU32; 3]; 2]>,
}

impl Counters {
    /// Counters at zero for this many workers.
    pub fn new(workers: usize, shape: &Shape) -> Counters {
        Counters {
            workers: (0..workers).map(|_| WorkerCounters::new(shape)).collect(),
            peaks: shape.0.iter().map(|_| Default::default()).collect(),
        }
    }

    /// The counters that one worker writes.
    pub fn worker(&self, id: usize) -> &WorkerCounters {
        &self.workers[id]
    }

    /// Sums the cells of one part of a proxy.
    pub fn sum(&self, proxy: ProxyId, part: Part, now_ms: u64) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.workers {
            totals.add(worker.part(proxy, part), now_ms);
        }
        let rates = [&mut totals.session_rate, &mut totals.connection_rate, &mut totals.request_rate];
        let side = match part {
            Part::Frontend => Some(0),
            Part::Backend => Some(1),
            Part::Listener(_) => None,
        };
        for (index, total) in rates.into_iter().enumerate() {
            total.max = total.max.max(total.rate);
            if let Some(side) = side {
                let peak = &self.peaks[proxy][side][index];
                total.max = total.max.max(peak.fetch_max(total.max, Relaxed));
            }
        }
        totals
    }

    /// The cells that each worker has for one part of a proxy.
    pub(crate) fn cells(&self, proxy: ProxyId, part: Part) -> impl Iterator<Item = &Cells> {
        self.workers.iter().map(move |worker| worker.part(proxy, part))
    }

    /// Sums a few cells of one part of a proxy.
    pub(crate) fn sum_of<const N: usize>(
        &self,
        proxy: ProxyId,
        part: Part,
        of: impl Fn(&Cells) -> [&Count; N],
    ) -> [u64; N] {
        let mut sums = [0; N];
        for worker in &self.workers {
            sums.iter_mut().zip(of(worker.part(proxy, part))).for_each(|(sum, count)| *sum += count.read());
        }
        sums
    }

    /// Resets the largest rates across all workers.
    pub(crate) fn clear_peaks(&self) {
        self.peaks.iter().flatten().flatten().for_each(|peak| peak.store(0, Relaxed));
    }

    /// Samples the rates across all workers to find the largest ones; called several times a second if there is more
    /// than one worker.
    pub fn sample(&self, now_ms: u64) {
        for proxy in self.peaks.ids() {
            // Each worker's mark is to be taken away, so all are asked.
            let touched = self.workers.iter().filter(|worker| worker.was_touched(proxy)).count() > 0;
            if touched {
                self.sum(proxy, Part::Frontend, now_ms);
                self.sum(proxy, Part::Backend, now_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_covers_the_past_second() {
        let rate = Rate::default();
        (0..10).for_each(|n| rate.hit(5000 + n * 50));
        assert_eq!(rate.read(5500), 10);
        assert_eq!(rate.read(6000), 10);
        assert_eq!(rate.read(6500), 5);
        assert_eq!(rate.read(7000), 0);
        rate.hit(9000);
        assert_eq!((rate.read(9001), rate.read(10_500), rate.read(11_000)), (1, 1, 0));
        assert_eq!(rate.max.load(Relaxed), 10);
    }

    #[test]
    fn a_mean_forgets() {
        let cells = Cells::default();
        cells.times(Some(10), Some(1), None, 30);
        cells.times(Some(20), Some(2), None, 50);
        let mut totals = Totals::default();
        totals.add(&cells, 0);
        assert_eq!((totals.queue_time.mean(), totals.queue_time.max), (15, 20));
        assert_eq!((totals.response_time.mean(), totals.total_time.mean()), (0, 40));
        for _ in 0..512 * 20 {
            cells.queue_time.push(100);
        }
        let mut totals = Totals::default();
        totals.add(&cells, 0);
        assert!((99..=100).contains(&totals.queue_time.mean()));
    }

    #[test]
    fn workers_are_summed_and_the_rate_of_both_is_remembered() {
        let counters = Counters::new(2, &Shape(vec![1].into()));
        for worker in 0..2 {
            let cells = counters.worker(worker).frontend(ProxyId(0));
            (0..5).for_each(|_| cells.session(1500));
            cells.response(204);
            cells.response(999);
        }
        counters.sample(1500);
        let totals = counters.sum(ProxyId(0), Part::Frontend, 9000);
        assert_eq!((totals.sessions, totals.responses), (10, [0, 2, 0, 0, 0, 2]));
        assert_eq!(totals.session_rate, RateTotal { rate: 0, max: 10 });
        assert_eq!(totals.last_session, Some(1));
        assert_eq!(counters.sum(ProxyId(0), Part::Backend, 9000), Totals::default());
    }
}
