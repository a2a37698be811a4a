//! Asks one service about a message: OPTIONS first, if it has not described itself, and once more on a fresh connection if nothing
//! of an answer came.

use super::{
    original::{Broken, Original},
    place::{self, Place},
    verdict::settings,
};
use crate::{
    connection::stream::{Fill, Stream},
    exchange::{
        ends::{Client, Fault},
        live::Live,
        state::ms_between,
    },
    observe::counters::InUse,
    server::{Backend, Seen, Want},
    worker::{buffer::Buffers, turn},
};
use penstock_config::model::{ProxyId, Service};
use penstock_icap::{
    Head, IcapMethod, IcapRequest, Modified, PIECE, ServiceDecision, ServiceOptions, Start, Transaction, threat,
};
use penstock_rules::ServerRef;
use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::AsyncWrite;

/// Why a service did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No server is up, or none could be connected to.
    Unreachable,
    /// No server had a place in time.
    Busy,
    /// The server did not go on in time.
    Timeout,
    /// The server closed the connection before its answer was complete.
    Closed,
    /// The server's answer was not valid, or said that the service did not do its work.
    Invalid,
    /// The service says that it does not inspect such messages.
    Unsuitable,
    /// A device has answered with success what has not come back from it.
    NotReturned,
}

impl Failure {
    /// As the log shows it.
    pub fn word(self) -> &'static str {
        match self {
            Failure::Unreachable => "unreachable",
            Failure::Busy => "busy",
            Failure::Timeout => "timeout",
            Failure::Closed => "closed",
            Failure::Invalid => "invalid",
            Failure::Unsuitable => "unsuitable",
            Failure::NotReturned => "not-returned",
        }
    }
    /// What the failure counts as in the health of the server that was asked, if it counts.
    fn seen(self) -> Option<Seen> {
        match self {
            Failure::Timeout => Some(Seen::ResponseTimeout),
            Failure::Closed => Some(Seen::NoResponse),
            Failure::Invalid => Some(Seen::BadResponse),
            Failure::Unreachable | Failure::Busy | Failure::Unsuitable | Failure::NotReturned => None,
        }
    }
}

/// The end of asking.
pub(super) enum Asked {
    /// The message goes on as it is.
    Unmodified { threat: Option<Vec<u8>> },
    /// Another message takes the place of this one.
    Modified { by: Box<Modified>, threat: Option<Vec<u8>> },
    /// The body is longer than what is kept for the service.
    TooLong,
    /// The service failed.
    Failed(Failure),
    /// The message's sender failed.
    Broken(Broken),
    /// The client does not want a response any more.
    Gone,
}

/// Why a conversation ended early.
enum Stop {
    Failure(Failure),
    TooLong,
    Broken(Broken),
    Gone,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

/// Asks a service; returns how long that took as well.
pub(super) async fn ask(
    live: &mut Live<'_, '_>,
    service: ProxyId,
    method: IcapMethod,
    original: &mut Original<'_, '_>,
) -> (Asked, u64) {
    let worker = live.worker;
    let since = worker.clock.tick();
    let asked = match run(live, service, method, original).await {
        Ok(transaction) => decided(transaction),
        Err(Stop::TooLong) => Asked::TooLong,
        Err(Stop::Failure(failure)) => {
            worker.counters().backend(service).response_errors.inc();
            Asked::Failed(failure)
        }
        Err(Stop::Broken(broken)) => Asked::Broken(broken),
        Err(Stop::Gone) => Asked::Gone,
    };
    (asked, ms_between(since, worker.clock.tick()) as u64)
}

fn decided(transaction: Transaction) -> Asked {
    let threat = transaction.head().and_then(threat);
    match transaction.finish() {
        Some(ServiceDecision::Unmodified) => Asked::Unmodified { threat },
        Some(ServiceDecision::Modified(by)) => Asked::Modified { by, threat },
        Some(ServiceDecision::Described) | None => Asked::Failed(Failure::Invalid),
    }
}

async fn run(
    live: &mut Live<'_, '_>,
    service: ProxyId,
    method: IcapMethod,
    original: &mut Original<'_, '_>,
) -> Result<Transaction, Stop> {
    let worker = live.worker;
    let shared = &worker.shared;
    let pool = shared.backends.get(service).ok_or(Failure::Unreachable)?;
    let _presence = pool.enter();
    worker.counters().backend(service).session(worker.now_ms());
    let mut asking = Asking { pool, service, method, want: place::want(live, pool), options: None };
    let options = match worker.described.of(service, method, worker.clock.now()) {
        Some(options) => options,
        None => asking.describe(live, original).await?,
    };
    let suits = options.methods[usize::from(method == IcapMethod::Respmod)];
    if !suits {
        worker.described.forget(service, method);
        return Err(Failure::Unsuitable.into());
    }
    if original.has_body() {
        // A slow sender is waited for before a place is taken.
        let preview = options.preview.map_or(0, |bytes| bytes.min(PIECE));
        original.gather(live, preview as u64).await.map_err(Stop::Broken)?;
        if options.preview.is_none() && original.is_longer_than(asking.settings(live).max_body) {
            return Err(Stop::TooLong);
        }
    }
    asking.options = Some(options);
    asking.persist(live, original).await
}

/// A service being asked.
struct Asking<'a> {
    pool: &'a Arc<Backend>,
    service: ProxyId,
    method: IcapMethod,
    want: Want,
    /// The service's description of itself; `None` while that is being asked for.
    options: Option<Rc<ServiceOptions>>,
}

