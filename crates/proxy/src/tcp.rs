//! `mode tcp`: forwards bytes both ways; each direction ends by itself.

mod device;
mod forward;
pub(crate) mod raw;
pub(crate) mod returned;

use crate::{
    connection::Conn,
    exchange::{
        finish,
        state::{Exchange, Switched, Times},
    },
    http1::{client_side::Http1Client, connection},
    http2,
    inspect::passage,
    route::content::{self, Connected},
    tcp::raw::Raw,
    worker::present::Present,
};
use penstock_config::model::ProxyId;
use penstock_http::Version;
use penstock_rules::{By, During, Termination};
use std::pin::pin;

/// Serves a connection to its end; one that is not decrypted goes to the backend that a `tcp-request client-hello` rule has chosen.
/// Both boxes would be stored twice as values.
pub(crate) async fn run(mut conn: Box<Conn<'_>>, mut client: Box<Raw>, backend: Option<ProxyId>) {
    let worker = conn.worker;
    let mut x = worker.take_exchange();
    let now = worker.clock.tick();
    conn.begin(&mut x, now, now);
    // As in HAProxy, the handshake counts as waiting: there is no request that could be complete.
    x.times.complete = Some(conn.accepted);
    x.log.request_counter = worker.next_request();
    x.txn.status = Some(0);
    x.bypassed = backend.is_some();
    let present = Present::begin(&conn);
    x.listed = Some(present.place());
    let served = {
        let work = pin!(served(&mut conn, &mut client, &mut x, backend));
        present.unless_ended(work).await
    };
    match served {
        Some(Served::Over) => {}
        Some(Served::Http(version)) => {
            drop(present);
            return Box::pin(go_on_as_http(conn, *client, x, version)).await;
        }
        None => {
            x.log.termination = Termination(By::Operator, During::Nothing);
            x.log.srv_conn = x.server.as_ref().map_or(0, |server| server.served());
        }
    }
    if x.times.connected.is_none() {
        client.discard().await;
    }
    if let Some(input) = client.input.take() {
        client.buffers().give(input);
    }
    passage::settle(&mut conn, &mut x);
    finish::tcp(&mut conn, client.counts.received, &mut x);
    worker.give_exchange(x);
}

/// The result of serving a connection in TCP mode.
enum Served {
    Over,
    /// The connection continues as an HTTP connection, maybe of a version that a rule has fixed.
    Http(Option<Version>),
}

/// Serves what is an HTTP connection from here on. Its first request over HTTP/1 continues the exchange, with the variables, captures and
/// counters that rules have set; streams of HTTP/2 begin anew, and the rules judge each, as in HAProxy.
async fn go_on_as_http(conn: Box<Conn<'_>>, mut client: Raw, mut x: Box<Exchange>, version: Option<Version>) {
    if version == Some(Version::Http2) {
        conn.worker.give_exchange(x);
        let begun = client.pending().to_vec();
        if let Some(input) = client.input.take() {
            client.buffers().give(input);
        }
        return Box::pin(http2::connection::run(conn, client.stream, begun)).await;
    }
    x.switched = Some(Switched { only_http1: version.is_some() });
    (x.times, x.listed, x.txn.status) = (Times::default(), None, None);
    let client = Box::new(Http1Client::new(client.stream, &conn, client.input));
    Box::pin(connection::run(conn, client, Some(x))).await
}

async fn served(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, backend: Option<ProxyId>) -> Served {
    let connected = match backend {
        Some(backend) => content::enter(conn, client, x, backend).await,
        None => content::connection(conn, client, x).await,
    };
    match connected {
        Connected::Backend(backend) => {
            if !device::is_due(conn, x) || Box::pin(device::pass(conn, client, x, backend)).await {
                forward::to_backend(conn, client, x, backend).await;
            }
        }
        Connected::Http(_) if device::is_due(conn, x) => device::refuse_http(conn, x),
        Connected::Http(version) => return Served::Http(version),
        Connected::Over => {}
    }
    Served::Over
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_is_small() {
        assert!(size(run) <= 1328, "the task of a connection: {}", size(run));
    }
}
