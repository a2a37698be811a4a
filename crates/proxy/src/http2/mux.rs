//! Connections to servers that carry many exchanges at a time, and the pool of those that a worker's clients share.

use super::{
    guard::{Guard, Signals},
    send::fault,
    tuning::{SEND_BUFFER, SMALL_DATA, header_list_size},
    websocket::Greeting,
};
use crate::{
    connection::stream::Stream,
    exchange::ends::Fault,
    observe::{
        counters::Cells,
        http_counters::{Protocol, Tally},
    },
    process::shared::Shared,
    server::{Server, ServerRef},
};
use bytes::Bytes;
use foldhash::HashMap;
use h2::client::{self, SendRequest};
use penstock_backends::reuse::{Claim, Key, Offer, Session, may_go_on};
use penstock_config::model::{H2Tune, ServerSettings};
use penstock_http::Limits;
use penstock_rules::ServerConnFacts;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// A connection to a server, shared by exchanges. It ends when its last handle is dropped.
pub(crate) struct Mux {
    pub(super) send: SendRequest<Bytes>,
    pub(super) scheme: &'static str,
    facts: ServerConnFacts,
    /// The client of the first exchange that is running.
    holder: Cell<Session>,
    /// Exchanges started on the connection so far.
    begun: Cell<u64>,
    /// Exchanges completed on the connection so far.
    uses: Cell<u64>,
    /// When the last exchange ended.
    since: Cell<Instant>,
    closed: Rc<Cell<bool>>,
    /// Exchanges in a row that ended without a response.
    unanswered: Cell<u32>,
    limit: usize,
    greeting: Greeting,
    pub(super) signals: Rc<Signals>,
}

/// After this many exchanges in a row without a response, the connection is not used again: its server may have
/// vanished silently, and every exchange would wait for a timeout. Clients rarely cancel this often in a row.
const UNANSWERED_MAX: u32 = 3;

impl Mux {
    /// Starts HTTP/2 on a fresh connection. The future that is also returned moves its bytes, and has to run as a task
    /// for as long as the connection lasts.
    ///
    /// # Errors
    ///
    /// If the server does not take the preface.
    pub async fn open(
        stream: Stream,
        tally: Tally,
        facts: ServerConnFacts,
        tune: &H2Tune,
        limits: &Limits,
    ) -> Result<(Rc<Mux>, impl Future<Output = ()> + use<>), Fault> {
        let scheme = if stream.tls().is_some() { "https" } else { "http" };
        let (guard, signals) = Guard::of_server(stream);
        let handshake = client::Builder::new()
            .initial_window_size(tune.initial_window_size)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(tune.max_frame_size.clamp(16_384, (1 << 24) - 1))
            .max_header_list_size(header_list_size(limits))
            .max_send_buffer_size(SEND_BUFFER)
            .data_frame_budget(SMALL_DATA)
            .enable_push(false)
            .handshake(guard.counting(tally).tolerating(tune.glitches_threshold));
        let (send, mut connection) = handshake.await.map_err(fault)?;
        let greeting = Greeting::new(connection.ping_pong());
        let closed = Rc::new(Cell::new(false));
        let (ended, told, closing) = (closed.clone(), signals.clone(), signals.clone());
        let driver = async move {
            // Whatever ended it, each exchange on it receives its own error.
            let _ = poll_fn(|cx| {
                let polled = Pin::new(&mut connection).poll(cx);
                told.outlet.turn_over();
                polled
            })
            .await;
            closing.outlet.close();
            ended.set(true);
        };
        let mux = Rc::new(Mux {
            send,
            scheme,
            facts: ServerConnFacts { http_major: 2, mux: Some(signals.mux.clone()), ..facts },
            holder: Cell::new(0),
            begun: Cell::new(0),
            uses: Cell::new(0),
            since: Cell::new(Instant::now()),
            closed,
            unanswered: Cell::new(0),
            limit: tune.max_concurrent_streams as usize,
            greeting,
            signals,
        });
        Ok((mux, driver))
    }
    /// Records that an exchange of this client starts.
    pub fn enter(&self, session: Session) {
        if self.running() == 0 {
            self.holder.set(session);
        }
        self.signals.set_open(self.running() + 1);
        let limit = self.limit.min(self.send.current_max_send_streams());
        self.signals.mux.streams_limit.store(u32::try_from(limit).unwrap_or(u32::MAX), Relaxed);
        self.begun.set(self.begun.get() + 1);
    }
    /// Records that an exchange has ended, with or without a response.
    pub fn leave(&self, answered: bool) {
        self.signals.set_open(self.running() - 1);
        self.uses.set(self.uses.get() + 1);
        self.since.set(Instant::now());
        self.unanswered.set(if answered { 0 } else { self.unanswered.get() + 1 });
    }
    /// What rules and logs can see of the connection.
    pub fn facts(&self) -> &ServerConnFacts {
        &self.facts
    }
    fn offer(&self) -> Offer {
        let running = (self.running() > 0).then(|| self.holder.get());
        Offer { carried: self.uses.get(), running, multiplexed: true }
    }
    /// Whether the server accepts extended CONNECT, once its settings have arrived.
    pub async fn takes_websockets(&self) -> bool {
        if !self.send.is_extended_connect_protocol_enabled() {
            self.greeting.wait().await;
        }
        self.send.is_extended_connect_protocol_enabled()
    }
    /// Whether further exchanges may start on the connection, now or later.
    pub fn is_open(&self) -> bool {
        !self.closed.get() && self.signals.failure().is_none() && self.unanswered.get() < UNANSWERED_MAX
    }
    /// Exchanges running on the connection.
    fn running(&self) -> usize {
        self.signals.open()
    }
    /// Exchanges started on the connection so far.
    pub fn begun(&self) -> u64 {
        self.begun.get()
    }
    /// Whether another exchange may start on it now.
    pub fn has_room(&self) -> bool {
        self.is_open() && self.running() < self.limit.min(self.send.current_max_send_streams())
    }
}

