//! The results of a load.

use super::LoadPlan;
use crate::{Histogram, cost::Cost};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The outcome of a load, and how far to believe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// What was asked for.
    pub plan: LoadPlan,
    /// When the measurement began, seconds since 1970.
    pub began_at: f64,
    /// How long was measured, seconds: less than asked for where the run was cut short.
    pub seconds: f64,
    /// Whether the run was cut short, or some agents that should have taken part did not.
    pub partial: bool,
    /// What was counted.
    #[serde(flatten)]
    pub totals: Totals,
    /// Responses by the first digit of their status: `2xx`.
    pub statuses: BTreeMap<String, u64>,
    /// Connections held at the end, where that was asked for.
    pub held: u64,
    /// What failed, by kind: a sentence each.
    pub errors: BTreeMap<String, u64>,
    /// What was agreed on, and in how many handshakes.
    pub negotiated: Vec<(Negotiated, u64)>,
    /// Latencies.
    pub latency: Latency,
    /// The measurement second by second.
    pub series: Vec<Second>,
    /// What the load cost this side.
    pub client: ClientCost,
    /// What the load cost the server, where that was asked for.
    pub server: Option<Cost>,
    /// Reasons not to believe the result.
    pub doubts: Vec<Doubt>,
    /// The agents that took part, where there were several: their reports, without the histograms' sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentShare>,
}

/// What a load counts: of one thread, of one machine, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Units that were finished within the measured time.
    pub done: u64,
    /// Units finished later, of those that began within it.
    pub late: u64,
    /// Units that fell due within it and never began, as every connection was busy.
    pub never_begun: u64,
    /// Full handshakes completed within the measured time.
    pub full_handshakes: u64,
    /// Resumed handshakes completed within the measured time.
    pub resumed_handshakes: u64,
    /// Full handshakes that took another round trip, as the server wanted another group.
    pub retried_handshakes: u64,
    /// Connections that the server did not close after our close_notify.
    pub unclean_closes: u64,
    /// Responses.
    pub responses: u64,
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
}

impl Totals {
    /// Adds what another one counted.
    pub(crate) fn add(&mut self, other: &Totals) {
        for (sum, more) in [
            (&mut self.done, other.done),
            (&mut self.late, other.late),
            (&mut self.never_begun, other.never_begun),
            (&mut self.full_handshakes, other.full_handshakes),
            (&mut self.resumed_handshakes, other.resumed_handshakes),
            (&mut self.retried_handshakes, other.retried_handshakes),
            (&mut self.unclean_closes, other.unclean_closes),
            (&mut self.responses, other.responses),
            (&mut self.body_bytes, other.body_bytes),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
        ] {
            *sum += more;
        }
    }
}

impl LoadReport {
    /// A report in which nothing has happened.
    pub(crate) fn empty(plan: LoadPlan) -> LoadReport {
        LoadReport {
            plan,
            began_at: 0.0,
            seconds: 0.0,
            partial: false,
            totals: Totals::default(),
            statuses: BTreeMap::new(),
            held: 0,
            errors: BTreeMap::new(),
            negotiated: Vec::new(),
            latency: Latency::default(),
            series: Vec::new(),
            client: ClientCost::default(),
            server: None,
            doubts: Vec::new(),
            agents: Vec::new(),
        }
    }

    /// Units a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.totals.done as f64 / self.seconds } else { 0.0 }
    }

    /// Handshakes of both kinds.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.totals.full_handshakes + self.totals.resumed_handshakes
    }

    /// Everything that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// CPU time of the server for each unit, µs.
    #[must_use]
    pub fn server_us_per_unit(&self) -> Option<f64> {
        self.server.as_ref().map(|cost| cost.total().as_secs_f64() * 1e6 / self.totals.done.max(1) as f64)
    }
}

/// One machine's share of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentShare {
    /// The machine's name, as given.
    pub name: String,
    /// Units done within the measured time; `None`: it was lost.
    pub done: Option<u64>,
    /// How much later than the others the machine began, in seconds.
    pub late_by: f64,
    /// What went wrong with the machine.
    pub trouble: Option<String>,
}

/// Latencies by stage, each counted from the end of the one before; the last is the total.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Times of TCP connections.
    pub connect: Histogram,
    /// Times from the connection to the proxy's answer, where there is a proxy.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub tunnel: Histogram,
    /// Times from the connection, or the tunnel, to the end of the handshake as this side sees it.
    pub handshake: Histogram,
    /// Times from the request to the first byte of its response.
    pub first_byte: Histogram,
    /// Times of whole units, from when each was due.
    pub total: Histogram,
    /// How late this side itself began a unit although a connection was free: an error of measurement.
    pub own_delay: Histogram,
}

impl Latency {
    /// Adds the times of another one.
    pub fn merge(&mut self, other: &Latency) {
        self.connect.merge(&other.connect);
        self.tunnel.merge(&other.tunnel);
        self.handshake.merge(&other.handshake);
        self.first_byte.merge(&other.first_byte);
        self.total.merge(&other.total);
        self.own_delay.merge(&other.own_delay);
    }
}

/// What client and server agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Negotiated {
    /// `TLSv1.3`
    pub version: String,
    /// The cipher suite, by its name in RFCs.
    pub suite: String,
    /// The group of the key exchange.
    pub group: String,
    /// The signature's algorithm; none where the session was resumed.
    pub signature: Option<String>,
    /// `http/1.1` or `h2`, where agreed on.
    pub alpn: Option<String>,
    /// Whether the session was resumed.
    pub resumed: bool,
}

/// What happened within a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// The end of the second, in seconds since the measurement began.
    pub at: f64,
    /// The length in seconds: the last one may be shorter.
    pub seconds: f64,
    /// Units finished.
    pub done: u64,
    /// Units failed.
    pub failed: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Connections open at its end.
    pub open: u64,
}

impl Second {
    /// Adds what happened right after it.
    pub(crate) fn extend(&mut self, next: &Second) {
        self.at = next.at;
        self.seconds += next.seconds;
        self.done += next.done;
        self.failed += next.failed;
        self.body_bytes += next.body_bytes;
        self.open = next.open;
    }
}

/// What the load cost the machine it came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientCost {
    /// CPU time of the threads that made the load, seconds.
    pub cpu_seconds: f64,
    /// CPU time of the load for each unit, µs.
    pub cpu_us_per_unit: f64,
    /// The share of its time that the busiest thread ran or waited for a core, of 1.
    pub busiest_thread: f64,
    /// Whether this side, not the server, set the rate.
    pub bottleneck: bool,
}

/// A reason not to believe the result: its kind, for programs, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// `client-saturated`, `resumed`, `too-short`, ...
    pub kind: String,
    /// The sentence for people.
    pub says: String,
}
