//! A client's connection, as every stage of its life uses it.

pub(crate) mod close;
pub(crate) mod socket;
pub(crate) mod sockopt;
pub(crate) mod stream;
pub(crate) mod timer;
pub(crate) mod wire;

use crate::{
    exchange::state::{Exchange, ms_between},
    observe::counters::Cells,
    process::{memory, shared::Place},
    servers::private::Own,
    worker::state::Worker,
};
use penstock_config::model::{Bind, Proxy, ProxyId};
use penstock_http::Limits;
use penstock_rules::{ConnFacts, Session};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use timer::Deadline;
use tokio::time::Instant;

/// A connection that has gone this long without a request is idle, and gives its memory back.
pub(crate) const IDLE_AFTER: Duration = Duration::from_millis(100);

/// The state of a connection that outlives its requests.
pub(crate) struct Conn<'w> {
    /// The worker that serves it, by a reference that outlives every borrow of the connection.
    pub worker: &'w Rc<Worker>,
    /// The frontend's place in the configuration.
    pub frontend: ProxyId,
    /// The place of the `bind` line in the frontend.
    pub bind: usize,
    pub facts: ConnFacts,
    pub session: Session,
    pub deadline: Deadline,
    /// When the connection was accepted; over HTTP/2, once a stream has begun, when the last one began or ended.
    pub accepted: Instant,
    /// How long the PROXY header and the TLS handshake took; 0 for later requests.
    pub handshake_ms: i64,
    /// Whether a rule said that a PROXY header comes first (`expect-proxy`).
    pub expects_proxy_header: bool,
    /// Number of requests so far.
    pub requests: u64,
    /// Server connections that are reserved for this client.
    pub own: Rc<Own>,
    /// Held by the connection itself, not by the streams it carries.
    pub _held: Option<(Place, Alive)>,
}

impl<'w> Conn<'w> {
    pub fn proxy(&self) -> &'w Proxy {
        &self.worker.shared.config.proxies[self.frontend]
    }
    pub fn bind(&self) -> &'w Bind {
        &self.proxy().binds[self.bind]
    }
    /// How long the client may take to begin a request, whether its first or a later one. `timeout client` counts beside the others, since
    /// the client sends nothing meanwhile.
    pub fn patience(&self) -> Option<Duration> {
        self.patience_for_request().into_iter().chain(self.proxy().timeouts.client).min()
    }
    /// The timeout that is about the beginning of a request, if there is one.
    pub fn patience_for_request(&self) -> Option<Duration> {
        let timeouts = &self.proxy().timeouts;
        match self.requests {
            0 => timeouts.http_request,
            _ => timeouts.http_keep_alive.or(timeouts.http_request),
        }
    }
    /// How long what the client has sent may be under way, as TCP itself estimates it (RFC 6298, without its minimum).
    pub fn round_trip(&self) -> Duration {
        let info =
            self.facts.socket.zip(self.facts.peer).and_then(|(socket, peer)| penstock_sys::tcp_info(socket, peer));
        info.map_or(Duration::ZERO, |info| {
            Duration::from_micros(u64::from(info.tcpi_rtt) + 4 * u64::from(info.tcpi_rttvar))
        })
    }
    /// How long the head of a request may be, and how it is parsed.
    pub fn limits(&self) -> Limits {
        let tune = &self.worker.shared.config.global.tune;
        let limits = Limits {
            head_bytes: tune.head_bytes(),
            fields: tune.http_maxhdr,
            lenient: self.proxy().options.accept_invalid_http_request,
        };
        if self.proxy().service.is_some() { self.device_limits(limits) } else { limits }
    }
    /// The limits for what a device sends, which is what went to it and what it has added: that has the room which rules have otherwise.
    pub fn device_limits(&self, limits: Limits) -> Limits {
        Limits { head_bytes: self.worker.shared.config.global.tune.bufsize, fields: limits.fields + 16, ..limits }
    }
    /// The proxy whose settings apply to an exchange: its backend, once it has one.
    pub fn proxy_of(&self, x: &Exchange) -> &'w Proxy {
        &self.worker.shared.config.proxies[x.backend.unwrap_or(self.frontend)]
    }
    /// When the client could send the request that comes next: the first one after the handshake.
    pub fn ready(&self) -> Instant {
        self.accepted + Duration::from_millis(self.handshake_ms as u64)
    }
    /// Records that an exchange's first byte has arrived; where nothing has come, `first_byte` is `ready`. As in HAProxy the accept date of a
    /// later request is when its connection was ready for it.
    pub fn begin(&self, x: &mut Exchange, ready: Instant, first_byte: Instant) {
        x.times.ready = Some(ready);
        x.times.first_byte = Some(first_byte);
        x.log.Th = if self.requests == 0 { self.handshake_ms } else { 0 };
        x.log.Ti = ms_between(ready, first_byte);
        let clock = &self.worker.clock;
        x.log.accept_unix_us = if self.requests == 0 { self.facts.accepted_unix_us } else { clock.unix_us_at(ready) };
        x.log.request_unix_us = clock.unix_us_at(first_byte);
    }
    /// Records that the head of a request has been read.
    pub fn request_complete(&mut self, x: &mut Exchange) {
        let now = self.worker.clock.now();
        x.times.complete = Some(now);
        x.log.TR = x.times.first_byte.map_or(-1, |first| ms_between(first, now));
        if x.switched.is_none() {
            x.log.request_counter = self.worker.next_request();
        }
        x.txn.client_stream.id = self.session.requests;
        self.session.requests += 1;
        self.worker.counters().frontend(self.frontend).request(self.worker.now_ms());
        let tune = &self.worker.shared.config.global.tune;
        x.txn.received.keep(&x.request, tune.http_logurilen);
    }
    /// Records that it is decided what becomes of a request: as in HAProxy, what rules have waited for until then counts as receiving it.
    pub fn request_decided(&self, x: &mut Exchange) {
        let now = self.worker.clock.now();
        x.times.complete = Some(now);
        x.log.TR = x.times.first_byte.map_or(-1, |first| ms_between(first, now));
    }
    /// The cells in which this worker counts for the frontend, and for the `bind` line.
    pub fn listener_cells(&self) -> [&Cells; 2] {
        let counters = self.worker.counters();
        [counters.frontend(self.frontend), counters.listener(self.frontend, self.bind)]
    }
    /// What the next HTTP/2 stream of this connection is to know of it.
    pub fn for_stream(&self) -> Carrier {
        Carrier {
            frontend: self.frontend,
            bind: self.bind,
            facts: self.facts.clone(),
            session: self.session.clone(),
            accepted: self.accepted,
            handshake_ms: self.handshake_ms,
            requests: self.requests,
            own: self.own.clone(),
        }
    }
}

