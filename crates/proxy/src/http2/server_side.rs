//! A server's connection that carries many exchanges, and the end of one of them.

use super::{
    client_side::{fault, io_error, poll_send_body},
    connection::{SEND_BUFFER, SMALL_DATA, header_list_size},
    convert::{read_response, read_trailers, write_request},
    guard::{Guard, Signals},
    websocket::{self, Greeting},
};
use crate::{
    connection::stream::Stream,
    exchange::ends::{Answered, Body, Counts, End, Fault, Sink, Source, Upstream},
    http1::body::{VERSION, weight},
    observe::counters::Cells,
    reuse::{Claim, Key, Offer, Session, may_go_on},
    server::ServerRef,
    worker::{buffer::Buffer, pulse::Who, state::Worker, task, turn},
};
use bytes::{Buf, Bytes};
use h2::{
    Reason, RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::Request;
use penstock_config::model::H2Tune;
use penstock_http::{Error, Fields, Framing, Known, Limits, RequestHead, ResponseHead};
use penstock_rules::ServerConnFacts;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Instant;

/// A connection to a server, shared by exchanges. It ends when the last of its handles does.
pub(crate) struct Mux {
    send: SendRequest<Bytes>,
    scheme: &'static str,
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
    signals: Rc<Signals>,
}

/// So many exchanges in a row without an answer, and the connection gets no more: its server may have gone without a
/// word, and every exchange would wait for a timeout. Clients that change their minds rarely do so this often in a row.
const UNANSWERED_MAX: u32 = 3;

impl Mux {
    /// Starts HTTP/2 on a fresh connection.
    pub async fn open(
        worker: &Rc<Worker>,
        stream: Stream,
        facts: ServerConnFacts,
        tune: &H2Tune,
        limits: &Limits,
    ) -> Result<Rc<Mux>, Fault> {
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
        task::spawn(worker, Who::Server { peer: facts.dst }, async move {
            // Whatever ended it, each exchange on it is told for itself.
            let _ = poll_fn(|cx| {
                let polled = Pin::new(&mut connection).poll(cx);
                told.outlet.turn_over();
                polled
            })
            .await;
            ended.set(true);
        });
        Ok(Rc::new(Mux {
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
        }))
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

/// What is open, by server and by what would have opened it.
type OpenConnections = HashMap<ServerRef, Vec<(Key, Rc<Mux>)>>;

/// The shared connections of one worker.
#[derive(Default)]
pub(crate) struct MuxPool {
    open: RefCell<OpenConnections>,
}

impl MuxPool {
    /// A connection with room for another exchange that this request may have.
    pub fn take(&self, worker: &Worker, key: &Key, claim: &Claim) -> Option<Rc<Mux>> {
        let open = self.open.borrow();
        let list = open.get(&key.at).filter(|list| !list.is_empty())?;
        let settings = &worker.shared.config.proxies[key.at.proxy].servers[key.at.server].settings;
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
    pub fn settle(&self, worker: &Worker, at: ServerRef, mux: &Rc<Mux>) {
        let settings = &worker.shared.config.proxies[at.proxy].servers[at.server].settings;
        let bounded = settings.max_reuse >= 0 || settings.pool_max_conn >= 0;
        if !bounded || mux.open.get() > 0 {
            return;
        }
        let idle = |list: &Vec<(Key, Rc<Mux>)>| list.iter().filter(|(_, mux)| mux.open.get() == 0).count();
        let too_many = self.open.borrow().get(&at).map_or(0, idle) > worker.share_of_idle(settings);
        if too_many || !may_go_on(settings, mux.begun()) {
            self.withdraw(at, mux);
        }
    }
    /// Lets go of what has ended, of what leads to where a server is no more, and of what nobody used for `pool-purge-delay`.
    pub fn purge(&self, worker: &Worker) {
        let now = Instant::now();
        for (at, list) in self.open.borrow_mut().iter_mut() {
            let delay = worker.shared.config.proxies[at.proxy].servers[at.server].settings.pool_purge_delay;
            let idle_too_long = |mux: &Mux| mux.open.get() == 0 && now - mux.since.get() >= delay.max(PURGE_MIN);
            list.retain(|(key, mux)| {
                mux.is_open() && !idle_too_long(mux) && !worker.shared.backends.has_left(*at, &key.target)
            });
        }
    }
    /// Lets go of all of them: they end with their exchanges.
    pub fn clear(&self) {
        self.open.borrow_mut().clear();
    }
}

/// A connection just opened for an exchange is not idle yet.
const PURGE_MIN: Duration = Duration::from_secs(1);

/// One exchange on a server's connection.
pub(crate) struct Http2Server {
    mux: Rc<Mux>,
    send: SendRequest<Bytes>,
    outbound: Outbound,
    response: Option<ResponseFuture>,
    inbound: Option<RecvStream>,
    rest: Bytes,
    trailers: Option<Fields>,
    limits: Limits,
    head_request: bool,
    /// The key of a client that wants a WebSocket. Until there is one or it is refused, the request's end is withheld: in
    /// an extended CONNECT it would end the tunnel.
    websocket: Option<Vec<u8>>,
    answered: bool,
    counts: Counts,
}

enum Outbound {
    /// There is none yet, or it cannot be sent so.
    None(Option<Error>),
    /// Its head waits for what follows it, so that a request without a body is one frame.
    Head(Request<()>),
    Body(SendStream<Bytes>),
    Ended,
}

impl Http2Server {
    pub fn new(mux: Rc<Mux>, session: Session, limits: Limits) -> Self {
        if mux.open.get() == 0 {
            mux.holder.set(session);
        }
        mux.open.set(mux.open.get() + 1);
        mux.begun.set(mux.begun.get() + 1);
        Http2Server {
            send: mux.send.clone(),
            mux,
            outbound: Outbound::None(None),
            response: None,
            inbound: None,
            rest: Bytes::new(),
            trailers: None,
            limits,
            head_request: false,
            websocket: None,
            answered: false,
            counts: Counts::default(),
        }
    }
    fn begin(&mut self, inbound: RecvStream, head: &mut ResponseHead) -> Result<Framing, Error> {
        if let Some(key) = self.websocket.take()
            && head.status() == 200
        {
            // To a client of HTTP/1.1 this is the end of its upgrade; to one of HTTP/2 it becomes a 200 again.
            head.set_status(101);
            head.fields.set(b"connection", b"upgrade")?;
            head.fields.set(b"upgrade", b"websocket")?;
            head.fields.set(b"sec-websocket-accept", websocket::accept(&key).as_bytes())?;
            self.inbound = Some(inbound);
            return Ok(Framing::Tunnel);
        }
        let bodiless = self.head_request || matches!(head.status(), 204 | 304) || inbound.is_end_stream();
        let framing = match head.fields.known(Known::ContentLength) {
            // The server is held to it by h2; what it says is checked like any other.
            Some(_) => match penstock_http::response_framing(head, b"GET", false)? {
                _ if bodiless => Framing::None,
                framing => framing,
            },
            None if bodiless => {
                if !self.head_request && !matches!(head.status(), 204 | 304) {
                    head.fields.append(b"content-length", b"0")?;
                }
                Framing::None
            }
            None => {
                // Of HTTP/1 clients only; those of HTTP/2 never see it.
                head.fields.append(b"transfer-encoding", b"chunked")?;
                Framing::Chunked
            }
        };
        self.inbound = Some(inbound);
        Ok(framing)
    }
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        self.mux.open.set(self.mux.open.get() - 1);
        self.mux.uses.set(self.mux.uses.get() + 1);
        self.mux.since.set(Instant::now());
        self.mux.unanswered.set(if self.answered { 0 } else { self.mux.unanswered.get() + 1 });
        if let Outbound::Body(stream) = &mut self.outbound {
            stream.send_reset(Reason::CANCEL);
        }
    }
}

impl Source for Http2Server {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let before = buffer.len();
        let Some(inbound) = &mut self.inbound else { return Poll::Ready(Ok(Body::End)) };
        loop {
            turn::round();
            let taken = buffer.append(&self.rest);
            self.rest.advance(taken);
            self.counts.received += taken as u64;
            if taken > 0 {
                inbound.flow_control().release_capacity(taken).map_err(fault)?;
            }
            if !self.rest.is_empty() {
                return Poll::Ready(Ok(Body::grown(buffer, before)));
            }
            if inbound.is_end_stream() {
                return Poll::Ready(Ok(Body::End));
            }
            match inbound.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => self.rest = data,
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(fault(e))),
                Poll::Ready(None) => match ready!(inbound.poll_trailers(cx)) {
                    Ok(trailers) => {
                        let read = |map| read_trailers(map, &self.limits);
                        self.trailers = trailers.as_ref().map(read).transpose()?;
                        return Poll::Ready(Ok(Body::End));
                    }
                    Err(e) => return Poll::Ready(Err(fault(e))),
                },
                Poll::Pending if buffer.len() > before => return Poll::Ready(Ok(Body::grown(buffer, before))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }
}

impl Sink for Http2Server {
    fn may_refill(&self) -> bool {
        true
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        if let Outbound::Head(_) = self.outbound {
            // More exchanges than the server takes at once wait here for their turn.
            ready!(self.send.poll_ready(cx)).map_err(io_error)?;
            let Outbound::Head(request) = std::mem::replace(&mut self.outbound, Outbound::Ended) else {
                unreachable!("looked at a line before")
            };
            let whole = self.websocket.is_none() && buffer.is_empty() && end.is_some_and(|end| end.trailers.is_none());
            let (response, stream) = self.send.send_request(request, whole).map_err(io_error)?;
            self.response = Some(response);
            self.mux.signals.asked();
            if !whole {
                self.outbound = Outbound::Body(stream);
            }
        }
        match &mut self.outbound {
            Outbound::Body(_) if self.websocket.is_some() && buffer.is_empty() => Poll::Ready(Ok(())),
            Outbound::Body(stream) => {
                if ready!(poll_send_body(stream, cx, buffer, end, &mut self.counts.sent, &self.mux.signals))? {
                    self.outbound = Outbound::Ended;
                }
                Poll::Ready(Ok(()))
            }
            Outbound::Ended => {
                buffer.clear();
                Poll::Ready(Ok(()))
            }
            Outbound::None(_) | Outbound::Head(_) => Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
        }
    }
}

impl Upstream for Http2Server {
    fn request(&mut self, head: &mut RequestHead, _: Framing) {
        self.head_request = head.method() == b"HEAD";
        if websocket::is_asked_for(head) {
            self.websocket = Some(head.fields.known(Known::SecWebsocketKey).unwrap_or_default().to_vec());
        }
        self.counts.sent += head.fields.wire_len() as u64;
        self.outbound = match write_request(head, self.mux.scheme) {
            Ok(request) => Outbound::Head(request),
            Err(e) => Outbound::None(Some(e)),
        };
    }
    fn poll_head(&mut self, cx: &mut Context<'_>, head: &mut ResponseHead) -> Poll<Result<Framing, Fault>> {
        let Some(response) = &mut self.response else {
            return match self.outbound {
                Outbound::None(Some(e)) => Poll::Ready(Err(Fault::Invalid(e))),
                _ => Poll::Pending,
            };
        };
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            let interim = interim.map_err(fault)?;
            self.answered = true;
            read_response(&interim, head, &self.limits)?;
            if !head.is_interim() {
                // RFC 9113 section 8.6: HTTP/2 has no 101.
                return Poll::Ready(Err(Fault::Invalid(Error::Unexpected)));
            }
            self.counts.received += weight(VERSION + 3, &head.fields);
            return Poll::Ready(Ok(Framing::None));
        }
        let response = ready!(Pin::new(response).poll(cx)).map_err(fault)?;
        self.answered = true;
        self.response = None;
        read_response(&response, head, &self.limits)?;
        self.counts.received += weight(VERSION + 3, &head.fields);
        Poll::Ready(self.begin(response.into_body(), head).map_err(Fault::Invalid))
    }
    fn answered(&self) -> Answered {
        if self.answered { Answered::Head } else { Answered::Nothing }
    }
    fn tunnel(&mut self) {
        // DATA frames carry the bytes both ways, whatever they mean.
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
