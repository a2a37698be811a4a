//! A client's HTTP/2 connection: accepts streams, starts an exchange for each, and ends when it is no longer needed.

use super::{
    client_side::Http2Client,
    convert::read_request,
    guard::{Guard, Signals},
    tuning::{SEND_BUFFER, SMALL_DATA, header_list_size},
};
use crate::{
    connection::{
        Carrier, Conn, IDLE_AFTER, close, in_time,
        stream::{Fill, Stream},
    },
    exchange::{self, finish, live::Live, state::Exchange},
    observe::http_counters::{Protocol, Running, Side},
    worker::{
        pulse::Who,
        state::Worker,
        task,
        turn::{self, ClientTime, cost},
    },
};
use bytes::Bytes;
use h2::{Reason, RecvStream, server};
use http::Request;
use penstock_http::Limits;
use penstock_rules::Session;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    task::{Poll, Waker, ready},
    time::Duration,
};
use tokio::time::Instant;

type Connection = server::Connection<Guard<Stream>, Bytes>;
type Accepted = (Request<RecvStream>, server::SendResponse<Bytes>);

/// The streams of one connection that have an exchange, and the idle tasks that once served one.
///
/// A task takes some 3 KiB for all its possible states: reusing it for one stream after another costs less than
/// creating one for each (measured: 12 % of the instructions of a small request). A connection keeps its tasks during
/// short pauses between requests, and drops them once it is idle.
struct Streams {
    signals: Rc<Signals>,
    share: Rc<ClientTime>,
    /// The waker of the connection's task, which measures idleness.
    idle: RefCell<Option<Waker>>,
    resting: RefCell<Vec<Rc<Task>>>,
    /// When a stream last began or ended: as in HAProxy, what the next one has waited for is counted from then.
    changed: Cell<Option<Instant>>,
    /// Whether no further stream will come.
    ended: Cell<bool>,
}

impl Streams {
    fn new(signals: Rc<Signals>) -> Self {
        Streams {
            signals,
            share: Rc::default(),
            idle: RefCell::default(),
            resting: RefCell::default(),
            changed: Cell::default(),
            ended: Cell::default(),
        }
    }
    fn open(&self) -> usize {
        self.signals.open()
    }
    fn enter(self: &Rc<Self>) -> Entered {
        self.signals.set_open(self.open() + 1);
        Entered(self.clone())
    }
    fn wake_when_idle(&self, waker: &Waker) {
        let mut idle = self.idle.borrow_mut();
        if !idle.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *idle = Some(waker.clone());
        }
    }
    /// Ends the idle tasks.
    fn dismiss(&self) {
        for task in self.resting.take() {
            task.give(None);
        }
    }
}