/// What a stream knows of the connection that carries it, in a copy of its own.
pub(crate) struct Carrier {
    frontend: ProxyId,
    bind: usize,
    facts: ConnFacts,
    session: Session,
    accepted: Instant,
    handshake_ms: i64,
    requests: u64,
    own: Rc<Own>,
}

impl Carrier {
    /// The connection as the stream sees it: with a deadline of its own, and the session as it was when the stream began.
    pub fn stream(self, worker: &Rc<Worker>) -> Conn<'_> {
        Conn {
            worker,
            frontend: self.frontend,
            bind: self.bind,
            facts: self.facts,
            session: self.session,
            deadline: Deadline::default(),
            accepted: self.accepted,
            handshake_ms: self.handshake_ms,
            expects_proxy_header: false,
            requests: self.requests,
            own: self.own,
            _held: None,
        }
    }
}

/// Waits for `future` until the deadline; `None` if that comes first.
pub(crate) async fn in_time<F: Future>(deadline: &mut Deadline, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => deadline.poll_expired(cx).map(|()| None),
    })
    .await
}

/// Like [`in_time`], for what waits until a client takes it: while memory is short, not for long.
pub(crate) async fn taken_in_time<F: Future>(worker: &Worker, deadline: &mut Deadline, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            if worker.shared.memory.is_short() {
                let soon = Instant::now() + memory::PATIENCE;
                deadline.set_at(Some(deadline.due().map_or(soon, |due| due.min(soon))));
            }
            deadline.poll_expired(cx).map(|()| None)
        }
    })
    .await
}

/// A registered connection, which a draining worker waits for and can wake.
pub(crate) struct Alive {
    worker: Rc<Worker>,
    key: usize,
}

impl Alive {
    /// Registers the calling task.
    pub async fn register(worker: Rc<Worker>) -> Alive {
        worker.arrivals.notify_one();
        let key = poll_fn(|cx| Poll::Ready(worker.connections.borrow_mut().insert(cx.waker().clone()))).await;
        Alive { worker, key }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.worker.connections.borrow_mut().remove(self.key);
        self.worker.refill_reserve();
        self.worker.check_drained();
    }
}
