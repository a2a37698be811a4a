//! When one side of an exchange has been silent for too long.

use super::{
    forward::{Flow, Waits},
    state::Exchange,
};
use crate::connection::{Conn, timer::Deadline};
use penstock_config::model::Proxy;
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// The deadlines of both sides. A side from which nothing is expected has none.
pub(crate) struct Patience {
    pub client: Option<Duration>,
    pub server: Option<Duration>,
    client_due: Option<Instant>,
    server_due: Option<Instant>,
    is_half_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Patience {
    pub fn new(conn: &Conn, x: &Exchange, proxy: &Proxy) -> Self {
        let server = x.txn.timeout_server_ms.map(Duration::from_millis).or(proxy.timeouts.server);
        Patience {
            client: conn.proxy().timeouts.client,
            server,
            client_due: None,
            server_due: None,
            is_half_closed: false,
        }
    }
    /// As [`Patience::poll`] for two byte streams, from the client and to it, each of which ends by itself. Once one has
    /// ended, `fins` (`timeout client-fin` and `server-fin`) apply to whichever side is still expected to do something.
    pub fn poll_streams(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        now: Instant,
        [up, down]: [&mut Flow; 2],
        fins: (Option<Duration>, Option<Duration>),
    ) -> Poll<Side> {
        if up.done != down.done {
            self.half_closed(fins.0, fins.1);
        }
        let moved = std::mem::take(&mut up.moved) | std::mem::take(&mut down.moved);
        let waits = |flow: &Flow, end| !flow.done && flow.waits_for == end;
        let on_client = waits(up, Waits::Source) || waits(down, Waits::Sink);
        let on_server = waits(down, Waits::Source) || waits(up, Waits::Sink);
        self.poll(cx, deadline, now, (on_client, on_server), moved)
    }
    /// Called when one direction has ended: applies these limits from now on, where set, and restarts the timers.
    fn half_closed(&mut self, client: Option<Duration>, server: Option<Duration>) {
        if !std::mem::replace(&mut self.is_half_closed, true) {
            (self.client, self.server) = (client.or(self.client), server.or(self.server));
            (self.client_due, self.server_due) = (None, None);
        }
    }
    /// Ready with the side that was silent for too long. `moved` restarts both timers.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        now: Instant,
        waits: (bool, bool),
        moved: bool,
    ) -> Poll<Side> {
        let (client, server) = waits;
        let stands = |waits: bool, due: Option<Instant>| waits == due.is_some();
        if moved || !stands(client, self.client_due) || !stands(server, self.server_due) {
            let due = |waits: bool, due: Option<Instant>, limit: Option<Duration>| match (waits, limit) {
                (true, Some(limit)) => {
                    if moved {
                        Some(now + limit)
                    } else {
                        due.or(Some(now + limit))
                    }
                }
                _ => None,
            };
            self.client_due = due(client, self.client_due, self.client);
            self.server_due = due(server, self.server_due, self.server);
            deadline.set_at(match (self.client_due, self.server_due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            });
        }
        match deadline.poll_expired(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if self.client_due.is_some() && self.client_due <= deadline.due() => {
                Poll::Ready(Side::Client)
            }
            Poll::Ready(()) => Poll::Ready(Side::Server),
        }
    }
}
