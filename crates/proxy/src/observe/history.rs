//! The history of the process, its proxies and its servers: the last hour by the second, the last week in steps of ten minutes.
//!
//! Pure: readings of counters and `now` go in, series come out. Each number takes two bytes, a subject without traffic takes
//! nothing, and the number of histories is bounded by [`Bounds`].

mod ring;

use super::histogram::Tally;
use crate::server::ServerRef;
use penstock_config::model::ProxyId;
use ring::Ring;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many slots of one second, and how many of ten minutes.
const SECONDS: usize = 3600;
const TENS: usize = 1008;
const TEN: u64 = 600;
/// Interval, in seconds, at which the slot of the current ten minutes is rewritten.
const DRAFT: u64 = 10;
/// A reading that is late by at most this many seconds leaves no gap.
const LATE: u64 = 5;

/// What a history is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The process.
    Process,
    /// The frontend side of a proxy.
    Frontend(ProxyId),
    /// The backend side of a proxy.
    Backend(ProxyId),
    /// A server.
    Server(ServerRef),
}

/// The maximum numbers of histories that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of frontends and backends kept by the second, with the process.
    pub proxies: usize,
    /// Number of servers kept by the second.
    pub servers: usize,
    /// All subjects together, in steps of ten minutes.
    pub all: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { proxies: 256, servers: 256, all: 4096 }
    }
}

/// The counters of a subject since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests, or sessions for a proxy that is not HTTP.
    pub requests: u64,
    /// Full TLS handshakes.
    pub full: u64,
    /// Resumed TLS handshakes.
    pub resumed: u64,
    /// Errors: invalid requests, failed handshakes, failed connections and failed responses.
    pub errors: u64,
    /// Responses of 500 and above.
    pub failures: u64,
    /// Times that requests waited in a queue.
    pub waits: Tally,
    /// Response times.
    pub responses: Tally,
    /// Counters that only the process as a whole has.
    pub machine: Machine,
}

/// Counters that only the process as a whole has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPU time of the process, in microseconds.
    pub cpu_us: u64,
    /// CPU time of the crypto engine's turns, in microseconds.
    pub engine_us: u64,
    /// Batches of the crypto engine.
    pub batches: u64,
    /// Operations in batches of the crypto engine.
    pub batched: u64,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $name:ident: $value:expr,)+) => {
        /// A quantity that is shown over time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric { $($(#[doc = $doc])+ $name,)+ }

        impl Metric {
            /// The metric's value if counters grew by `grown` in this many seconds; `None` if it is undefined.
            fn of(self, grown: &Reading, seconds: f64) -> Option<f64> {
                let of: fn(&Reading, f64) -> Option<f64> = match self { $(Metric::$name => $value,)+ };
                of(grown, seconds)
            }
        }
    };
}

