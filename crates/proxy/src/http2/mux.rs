//! Connections to servers that carry many exchanges at a time, and those of them that a worker's clients share.

use super::{
    guard::{Guard, Signals},
    send::fault,
    tuning::{SEND_BUFFER, SMALL_DATA, header_list_size},
    websocket::Greeting,
};
use crate::{
    connection::stream::Stream,
    exchange::ends::Fault,
    observe::counters::Cells,
    process::shared::Shared,
    server::{Server, ServerRef},
};
use bytes::Bytes;
use h2::client::{self, SendRequest};
use penstock_backends::reuse::{Claim, Key, Offer, Session, may_go_on};
use penstock_config::model::{H2Tune, ServerSettings};
use penstock_http::Limits;
use penstock_rules::ServerConnFacts;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// A connection to a server, shared by exchanges. It ends when the last of its handles does.
pub(crate) struct Mux {
    pub(super) send: SendRequest<Bytes>,
    pub(super) scheme: &'static str,
    facts: ServerConnFacts,
    /// Exchanges on it now.
    open: Cell<usize>,
    /// The client of the first of them.
    holder: Cell<Session>,
    /// Exchanges that were begun on it.
    begun: Cell<u64>,
    /// Exchanges it has carried to their end.
    uses: Cell<u64>,
    /// When it last had one.
    since: Cell<Instant>,
    closed: Rc<Cell<bool>>,
    /// Exchanges that ended without an answer since the last that had one.
    unanswered: Cell<u32>,
    limit: usize,
    greeting: Greeting,
    pub(super) signals: Rc<Signals>,
}

/// So many exchanges in a row without an answer, and the connection gets no more: its server may have gone without a
/// word, and every exchange would wait for a timeout. Clients that change their minds rarely do so this often in a row.
const UNANSWERED_MAX: u32 = 3;

