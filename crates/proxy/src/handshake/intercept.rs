//! `tcp-request client-hello intercept`: connects to the client's server and validates its certificate first, and only then answers
//! the client, with a certificate that says the same.

use super::Failure;
use crate::{
    connection::{Conn, in_time, socket::Socket, stream::Stream},
    exchange::{
        assign::{self, Reached},
        attempt,
        finish::log_handshake_failure,
    },
    http2::mux,
    observe::http_counters::{Protocol, Side},
    route::persistence,
    rules::context::Readable,
    server::Server,
    servers::{
        connect::{self, Failure as Unconnected},
        pool::Returned,
    },
};
use penstock_backends::{retry::Reason, reuse::Key};
use penstock_config::model::{Mode, ProxyId};
use penstock_http::Limits;
use penstock_rules::{OriginFacts, TlsFacts};
use penstock_tls::{Acceptor, Agreed, HandshakeError, Invalid, Probed, Requested, ServerSeen, TlsStream, pin};
use std::{sync::Arc, task::Context};

/// Accepts a client in place of a server of this backend. `begun` has been read already.
///
/// A client in HTTP whose server was not reached, or does not validate, is answered all the same, so that its requests can be
/// answered with an error; nothing is sent to that server.
pub(super) async fn accept(
    conn: &mut Conn<'_>,
    acceptor: &Acceptor,
    mut socket: Socket,
    mut begun: Vec<u8>,
    backend: ProxyId,
) -> Result<TlsStream<Socket>, Failure> {
    const LATE: Failure = Failure::Timeout("Timeout during SSL handshake");
    let asked = in_time(&mut conn.deadline, acceptor.asked(&mut socket, &mut begun)).await.ok_or(LATE)?;
    let asked = asked.map_err(Failure::Tls)?;
    // What `server` lines ask about the client's handshake (`sni ssl_fc_sni`), as far as it is known.
    conn.facts.tls = Some(Arc::new(TlsFacts { sni: asked.sni.clone(), ..TlsFacts::default() }));
    let found = reach(conn, &socket, backend, &asked, acceptor.presents_untrusted()).await;
    conn.facts.tls = None;
    conn.deadline.set(conn.worker.clock.tick(), super::handshake_timeout(conn));
    let error = match &found {
        Ok(found) => found.invalid.map(|invalid| format!("Server certificate {}", invalid.reason())),
        Err(missed) => Some(missed.text()),
    };
    let pinned = found.as_ref().ok().filter(|found| found.invalid.is_some()).map(|found| pin(&found.certificate));
    conn.facts.origin = Some(Arc::new(OriginFacts { backend, error: error.as_deref().map(Into::into), pinned }));
    let accepted = match &found {
        Ok(found) => {
            let protocol = match &found.protocol {
                Some(protocol) => Agreed::On(protocol),
                None if found.was_asked || conn.proxy().mode == Mode::Tcp => Agreed::Nothing,
                None => Agreed::NotAsked,
            };
            let origin = ServerSeen { certificate: &found.certificate, protocol, is_valid: found.invalid.is_none() };
            in_time(&mut conn.deadline, acceptor.accept_for(socket, begun, &origin)).await
        }
        Err(missed) if conn.proxy().mode == Mode::Tcp => {
            acceptor.refuse(&mut socket, missed.invalid()).await;
            return Err(Failure::Origin(error.unwrap_or_default()));
        }
        Err(_) => {
            let destination = conn.facts.destination().map(|address| address.ip());
            in_time(&mut conn.deadline, acceptor.accept_at(socket, begun, || destination)).await
        }
    };
    if let Some(error) = error {
        log_handshake_failure(conn, &error);
    }
    accepted.ok_or(LATE)?.map_err(Failure::Tls)
}

/// A server that has been reached. The connection is kept for the client's requests.
struct Found {
    /// Its certificate in DER.
    certificate: Vec<u8>,
    protocol: Option<Vec<u8>>,
    /// Whether it was offered protocols.
    was_asked: bool,
    invalid: Option<Invalid>,
}

/// Why there is none.
enum Missed {
    /// None was reached.
    Unreachable,
    /// One was reached, maybe, and did not answer in time.
    Late,
    /// One was reached, and TLS with it failed.
    Failed(HandshakeError),
    /// The one that was reached speaks only older versions of TLS than the client.
    TooOld,
    Invalid(Invalid),
}