metrics! {
    /// Requests a second.
    Requests: |r, s| Some(r.requests as f64 / s),
    /// Full TLS handshakes a second.
    Full: |r, s| Some(r.full as f64 / s),
    /// Resumed TLS handshakes a second.
    Resumed: |r, s| Some(r.resumed as f64 / s),
    /// Errors a second.
    Errors: |r, s| Some(r.errors as f64 / s),
    /// Responses of 500 and above a second.
    Failures: |r, s| Some(r.failures as f64 / s),
    /// The median time in queue, in microseconds.
    WaitP50: |r, _| r.waits.quantile(0.5),
    /// The 99th percentile of the time in queue, in microseconds.
    WaitP99: |r, _| r.waits.quantile(0.99),
    /// The median response time, in microseconds.
    ResponseP50: |r, _| r.responses.quantile(0.5),
    /// The 99th percentile of the response time, in microseconds.
    ResponseP99: |r, _| r.responses.quantile(0.99),
    /// CPU use of the process, in percent of one core.
    Cpu: |r, s| Some(r.machine.cpu_us as f64 / s / 1e4),
    /// CPU time of the whole process divided by its handshakes, in microseconds.
    CpuPerHandshake: |r, _| share(r.machine.cpu_us, r.full + r.resumed),
    /// CPU time of the crypto engine for each full handshake, in microseconds.
    EnginePerHandshake: |r, _| share(r.machine.engine_us, r.full).filter(|us| *us > 0.0),
    /// Mean number of operations in a batch.
    Fill: |r, _| share(r.machine.batched, r.machine.batches),
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

impl Metric {
    /// Whether several values are summarised by the highest rather than the mean.
    fn is_peak(self) -> bool {
        matches!(self, Metric::WaitP99 | Metric::ResponseP99)
    }
}

use Metric::*;
const OF_SERVER: &[Metric] = &[Requests, Errors, Failures, WaitP50, WaitP99, ResponseP50, ResponseP99];
const OF_FRONTEND: &[Metric] = &[Requests, Errors, Failures, WaitP50, WaitP99, ResponseP50, ResponseP99, Full, Resumed];
const OF_PROCESS: &[Metric] = &[
    Requests,
    Errors,
    Failures,
    WaitP50,
    WaitP99,
    ResponseP50,
    ResponseP99,
    Full,
    Resumed,
    Cpu,
    CpuPerHandshake,
    EnginePerHandshake,
    Fill,
];

impl Subject {
    /// The metrics that are kept for this subject.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Subject::Process => OF_PROCESS,
            Subject::Frontend(_) => OF_FRONTEND,
            Subject::Backend(_) | Subject::Server(_) => OF_SERVER,
        }
    }
}

impl Reading {
    /// The growth since an earlier reading; counters that were cleared in between have grown from zero.
    fn since(&self, earlier: &Reading) -> Reading {
        let (now, then) = (&self.machine, &earlier.machine);
        Reading {
            requests: self.requests.saturating_sub(earlier.requests),
            full: self.full.saturating_sub(earlier.full),
            resumed: self.resumed.saturating_sub(earlier.resumed),
            errors: self.errors.saturating_sub(earlier.errors),
            failures: self.failures.saturating_sub(earlier.failures),
            waits: self.waits.since(&earlier.waits),
            responses: self.responses.since(&earlier.responses),
            machine: Machine {
                cpu_us: now.cpu_us.saturating_sub(then.cpu_us),
                engine_us: now.engine_us.saturating_sub(then.engine_us),
                batches: now.batches.saturating_sub(then.batches),
                batched: now.batched.saturating_sub(then.batched),
            },
        }
    }

    /// Whether there has been no traffic yet.
    fn is_idle(&self) -> bool {
        self.requests == 0 && self.full == 0 && self.resumed == 0 && self.errors == 0 && self.failures == 0
    }
}

/// A time range up to now, and its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// Five minutes, in steps of one second.
    #[default]
    Minutes,
    /// An hour, in steps of 12 seconds.
    Hour,
    /// A week, in steps of half an hour.
    Week,
}

impl Range {
    /// All ranges.
    pub const ALL: [Range; 3] = [Range::Minutes, Range::Hour, Range::Week];

    /// How many steps there are.
    pub fn steps(self) -> usize {
        match self {
            Range::Minutes | Range::Hour => 300,
            Range::Week => 336,
        }
    }
    /// How many slots a step covers.
    fn slots(self) -> u64 {
        match self {
            Range::Minutes => 1,
            Range::Hour => 12,
            Range::Week => 3,
        }
    }
    /// How long a slot is, in seconds.
    fn slot(self) -> u64 {
        if self == Range::Week { TEN } else { 1 }
    }
    /// How long a step is, in seconds.
    pub fn step(self) -> u64 {
        self.slots() * self.slot()
    }
}

/// A subject's metrics over a range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The number of its last step, counted from the start of the process.
    pub last: u64,
    /// The values of each metric, oldest first; `None` where the value is unknown.
    pub lines: Vec<(Metric, Vec<Option<f64>>)>,
}

