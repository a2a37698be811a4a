//! From an accepted socket to a stream that requests can be read from: the PROXY header, TLS, and the choice of
//! protocol.

pub(crate) mod client_hello;
mod intercept;

use crate::{
    accept::accepted::Accepted,
    connection::{Alive, Conn, in_time, socket::Socket, sockopt, stream::Stream, timer::Deadline},
    exchange::finish::log_handshake_failure,
    http1::{client_side::Http1Client, connection},
    http2,
    log::debug,
    rules::{context::Judged, evaluate},
    servers::private::Own,
    tcp::{self, raw::Raw},
    worker::{pulse::Stage, state::Worker},
};
use client_hello::Decided;
use penstock_config::model::{Bind, Mode, ProxyId, ServiceMode};
use penstock_http::proxy_protocol;
use penstock_rules::{ConnFacts, Session};
use penstock_tls::HandshakeError;
use socket2::SockRef;
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    time::Duration,
};

/// The task of a connection, from its first byte to its last.
pub(crate) async fn run(worker: Rc<Worker>, accepted: Accepted) {
    // A client that is idle costs what this future holds: the state of each stage is on the heap, and only until the stage ends.
    if let Some((conn, established)) = Box::pin(begin(&worker, accepted)).await {
        serve(conn, established).await;
    }
}

/// Runs everything before the first request; `None` if the connection is over.
async fn begin(worker: &Rc<Worker>, accepted: Accepted) -> Option<(Box<Conn<'_>>, Established)> {
    let Accepted { socket, mut place, proxy, bind, accepted } = accepted;
    let own = Rc::new(Own::default());
    if let Some(unknown) = place.take_unknown() {
        own.await_return(unknown);
    }
    let alive = Alive::register(worker.clone()).await;
    let mut conn = Box::new(Conn {
        facts: facts(worker, &socket, proxy, bind),
        worker,
        frontend: proxy,
        bind,
        session: Session::default(),
        deadline: Deadline::default(),
        accepted,
        handshake_ms: 0,
        expects_proxy_header: false,
        requests: 0,
        own,
        _held: Some((place, alive)),
    });
    if conn.proxy().options.nolinger {
        socket.reset_on_close();
    }
    let tune = &worker.shared.config.global.tune;
    if tune.rcvbuf_client.is_some() || tune.sndbuf_client.is_some() {
        sockopt::size_buffers(&SockRef::from(&socket), tune.rcvbuf_client, tune.sndbuf_client);
    }
    let established = establish(&mut conn, socket).await?;
    Some((conn, established))
}

/// Serves the TLS connection inside a tunnel that the client has opened by CONNECT. `begun` has been read already.
pub(crate) async fn inside(mut conn: Box<Conn<'_>>, socket: Socket, begun: Vec<u8>) {
    conn.accepted = conn.worker.clock.tick();
    (conn.requests, conn.facts.http_major) = (0, 0);
    conn.worker.pulse().enter(Stage::Handshake);
    conn.deadline.set(conn.accepted, handshake_timeout(&conn));
    if let Some(established) = Box::pin(secure(&mut conn, socket, begun)).await {
        conn.handshake_ms = (conn.worker.clock.tick() - conn.accepted).as_millis() as i64;
        serve(conn, established).await;
    }
}

/// What requests, or bytes, are read from.
enum Established {
    Stream(Stream),
    /// It is not decrypted, and goes to this backend.
    Bypass(Box<Raw>, ProxyId),
}

/// What serves the connection from here on, in as much memory as its protocol needs.
fn serve<'w>(conn: Box<Conn<'w>>, established: Established) -> Pin<Box<dyn Future<Output = ()> + 'w>> {
    let stream = match established {
        Established::Bypass(client, backend) => return Box::pin(tcp::run(conn, client, Some(backend))),
        Established::Stream(stream) => stream,
    };
    if conn.proxy().service.as_ref().is_some_and(|service| service.mode == Some(ServiceMode::Tcp)) {
        return Box::pin(tcp::returned::run(conn, stream));
    }
    match conn.proxy().mode {
        Mode::Tcp => {
            let client = Box::new(Raw::new(stream, conn.worker, true));
            Box::pin(tcp::run(conn, client, None))
        }
        Mode::Http if speaks_http2(&conn) => Box::pin(http2::connection::run(conn, stream, Vec::new())),
        Mode::Http => {
            let client = Box::new(Http1Client::new(stream, &conn, None));
            Box::pin(connection::run(conn, client, None))
        }
    }
}