/// A connection to a server that counts as in use, once however many exchanges run on it.
pub(crate) struct MuxInUse<'a> {
    cells: &'a Cells,
    mux: Rc<Mux>,
}

impl<'a> MuxInUse<'a> {
    /// To be created before an exchange starts on the connection, and dropped after it.
    pub fn of(cells: &'a Cells, mux: &Rc<Mux>) -> Self {
        if mux.running() == 0 {
            cells.used_connections.inc();
            cells.needed_connections.raise(cells.used_connections.read());
        }
        MuxInUse { cells, mux: mux.clone() }
    }
}

impl Drop for MuxInUse<'_> {
    fn drop(&mut self) {
        if self.mux.running() == 0 {
            self.cells.used_connections.dec();
        }
    }
}

/// Window for the data that all responses together may have in flight.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Whether a newly opened connection to a server carries HTTP/2, by `proto h2` or ALPN.
pub(crate) fn is_spoken_by(stream: &Stream, settings: &ServerSettings) -> bool {
    match stream.tls().and_then(|tls| tls.alpn.as_deref()) {
        Some(alpn) => alpn == b"h2",
        None => settings.proto.as_deref() == Some("h2"),
    }
}

/// The protocol of a clear-text connection to a server.
pub(crate) fn expected(settings: &ServerSettings, only_http1: bool) -> Protocol {
    let http2 = !only_http1 && settings.proto.as_deref() == Some("h2");
    if http2 { Protocol::Http2 } else { Protocol::Http1 }
}

/// Open connections, by server and by the key they were opened with.
type OpenConnections = HashMap<ServerRef, Vec<(Key, Rc<Mux>)>>;

/// The shared connections of one worker.
pub(crate) struct MuxPool {
    open: RefCell<OpenConnections>,
    shared: Arc<Shared>,
}

impl MuxPool {
    pub fn new(shared: Arc<Shared>) -> Self {
        MuxPool { open: RefCell::default(), shared }
    }
    /// Finds a connection that this request may use and that has room for another exchange.
    pub fn take(&self, server: &Server, key: &Key, claim: &Claim) -> Option<Rc<Mux>> {
        let open = self.open.borrow();
        let list = open.get(&key.at).filter(|list| !list.is_empty())?;
        let settings = &server.config.settings;
        let usable = |(fits, mux): &&(Key, Rc<Mux>)| {
            fits == key && mux.has_room() && may_go_on(settings, mux.begun()) && claim.may_have(&mux.offer())
        };
        list.iter().find(usable).map(|(_, mux)| mux.clone())
    }
    /// Makes a connection available to other requests.
    pub fn share(&self, key: Key, mux: Rc<Mux>) {
        self.open.borrow_mut().entry(key.at).or_default().push((key, mux));
    }
    /// Makes a connection unavailable to other requests.
    pub fn withdraw(&self, at: ServerRef, mux: &Rc<Mux>) {
        if let Some(list) = self.open.borrow_mut().get_mut(&at) {
            list.retain(|(_, shared)| !Rc::ptr_eq(shared, mux));
        }
    }
    /// Called after an exchange: drops the connection if its server allows no more uses, or if it is one idle
    /// connection too many.
    pub fn settle(&self, server: &Server, mux: &Rc<Mux>) {
        let (at, settings) = (server.at, &server.config.settings);
        let bounded = settings.max_reuse >= 0 || settings.pool_max_conn >= 0;
        if !bounded || mux.running() > 0 {
            return;
        }
        let idle = |list: &Vec<(Key, Rc<Mux>)>| list.iter().filter(|(_, mux)| mux.running() == 0).count();
        let too_many = self.open.borrow().get(&at).map_or(0, idle) > self.shared.share_of_idle(settings);
        if too_many || !may_go_on(settings, mux.begun()) {
            self.withdraw(at, mux);
        }
    }
    /// Drops connections that have ended, whose server's address is no longer valid, or that were not used for
    /// `pool-purge-delay`.
    pub fn purge(&self) {
        let now = Instant::now();
        self.open.borrow_mut().retain(|at, list| {
            let Some(server) = self.shared.backends.server(*at) else { return false };
            let delay = server.config.settings.pool_purge_delay;
            let idle_too_long = |mux: &Mux| mux.running() == 0 && now - mux.since.get() >= delay.max(PURGE_MIN);
            list.retain(|(key, mux)| mux.is_open() && !idle_too_long(mux) && !self.shared.backends.has_left(key));
            !list.is_empty()
        });
    }
    /// Drops all of them: each ends with its last exchange.
    pub fn clear(&self) {
        self.open.borrow_mut().clear();
    }
}

/// A connection that was just opened for an exchange is not idle yet.
const PURGE_MIN: Duration = Duration::from_secs(1);
