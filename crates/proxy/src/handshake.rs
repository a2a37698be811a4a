//! From an accepted socket to a stream that requests can be read from: PROXY header, TLS, and which protocol follows.

use crate::{
    accept::Accepted,
    conn::{Alive, Conn, in_time},
    debug, http2, judge,
    own::Own,
    serve,
    socket::Socket,
    stream::Stream,
    tcp,
    timer::Deadline,
    watchdog::Stage,
    worker::Worker,
};
use penstock_config::model::Mode;
use penstock_http::proxy_protocol;
use penstock_rules::{ConnFacts, ProxyHeaderFacts, Session};
use penstock_tls::HandshakeError;
use std::{future::poll_fn, io, pin::Pin, rc::Rc};
use tokio::{io::AsyncWrite, time::Instant};

/// A connection's task, from its first byte to its last.
pub(crate) async fn run(worker: Rc<Worker>, accepted: Accepted) {
    let Accepted { socket, place, proxy, bind, accepted } = accepted;
    let alive = Alive::register(worker.clone()).await;
    // On the heap by itself: a future that takes it by value would hold it twice.
    let mut conn = Box::new(Conn {
        facts: facts(&worker, &socket, proxy, bind),
        worker,
        frontend: proxy,
        bind,
        session: Session::default(),
        deadline: Deadline::default(),
        accepted,
        handshake_ms: 0,
        expects_proxy_header: false,
        requests: 0,
        own: Own::default(),
        _held: Some((place, alive)),
    });
    // Only what is waited for a long time must be small: the handshake's state is on the heap until it ends.
    let Some(stream) = Box::pin(establish(&mut conn, socket)).await else { return };
    match conn.proxy().mode {
        Mode::Tcp => Box::pin(tcp::run(*conn, stream)).await,
        Mode::Http if speaks_http2(&conn) => Box::pin(http2::run(*conn, stream, Vec::new())).await,
        Mode::Http => serve::run(conn, stream).await,
    }
}

/// Whether the client's first bytes will be HTTP/2's: agreed on by ALPN, or said by the `bind` line. On clear text a
/// client may also simply begin so, which the reader of HTTP/1 requests notices.
fn speaks_http2(conn: &Conn) -> bool {
    match &conn.facts.tls {
        Some(tls) if tls.alpn.is_some() => tls.alpn.as_deref() == Some(b"h2"),
        _ => conn.bind().proto.as_deref() == Some("h2"),
    }
}

/// What is known as soon as it is accepted.
fn facts(worker: &Worker, socket: &Socket, proxy: usize, bind: usize) -> ConnFacts {
    let (peer, local) = match socket {
        Socket::Tcp(_) => (socket.peer_addr().ok().map(canonical), socket.local_addr().ok().map(canonical)),
        Socket::Unix(_) => (None, None),
    };
    let conf = &worker.shared.config.proxies[proxy].binds[bind];
    ConnFacts {
        src: peer,
        dst: local,
        peer,
        local,
        listener_id: conf.id.unwrap_or(bind as u32 + 1),
        listener_name: conf.name.as_deref().map(Into::into),
        accepted_unix_us: worker.clock.unix_us(),
        ..ConnFacts::default()
    }
}