/// Whether the client's first bytes will be HTTP/2: the `bind` line says so, which takes precedence, or ALPN agreed on
/// it. If neither decides, a client may also simply start with HTTP/2, which the reader of HTTP/1 requests notices.
fn speaks_http2(conn: &Conn<'_>) -> bool {
    match (&conn.bind().proto, &conn.facts.tls) {
        (Some(proto), _) => proto == "h2",
        (None, tls) => tls.as_ref().is_some_and(|tls| tls.alpn.as_deref() == Some(b"h2")),
    }
}

/// The facts known of a connection as soon as it is accepted.
fn facts(worker: &Worker, socket: &Socket, proxy: ProxyId, bind: usize) -> ConnFacts {
    let (peer, local, dst) = match socket {
        Socket::Unix(_) => (None, None, None),
        _ => (socket.peer_addr().ok(), socket.local_addr().ok(), socket.destination().ok()),
    };
    let proxy = &worker.shared.config.proxies[proxy];
    let listener_id = Bind::listener_id(&proxy.binds[..=bind], local);
    ConnFacts {
        src: peer,
        dst,
        peer,
        local,
        bind: bind as u32,
        listener_id,
        listener_name: proxy.listener_name(&proxy.binds[bind], listener_id).map(Into::into),
        accepted_unix_us: worker.clock.unix_us(),
        socket: socket.number(),
        ..ConnFacts::default()
    }
}

/// How long a client may take until requests are read: `timeout client-hs`, or else `timeout client`.
fn handshake_timeout(conn: &Conn<'_>) -> Option<Duration> {
    let timeouts = &conn.proxy().timeouts;
    timeouts.client_handshake.or(timeouts.client)
}

/// Runs the rules of the connection, the handshake and the rules of the session, within `timeout client-hs`.
async fn establish(conn: &mut Conn<'_>, socket: Socket) -> Option<Established> {
    conn.worker.pulse().enter(Stage::Handshake);
    if !admitted(conn, &socket, evaluate::Kind::Connection) {
        return None;
    }
    conn.deadline.set(conn.accepted, handshake_timeout(conn));
    if conn.bind().accept_proxy || conn.expects_proxy_header {
        match in_time(&mut conn.deadline, read_proxy_header(&socket)).await {
            Some(Ok(header)) => apply_proxy_header(conn, *header),
            Some(Err(reason)) => return fail(conn, &reason),
            None => return fail(conn, &Failure::Timeout("Timeout during PROXY header")),
        }
    }
    let established = match conn.bind().ssl_on_connect {
        true => Established::Stream(Stream::Clear(socket)),
        // In a box, so that a client that is slow with its PROXY header does not pay for it.
        false => Box::pin(secure(conn, socket, Vec::new())).await?,
    };
    started(
        conn,
        match &established {
            Established::Stream(stream) => stream.socket(),
            Established::Bypass(client, _) => client.stream.socket(),
        },
    )?;
    Some(established)
}