impl Mux {
    /// Starts HTTP/2 on a fresh connection. What is returned beside it carries its bytes, and is to run as a task for as long
    /// as it lasts.
    ///
    /// # Errors
    /// When the server does not take the preface.
    pub async fn open(
        stream: Stream,
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
            .handshake(guard);
        let (send, mut connection) = handshake.await.map_err(fault)?;
        let greeting = Greeting::new(connection.ping_pong());
        let closed = Rc::new(Cell::new(false));
        let (ended, told) = (closed.clone(), signals.clone());
        let driver = async move {
            // Whatever ended it, each exchange on it is told for itself.
            let _ = poll_fn(|cx| {
                let polled = Pin::new(&mut connection).poll(cx);
                told.outlet.turn_over();
                polled
            })
            .await;
            ended.set(true);
        };
        let mux = Rc::new(Mux {
            send,
            scheme,
            facts: ServerConnFacts { http_major: 2, ..facts },
            open: Cell::new(0),
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
    /// An exchange begins on it, of that client.
    pub fn enter(&self, session: Session) {
        if self.open.get() == 0 {
            self.holder.set(session);
        }
        self.open.set(self.open.get() + 1);
        self.begun.set(self.begun.get() + 1);
    }
    /// An exchange on it has ended, with or without an answer.
    pub fn leave(&self, answered: bool) {
        self.open.set(self.open.get() - 1);
        self.uses.set(self.uses.get() + 1);
        self.since.set(Instant::now());
        self.unanswered.set(if answered { 0 } else { self.unanswered.get() + 1 });
    }
    /// The connection as rules and logs see it.
    pub fn facts(&self) -> &ServerConnFacts {
        &self.facts
    }
    fn offer(&self) -> Offer {
        let running = (self.open.get() > 0).then(|| self.holder.get());
        Offer { carried: self.uses.get(), running, multiplexed: true }
    }
    /// Exchanges it has carried before those that run.
    pub fn uses(&self) -> u64 {
        self.uses.get()
    }
    /// Whether the server takes extended CONNECT, once it has had the time to say so.
    pub async fn takes_websockets(&self) -> bool {
        if !self.send.is_extended_connect_protocol_enabled() {
            self.greeting.wait().await;
        }
        self.send.is_extended_connect_protocol_enabled()
    }
    /// An exchange may still be begun on it, now or later.
    pub fn is_open(&self) -> bool {
        !self.closed.get() && self.unanswered.get() < UNANSWERED_MAX
    }
    /// Exchanges that were begun on it.
    pub fn begun(&self) -> u64 {
        self.begun.get()
    }
    /// Another exchange may begin on it now.
    pub fn has_room(&self) -> bool {
        !self.closed.get()
            && self.unanswered.get() < UNANSWERED_MAX
            && self.open.get() < self.limit.min(self.send.current_max_send_streams())
    }
}

/// A connection to a server while exchanges run on it, which count it once.
pub(crate) struct MuxInUse<'a> {
    cells: &'a Cells,
    mux: Rc<Mux>,
}

impl<'a> MuxInUse<'a> {
    /// Before an exchange begins on it; to be dropped after that.
    pub fn of(cells: &'a Cells, mux: &Rc<Mux>) -> Self {
        if mux.open.get() == 0 {
            cells.used_connections.inc();
            cells.needed_connections.raise(cells.used_connections.read());
        }
        MuxInUse { cells, mux: mux.clone() }
    }
}

impl Drop for MuxInUse<'_> {
    fn drop(&mut self) {
        if self.mux.open.get() == 0 {
            self.cells.used_connections.dec();
        }
    }
}

/// As towards clients: what all responses together may have in flight.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Whether a connection to a server that was just opened carries HTTP/2: said by `proto h2`, or agreed on by ALPN.
pub(crate) fn is_spoken_by(stream: &Stream, settings: &ServerSettings) -> bool {
    match stream.tls().and_then(|tls| tls.alpn.as_deref()) {
        Some(alpn) => alpn == b"h2",
        None => settings.proto.as_deref() == Some("h2"),
    }
}

/// What is open, by server and by what would have opened it.
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
    /// A connection with room for another exchange that this request may have.
    pub fn take(&self, server: &Server, key: &Key, claim: &Claim) -> Option<Rc<Mux>> {
        let open = self.open.borrow();
        let list = open.get(&key.at).filter(|list| !list.is_empty())?;
        let settings = &server.config.settings;
        let usable = |(fits, mux): &&(Key, Rc<Mux>)| {
            fits == key && mux.has_room() && may_go_on(settings, mux.begun()) && claim.may_have(&mux.offer())
        };
        list.iter().find(usable).map(|(_, mux)| mux.clone())
    }
    /// Lets others use a connection.
    pub fn share(&self, key: Key, mux: Rc<Mux>) {
        self.open.borrow_mut().entry(key.at).or_default().push((key, mux));
    }
    /// Lets nobody else use it.
    pub fn withdraw(&self, at: ServerRef, mux: &Rc<Mux>) {
        if let Some(list) = self.open.borrow_mut().get_mut(&at) {
            list.retain(|(_, shared)| !Rc::ptr_eq(shared, mux));
        }
    }
    /// An exchange has ended: the connection goes where it is the server's last permitted one, or one idle too many.
    pub fn settle(&self, server: &Server, mux: &Rc<Mux>) {
        let (at, settings) = (server.at, &server.config.settings);
        let bounded = settings.max_reuse >= 0 || settings.pool_max_conn >= 0;
        if !bounded || mux.open.get() > 0 {
            return;
        }
        let idle = |list: &Vec<(Key, Rc<Mux>)>| list.iter().filter(|(_, mux)| mux.open.get() == 0).count();
        let too_many = self.open.borrow().get(&at).map_or(0, idle) > self.shared.share_of_idle(settings);
        if too_many || !may_go_on(settings, mux.begun()) {
            self.withdraw(at, mux);
        }
    }
    /// Lets go of what has ended, of what leads to where a server is no more, and of what nobody used for `pool-purge-delay`.
    pub fn purge(&self) {
        let now = Instant::now();
        self.open.borrow_mut().retain(|at, list| {
            let Some(server) = self.shared.backends.server(*at) else { return false };
            let delay = server.config.settings.pool_purge_delay;
            let idle_too_long = |mux: &Mux| mux.open.get() == 0 && now - mux.since.get() >= delay.max(PURGE_MIN);
            list.retain(|(key, mux)| {
                mux.is_open() && !idle_too_long(mux) && !self.shared.backends.has_left(*at, &key.target)
            });
            !list.is_empty()
        });
    }
    /// Lets go of all of them: they end with their exchanges.
    pub fn clear(&self) {
        self.open.borrow_mut().clear();
    }
}

/// A connection just opened for an exchange is not idle yet.
const PURGE_MIN: Duration = Duration::from_secs(1);