/// Counts one open stream of the connection until dropped.
struct Entered(Rc<Streams>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.signals.streams.give_share(self.0.open());
        self.0.signals.set_open(self.0.open() - 1);
        if self.0.open() == 0
            && let Some(waker) = self.0.idle.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// The input of a task: a stream, and the connection's session, request count and times when it began.
struct Job {
    request: Request<RecvStream>,
    path: Option<Box<[u8]>>,
    respond: server::SendResponse<Bytes>,
    session: Session,
    requests: u64,
    accepted: Instant,
    handshake_ms: i64,
    entered: Entered,
}

/// A slot in which an idle task receives its next job, or learns that there is none.
#[derive(Default)]
struct Task {
    job: RefCell<Option<Option<Job>>>,
    waker: RefCell<Option<Waker>>,
}

impl Task {
    fn give(&self, job: Option<Job>) {
        *self.job.borrow_mut() = Some(job);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
    /// Waits until there is a job to take; false if there will be none.
    async fn has_job(&self) -> bool {
        poll_fn(|cx| match &*self.job.borrow() {
            Some(job) => Poll::Ready(job.is_some()),
            None => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// Window for the data that all streams of a connection may send us together.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How long the client may take to receive our last GOAWAY.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves a connection whose client speaks HTTP/2, by ALPN, by `proto h2`, or because its first bytes say so.
///
/// `begun` holds the bytes that were read already.
pub(crate) async fn run(mut conn: Box<Conn<'_>>, stream: Stream, begun: Vec<u8>) {
    conn.facts.http_major = 2;
    let limits = conn.limits();
    // State that only the start needs is on the heap no longer than that, since idle connections have to be small.
    let Some(mut client) = Box::pin(open(&mut conn, stream, begun, limits)).await else { return };
    while let Some(accepted) = client.next(&mut conn).await {
        client.start(&mut conn, accepted, limits);
    }
}

/// Reads the preface and sends our settings.
async fn open(conn: &mut Conn<'_>, mut stream: Stream, mut begun: Vec<u8>, limits: Limits) -> Option<Box<Connected>> {
    let first = conn.patience();
    conn.deadline.set(Instant::now(), first);
    if !preface(conn, &mut stream, &mut begun).await {
        return None;
    }
    let table_size = conn.worker.shared.config.global.tune.h2_header_table_size;
    let (guard, signals) = Guard::of_client(stream, begun, table_size);
    signals.count_in(&conn.worker.shared.memory);
    let tally = conn.worker.tally(conn.frontend, Side::Frontend, Protocol::Http2);
    let tune = &conn.worker.shared.config.global.tune.h2_fe;
    signals.mux.streams_limit.store(tune.max_concurrent_streams, Relaxed);
    conn.facts.mux = Some(signals.mux.clone());
    let guard = guard.counting(tally).tolerating(tune.glitches_threshold).discarding(close::LINGER_BYTES);
    let shaken = in_time(&mut conn.deadline, settings(conn.worker, &limits).handshake(guard)).await;
    count_glitches(conn, &signals);
    let connection = shaken?.ok()?;
    let streams = Rc::new(Streams::new(signals.clone()));
    Some(Box::new(Connected { connection, streams, signals, phase: Phase::Open, widened: false }))
}

/// Whether the connection is to be renewed: it has had as many streams as `tune.h2.fe.max-total-streams` says.
fn had_enough(conn: &Conn<'_>) -> bool {
    let most = conn.worker.shared.config.global.tune.h2_fe_max_total_streams;
    most > 0 && conn.requests >= most.into()
}

/// Tells the stick tables that the connection is counted in.
fn count_glitches(conn: &Conn<'_>, signals: &Signals) {
    let glitches = signals.glitches();
    if glitches > 0 {
        conn.session.tracking.glitches(glitches.into(), conn.worker.now_ms());
    }
}

/// The bytes that a client starts with (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The part of it that is formed like a request.
pub(crate) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Whether these bytes, possibly incomplete, can be the start of the preface.
pub(crate) fn may_begin_so(bytes: &[u8]) -> bool {
    let seen = bytes.len().min(PREFACE.len());
    bytes[..seen] == PREFACE[..seen]
}

/// Reads to the end of the preface. h2 could do this, but if something else arrived it would leave that unread, so that
/// closing would send a reset instead of an orderly end.
async fn preface(conn: &mut Conn<'_>, stream: &mut Stream, begun: &mut Vec<u8>) -> bool {
    loop {
        if !may_begin_so(begun) {
            finish::broken(conn);
            close::close(stream, &mut conn.deadline, true).await;
            close::linger(conn, stream).await;
            return false;
        }
        if begun.len() >= PREFACE.len() {
            return true;
        }
        let Ok(mut buffer) = conn.worker.buffers.take() else { return false };
        let read = in_time(&mut conn.deadline, poll_fn(|cx| stream.poll_fill(cx, &mut buffer, usize::MAX))).await;
        begun.extend_from_slice(buffer.data());
        conn.worker.buffers.give(buffer);
        match read {
            Some(Ok(Fill::Bytes(_))) => {}
            // As in HAProxy 2.6, one that has agreed on HTTP/2 in its handshake and has said nothing has asked nothing.
            Some(_) if begun.is_empty() && (conn.facts.tls.is_some() || conn.proxy().options.dontlognull) => {
                return false;
            }
            Some(_) => {
                finish::broken(conn);
                return false;
            }
            None => return false,
        }
    }
}

fn settings(worker: &Worker, limits: &Limits) -> server::Builder {
    let tune = &worker.shared.config.global.tune;
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(tune.h2_fe.initial_window_size)
        .max_concurrent_streams(tune.h2_fe.max_concurrent_streams)
        .max_frame_size(tune.h2_fe.max_frame_size.clamp(16_384, (1 << 24) - 1))
        .max_header_list_size(header_list_size(limits))
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(SMALL_DATA)
        .header_table_size(tune.h2_header_table_size);
    if !worker.shared.config.global.h2_no_websockets {
        builder.enable_connect_protocol();
    }
    builder
}

/// How long the client may be without a stream: as long as a timeout of requests says, and `timeout client` does not count beside it.
fn patience(conn: &Conn<'_>) -> Option<Duration> {
    conn.patience_for_request().or(conn.proxy().timeouts.client)
}

/// A connection after its preface.
struct Connected {
    connection: Connection,
    streams: Rc<Streams>,
    signals: Rc<Signals>,
    phase: Phase,
    /// Whether the client has been told of [`CONNECTION_WINDOW`].
    widened: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// No stream has been open for a short while, since this moment.
    Paused(Instant),
    /// The connection is idle until the client's next request.
    Idle,
    /// A GOAWAY announces the end; streams are finished, also those that the client opens before it has read that.
    Leaving,
    /// The last GOAWAY says which streams were served.
    Left,
    /// The client floods us, or made an error that ends the connection, and nothing more is read from it.
    Cut,
}

impl Connected {
    /// Waits for a stream, and drives all open ones meanwhile; `None` when there will be no more.
    async fn next(&mut self, conn: &mut Conn<'_>) -> Option<Accepted> {
        poll_fn(|cx| {
            // Each stream was charged to the turn in which it was accepted.
            ready!(turn::poll_proceed(cx));
            loop {
                let accepted = self.connection.poll_accept(cx);
                count_glitches(conn, &self.signals);
                for _ in 0..self.signals.malformed() {
                    self.look_at_changes(conn);
                    finish::malformed(conn);
                }
                if let Poll::Ready(accepted) = accepted {
                    turn::spend(cost::STREAM);
                    if let Some(Err(error)) = &accepted
                        && error.is_go_away()
                        && error.is_library()
                        && self.streams.open() == 0
                    {
                        self.look_at_changes(conn);
                        finish::broken(conn);
                    }
                    // If possible, h2 has already sent the error to the client as GOAWAY.
                    return Poll::Ready(accepted.and_then(Result::ok));
                }
                if !self.change_phase(conn) {
                    break;
                }
            }
            self.signals.outlet.turn_over();
            if let Some(parted) = self.signals.parted() {
                // A client that left in peace sends at most what was under way; another may be in the middle of anything.
                let linger = if self.phase == Phase::Left { conn.round_trip() } else { close::LINGER_TIME };
                conn.deadline.set(parted, Some(linger));
                return conn.deadline.poll_expired(cx).map(|()| None);
            }
            if self.streams.open() > 0 {
                self.streams.wake_when_idle(cx.waker());
                return Poll::Pending;
            }
            self.look_at_silence(conn);
            ready!(conn.deadline.poll_expired(cx));
            match self.phase {
                Phase::Left | Phase::Cut => return Poll::Ready(None),
                Phase::Paused(since) => self.rest(conn, since),
                Phase::Open | Phase::Idle | Phase::Leaving => {
                    self.phase = Phase::Left;
                    self.connection.abrupt_shutdown(Reason::NO_ERROR);
                    conn.deadline.set(Instant::now(), Some(GOODBYE));
                }
            }
            // What the connection now has to send or wait for is handled in the next turn.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Updates the phase; returns whether h2 has something new to send.
    fn change_phase(&mut self, conn: &mut Conn<'_>) -> bool {
        if let Some(reason) = self.signals.failure().filter(|_| self.phase != Phase::Cut) {
            self.phase = Phase::Cut;
            if reason != Reason::ENHANCE_YOUR_CALM && self.streams.open() == 0 {
                self.look_at_changes(conn);
                finish::broken(conn);
            }
            self.connection.abrupt_shutdown(reason);
            conn.deadline.set(Instant::now(), Some(GOODBYE));
            return true;
        }
        if (conn.worker.draining.get() || had_enough(conn))
            && matches!(self.phase, Phase::Open | Phase::Paused(_) | Phase::Idle)
        {
            self.phase = Phase::Leaving;
            self.connection.graceful_shutdown();
            conn.deadline.set(Instant::now(), leave_to_stay(conn));
            return true;
        }
        match (self.phase, self.streams.open()) {
            (Phase::Open, 0) => {
                let now = Instant::now();
                self.phase = Phase::Paused(now);
                conn.deadline.set(now, Some(patience(conn).map_or(IDLE_AFTER, |patience| patience.min(IDLE_AFTER))));
            }
            (Phase::Paused(_) | Phase::Idle, 1..) => self.phase = Phase::Open,
            // Open streams have timeouts of their own; this one starts when the last of them ends.
            (Phase::Leaving, 1..) => conn.deadline.set(Instant::now(), leave_to_stay(conn)),
            _ => {}
        }
        false
    }

    /// Ends the pause: the connection counts as idle from `since` on.
    fn rest(&mut self, conn: &mut Conn<'_>, since: Instant) {
        self.phase = Phase::Idle;
        self.streams.dismiss();
        let patience = patience(conn);
        conn.deadline.set(since, patience);
    }

    /// As in HAProxy, where no timeout is about requests, PINGs keep a connection open as anything else that the client sends.
    fn look_at_silence(&mut self, conn: &mut Conn<'_>) {
        if !self.signals.received() || conn.patience_for_request().is_some() {
            return;
        }
        let now = Instant::now();
        match &mut self.phase {
            Phase::Paused(since) => *since = now,
            Phase::Idle => {
                let patience = patience(conn);
                conn.deadline.set(now, patience);
            }
            _ => {}
        }
    }

    /// Notes since when the client could have begun the stream that comes next.
    fn look_at_changes(&self, conn: &mut Conn<'_>) {
        if let Some(changed) = self.streams.changed.get() {
            (conn.accepted, conn.handshake_ms) = (changed, 0);
        }
    }

    /// Gives a stream to an idle task, or to a new one.
    fn start(&mut self, conn: &mut Conn<'_>, (request, respond): Accepted, limits: Limits) {
        // Sent with the first body and not before: most connections have none, and some clients expect nothing but
        // SETTINGS and its acknowledgement at the beginning.
        if !self.widened && !request.body().is_end_stream() {
            self.widened = true;
            self.connection.set_target_window_size(CONNECTION_WINDOW);
        }
        let entered = self.streams.enter();
        let (session, requests) = (conn.session.clone(), conn.requests);
        self.look_at_changes(conn);
        let (accepted, handshake_ms) = (conn.accepted, conn.handshake_ms);
        conn.requests += 1;
        self.streams.changed.set(Some(conn.worker.clock.now()));
        let path = self.signals.path_of(respond.stream_id().into());
        let job = Job { request, path, respond, session, requests, accepted, handshake_ms, entered };
        let resting = self.streams.resting.borrow_mut().pop();
        let task = resting.unwrap_or_else(|| {
            let task = Rc::new(Task::default());
            let (streams, signals) = (self.streams.clone(), self.signals.clone());
            let who = Who::Stream { proxy: conn.frontend, bind: conn.bind, peer: conn.facts.peer };
            let carrier = Box::new(conn.for_stream());
            let serving = serve_streams(conn.worker.clone(), carrier, task.clone(), streams, signals, limits);
            task::spawn_sharing(conn.worker, who, self.streams.share.clone(), serving);
            task
        });
        task.give(Some(job));
    }
}

/// How long a client that does not confirm that it has read the first GOAWAY may stay. One that does has sent all of its requests
/// before that, and can be let go.
fn leave_to_stay(conn: &Conn<'_>) -> Option<Duration> {
    let timeouts = &conn.proxy().timeouts;
    timeouts.client_fin.or(timeouts.client)
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.streams.ended.set(true);
        self.streams.dismiss();
        self.signals.outlet.close();
    }
}

/// The main loop of a task: serves one stream after another until none is left.
async fn serve_streams(
    worker: Rc<Worker>,
    carrier: Box<Carrier>,
    task: Rc<Task>,
    streams: Rc<Streams>,
    signals: Rc<Signals>,
    limits: Limits,
) {
    // Boxed, since a future stores what it is given twice.
    let mut conn = Box::new(carrier.stream(&worker));
    while task.has_job().await {
        // Only now is the stream no longer open: its end of the exchange has been dropped.
        drop(serve_stream(&mut conn, &task, &signals, limits).await);
        if streams.ended.get() {
            return;
        }
        streams.resting.borrow_mut().push(task.clone());
    }
}

async fn serve_stream(conn: &mut Conn<'_>, task: &Task, signals: &Rc<Signals>, limits: Limits) -> Option<Entered> {
    let mut x = conn.worker.take_exchange();
    let mut begun = None;
    let entered = begin(conn, task, &mut x, &mut begun, signals, limits);
    if let Some(client) = &mut begun {
        let worker = conn.worker;
        let _running = Running::new(worker.counters().frontend(conn.frontend), Protocol::Http2);
        exchange::run(&mut Live::new(conn, client, &mut x)).await;
        conn.worker.give_exchange(x);
        if let Some(Entered(streams)) = &entered {
            streams.changed.set(Some(conn.worker.clock.now()));
        }
        linger(conn, client).await;
    } else {
        conn.worker.give_exchange(x);
    }
    entered
}

/// Begins the exchange of a task's next job. Not in the task's own future, which would have room for each part of the job twice.
fn begin(
    conn: &mut Conn<'_>,
    task: &Task,
    x: &mut Exchange,
    client: &mut Option<Http2Client>,
    signals: &Rc<Signals>,
    limits: Limits,
) -> Option<Entered> {
    let Job { request, path, mut respond, session, requests, accepted, handshake_ms, entered } =
        task.job.take().flatten()?;
    (conn.session, conn.requests, conn.accepted, conn.handshake_ms) = (session, requests, accepted, handshake_ms);
    conn.begin(x, conn.ready(), Instant::now());
    let read = read_request(&request, path.as_deref(), &mut x.request, &limits);
    let (_, body) = request.into_parts();
    match read.and_then(|()| Http2Client::framing(&mut x.request, &body)) {
        Ok(framing) => {
            conn.request_complete(x);
            x.txn.client_stream.id = u32::from(respond.stream_id()).into();
            *client = Some(Http2Client::new(&x.request, framing, body, respond, signals.clone(), limits));
        }
        // RFC 9113 section 8.1.1: a malformed request is an error of its stream.
        Err(_) => {
            respond.send_reset(Reason::PROTOCOL_ERROR);
            finish::malformed(conn);
        }
    }
    Some(entered)
}

/// Gives a client that was answered early time to notice, before the end of its stream resets it.
async fn linger(conn: &mut Conn<'_>, client: &mut Http2Client) {
    if client.has_ended() {
        return;
    }
    conn.deadline.set(conn.worker.clock.now(), Some(close::LINGER_TIME));
    let mut left = close::LINGER_BYTES;
    let _ = in_time(&mut conn.deadline, poll_fn(|cx| client.poll_rest(cx, &mut left))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size(run) <= 256, "the task of a connection: {}", size(run));
        assert!(size_of::<Connected>() <= 1880, "what it has on the heap: {}", size_of::<Connected>());
    }
}
