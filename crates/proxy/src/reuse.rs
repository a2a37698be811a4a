//! What makes two connections to a server different, and which of those that are alike a request may have. HTTP/1 and HTTP/2
//! ask the same questions here.

use crate::{
    connection::Conn,
    exchange::state::Exchange,
    route,
    rules::evaluate::{self, Stage},
    server::{Server, ServerRef, Target},
    servers::connect,
};
use penstock_config::model::{HttpReuse, Proxy, ServerSettings};

/// Everything that makes two connections to a server different: one serves another's requests only where all of it is the
/// same. What the server's line fixes (TLS and its client certificate, protocols offered, source address, version of the
/// PROXY header) is in `at`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The server.
    pub at: ServerRef,
    /// Where the connection leads: a server without an address or port is where its client went.
    pub target: Target,
    /// The name TLS is asked for.
    pub sni: Option<Box<str>>,
    /// The PROXY header it begins with: whose connection the server takes it for.
    pub header: Option<Box<[u8]>>,
    /// Nothing but HTTP/1.1 is offered, where the server's line offers more.
    pub only_http1: bool,
}

impl Key {
    /// What the request's connection to that server must be; `None` while the server's name does not resolve.
    pub fn of(
        conn: &mut Conn,
        x: &mut Exchange,
        server: &Server,
        at: ServerRef,
        only_http1: bool,
        stage: Stage,
    ) -> Option<Key> {
        let target = server.endpoint.load().target(x.txn.destination(&conn.facts))?;
        let sni = route::sni(conn, x, server, at, stage);
        let settings = &server.config.settings;
        let header = settings.send_proxy.map(|version| {
            if settings.proxy_v2_options.iter().any(|option| option == "unique-id") {
                let worker = conn.worker.clone();
                evaluate::context(&worker, conn, x, stage).make_unique_id();
            }
            let mut header = Vec::with_capacity(128);
            connect::proxy_header(conn, &x.txn, version, &settings.proxy_v2_options, &mut header);
            header.into_boxed_slice()
        });
        Some(Key { at, target, sni: sni.map(String::into_boxed_str), header, only_http1 })
    }
}

/// A client's connection, as server connections reserved for it know it.
pub(crate) type Session = usize;

/// What a request may ask of connections that others have used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// `http-reuse`.
    pub strategy: HttpReuse,
    /// The client could not repeat it by itself if the connection turns out to be closed, and neither could we.
    pub first: bool,
    /// Whose request it is.
    pub session: Session,
}

impl Claim {
    /// The claim of a client's request. One that would be sent again after any way a kept connection can fail need not be
    /// spared: HAProxy treats it as one that is not the first.
    pub fn new(proxy: &Proxy, first: bool, session: Session) -> Claim {
        let named = |name: &str| {
            proxy.retry_on.iter().flatten().any(|word| word.text == name || word.text == "all-retryable-errors")
        };
        let repeated = named("conn-failure") && named("empty-response") && named("response-timeout");
        Claim { strategy: proxy.http_reuse, first: first && !repeated, session }
    }

    /// Whether it may have that connection, which fits its [`Key`] (manual, `http-reuse`).
    pub fn may_have(&self, offer: &Offer) -> bool {
        let by_age = match (self.strategy, self.first) {
            (HttpReuse::Never, _) | (HttpReuse::Safe, true) => false,
            // One that has carried a second exchange has proved that its server honours keep-alive; over HTTP/2 one
            // finished exchange proves it.
            (HttpReuse::Aggressive, true) => offer.carried > u64::from(!offer.multiplexed),
            (HttpReuse::Safe | HttpReuse::Aggressive, false) | (HttpReuse::Always, _) => true,
        };
        match (offer.running, self.strategy) {
            (None, _) => by_age,
            // While it serves somebody a slow reader could hold up others: they wait for nobody but themselves.
            (Some(holder), HttpReuse::Safe) => holder == self.session,
            (Some(_), HttpReuse::Aggressive) => offer.carried > 0,
            (Some(_), HttpReuse::Always) => true,
            (Some(_), HttpReuse::Never) => false,
        }
    }
}

/// A connection that a request might have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Exchanges it has carried to their end.
    pub carried: u64,
    /// It carries exchanges now, the first of them this client's. Always `None` over HTTP/1.
    pub running: Option<Session>,
    /// It speaks HTTP/2.
    pub multiplexed: bool,
}

/// Whether the server's `max-reuse` lets a connection that was given `begun` exchanges have another.
pub(crate) fn may_go_on(settings: &ServerSettings, begun: u64) -> bool {
    u64::try_from(settings.max_reuse).map_or(true, |most| begun <= most)
}

#[cfg(test)]
mod tests;