impl Missed {
    fn text(&self) -> String {
        match self {
            Missed::Unreachable => "Server could not be reached".to_owned(),
            Missed::Late => "Server did not answer in time".to_owned(),
            Missed::Failed(error) => format!("Server does not speak TLS as it has to: {error}"),
            Missed::TooOld => "Server speaks no TLS version that the client does".to_owned(),
            Missed::Invalid(invalid) => format!("Server certificate {}", invalid.reason()),
        }
    }

    fn invalid(&self) -> Option<Invalid> {
        match self {
            Missed::Invalid(invalid) => Some(*invalid),
            Missed::Unreachable | Missed::Late | Missed::Failed(_) | Missed::TooOld => None,
        }
    }
}

/// Connects to a server of the backend, and keeps the connection for the client.
async fn reach(
    conn: &mut Conn<'_>,
    socket: &Socket,
    backend: ProxyId,
    asked: &Requested,
    tolerates: bool,
) -> Result<Found, Missed> {
    let worker = conn.worker;
    let pool = worker.shared.backends.get(backend).ok_or(Missed::Unreachable)?;
    let mut x = worker.take_exchange();
    let want = persistence::want(conn, &mut x, pool, Readable::Raw);
    let mut missed = Missed::Unreachable;
    let gone = &mut |cx: &mut Context<'_>| assign::poll_broken(socket.poll_read_ready(cx));
    let reached = assign::reach(conn, &mut x, pool, want, false, gone, async |conn, _, server, key| {
        match probe(conn, server, key, asked, tolerates).await {
            Some(Ok(probed)) => Ok((probed, key.cloned())),
            Some(Err(Unconnected::Tls(HandshakeError::Origin(invalid)))) => {
                missed = Missed::Invalid(invalid);
                // Another attempt would find the same.
                Err(Reason::WrongName)
            }
            Some(Err(Unconnected::Tls(error @ HandshakeError::Tls(_)))) => {
                missed = match asked.only_tls13 && !error.is_for_certificate() {
                    true => Missed::TooOld,
                    false => Missed::Failed(error),
                };
                Err(Reason::WrongName)
            }
            late_or_not => {
                missed = if late_or_not.is_none() { Missed::Late } else { Missed::Unreachable };
                Err(Reason::Connect)
            }
        }
    })
    .await;
    worker.give_exchange(x);
    let Some(Reached { slot, got: (Probed { stream, invalid }, Some(mut key)) }) = reached else { return Err(missed) };
    let server = slot.server();
    let tls = stream.facts();
    let certificate = tls.peer.as_ref().and_then(|peer| peer.chain.first().cloned()).ok_or(Missed::Unreachable)?;
    let was_asked = server.with.connector.as_ref().is_some_and(|connector| connector.offers());
    let found = Found { protocol: tls.alpn.clone(), was_asked, invalid, certificate };
    key.pinned = invalid.map(|_| pin(&found.certificate));
    keep(conn, server, key, Stream::Tls(Box::new(stream))).await;
    Ok(found)
}

async fn probe(
    conn: &mut Conn<'_>,
    server: &Server,
    key: Option<&Key>,
    asked: &Requested,
    tolerates: bool,
) -> Option<Result<Probed<Socket>, Unconnected>> {
    let worker = conn.worker;
    let opening = key.map(|key| Box::pin(connect::probe(&worker.shared, server, key, asked, tolerates)));
    assign::timed(conn, server, opening).await
}

/// Keeps the connection for the client's first request.
async fn keep(conn: &Conn<'_>, server: &Server, key: Key, stream: Stream) {
    let worker = &conn.worker;
    let facts = assign::facts_of(&stream);
    if conn.proxy().mode == Mode::Tcp {
        return conn.own.give(key, Returned { stream, facts, tally: None, uses: 0 });
    }
    let tally = |protocol| Some(worker.tally(server.at.proxy, Side::Backend, protocol));
    if !mux::is_spoken_by(&stream, &server.config.settings) {
        return conn.own.give(key, Returned { stream, facts, tally: tally(Protocol::Http1), uses: 0 });
    }
    let proxy = &worker.shared.config.proxies[server.at.proxy];
    let limits = Limits { lenient: proxy.options.accept_invalid_http_response, ..conn.limits() };
    // If it does not take the preface, the request finds out.
    if let Some(mux) = attempt::multiplex(worker, server, stream, facts, &limits).await {
        conn.own.give_mux(key, mux);
    }
}
