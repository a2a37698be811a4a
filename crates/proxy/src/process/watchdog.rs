//! Watches the workers: a task that has held its worker for a second of CPU time in one poll is stuck, and a process with
//! a stuck worker is ended, with a word on what it was doing, so that whoever watches the process can start another.
//!
//! What is watched is the turn, not the worker: one that takes many turns a second is busy, however late it is with
//! everything, and is left alone.

use super::{
    handle::{Handle, State},
    shared::Shared,
};
use crate::worker::turn::Who;
use penstock_config::{Config, Span};
use penstock_rules::Kind;
use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

/// What a worker shows of itself. Only the worker writes; the watchdog reads.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The kernel's number of its thread; 0 before it runs and after it has ended.
    thread: AtomicI32,
    /// Beginnings and ends of turns: odd while one lasts.
    steps: AtomicU64,
    /// Whose turn it is: a packed [`Who`].
    who: [AtomicU64; 4],
    /// What it is doing: a [`Stage`].
    stage: AtomicU8,
    /// The rule that runs: see [`Pulse::at_rule`].
    rule: AtomicU64,
    /// Turns that were used up.
    spent: AtomicU64,
}

/// The stages of a connection's life, for the watchdog's last word.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Stage {
    Idle,
    Accept,
    Handshake,
    Parse,
    Route,
    Forward,
    Log,
}

const STAGES: [&str; 7] = [
    "nothing in particular",
    "accepting a connection",
    "a handshake",
    "reading a request",
    "running rules",
    "forwarding",
    "logging",
];

