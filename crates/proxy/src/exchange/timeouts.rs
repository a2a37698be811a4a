//! When one side of an exchange has been silent for too long. Between requests, that is up to `Conn::patience`.

use super::{
    forward::{Flow, Waits},
    state::Exchange,
};
use crate::{
    connection::{Conn, timer::Deadline},
    process::memory,
    worker::state::Worker,
};
use penstock_config::model::Proxy;
use penstock_rules::{By, During, Termination};
use std::{
    rc::Rc,
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
    worker: Rc<Worker>,
}

/// `timeout client`, or what `set-timeout client` has put in its place.
pub(crate) fn client_timeout(conn: &Conn<'_>, x: &Exchange) -> Option<Duration> {
    x.txn.timeout_client_ms.map(Duration::from_millis).or(conn.proxy().timeouts.client)
}

/// `timeout server`, or what `set-timeout server` has put in its place.
pub(crate) fn server_timeout(x: &Exchange, proxy: &Proxy) -> Option<Duration> {
    x.txn.timeout_server_ms.map(Duration::from_millis).or(proxy.timeouts.server)
}

/// What an exchange waits for.
#[derive(Clone, Copy)]
pub(crate) struct Awaited {
    pub client: bool,
    pub server: bool,
    /// The client is to take what there is for it, which is kept until then.
    pub is_unread: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Which of two sides, each the source of a byte stream and the sink of the other's, was silent for too long.
#[derive(Clone, Copy)]
pub(crate) struct Silent {
    pub side: Side,
    /// Whether it did not take what there was for it. Otherwise it only said nothing, and may still be told something.
    pub is_stuck: bool,
}

impl Silent {
    /// How an exchange ends for this reason.
    pub fn termination(self) -> Termination {
        match self.side {
            Side::Client => Termination(By::ClientTimeout, During::Data),
            Side::Server => Termination(By::ServerTimeout, During::Data),
        }
    }
}

impl Patience {
    pub fn new(conn: &Conn<'_>, x: &Exchange, proxy: &Proxy) -> Self {
        Patience {
            client: client_timeout(conn, x),
            server: server_timeout(x, proxy),
            client_due: None,
            server_due: None,
            is_half_closed: false,
            worker: conn.worker.clone(),
        }
    }
    /// Called when rules for the response have run, which may have set timeouts: they hold from the next byte on.
    pub fn obey_rules(&mut self, conn: &Conn<'_>, x: &Exchange, proxy: &Proxy) {
        (self.client, self.server) = (client_timeout(conn, x), server_timeout(x, proxy));
    }
    /// Called when something came from the server, and the time for something else ran meanwhile: both deadlines begin anew.
    pub fn begin_anew(&mut self) {
        (self.client_due, self.server_due) = (None, None);
    }
    /// As [`Patience::poll`] for two byte streams, from the client and to it, each of which ends by itself. Once one has
    /// ended, `timeout client-fin` or `server-fin` of `fins` applies to the side that was told so.
    pub fn poll_streams(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        now: Instant,
        [up, down]: [&mut Flow; 2],
        fins: (Option<Duration>, Option<Duration>),
    ) -> Poll<Silent> {
        if up.done != down.done && !std::mem::replace(&mut self.is_half_closed, true) {
            let (limit, due, fin) = match up.done {
                true => (&mut self.server, &mut self.server_due, fins.1),
                false => (&mut self.client, &mut self.client_due, fins.0),
            };
            if fin.is_some() {
                (*limit, *due) = (fin, None);
            }
        }
        let moved = std::mem::take(&mut up.moved) | std::mem::take(&mut down.moved);
        let waits = |flow: &Flow, end| !flow.done && flow.waits_for == end;
        let (is_unread, is_unsent) = (waits(down, Waits::Sink), waits(up, Waits::Sink));
        let awaited = Awaited {
            client: waits(up, Waits::Source) || is_unread,
            server: waits(down, Waits::Source) || is_unsent,
            is_unread,
        };
        self.poll(cx, deadline, now, awaited, moved).map(|side| match side {
            Side::Client => Silent { side, is_stuck: is_unread },
            Side::Server => Silent { side, is_stuck: is_unsent },
        })
    }
    /// Ready with the side that was silent for too long. `moved` restarts both timers.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        now: Instant,
        awaited: Awaited,
        moved: bool,
    ) -> Poll<Side> {
        let Awaited { client, server, is_unread } = awaited;
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
            deadline.set_at(self.client_due.into_iter().chain(self.server_due).min());
        }
        let soon = now + memory::PATIENCE;
        if is_unread && self.worker.shared.memory.is_short() && self.client_due.is_none_or(|due| due > soon) {
            self.client_due = Some(soon);
            deadline.set_at(self.server_due.into_iter().chain([soon]).min());
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