/// A history that other threads can read.
#[derive(Default)]
pub(crate) struct SharedHistory(Mutex<History>);

impl SharedHistory {
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Series {
    seconds: Option<Ring>,
    tens: Ring,
    /// The last reading, and the second it was taken.
    last: (u64, Reading),
    /// The reading at the start of the current ten minutes, and the second it was taken.
    mark: (u64, Reading),
}

/// The histories of all subjects.
#[derive(Default)]
pub struct History {
    bounds: Bounds,
    series: HashMap<Subject, Series>,
    /// The second of the last reading.
    now: Option<u64>,
    /// Whether a subject has been refused because of the bounds.
    refused: bool,
}

impl History {
    /// An empty history.
    pub fn new(bounds: Bounds) -> History {
        History { bounds, ..History::default() }
    }

    /// Records the readings of all subjects at the second `now`; subjects without a reading are removed.
    pub fn record(&mut self, now: u64, readings: impl IntoIterator<Item = (Subject, Reading)>) {
        if self.now.is_some_and(|before| now <= before) {
            return;
        }
        let before = self.now.replace(now);
        for (subject, reading) in readings {
            match self.series.get_mut(&subject) {
                Some(series) => series.record(subject, now, reading),
                None if reading.is_idle() && subject != Subject::Process => {}
                None => self.begin(subject, before, now, reading),
            }
        }
        self.series.retain(|_, series| series.last.0 == now);
    }

    /// Starts the history of a subject that has had its first traffic since the reading of `before`.
    fn begin(&mut self, subject: Subject, before: Option<u64>, now: u64, reading: Reading) {
        if self.series.len() >= self.bounds.all {
            self.refused = true;
            return;
        }
        let is_server = |subject: &Subject| matches!(subject, Subject::Server(_));
        let alike = self
            .series
            .iter()
            .filter(|(other, series)| series.seconds.is_some() && is_server(other) == is_server(&subject));
        let most = if is_server(&subject) { self.bounds.servers } else { self.bounds.proxies };
        let columns = subject.metrics().len();
        let seconds = (alike.count() < most).then(|| Ring::new(columns, SECONDS));
        // If subjects have been refused, this may be one of them, and when it had its traffic is unknown.
        let known = before.filter(|_| !self.refused).map(|before| (before, Reading::default()));
        let mark = known.unwrap_or_else(|| (now, reading.clone()));
        let mut series = Series { seconds, tens: Ring::new(columns, TENS), last: mark.clone(), mark };
        if series.last.0 < now {
            series.record(subject, now, reading);
        }
        self.series.insert(subject, series);
    }

    /// A subject's history over a range, if one is kept at that resolution.
    pub fn graph(&self, subject: Subject, range: Range) -> Option<Graph> {
        let series = self.series.get(&subject)?;
        let ring = match range {
            Range::Week => &series.tens,
            Range::Minutes | Range::Hour => series.seconds.as_ref()?,
        };
        // The last complete step. The steps of a week are long, so for it the current step, once there is a draft of it.
        let now = self.now?;
        let last = match range {
            Range::Week => now.saturating_sub(DRAFT) / range.step(),
            Range::Minutes | Range::Hour => ((now + 1) / range.step()).checked_sub(1)?,
        };
        let line = |(column, metric): (usize, &Metric)| {
            let step = |back: usize| {
                let step = last.checked_sub(back as u64)?;
                let slots = step * range.slots()..(step + 1) * range.slots();
                let known = slots.filter_map(|slot| ring.read(column, slot));
                if metric.is_peak() { known.reduce(f64::max) } else { mean(known) }
            };
            (*metric, (0..range.steps()).rev().map(step).collect())
        };
        Some(Graph { last, lines: subject.metrics().iter().enumerate().map(line).collect() })
    }

