//! What arrives on the `bind` lines of a service in mode tcp: connections that a device has passed on. Each is recognised by its addresses, and goes
//! on in the name of the client's.

use super::{device, forward::to_backend, raw::Raw};
use crate::{
    connection::{
        Conn,
        stream::{Fill, Stream},
    },
    exchange::finish,
    http1::{client_side::Http1Client, connection},
    inspect::{
        crossing::{Crossing, Path},
        passage, returned,
    },
    worker::present::Present,
};
use penstock_rules::{By, During, Termination};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// How long a connection may be unknown: whoever has made it notes that as soon as it learns that it is there.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// What a connection turned out to be.
enum Found {
    Request,
    Stream,
    Unknown,
    /// It was closed, like that of a health check.
    Closed,
}

/// Serves a connection that a device has passed on.
pub(crate) async fn run(mut conn: Box<Conn<'_>>, stream: Stream) {
    let worker = conn.worker;
    let mut client = Box::new(Raw::new(stream, worker, true));
    let path = Path::new(conn.facts.peer, conn.facts.local);
    let found = match path {
        Some(path) => find(&mut conn, &mut client, path).await,
        // A health check may have reset it before anybody could ask for its addresses.
        None => Found::Closed,
    };
    match (found, path) {
        (Found::Request, _) => {
            let client = Box::new(Http1Client::new(client.stream, &conn, client.input));
            return Box::pin(connection::run(conn, client, None)).await;
        }
        (Found::Stream, Some(path)) => {
            // It may have been given up meanwhile.
            if let Some(crossing) = worker.shared.crossings.claim_on(conn.frontend, path) {
                conn.own.note_return();
                serve(&mut conn, &mut client, crossing).await;
            }
        }
        (Found::Closed, _) => {}
        (Found::Stream | Found::Unknown, _) => {
            conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
            client.stream.socket().reset_on_close();
            let why = "Connection refused: none with its addresses was sent to a device";
            finish::log_handshake_failure(&mut conn, why);
        }
    }
    if let Some(input) = client.input.take() {
        client.buffers().give(input);
    }
}

async fn find(conn: &mut Conn<'_>, client: &mut Raw, path: Path) -> Found {
    let worker = conn.worker;
    conn.deadline.set(worker.clock.tick(), Some(UNKNOWN_FOR));
    let mut arrival = pin!(worker.shared.crossings.arrival(conn.frontend, path));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(is_stream) = arrival.as_mut().poll(cx) {
                return Poll::Ready(if is_stream { Found::Stream } else { Found::Request });
            }
            if client.input.is_none() {
                match client.poll_more(cx) {
                    Poll::Ready(Ok(Fill::Bytes(_))) => continue,
                    Poll::Ready(_) => return Poll::Ready(Found::Closed),
                    Poll::Pending => {}
                }
            }
            return conn.deadline.poll_expired(cx).map(|()| Found::Unknown);
        }
    })
    .await
}

/// Serves the connection in the name of the client's, whose exchange counts and logs it.
async fn serve(conn: &mut Conn<'_>, client: &mut Raw, crossing: Crossing) {
    let worker = conn.worker;
    let mut x = worker.take_exchange();
    let now = worker.clock.tick();
    conn.begin(&mut x, now, now);
    x.times.complete = Some(now);
    let present = Present::begin(conn);
    x.listed = Some(present.place());
    let backend = crossing.backend;
    returned::adopt(conn, &mut x, crossing);
    x.txn.status = Some(0);
    let served = {
        let work = pin!(async {
            if !device::is_due(conn, &x) || device::pass(conn, client, &mut x, backend).await {
                to_backend(conn, client, &mut x, backend).await;
            }
        });
        present.unless_ended(work).await
    };
    if served.is_none() {
        x.log.termination = Termination(By::Operator, During::Nothing);
    }
    passage::report_connection(&mut x, false);
    passage::settle(conn, &mut x);
    finish::behind_device(conn, client.counts.received, &mut x);
    worker.give_exchange(x);
}