impl<'a> Asking<'a> {
    fn settings(&self, live: &Live<'a, '_>) -> &'a Service {
        settings(&live.worker.shared, self.service)
    }

    /// Asks the service to describe itself.
    async fn describe(
        &mut self,
        live: &mut Live<'a, '_>,
        original: &mut Original<'_, '_>,
    ) -> Result<Rc<ServiceOptions>, Stop> {
        let transaction = self.persist(live, original).await?;
        let head = transaction.head().ok_or(Failure::Invalid)?;
        let worker = live.worker;
        Ok(worker.described.learn(self.service, self.method, ServiceOptions::of(head), worker.clock.now()))
    }

    /// Asks, and once more if nothing of an answer came: all that was read of the body is still here.
    async fn persist(&mut self, live: &mut Live<'a, '_>, original: &mut Original<'_, '_>) -> Result<Transaction, Stop> {
        match self.once(live, original, false).await {
            Err((Stop::Failure(Failure::Closed | Failure::Unreachable), true)) => {
                live.worker.counters().backend(self.service).retries.inc();
                self.once(live, original, true).await.map_err(|(stop, _)| stop)
            }
            result => result.map_err(|(stop, _)| stop),
        }
    }

    /// Asks one server; an error says whether another attempt may help.
    async fn once(
        &mut self,
        live: &mut Live<'a, '_>,
        original: &mut Original<'_, '_>,
        fresh: bool,
    ) -> Result<Transaction, (Stop, bool)> {
        let worker = live.worker;
        let mut place = place::obtain(live, self.pool, &mut self.want, fresh)
            .await
            .map_err(|failure| (failure.into(), failure == Failure::Unreachable))?;
        let server = place.server.clone();
        let _in_use = InUse::of(worker.cells(&server));
        let (mut transaction, fed) = self.begin(live, original, &place);
        let limits = Limits {
            service: worker.shared.config.proxies[self.service].timeouts.server,
            source: original.patience(live),
            max_body: self.settings(live).max_body,
        };
        let talked = converse(live, &mut place.stream, &mut transaction, original, fed, limits).await;
        let cells = worker.cells(&server);
        match talked {
            Ok(()) => {
                cells.requests.inc();
                self.observe(live, server.at, Seen::Response);
                self.heed(live, transaction.head());
                if transaction.is_reusable() {
                    place.keep(live);
                }
                Ok(transaction)
            }
            Err(stop) => {
                let again = !transaction.is_answered();
                if let Stop::Failure(failure) = stop {
                    // That a kept connection was closed is not a failure of the server.
                    let stale = again && failure == Failure::Closed && place.uses > 0;
                    if let Some(seen) = failure.seen().filter(|_| !stale) {
                        cells.response_errors.inc();
                        self.observe(live, server.at, seen);
                    }
                }
                Err((stop, again))
            }
        }
    }

    fn observe(&self, live: &Live<'_, '_>, at: ServerRef, seen: Seen) {
        live.worker.observe(at, seen);
    }

    /// Forgets what the service has said about itself if that has changed.
    fn heed(&self, live: &Live<'_, '_>, head: Option<&Head>) {
        let Some(options) = &self.options else { return };
        let istag = head.and_then(|head| head.get("istag"));
        if istag.is_some_and(|istag| istag != options.istag) {
            live.worker.described.forget(self.service, self.method);
        }
    }

    /// The request, and how much of the body it holds.
    fn begin(&self, live: &Live<'_, '_>, original: &Original<'_, '_>, place: &Place) -> (Transaction, u64) {
        let settings = settings(&live.worker.shared, self.service);
        let path = match self.method {
            IcapMethod::Respmod => settings.respmod.as_deref(),
            IcapMethod::Reqmod | IcapMethod::Options => settings.reqmod.as_deref(),
        };
        let host = match &place.key.target {
            penstock_backends::server::Target::Ip(address) => address.to_string(),
            _ => "localhost".to_owned(),
        };
        let mut fields = Vec::new();
        if let Some(client) = live.x.txn.source(&live.conn.facts) {
            fields.push(("X-Client-IP", client.ip().to_string()));
        }
        if let Some(server) = live.x.server_conn.dst.filter(|_| self.method == IcapMethod::Respmod) {
            fields.push(("X-Server-IP", server.ip().to_string()));
        }
        let described = self.options.is_none();
        let request = IcapRequest {
            method: if described { IcapMethod::Options } else { self.method },
            host: &host,
            path: path.unwrap_or("/"),
            fields: if described { &[] } else { &fields },
            scheme: if live.conn.facts.tls.is_some() { "https" } else { "http" },
            request: Some(&live.x.request),
            response: (self.method == IcapMethod::Respmod).then_some(&live.x.response),
        };
        let bytes = original.pieces.read(0);
        let start = match &self.options {
            None => Start::default(),
            Some(options) => Start {
                has_body: original.has_body(),
                bytes,
                complete: original.complete && bytes.len() as u64 == original.pieces.len(),
                preview: options.preview.map(|preview| preview.min(PIECE)),
                allow_206: options.allow_206,
            },
        };
        // An answer may be as long as a body that the service is sent, and a page longer.
        let answer_max = settings.max_body.saturating_add(PAGE);
        (Transaction::new(&request, start, live.conn.limits(), answer_max), bytes.len() as u64)
    }
}

