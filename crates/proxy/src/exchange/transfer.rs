//! What follows a response head: bodies, or the two streams of a tunnel.

use super::{
    caching::Tee,
    ends::{End, SKIPPED_MAX, Sink, Source, Upstream},
    finish,
    forward::{Broken, Flow, Waits},
    resend::Ended,
    throttle::Throttle,
    timeouts::{Awaited, Patience, Side},
};
use crate::{
    connection::{Conn, in_time},
    exchange::live::Live,
    process::memory::NoMemory,
    server::Server,
    tap::Copying,
    worker::buffer::Buffer,
};
use penstock_cache::Storing;
use penstock_capture::Speaker;
use penstock_config::model::Proxy;
use penstock_rules::{By, During, Termination};
use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
    time::Duration,
};

/// How the transfer of bodies ended.
pub(super) enum Transfer {
    Done,
    ServerFault,
    ClientFault,
    ClientGone,
    Timeout(Side),
    /// There is no memory for the rest.
    Memory(NoMemory),
}

pub(super) fn poll_body(
    cx: &mut Context<'_>,
    live: &mut Live<'_, '_>,
    upstream: &mut dyn Upstream,
    request: &mut Flow,
    response: &mut Flow,
    patience: &mut Patience,
    storing: &mut Option<Box<Storing>>,
) -> Poll<Transfer> {
    let buffers = &live.worker.buffers;
    if live.worker.shared.memory.is_short() {
        *storing = None;
    }
    let polled = match storing {
        None => response.poll(cx, upstream, live.client, buffers),
        Some(_) => response.poll(cx, &mut Tee::new(upstream, storing), live.client, buffers),
    };
    match polled {
        // The rest of a request that the server did not read is no longer needed.
        Poll::Ready(Ok(())) => return Poll::Ready(Transfer::Done),
        Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ServerFault),
        Poll::Ready(Err(Broken::Sink(_))) => return Poll::Ready(Transfer::ClientGone),
        Poll::Ready(Err(Broken::Memory(missing))) => return Poll::Ready(Transfer::Memory(missing)),
        Poll::Pending => {}
    }
    let mut moved = std::mem::take(&mut response.moved);
    if !request.done {
        match request.poll(cx, live.client, upstream, buffers) {
            Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ClientFault),
            // The response may say why it stopped reading, so it is still read.
            Poll::Ready(Err(Broken::Sink(_))) => request.done = true,
            Poll::Ready(Err(Broken::Memory(missing))) => return Poll::Ready(Transfer::Memory(missing)),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        moved |= std::mem::take(&mut request.moved);
    }
    if live.client.poll_cancelled(cx).is_ready() {
        return Poll::Ready(Transfer::ClientGone);
    }
    let is_unread = response.waits_for == Waits::Sink;
    let awaited = Awaited {
        client: is_unread || (!request.done && request.waits_for == Waits::Source),
        server: response.waits_for == Waits::Source || (!request.done && request.waits_for == Waits::Sink),
        is_unread,
    };
    patience.poll(cx, &mut live.conn.deadline, live.worker.clock.now(), awaited, moved).map(Transfer::Timeout)
}

/// The same as [`SKIPPED_MAX`], in time.
const SKIPPING_MAX: Duration = Duration::from_secs(1);

/// A sink that discards up to this many bytes.
struct Nowhere(u64);

