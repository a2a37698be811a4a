//! What follows a response head: bodies, or the two streams of a tunnel.

use super::{Exchange, retry::Ended};
use crate::{
    conn::Conn,
    finish,
    forward::{Broken, Flow, Waits},
    message::{Client, Sink, Source, Upstream},
    patience::{Patience, Side},
    server::ServerRef,
};
use penstock_config::model::Proxy;
use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

/// How the transfer of bodies ended.
pub(super) enum Transfer {
    Done,
    ServerFault,
    ClientFault,
    ClientGone,
    Timeout(Side),
}

pub(super) fn poll_body(
    cx: &mut Context<'_>,
    conn: &mut Conn,
    client: &mut dyn Client,
    upstream: &mut dyn Upstream,
    request: &mut Flow,
    response: &mut Flow,
    patience: &mut Patience,
) -> Poll<Transfer> {
    let buffers = &conn.worker.buffers;
    match response.poll(cx, upstream, client, buffers) {
        // A request that the server did not want to the end is of no more use to anybody.
        Poll::Ready(Ok(())) => return Poll::Ready(Transfer::Done),
        Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ServerFault),
        Poll::Ready(Err(Broken::Sink(_))) => return Poll::Ready(Transfer::ClientGone),
        Poll::Pending => {}
    }
    let mut moved = std::mem::take(&mut response.moved);
    if !request.done {
        match request.poll(cx, client, upstream, buffers) {
            Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ClientFault),
            // The response may say why it stopped reading: that goes on.
            Poll::Ready(Err(Broken::Sink(_))) => request.done = true,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        moved |= std::mem::take(&mut request.moved);
    }
    if client.poll_cancelled(cx).is_ready() {
        return Poll::Ready(Transfer::ClientGone);
    }
    let waits_client = response.waits_for == Waits::Sink || (!request.done && request.waits_for == Waits::Source);
    let waits_server = response.waits_for == Waits::Source || (!request.done && request.waits_for == Waits::Sink);
    patience
        .poll(cx, &mut conn.deadline, conn.worker.clock.now(), (waits_client, waits_server), moved)
        .map(Transfer::Timeout)
}

pub(super) fn finish_body(
    conn: &Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    at: ServerRef,
    result: Transfer,
) -> Result<(), Ended> {
    let counters = conn.worker.counters();
    let (cells, backend) = (counters.server(at.proxy, at.server), counters.backend(at.proxy));
    let termination = match result {
        Transfer::Done => return Ok(()),
        Transfer::ServerFault => {
            cells.response_errors.inc();
            backend.response_errors.inc();
            cells.server_aborts.inc();
            backend.server_aborts.inc();
            b"SD"
        }
        Transfer::ClientFault | Transfer::ClientGone => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            b"CD"
        }
        Transfer::Timeout(Side::Client) => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            b"cD"
        }
        Transfer::Timeout(Side::Server) => {
            cells.server_aborts.inc();
            backend.server_aborts.inc();
            b"sD"
        }
    };
    x.log.termination = *termination;
    client.abort();
    Err(Ended::Over)
}

/// Two byte streams, each ended by itself, until both are or one has been silent for `timeout tunnel`.
pub(super) async fn tunnel(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    upstream: &mut dyn Upstream,
    proxy: &Proxy,
    mut up: Flow,
) -> Result<(), Ended> {
    finish::as_soon_as(conn, client, x);
    up.give_back(&conn.worker.buffers);
    let (mut up, mut down) = (Flow::new(), Flow::new());
    let limit = x.txn.timeout_tunnel_ms.map(Duration::from_millis).or(proxy.timeouts.tunnel);
    let mut patience = Patience::new(conn, x, proxy);
    if limit.is_some() {
        (patience.client, patience.server) = (limit, limit);
    }
    let ended = poll_fn(|cx| {
        conn.worker.clock.tick();
        let buffers = &conn.worker.buffers;
        for (flow, from_client) in [(&mut down, false), (&mut up, true)] {
            if flow.done {
                continue;
            }
            let (source, sink): (&mut dyn Source, &mut dyn Sink) =
                if from_client { (&mut *client, &mut *upstream) } else { (&mut *upstream, &mut *client) };
            if let Poll::Ready(Err(broken)) = flow.poll(cx, source, sink, buffers) {
                let by_client = from_client == matches!(broken, Broken::Source(_));
                return Poll::Ready(Some(if by_client { *b"CD" } else { *b"SD" }));
            }
        }
        if down.done || up.done {
            return Poll::Ready(None);
        }
        let moved = std::mem::take(&mut down.moved) | std::mem::take(&mut up.moved);
        match patience.poll(cx, &mut conn.deadline, conn.worker.clock.now(), (true, true), moved) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Side::Client) => Poll::Ready(Some(*b"cD")),
            Poll::Ready(Side::Server) => Poll::Ready(Some(*b"sD")),
        }
    })
    .await;
    up.give_back(&conn.worker.buffers);
    down.give_back(&conn.worker.buffers);
    x.log.bytes_read = upstream.counts().received;
    if let Some(termination) = ended {
        x.log.termination = termination;
    }
    Err(Ended::Over)
}
