//! What one thread counts.

use super::failure::Failure;
use super::report::{Latency, Totals};
use super::{LoadPlan, LoadReport, Negotiated, Second, names, settings};
use crate::load::session::Session;
use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, SignatureScheme};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread's counts since it was started, for observers. Only the thread itself writes them.
#[derive(Debug, Default)]
pub(crate) struct Live {
    done: AtomicU64,
    failed: AtomicU64,
    body_bytes: AtomicU64,
    open: AtomicU64,
}

/// A reading of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub done: u64,
    pub failed: u64,
    pub body_bytes: u64,
    pub open: u64,
}

impl Live {
    pub(crate) fn read(&self) -> Counts {
        let [done, failed, body_bytes, open] =
            [&self.done, &self.failed, &self.body_bytes, &self.open].map(|count| count.load(Ordering::Relaxed));
        Counts { done, failed, body_bytes, open }
    }

    pub(crate) fn opened(&self) {
        add(&self.open, 1);
    }

    pub(crate) fn closed(&self) {
        self.open.store(self.open.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// One writer: no need for an atomic addition.
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// What client and server agreed on, as rustls names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Agreed {
    version: Option<ProtocolVersion>,
    suite: Option<CipherSuite>,
    group: Option<NamedGroup>,
    signature: Option<SignatureScheme>,
    http2: Option<bool>,
    pub kind: Option<HandshakeKind>,
}

impl Agreed {
    /// Right after the handshake.
    pub(crate) fn of(session: &Session) -> Agreed {
        Agreed {
            version: session.protocol_version(),
            suite: session.negotiated_cipher_suite().map(|suite| suite.suite()),
            group: session.negotiated_key_exchange_group().map(|group| group.name()),
            signature: None,
            http2: session.alpn_protocol().map(|name| name == b"h2"),
            kind: session.handshake_kind(),
        }
    }

    pub(crate) fn with_signature(self) -> Agreed {
        // Read in any case: what is left from a handshake that failed belongs to no other.
        let signature = settings::take_signature();
        Agreed { signature: signature.filter(|_| !self.is_resumed()), ..self }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.kind == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn named(&self) -> Negotiated {
        Negotiated {
            version: self.version.map(names::of_version).unwrap_or_default(),
            suite: self.suite.map(names::of_suite).unwrap_or_default(),
            group: self.group.map(names::of_group).unwrap_or_default(),
            signature: self.signature.map(names::of_signature),
            alpn: self.http2.map(|http2| if http2 { "h2" } else { "http/1.1" }.to_owned()),
            resumed: self.is_resumed(),
        }
    }
}

/// Everything a thread found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub totals: Totals,
    /// By first digit.
    pub statuses: [u64; 10],
    pub errors: Vec<(Failure, u64)>,
    pub agreed: Vec<(Agreed, u64)>,
    pub latency: Latency,
}

impl Tally {
    pub(crate) fn error(&mut self, failure: Failure) {
        count(&mut self.errors, failure, 1);
    }

    pub(crate) fn handshake(&mut self, agreed: Agreed) {
        match agreed.kind {
            Some(HandshakeKind::Resumed) => self.totals.resumed_handshakes += 1,
            Some(HandshakeKind::FullWithHelloRetryRequest) => {
                self.totals.retried_handshakes += 1;
                self.totals.full_handshakes += 1;
            }
            _ => self.totals.full_handshakes += 1,
        }
        count(&mut self.agreed, agreed, 1);
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.totals.add(&other.totals);
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += more;
        }
        for (failure, n) in other.errors {
            count(&mut self.errors, failure, n);
        }
        for (agreed, n) in other.agreed {
            count(&mut self.agreed, agreed, n);
        }
        self.latency.merge(&other.latency);
    }
}

/// There are few kinds of anything, so that a list is searched faster than a map.
fn count<T: PartialEq>(list: &mut Vec<(T, u64)>, what: T, n: u64) {
    match list.iter_mut().find(|(one, _)| *one == what) {
        Some((_, sum)) => *sum += n,
        None => list.push((what, n)),
    }
}

impl Live {
    pub(crate) fn done(&self) {
        add(&self.done, 1);
    }

    pub(crate) fn failed(&self) {
        add(&self.failed, 1);
    }

    pub(crate) fn body(&self, bytes: u64) {
        add(&self.body_bytes, bytes);
    }
}

impl Tally {
    /// Makes the counted part of a report.
    pub(crate) fn into_report(self, plan: LoadPlan, began_at: f64, seconds: f64, series: Vec<Second>) -> LoadReport {
        let statuses = (1..10).filter(|class| self.statuses[*class] > 0);
        let mut errors = BTreeMap::new();
        for (failure, n) in self.errors {
            *errors.entry(failure.to_string()).or_default() += n;
        }
        LoadReport {
            began_at,
            seconds,
            totals: self.totals,
            statuses: statuses.map(|class| (format!("{class}xx"), self.statuses[class])).collect(),
            // As the last second saw it: when the run is over each lets go of its own.
            held: series.last().map_or(0, |second| second.open),
            errors,
            negotiated: self.agreed.iter().map(|(agreed, n)| (agreed.named(), *n)).collect(),
            latency: self.latency,
            series,
            ..LoadReport::empty(plan)
        }
    }
}
