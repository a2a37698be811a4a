//! What makes two connections to a server different, and which of those that are alike a request may have. HTTP/1 and HTTP/2
//! ask the same questions here.

use crate::server::{ServerRef, Target};
use penstock_config::model::{HttpReuse, Proxy, ServerSettings};

/// Everything that makes two connections to a server different: one serves another's requests only where all of it is the
/// same. What the server's line fixes (TLS and its client certificate, protocols offered, source address, version of the
/// PROXY header) is in `at`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
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

/// A client's connection, as server connections reserved for it know it.
pub type Session = usize;

/// What a request may ask of connections that others have used.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
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
pub struct Offer {
    /// Exchanges it has carried to their end.
    pub carried: u64,
    /// It carries exchanges now, the first of them this client's. Always `None` over HTTP/1.
    pub running: Option<Session>,
    /// It speaks HTTP/2.
    pub multiplexed: bool,
}

/// The idle connections to a server that one of `workers` may keep: `pool-max-conn` is the server's, each worker has its share.
pub fn idle_share(settings: &ServerSettings, workers: usize) -> usize {
    usize::try_from(settings.pool_max_conn).map_or(usize::MAX, |all| all.div_ceil(workers))
}

/// Whether the server's `max-reuse` lets a connection that was given `begun` exchanges have another.
pub fn may_go_on(settings: &ServerSettings, begun: u64) -> bool {
    u64::try_from(settings.max_reuse).map_or(true, |most| begun <= most)
}

#[cfg(test)]
mod tests;