/// Decides by the ClientHello, and decrypts, if the `bind` line has TLS. `begun` has been read already.
async fn secure(conn: &mut Conn<'_>, socket: Socket, begun: Vec<u8>) -> Option<Established> {
    let worker = conn.worker;
    let Some(acceptor) = &worker.shared.acceptors[conn.frontend][conn.bind] else {
        return Some(Established::Stream(Stream::Clear(socket)));
    };
    let (mut socket, mut begun, mut intercept) = (socket, begun, None);
    if !worker.shared.program.of(conn.frontend).tcp_hello.is_empty() {
        let mut deadline = std::mem::take(&mut conn.deadline);
        let decided = in_time(&mut deadline, client_hello::decide(conn, socket, &begun)).await;
        conn.deadline = deadline;
        match decided {
            Some(Decided::Decrypt(same, read, origin)) => (socket, begun, intercept) = (same, read, origin),
            Some(Decided::Bypass(client, backend)) => return Some(Established::Bypass(client, backend)),
            Some(Decided::Refused(why)) => {
                log_handshake_failure(conn, &why);
                return None;
            }
            None => return fail(conn, &Failure::Timeout("Timeout during SSL handshake")),
        }
    }
    let accepted = match intercept {
        Some(backend) => Box::pin(intercept::accept(conn, acceptor, socket, begun, backend)).await,
        None => {
            let destination = conn.facts.destination().map(|address| address.ip());
            let accepting = acceptor.accept_at(socket, begun, || destination);
            match in_time(&mut conn.deadline, accepting).await {
                Some(accepted) => accepted.map_err(Failure::Tls),
                None => Err(Failure::Timeout("Timeout during SSL handshake")),
            }
        }
    };
    match accepted {
        Ok(tls) => {
            let cells = worker.counters().frontend(conn.frontend);
            cells.ssl_sessions.inc();
            if tls.facts().resumed {
                cells.ssl_reused_sessions.inc();
            }
            conn.facts.tls = Some(tls.facts().clone());
            Some(Established::Stream(Stream::Tls(Box::new(tls))))
        }
        Err(reason) => fail(conn, &reason),
    }
}

/// Runs the `tcp-request session` rules; `None` if the connection is over.
fn started(conn: &mut Conn<'_>, socket: &Socket) -> Option<()> {
    if !admitted(conn, socket, evaluate::Kind::Session) {
        return None;
    }
    // This comes after its rules, so that whatever they track is counted too.
    conn.session.tracking.session_started(conn.worker.now_ms());
    debug::accepted(conn);
    conn.handshake_ms = (conn.worker.clock.tick() - conn.accepted).as_millis() as i64;
    Some(())
}

/// Runs `tcp-request connection` or `session` rules; returns whether the connection may go on.
fn admitted(conn: &mut Conn<'_>, socket: &Socket, kind: evaluate::Kind) -> bool {
    let worker = conn.worker;
    let passed = evaluate::connection(conn, socket, kind) == Judged::GoOn;
    let cells = worker.counters().frontend(conn.frontend);
    let now = worker.now_ms();
    match kind {
        evaluate::Kind::Connection => cells.connection(now),
        evaluate::Kind::Session if passed => {
            cells.session(now);
            worker.counters().listener(conn.frontend, conn.bind).session(now);
        }
        evaluate::Kind::Session => {}
    }
    passed
}

