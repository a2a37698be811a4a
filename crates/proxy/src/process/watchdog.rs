//! Watches the workers: a task that uses a second of CPU time in one poll is stuck. The process then reports what the
//! task was doing and ends, so that its supervisor can start another.
//!
//! What is watched is the turn, not the worker: a worker that completes many turns a second is merely busy, however
//! late it is, and is left alone.

use super::{handle::Handle, shared::Shared};
use crate::worker::pulse::{Pulse, Who};
use penstock_config::{Config, Span, model::ProxyId};
use std::{fmt::Write, sync::Arc, time::Duration};

/// A turn that uses this much CPU time is stuck. Elapsed time would not do: a machine that was asleep, or a thread that
/// was not scheduled, is not the worker's fault. Turns have a budget of a quarter of a millisecond.
const STUCK: Duration = Duration::from_secs(1);

/// How often the watchdog looks, and how often when all workers are idle.
const INTERVAL: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_secs(1);

/// A worker that is between turns, and used less CPU time than this between two looks, is idle.
const WAITING: Duration = Duration::from_millis(20);

/// How long a stuck thread has to report where it is.
const ANSWER: Duration = Duration::from_secs(2);

/// Watches until all workers have ended.
pub(crate) fn start(handle: Handle) -> std::io::Result<()> {
    penstock_sys::install_stack_capture()?;
    std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&handle)).map(drop)
}

fn watch(handle: &Handle) {
    let shared: &Arc<Shared> = handle.shared();
    let mut seen = vec![Seen::default(); shared.pulses.len()];
    while !handle.has_ended() {
        let mut is_busy = false;
        for (id, (pulse, seen)) in shared.pulses.iter().zip(&mut seen).enumerate() {
            let thread = pulse.thread();
            let Some(used) = penstock_sys::thread_cpu_time(thread).filter(|_| thread != 0) else { continue };
            is_busy |= used.saturating_sub(seen.last) >= WAITING || !pulse.steps().is_multiple_of(2);
            let spent = seen.look(pulse.steps(), used);
            if spent >= STUCK {
                stuck(shared, id, thread, pulse, spent);
            }
        }
        std::thread::sleep(if is_busy { INTERVAL } else { IDLE });
    }
}

/// What the watchdog has seen of a worker. Pure: the step counter and CPU time in, the time spent in one step out.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    steps: u64,
    /// CPU time when this step was first seen, and when it was last looked at.
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

/// Reports what a stuck worker is doing, and ends the process.
fn stuck(shared: &Shared, id: usize, thread: i32, pulse: &Pulse, spent: Duration) -> ! {
    let stage = pulse.doing();
    let mut text = format!("worker {} (thread {thread}) ", id + 1);
    let config = &shared.config;
    // Writing to a string cannot fail.
    let _ = match pulse.steps() % 2 {
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

/// The owner of a turn, described by the names in the configuration.
pub(crate) fn named(config: &Config, who: Who) -> String {
    let bind = |proxy: ProxyId, bind: usize| match config.proxies.get(proxy) {
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

/// A position in the configuration: `haproxy.cfg:12`.
fn place(config: &Config, span: Span) -> String {
    let file = config.files.get(span.file.0 as usize).map_or("?", |file| file.name.as_str());
    format!("{file}:{}", span.line)
}

/// Appends the function names of return addresses. The watchdog does this instead of the stuck thread, which may hold
/// the allocator's lock.
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
}