impl Pulse {
    /// Called by the worker's thread when it begins.
    pub fn begin(&self) {
        self.thread.store(penstock_sys::thread_id(), Ordering::SeqCst);
    }
    /// Called by the worker's thread when it ends.
    pub fn end(&self) {
        self.thread.store(0, Ordering::SeqCst);
    }
    /// A turn begins of a task that left off at that stage.
    pub fn begin_turn(&self, who: &[u64; 4], stage: u8) {
        for (cell, word) in self.who.iter().zip(who) {
            cell.store(*word, Ordering::Relaxed);
        }
        self.stage.store(stage, Ordering::Relaxed);
        self.rule.store(0, Ordering::Relaxed);
        self.step();
    }
    /// The turn ends; the stage it was at.
    pub fn end_turn(&self) -> u8 {
        self.step();
        self.stage.load(Ordering::Relaxed)
    }
    /// A task used up its turn.
    pub fn turn_spent(&self) {
        self.spent.store(self.spent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    /// How many turns were used up.
    pub fn turns_spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
    fn step(&self) {
        // One thread writes, so this needs no operation that is atomic as a whole.
        self.steps.store(self.steps.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
    /// Says what the worker does now.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
    /// A rule begins, or none does any more.
    pub fn at_rule(&self, rule: Option<(Kind, Span)>) {
        let word = rule.map_or(0, |(kind, span)| {
            // Lines count from 1, so that no rule is 0.
            (kind as u64) << 56 | u64::from(span.file.0 & 0xff_ffff) << 32 | u64::from(span.line)
        });
        self.rule.store(word, Ordering::Relaxed);
    }
    fn rule(&self) -> Option<(Kind, Span)> {
        let word = self.rule.load(Ordering::Relaxed);
        let kind = Kind::ALL.iter().copied().find(|kind| *kind as u64 == word >> 56)?;
        let file = penstock_config::FileId((word >> 32) as u32 & 0xff_ffff);
        let line = word as u32;
        (line != 0).then(|| (kind, Span { file, line, ..Span::default() }))
    }
    fn whose(&self) -> Who {
        Who::unpack(self.who.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

/// A turn of so much CPU time is stuck: CPU time, because a machine that was asleep or a thread that was not given a
/// processor is not the worker's fault. Turns have a budget of a quarter of a millisecond.
const STUCK: Duration = Duration::from_secs(1);

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// A worker that is in no turn, and used less than this between two looks, waits for something to do.
const WAITING: Duration = Duration::from_millis(20);

/// How long a stuck thread has to say where it is.
const ANSWER: Duration = Duration::from_secs(2);

/// Watches until all workers have ended.
pub(crate) fn start(handle: Handle) -> std::io::Result<()> {
    penstock_sys::install_stack_capture()?;
    std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&handle)).map(drop)
}

fn watch(handle: &Handle) {
    let shared: &Arc<Shared> = handle.shared();
    let mut seen = vec![Seen::default(); shared.pulses.len()];
    while !(handle.state() != State::Running && handle.is_finished()) {
        for (id, (pulse, seen)) in shared.pulses.iter().zip(&mut seen).enumerate() {
            let thread = pulse.thread.load(Ordering::SeqCst);
            let Some(used) = penstock_sys::thread_cpu_time(thread).filter(|_| thread != 0) else { continue };
            let spent = seen.look(pulse.steps.load(Ordering::Acquire), used);
            if spent >= STUCK {
                stuck(shared, id, thread, pulse, spent);
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

/// What the watchdog saw of a worker. Pure: steps and CPU time in, out how long it has been at one step.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    steps: u64,
    /// CPU time when it was first seen at this step, and when it was last looked at.
    since: Duration,
    last: Duration,
}

impl Seen {
    fn look(&mut self, steps: u64, used: Duration) -> Duration {
        let waits = steps.is_multiple_of(2) && used.saturating_sub(self.last) < WAITING;
        if steps != self.steps || waits {
            (self.steps, self.since) = (steps, used);
        }
        self.last = used;
        used.saturating_sub(self.since)
    }
}

/// Says what a stuck worker does, and ends the process.
fn stuck(shared: &Shared, id: usize, thread: i32, pulse: &Pulse, spent: Duration) -> ! {
    let stage = STAGES.get(usize::from(pulse.stage.load(Ordering::Relaxed))).unwrap_or(&"something unknown");
    let mut text = format!("worker {} (thread {thread}) ", id + 1);
    let config = &shared.config;
    // Writing to a string cannot fail.
    let _ = match pulse.steps.load(Ordering::Acquire) % 2 {
        0 => write!(text, "is between turns"),
        _ => write!(text, "is in one turn of {}", named(config, pulse.whose())),
    };
    let _ = write!(text, " for {:.1} s of CPU time; it was busy with {stage}", spent.as_secs_f64());
    if let Some((kind, span)) = pulse.rule() {
        let _ = write!(text, ", at '{}' in {}", kind.name(), place(config, span));
    }
    text.push_str("; this process ends, so that its master or service manager can start another:\n");
    describe(&penstock_sys::return_addresses(thread, ANSWER), &mut text);
    eprintln!("[ALERT] {text}");
    std::process::abort()
}

/// Whose turn it is, in the words of the configuration.
fn named(config: &Config, who: Who) -> String {
    let bind = |proxy: usize, bind: usize| match config.proxies.get(proxy) {
        Some(conf) => {
            let at =
                conf.binds.get(bind).map_or_else(String::new, |bind| format!(", bind in {}", place(config, bind.span)));
            format!("{}{at}", conf.name)
        }
        None => "an unknown proxy".into(),
    };
    let peer = |peer: Option<std::net::SocketAddr>| peer.map_or_else(String::new, |peer| format!(" {peer}"));
    match who {
        Who::Worker => "the worker's own".into(),
        Who::Acceptor { proxy, bind: at } => format!("the acceptor of {}", bind(proxy, at)),
        Who::Connection { proxy, bind: at, peer: from } => {
            format!("the connection of client{} to {}", peer(from), bind(proxy, at))
        }
        Who::Stream { proxy, bind: at, peer: from } => {
            format!("an HTTP/2 stream of client{} to {}", peer(from), bind(proxy, at))
        }
        Who::Server { peer: to } => format!("the HTTP/2 connection to server{}", peer(to)),
        Who::Check { proxy, server } => match config.proxies.get(proxy).and_then(|p| Some((p, p.servers.get(server)?)))
        {
            Some((conf, server)) => {
                format!("the health checks of {}/{} in {}", conf.name, server.name, place(config, server.span))
            }
            None => "health checks".into(),
        },
    }
}

/// `haproxy.cfg:12`.
fn place(config: &Config, span: Span) -> String {
    let file = config.files.get(span.file.0 as usize).map_or("?", |file| file.name.as_str());
    format!("{file}:{}", span.line)
}

/// Names the functions of return addresses. The watchdog does this, not the stuck thread: it may hold the allocator's
/// lock.
fn describe(addresses: &[usize], text: &mut String) {
    if addresses.is_empty() {
        text.push_str("  it did not answer\n");
    }
    for &address in addresses {
        let mut found = false;
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            found = true;
            // Writing to a string cannot fail.
            let _ = match symbol.name() {
                Some(name) => write!(text, "  {address:#018x} {name:#}"),
                None => write!(text, "  {address:#018x} ?"),
            };
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = write!(text, " at {}:{line}", file.display());
            }
            text.push('\n');
        });
        if !found {
            let _ = writeln!(text, "  {address:#018x} ?");
        }
    }
}

/// Ends the process because what must always hold does not: going on could corrupt or leak what passes through.
#[cold]
pub(crate) fn broken(invariant: &str) -> ! {
    eprintln!("[ALERT] broken invariant: {invariant}\n{}", std::backtrace::Backtrace::force_capture());
    std::process::abort()
}

/// A fault to plant, named in the environment by tests that prove what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request for `/planted-fault` never ends its turn.
    Spin,
    /// A request for `/planted-fault` breaks an invariant.
    Invariant,
    /// The first rule never ends.
    Rule,
    /// A request for `/planted-fault` keeps its worker busy for seconds, in short turns.
    Busy,
}

impl Fault {
    /// The one that `PENSTOCK_PLANT_FAULT` names.
    pub fn planted() -> Option<Fault> {
        match std::env::var("PENSTOCK_PLANT_FAULT").ok()?.as_str() {
            "spin" => Some(Fault::Spin),
            "invariant" => Some(Fault::Invariant),
            "rule" => Some(Fault::Rule),
            "busy" => Some(Fault::Busy),
            _ => None,
        }
    }
    /// Lets it happen.
    pub async fn strike(self) {
        match self {
            Fault::Spin => spin(),
            // It strikes where rules begin.
            Fault::Rule => {}
            Fault::Invariant => broken("a planted fault"),
            Fault::Busy => busy().await,
        }
    }
}

#[inline(never)]
pub(crate) fn spin() {
    loop {
        std::hint::black_box(());
    }
}

/// Far more CPU time than [`STUCK`], in turns of some milliseconds that nothing comes between.
async fn busy() {
    let start = std::time::Instant::now();
    while start.elapsed() < 3 * STUCK {
        let turn = std::time::Instant::now();
        while turn.elapsed() < Duration::from_millis(5) {
            std::hint::black_box(());
        }
        let mut woken = false;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut woken, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_worker_that_takes_turns_is_busy_and_one_that_stays_in_a_turn_is_stuck() {
        let mut seen = Seen::default();
        for look in 1..100 {
            assert_eq!(seen.look(2 * u64::from(look) + 1, look * 200 * MS), Duration::ZERO, "a turn a look");
        }
        let begin = 100 * 200 * MS;
        let spent: Vec<_> = (0..6).map(|look| seen.look(1001, begin + look * 200 * MS)).collect();
        assert!(spent[4] < STUCK && spent[5] >= STUCK, "{spent:?}");
    }

    #[test]
    fn a_worker_that_waits_is_not_stuck_however_much_its_waiting_costs_in_the_end() {
        let mut seen = Seen::default();
        assert!((1..10_000).all(|look| seen.look(8, look * 19 * MS) < STUCK));
        assert!((1..10).any(|look| seen.look(8, (190_000 + look * 200) * MS) >= STUCK), "no turn comes any more");
    }

    #[test]
    fn the_rule_that_runs_can_be_read_by_the_watchdog() {
        let pulse = Pulse::default();
        assert_eq!(pulse.rule(), None);
        let span = Span { file: penstock_config::FileId(2), line: 41, start: 0, end: 0 };
        pulse.at_rule(Some((Kind::TcpConnection, span)));
        assert_eq!(pulse.rule(), Some((Kind::TcpConnection, span)));
        pulse.at_rule(None);
        assert_eq!(pulse.rule(), None);
    }
}