    /// The memory of all histories, in bytes.
    pub fn memory(&self) -> usize {
        let rings = |series: &Series| series.tens.memory() + series.seconds.as_ref().map_or(0, Ring::memory);
        self.series.values().map(|series| rings(series) + size_of::<Series>() + size_of::<Subject>()).sum()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

impl Series {
    fn record(&mut self, subject: Subject, now: u64, reading: Reading) {
        let late = now - self.last.0;
        if let Some(seconds) = &mut self.seconds {
            let values = values(subject, &reading.since(&self.last.1), late);
            // A late reading is spread over the seconds it was late by.
            for slot in now - late.min(LATE) + 1..=now {
                seconds.put(slot, &values);
            }
        }
        self.last = (now, reading);
        let (began, now_slot) = (self.mark.0 / TEN, now / TEN);
        if now_slot != began || now.is_multiple_of(DRAFT) {
            let values = values(subject, &self.last.1.since(&self.mark.1), (now - self.mark.0).max(1));
            self.tens.put(began, &values);
        }
        if now_slot != began {
            self.mark = self.last.clone();
        }
    }
}

fn values(subject: Subject, grown: &Reading, seconds: u64) -> Vec<Option<f64>> {
    subject.metrics().iter().map(|metric| metric.of(grown, seconds as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::histogram::Histogram;

    const WEB: Subject = Subject::Frontend(ProxyId(0));

    fn server(slot: u32) -> Subject {
        let server = crate::server::ServerId { slot, generation: 0 };
        Subject::Server(ServerRef { proxy: ProxyId(1), server })
    }

    fn requests(requests: u64) -> Reading {
        Reading { requests, ..Reading::default() }
    }

    fn line(history: &History, subject: Subject, range: Range, metric: Metric) -> Vec<Option<f64>> {
        let graph = history.graph(subject, range).unwrap();
        graph.lines.into_iter().find(|(of, _)| *of == metric).unwrap().1
    }

    fn tail(values: &[Option<f64>], count: usize) -> Vec<f64> {
        values[values.len() - count..].iter().map(|value| value.unwrap_or(-1.0)).collect()
    }

    #[test]
    fn each_second_is_a_point_and_a_gap_is_none() {
        let mut history = History::default();
        for (now, total) in [(100, 50), (101, 60), (102, 90), (104, 110), (124, 130), (125, 137)] {
            history.record(now, [(WEB, requests(total))]);
        }
        let values = line(&history, WEB, Range::Minutes, Requests);
        assert_eq!(values.len(), 300);
        // 102 to 104 was a late reading, 104 to 124 a pause: of that only the end is known.
        assert_eq!(tail(&values, 26)[1..5], [10.0, 30.0, 10.0, 10.0]);
        assert_eq!(tail(&values, 8), [-1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0]);
        assert_eq!(values[..274].iter().flatten().count(), 0, "nothing is known of what was before");
    }

    #[test]
    fn an_hour_ago_and_a_week_ago_are_forgotten() {
        let mut history = History::default();
        (0..=WEEK + 7200).for_each(|now| history.record(now, [(Subject::Process, requests(now * 3))]));
        let memory = history.memory();
        for (range, steps) in [(Range::Minutes, 300), (Range::Hour, 300), (Range::Week, 336)] {
            let values = line(&history, Subject::Process, range, Requests);
            assert_eq!(values, vec![Some(3.0); steps], "{range:?}");
        }
        history.record(WEEK + 7201, [(Subject::Process, requests(0))]);
        assert_eq!(history.memory(), memory, "it does not grow");
        assert_eq!(tail(&line(&history, Subject::Process, Range::Minutes, Requests), 2), [3.0, 0.0], "cleared");
    }
    const WEEK: u64 = 7 * 86_400;

    #[test]
    fn ten_minutes_are_there_before_they_are_over_and_percentiles_cover_all_of_them() {
        let (mut history, histogram) = (History::default(), Histogram::default());
        let (mut responses, mut total) = (Tally::default(), 0);
        history.record(599, [(server(0), Reading::default())]);
        for now in 600..=1200 {
            let times: &[u64] = if now < 1188 { &[1000] } else { &[80_000, 80_000] };
            responses = Tally::default();
            times.iter().for_each(|us| histogram.push(*us));
            responses.add(&histogram);
            total += times.len() as u64;
            let reading = Reading { requests: total, responses: responses.clone(), ..Reading::default() };
            history.record(now, [(server(0), reading)]);
            if now == 620 {
                assert_eq!(tail(&line(&history, server(0), Range::Week, Requests), 1), [1.0]);
            }
        }
        assert!(!responses.is_empty());
        let p50 = tail(&line(&history, server(0), Range::Week, ResponseP50), 1)[0];
        let p99 = tail(&line(&history, server(0), Range::Week, ResponseP99), 1)[0];
        assert!((896.0..=1024.0).contains(&p50) && (65_000.0..=82_000.0).contains(&p99), "{p50} {p99}");
        let of_second = tail(&line(&history, server(0), Range::Minutes, ResponseP50), 14);
        assert!(of_second[0] < 1100.0 && of_second[13] > 65_000.0, "{of_second:?}");
    }

    #[test]
    fn a_step_of_an_hour_is_the_mean_of_its_seconds_and_the_worst_of_its_percentiles() {
        let (mut history, histogram) = (History::default(), Histogram::default());
        let mut reading = Reading::default();
        for now in 0..24 {
            let (calls, us) = if now == 18 { (12, 50_000) } else { (1, 1000) };
            (0..calls).for_each(|_| histogram.push(us));
            reading.requests += calls;
            reading.responses = Tally::default();
            reading.responses.add(&histogram);
            history.record(now, [(WEB, reading.clone())]);
        }
        assert_eq!(
            tail(&line(&history, WEB, Range::Hour, Requests), 2),
            [1.0, 23.0 / 12.0],
            "eleven of one, and one of twelve"
        );
        assert!(tail(&line(&history, WEB, Range::Hour, ResponseP99), 1)[0] > 40_000.0);
    }

    #[test]
    fn who_does_nothing_or_is_gone_costs_nothing_and_the_rest_is_bounded() {
        let bounds = Bounds { proxies: 1, servers: 2, all: 4 };
        let mut history = History::new(bounds);
        let everybody = |total: u64| {
            let servers = (0..1000).map(move |slot| (server(slot), requests(total * u64::from(slot < 5))));
            [(WEB, requests(total))].into_iter().chain(servers)
        };
        history.record(1, everybody(0));
        assert_eq!(history.memory(), 0);
        history.record(2, everybody(1));
        let kept =
            |history: &History, range| (0..1000).filter(|slot| history.graph(server(*slot), range).is_some()).count();
        assert_eq!((kept(&history, Range::Minutes), kept(&history, Range::Week)), (2, 3));
        history.record(3, [(WEB, requests(2))]);
        assert_eq!(kept(&history, Range::Week), 0, "they are gone, and leave room");
        history.record(4, everybody(3));
        assert_eq!(kept(&history, Range::Minutes), 2);
        // It is not known when the five did what they have done.
        assert_eq!(line(&history, server(0), Range::Minutes, Requests).iter().flatten().count(), 0);
    }

    #[test]
    fn two_thousand_servers_cost_what_the_documentation_says() {
        let mut history = History::default();
        let everybody = |total: u64| {
            let servers = (0..2000).map(move |slot| (server(slot), requests(total)));
            let sides = (0..20).map(move |at| (Subject::Backend(ProxyId(at)), requests(total)));
            [(Subject::Process, requests(total))].into_iter().chain(sides).chain(servers)
        };
        history.record(1, everybody(1));
        history.record(2, everybody(2));
        let mib = history.memory() as f64 / f64::from(1 << 20);
        assert!((43.0..46.0).contains(&mib), "docs/limits.md says 45 MiB: {mib:.1}");
    }
}