/// Why a connection did not become a stream.
enum Failure {
    Timeout(&'static str),
    Header(&'static str),
    Tls(HandshakeError),
    /// The server in whose place the client was to be answered.
    Origin(String),
}

fn fail<T>(conn: &mut Conn<'_>, reason: &Failure) -> Option<T> {
    let (text, silent) = match reason {
        Failure::Timeout(text) | Failure::Header(text) => (*text, false),
        Failure::Origin(text) => (text.as_str(), false),
        Failure::Tls(e) => (e.message(), matches!(e, HandshakeError::Empty)),
    };
    if let Failure::Origin(_) | Failure::Tls(_) = reason {
        conn.worker.counters().frontend(conn.frontend).ssl_failed_handshakes.inc();
    }
    if let Failure::Tls(e) = reason {
        (conn.facts.error, conn.facts.tls_error) = ((e.code(), e.message()), Some(e.library()));
    }
    if !(silent && conn.proxy().options.dontlognull) {
        log_handshake_failure(conn, text);
    }
    None
}

/// Reads a PROXY header and not a byte more: what follows it stays in the socket.
async fn read_proxy_header(socket: &Socket) -> Result<Box<proxy_protocol::Header>, Failure> {
    let mut begun = Vec::new();
    loop {
        poll_fn(|cx| socket.poll_read_ready(cx)).await.map_err(|_| ABORTED)?;
        if let Some(header) = proxy_header(socket, &mut begun)? {
            return Ok(header);
        }
    }
}

/// Peeks at the socket, and reads the part that belongs to the header, of which `begun` has been read already.
///
/// While the header is incomplete, everything there belongs to it and is read at once: peeking alone would leave the
/// socket readable, and nothing would signal the bytes that follow.
fn proxy_header(socket: &Socket, begun: &mut Vec<u8>) -> Result<Option<Box<proxy_protocol::Header>>, Failure> {
    let mut bytes = [0; proxy_protocol::V2_BYTES_MAX];
    let have = begun.len();
    bytes[..have].copy_from_slice(begun);
    let seen = match socket.try_peek(&mut bytes[have..]) {
        Ok(0) => return Err(ABORTED),
        Ok(n) => have + n,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(_) => return Err(ABORTED),
    };
    let (header, end) = match proxy_protocol::parse(&bytes[..seen]) {
        Ok(proxy_protocol::Parse::Complete(header, length)) => (Some(header), length),
        Ok(proxy_protocol::Parse::Partial) => (None, seen),
        Err(proxy_protocol::Error::Signature) => {
            return Err(Failure::Header("Received something which does not look like a PROXY protocol header"));
        }
        Err(_) => return Err(Failure::Header("Received an invalid PROXY protocol header")),
    };
    let mut at = have;
    while at < end {
        // They were there when peeked at.
        match socket.try_read(&mut bytes[at..end]) {
            Ok(n @ 1..) => at += n,
            _ => return Err(ABORTED),
        }
    }
    if header.is_none() {
        // Whoever sends it a byte at a time has no room made for what may never come.
        begun.reserve_exact(end - have);
        begun.extend_from_slice(&bytes[have..end]);
    }
    Ok(header)
}

const ABORTED: Failure = Failure::Header("Connection closed while waiting for PROXY protocol header");

fn apply_proxy_header(conn: &mut Conn<'_>, header: proxy_protocol::Header) {
    if let Some((src, dst)) = header.addresses {
        // The connection itself keeps the proxy's address.
        (conn.facts.session_src, conn.facts.session_dst) = (Some(src), Some(dst));
    }
    conn.facts.proxy_header = Some(Box::new(header.tlvs));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use tokio::{io::AsyncWriteExt, net::UnixStream};

    #[test]
    fn a_header_that_comes_byte_by_byte_is_waited_for_without_looking_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut peer, ours) = UnixStream::pair().unwrap();
            let (socket, mut polls) = (Socket::Unix(ours), 0);
            let mut reading = std::pin::pin!(read_proxy_header(&socket));
            let mut read = poll_fn(|cx| {
                polls += 1;
                reading.as_mut().poll(cx)
            });
            let bytes = b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\nGET";
            for byte in &bytes[..bytes.len() - 4] {
                peer.write_all(&[*byte]).await.unwrap();
                let waited = tokio::time::timeout(std::time::Duration::from_millis(10), &mut read).await;
                assert!(waited.is_err(), "there is no header yet");
            }
            peer.write_all(&bytes[bytes.len() - 4..]).await.unwrap();
            let Ok(header) = read.await else { panic!("the header is complete") };
            assert_eq!(header.addresses.unwrap().0, "192.0.2.1:1000".parse().unwrap());
            // Per byte: one poll when asked, one when woken, and those when the test's patience ends.
            assert!(polls <= 4 * bytes.len(), "{polls} polls");
            let mut rest = [0; 8];
            assert_eq!(socket.try_read(&mut rest).unwrap(), 3, "what follows stays in the socket");
        });
    }

    #[test]
    fn what_every_connection_holds_is_small() {
        fn size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(run) <= 312, "the task of a connection: {}", size(run));
    }

    #[test]
    fn a_header_that_breaks_off_is_an_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut peer, ours) = UnixStream::pair().unwrap();
            let socket = Socket::Unix(ours);
            peer.write_all(b"PROXY TCP4").await.unwrap();
            drop(peer);
            assert!(matches!(read_proxy_header(&socket).await, Err(Failure::Header(_))));
        });
    }
}