/// An IPv4 address that a dual-stack socket shows as IPv6 counts as what it is.
fn canonical(address: std::net::SocketAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Runs what comes before the first request, within `timeout client`.
async fn establish(conn: &mut Conn, socket: Socket) -> Option<Stream> {
    conn.worker.pulse().enter(Stage::Handshake);
    if !admitted(conn, &socket, judge::Kind::Connection) {
        return None;
    }
    let timeout = conn.proxy().timeouts.client;
    conn.deadline.set(conn.accepted, timeout);
    if conn.bind().accept_proxy || conn.expects_proxy_header {
        match in_time(&mut conn.deadline, read_proxy_header(&socket)).await {
            Some(Ok(header)) => apply_proxy_header(conn, &header),
            Some(Err(reason)) => return fail(conn, &reason),
            None => return fail(conn, &Failure::Timeout("Timeout during PROXY header")),
        }
    }
    let worker = conn.worker.clone();
    let stream = match &worker.shared.acceptors[conn.frontend][conn.bind] {
        None => Stream::Clear(socket),
        Some(acceptor) => match in_time(&mut conn.deadline, acceptor.accept(socket, Vec::new())).await {
            Some(Ok(tls)) => {
                let cells = worker.counters().frontend(conn.frontend);
                cells.ssl_sessions.inc();
                if tls.facts().resumed {
                    cells.ssl_reused_sessions.inc();
                }
                conn.facts.tls = Some(tls.facts().clone());
                Stream::Tls(Box::new(tls))
            }
            Some(Err(e)) => return fail(conn, &Failure::Tls(e)),
            None => return fail(conn, &Failure::Timeout("Timeout during SSL handshake")),
        },
    };
    conn.session.tracking.session_started(conn.worker.now_ms());
    if !admitted(conn, stream.socket(), judge::Kind::Session) {
        return None;
    }
    debug::accepted(conn);
    conn.handshake_ms = (conn.worker.clock.tick() - conn.accepted).as_millis() as i64;
    Some(stream)
}

/// Runs `tcp-request connection` or `session` rules; whether the connection goes on.
fn admitted(conn: &mut Conn, socket: &Socket, kind: judge::Kind) -> bool {
    let worker = conn.worker.clone();
    let verdict = judge::connection(conn, socket, kind);
    let cells = worker.counters().frontend(conn.frontend);
    let now = worker.now_ms();
    match kind {
        judge::Kind::Connection => cells.connection(now),
        judge::Kind::Session => {
            cells.session(now);
            worker.counters().listener(conn.frontend, conn.bind).session(now);
        }
    }
    if verdict == judge::Judged::GoOn {
        return true;
    }
    match kind {
        judge::Kind::Connection => conn.listener_cells().iter().for_each(|cells| cells.denied_connections.inc()),
        judge::Kind::Session => conn.listener_cells().iter().for_each(|cells| cells.denied_sessions.inc()),
    }
    false
}

/// Why there is no stream.
enum Failure {
    Timeout(&'static str),
    Header(&'static str),
    Tls(HandshakeError),
}

fn fail(conn: &mut Conn, reason: &Failure) -> Option<Stream> {
    let (text, silent) = match reason {
        Failure::Timeout(text) => (*text, false),
        Failure::Header(text) => (*text, false),
        Failure::Tls(e) => (e.message(), matches!(e, HandshakeError::Empty)),
    };
    if let Failure::Tls(e) = reason {
        conn.worker.counters().frontend(conn.frontend).ssl_failed_handshakes.inc();
        conn.facts.error = (e.code(), e.message());
    }
    if !(silent && conn.proxy().options.dontlognull) {
        crate::finish::log_handshake_failure(conn, text);
    }
    None
}

/// Reads a PROXY header and not one byte more: what follows it stays in the socket.
async fn read_proxy_header(socket: &Socket) -> Result<Box<proxy_protocol::Header>, Failure> {
    let mut seen = vec![0; proxy_protocol::V2_BYTES_MAX];
    let mut before = 0;
    let (header, length) = loop {
        poll_fn(|cx| socket.poll_read_ready(cx)).await.map_err(|_| ABORTED)?;
        let n = match socket.try_peek(&mut seen) {
            Ok(0) => return Err(ABORTED),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(ABORTED),
        };
        match proxy_protocol::parse(&seen[..n]) {
            Ok(proxy_protocol::Parse::Complete(header, length)) => break (header, length),
            Ok(proxy_protocol::Parse::Partial) if n == before => {
                // Peeking does not use the readiness up: wait for more bytes than are there.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            Ok(proxy_protocol::Parse::Partial) => before = n,
            Err(proxy_protocol::Error::Signature) => {
                return Err(Failure::Header("Received something which does not look like a PROXY protocol header"));
            }
            Err(_) => return Err(Failure::Header("Received an invalid PROXY protocol header")),
        }
    };
    let mut left = length;
    while left > 0 {
        // They were seen there a moment ago.
        match socket.try_read(&mut seen[..left]) {
            Ok(0) => return Err(ABORTED),
            Ok(n) => left -= n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| socket.poll_read_ready(cx)).await.map_err(|_| ABORTED)?;
            }
            Err(_) => return Err(ABORTED),
        }
    }
    Ok(header)
}

const ABORTED: Failure = Failure::Header("Connection closed while waiting for PROXY protocol header");

fn apply_proxy_header(conn: &mut Conn, header: &proxy_protocol::Header) {
    if let Some((src, dst)) = header.addresses {
        (conn.facts.src, conn.facts.dst) = (Some(canonical(src)), Some(canonical(dst)));
    }
    conn.facts.proxy_header =
        Some(ProxyHeaderFacts { authority: header.tlvs.authority.clone(), unique_id: header.tlvs.unique_id.clone() });
}

/// Closes a stream whose last bytes have been handed over: TLS says so to the peer. `half`: the peer may still send; else the
/// stream is dropped next, which closes the socket.
pub(crate) async fn close(stream: &mut Stream, deadline: &mut Deadline, half: bool) {
    let closing = poll_fn(|cx| match half {
        true => Pin::new(&mut *stream).poll_shutdown(cx),
        false => stream.poll_goodbye(cx),
    });
    deadline.set(Instant::now(), Some(CLOSE_TIME));
    let _ = in_time(deadline, closing).await;
}

/// A peer that does not take our last bytes for so long is not waited for.
const CLOSE_TIME: std::time::Duration = std::time::Duration::from_secs(5);
