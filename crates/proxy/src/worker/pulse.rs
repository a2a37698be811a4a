//! What a worker shows of itself to the watchdog: whose turn it is, and what it is doing.

use penstock_config::{Span, model::ProxyId};
use penstock_rules::Kind;
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering},
};

/// What a worker shows of itself to the watchdog. Only the worker writes it.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The kernel's id of the thread; 0 before it runs and after it has ended.
    thread: AtomicI32,
    /// How many times a turn has begun or ended: odd during a turn.
    steps: AtomicU64,
    /// The owner of the turn: a packed [`Who`].
    who: [AtomicU64; 4],
    /// What the worker is doing: a [`Stage`].
    stage: AtomicU8,
    /// The rule that is running: see [`Pulse::at_rule`].
    rule: AtomicU64,
    /// How many turns have used up their budget.
    spent: AtomicU64,
}

/// The stages of a connection's life, for the watchdog's report.
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
    /// The kernel's id of the thread; 0 before it runs and after it has ended.
    pub fn thread(&self) -> i32 {
        self.thread.load(Ordering::SeqCst)
    }
    /// How many times a turn has begun or ended: odd during a turn.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }
    /// What the worker is doing, in words.
    pub fn doing(&self) -> &'static str {
        STAGES.get(usize::from(self.stage.load(Ordering::Relaxed))).unwrap_or(&"something unknown")
    }
    /// Records that a turn begins; `stage` is where the task stopped in its previous turn.
    pub fn begin_turn(&self, who: &[u64; 4], stage: u8) {
        for (cell, word) in self.who.iter().zip(who) {
            cell.store(*word, Ordering::Relaxed);
        }
        self.stage.store(stage, Ordering::Relaxed);
        self.rule.store(0, Ordering::Relaxed);
        self.step();
    }
    /// Records that the turn ends; returns the stage it reached.
    pub fn end_turn(&self) -> u8 {
        self.step();
        self.stage.load(Ordering::Relaxed)
    }
    /// Records that a task used up its turn's budget.
    pub fn turn_spent(&self) {
        self.spent.store(self.spent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    /// How many turns have used up their budget.
    pub fn turns_spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
    fn step(&self) {
        // Only one thread writes, so the addition need not be atomic.
        self.steps.store(self.steps.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
    /// Records the stage that the worker enters.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
    /// Records that a rule starts, or with `None` that none is running.
    pub fn at_rule(&self, rule: Option<(Kind, Span)>) {
        let word = rule.map_or(0, |(kind, span)| {
            // Lines count from 1, so that no rule is encoded as 0.
            (kind as u64) << 56 | u64::from(span.file.0 & 0xff_ffff) << 32 | u64::from(span.line)
        });
        self.rule.store(word, Ordering::Relaxed);
    }
    /// The rule that is running.
    pub fn rule(&self) -> Option<(Kind, Span)> {
        let word = self.rule.load(Ordering::Relaxed);
        let kind = Kind::ALL.iter().copied().find(|kind| *kind as u64 == word >> 56)?;
        let file = penstock_config::FileId((word >> 32) as u32 & 0xff_ffff);
        let line = word as u32;
        (line != 0).then(|| (kind, Span { file, line, ..Span::default() }))
    }
    /// The owner of the current turn, or of the last one.
    pub fn whose(&self) -> Who {
        Who::unpack(self.who.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

/// The owner of a turn, for the watchdog's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The worker itself: its messages, its engine, its log, its idle connections.
    Worker,
    /// The acceptor of a `bind` line.
    Acceptor { proxy: ProxyId, bind: usize },
    /// A client's connection.
    Connection { proxy: ProxyId, bind: usize, peer: Option<SocketAddr> },
    /// A stream of a client's connection.
    Stream { proxy: ProxyId, bind: usize, peer: Option<SocketAddr> },
    /// A connection to a server that several exchanges share.
    Server { peer: Option<SocketAddr> },
    /// The health checks of a server.
    Check { proxy: ProxyId, server: usize },
}

impl Who {
    /// Encodes it as words that another thread can read one by one.
    pub fn pack(self) -> [u64; 4] {
        let (kind, proxy, index, peer) = match self {
            Who::Worker => (0, ProxyId(0), 0, None),
            Who::Acceptor { proxy, bind } => (1, proxy, bind, None),
            Who::Connection { proxy, bind, peer } => (2, proxy, bind, peer),
            Who::Stream { proxy, bind, peer } => (3, proxy, bind, peer),
            Who::Server { peer } => (4, ProxyId(0), 0, peer),
            Who::Check { proxy, server } => (5, proxy, server, None),
        };
        let ip = peer.map_or(0, |peer| match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        });
        let port = peer.map_or(0, |peer| u64::from(peer.port()) << 1 | 1);
        [kind | port << 8, u64::from(proxy.0) << 32 | index as u64 & 0xffff_ffff, (ip >> 64) as u64, ip as u64]
    }
    pub fn unpack([first, place, high, low]: [u64; 4]) -> Who {
        let (proxy, index) = (ProxyId((place >> 32) as u32), (place & 0xffff_ffff) as usize);
        let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        let peer = (first >> 8 & 1 == 1).then(|| SocketAddr::new(ip.to_canonical(), (first >> 9) as u16));
        match first & 0xff {
            1 => Who::Acceptor { proxy, bind: index },
            2 => Who::Connection { proxy, bind: index, peer },
            3 => Who::Stream { proxy, bind: index, peer },
            4 => Who::Server { peer },
            5 => Who::Check { proxy, server: index },
            _ => Who::Worker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_turn_survives_being_packed() {
        for peer in [None, Some("192.0.2.1:80".parse().unwrap()), Some("[2001:db8::1]:65535".parse().unwrap())] {
            for who in [
                Who::Worker,
                Who::Acceptor { proxy: ProxyId(3), bind: 70_000 },
                Who::Connection { proxy: ProxyId(3), bind: 1, peer },
                Who::Stream { proxy: ProxyId(20_000), bind: 1, peer },
                Who::Server { peer },
                Who::Check { proxy: ProxyId(0), server: 9 },
            ] {
                assert_eq!(Who::unpack(who.pack()), who);
            }
        }
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