/// Room for what a service adds to a body, or sends in its place.
const PAGE: u64 = 64 * 1024;

struct Limits {
    /// How long the service may be silent.
    service: Option<Duration>,
    /// How long the body's sender may be silent.
    source: Option<Duration>,
    max_body: u64,
}

/// The side that a conversation waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Service,
    Source,
}

/// Sends the request and reads the answer, both at once: a service may answer before it has read everything.
async fn converse(
    live: &mut Live<'_, '_>,
    stream: &mut Stream,
    transaction: &mut Transaction,
    original: &mut Original<'_, '_>,
    mut fed: u64,
    limits: Limits,
) -> Result<(), Stop> {
    let worker = live.worker;
    let mut input = worker.buffers.take_anyway();
    // Set once the service reads no more; it may have answered before.
    let mut deaf = false;
    let mut waited_for = None;
    let result = poll_fn(|cx| {
        let mut moved = false;
        loop {
            turn::round();
            let mut progress = false;
            if !deaf {
                match poll_write(cx, stream, transaction) {
                    Poll::Ready(Ok(written)) => progress |= written,
                    Poll::Ready(Err(())) => deaf = true,
                    Poll::Pending => {}
                }
            }
            match stream.poll_fill(cx, &mut input, usize::MAX) {
                Poll::Ready(Ok(Fill::Bytes(_))) => {
                    progress = true;
                    if let Err(missing) = original.loan.take(input.len()) {
                        return Poll::Ready(Err(Stop::Broken(Broken::Source(missing.into()))));
                    }
                    let taken = transaction.input(input.data());
                    input.clear();
                    if taken.is_err() {
                        return Poll::Ready(Err(Stop::Failure(Failure::Invalid)));
                    }
                    if transaction.is_done() {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(_) => return Poll::Ready(Err(Stop::Failure(Failure::Closed))),
                Poll::Pending => {}
            }
            let mut waits = Waits::Service;
            if !deaf && transaction.wants_body() && transaction.output().is_empty() {
                match poll_feed(cx, live.client, &worker.buffers, transaction, original, &mut fed, limits.max_body) {
                    Poll::Ready(Ok(())) => progress = true,
                    Poll::Ready(Err(stop)) => return Poll::Ready(Err(stop)),
                    Poll::Pending => waits = Waits::Source,
                }
            }
            if progress {
                moved = true;
                continue;
            }
            if live.client.poll_cancelled(cx).is_ready() {
                return Poll::Ready(Err(Stop::Gone));
            }
            if moved || waited_for != Some(waits) {
                waited_for = Some(waits);
                let limit = if waits == Waits::Service { limits.service } else { limits.source };
                live.conn.deadline.set(worker.clock.now(), limit);
            }
            return live.conn.deadline.poll_expired(cx).map(|()| {
                Err(match waits {
                    Waits::Service => Stop::Failure(Failure::Timeout),
                    Waits::Source => Stop::Broken(Broken::Late),
                })
            });
        }
    })
    .await;
    worker.buffers.give(input);
    result
}

/// Sends what is due; whether anything was sent.
fn poll_write(cx: &mut Context<'_>, stream: &mut Stream, transaction: &mut Transaction) -> Poll<Result<bool, ()>> {
    if transaction.output().is_empty() {
        return stream.poll_flush_all(cx).map(|flushed| flushed.map(|()| false).map_err(drop));
    }
    Pin::new(stream).poll_write(cx, transaction.output()).map(|written| match written {
        Ok(bytes) if bytes > 0 => {
            transaction.sent(bytes);
            Ok(true)
        }
        _ => Err(()),
    })
}

/// Gives the service more of the body: what was kept first, then what its source has.
fn poll_feed(
    cx: &mut Context<'_>,
    client: &mut dyn Client,
    buffers: &Buffers,
    transaction: &mut Transaction,
    original: &mut Original<'_, '_>,
    fed: &mut u64,
    max_body: u64,
) -> Poll<Result<(), Stop>> {
    if original.is_longer_than(max_body) {
        return Poll::Ready(Err(Stop::TooLong));
    }
    let kept = original.pieces.read(*fed);
    if !kept.is_empty() {
        *fed += kept.len() as u64;
        transaction.body(kept);
        return Poll::Ready(Ok(()));
    }
    if original.complete {
        transaction.end_body();
        return Poll::Ready(Ok(()));
    }
    original.poll_more(cx, client, buffers).map_err(|fault: Fault| Stop::Broken(Broken::Source(fault)))
}