impl Sink for Nowhere {
    fn poll_send(&mut self, _: &mut Context<'_>, buffer: &mut Buffer, _: Option<End<'_>>) -> Poll<io::Result<()>> {
        let length = buffer.data().len();
        buffer.consume(length);
        match self.0.checked_sub(length as u64) {
            Some(left) => self.0 = left,
            None => return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into())),
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads and discards a body, so that the server's connection can be used again; if that fails, it cannot.
pub(super) async fn skip_body(conn: &mut Conn<'_>, upstream: &mut dyn Upstream) {
    let worker = conn.worker;
    let (mut flow, mut nowhere) = (Flow::new(), Nowhere(SKIPPED_MAX));
    conn.deadline.set(worker.clock.now(), Some(SKIPPING_MAX));
    let skipped = poll_fn(|cx| flow.poll(cx, upstream, &mut nowhere, &worker.buffers));
    let _ = in_time(&mut conn.deadline, skipped).await;
    flow.give_back(&worker.buffers);
}

/// Forwards the rest of a request's body after the response, so that both connections can be used again; if that fails, neither can.
pub(super) async fn finish_request(live: &mut Live<'_, '_>, upstream: &mut dyn Upstream, request: &mut Flow) {
    let worker = live.worker;
    live.conn.deadline.set(worker.clock.now(), Some(SKIPPING_MAX));
    let rest = poll_fn(|cx| request.poll(cx, live.client, upstream, &worker.buffers));
    let _ = in_time(&mut live.conn.deadline, rest).await;
}

pub(super) fn finish_body(live: &mut Live<'_, '_>, server: Option<&Server>, result: Transfer) -> Result<(), Ended> {
    let counters = live.worker.counters();
    let backend = live.x.counted_backend().map(|backend| counters.backend(backend));
    let counted = || server.map(|server| live.worker.cells(server)).into_iter().chain(backend);
    let termination = match result {
        Transfer::Done => return Ok(()),
        Transfer::ServerFault => {
            counted().for_each(|cells| {
                cells.response_errors.inc();
                cells.server_aborts.inc();
            });
            Termination(By::Server, During::Data)
        }
        Transfer::ClientFault | Transfer::ClientGone => {
            counted().for_each(|cells| cells.client_aborts.inc());
            Termination(By::Client, During::Data)
        }
        Transfer::Timeout(Side::Client) => {
            counted().for_each(|cells| cells.client_aborts.inc());
            Termination(By::ClientTimeout, During::Data)
        }
        Transfer::Timeout(Side::Server) => {
            counted().for_each(|cells| cells.server_aborts.inc());
            Termination(By::ServerTimeout, During::Data)
        }
        Transfer::Memory(NoMemory) => Termination(By::Exhaustion, During::Data),
    };
    // As in HAProxy, the log says of a response from a cache where it came from, even if the client did not take it all.
    if server.is_some() {
        live.x.log.termination = termination;
    }
    live.client.abort();
    Err(Ended::Over)
}

/// Forwards two byte streams, each of which ends by itself, until both have ended or one has been silent for `timeout
/// tunnel`. A client that says nothing for too long has ended its own only, and the server may go on.
pub(super) async fn tunnel(live: &mut Live<'_, '_>, upstream: &mut dyn Upstream, proxy: &Proxy) -> Result<(), Ended> {
    finish::as_soon_as(live);
    let (mut up, mut down) = (Flow::new().streaming(), Flow::new().streaming());
    up.throttle(Throttle::of(&live.x.txn, false, live.worker));
    down.throttle(Throttle::of(&live.x.txn, true, live.worker));
    up.copy(Copying::stream(&live.x.inspected.copied, Speaker::Client));
    down.copy(Copying::stream(&live.x.inspected.copied, Speaker::Server));
    let limit = live.x.txn.timeout_tunnel_ms.map(Duration::from_millis).or(proxy.timeouts.tunnel);
    let mut patience = Patience::new(live.conn, live.x, proxy);
    if limit.is_some() {
        (patience.client, patience.server) = (limit, limit);
    }
    let fins = (live.conn.proxy().timeouts.client_fin, proxy.timeouts.server_fin);
    let mut silent = None;
    let ended = poll_fn(|cx| {
        loop {
            let buffers = &live.worker.buffers;
            let mut served = false;
            for (flow, from_client) in [(&mut down, false), (&mut up, true)] {
                if flow.done {
                    served |= !from_client;
                    continue;
                }
                let (source, sink): (&mut dyn Source, &mut dyn Sink) =
                    if from_client { (&mut *live.client, &mut *upstream) } else { (&mut *upstream, &mut *live.client) };
                if let Poll::Ready(Err(broken)) = flow.poll(cx, source, sink, buffers) {
                    let by = broken.by(from_client);
                    // A client that has all that the server had to say, up to its end, need not end in an orderly way.
                    let is_over = served && by == By::Client;
                    return Poll::Ready((!is_over).then_some(Termination(by, During::Data)));
                }
                served |= flow.done && !from_client;
            }
            if down.done && up.done {
                return Poll::Ready(None);
            }
            let now = live.worker.clock.now();
            let by = ready!(patience.poll_streams(cx, &mut live.conn.deadline, now, [&mut up, &mut down], fins));
            silent.get_or_insert(by.termination());
            if by.is_stuck || by.side == Side::Server {
                return Poll::Ready(None);
            }
            up.end();
        }
    })
    .await;
    up.give_back(&live.worker.buffers);
    down.give_back(&live.worker.buffers);
    live.x.count_response(upstream);
    if let Some(termination) = silent.or(ended) {
        live.x.log.termination = termination;
    }
    Err(Ended::Over)
}
