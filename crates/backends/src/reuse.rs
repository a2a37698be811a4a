//! What distinguishes connections to a server, and which of the interchangeable ones a request may use; for both HTTP/1
//! and HTTP/2.

use crate::server::{ServerRef, Target};
use penstock_config::model::{HttpReuse, Proxy, ServerSettings};
use penstock_rules::PacketFields;
use std::{
    hash::{Hash, Hasher},
    net::IpAddr,
};

/// Everything that distinguishes connections to servers: a request may only use a connection with an equal key. The
/// settings of the server's line (TLS and its client certificate, protocols offered, source address, version of the
/// PROXY header) are covered by `at`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The server.
    pub at: ServerRef,
    /// The address; it depends on the client's if the server has no address or port of its own.
    pub target: Target,
    /// Whether the connection uses TLS, which an operator may change.
    pub encrypted: bool,
    /// Its name.
    pub name: Name,
    /// The PROXY header at the start, which tells the server who the client is.
    pub header: Option<Box<[u8]>>,
    /// The digest of the only certificate that the server may have: it does not validate, but the client was shown so.
    pub pinned: Option<[u8; 32]>,
    /// The client whose address it comes from, where it does.
    pub source: Option<IpAddr>,
    /// What its packets carry, where rules say so.
    pub packets: PacketFields,
    /// The network namespace, where it depends on the client's.
    pub namespace: Option<Box<str>>,
    /// Whether only HTTP/1.1 is offered although the server's line offers more.
    pub only_http1: bool,
}

/// What a connection is opened for: the name sent in TLS, unless the server's line says how connections are named.
#[derive(Clone, Debug, Default, Eq)]
pub struct Name {
    /// The server name sent in TLS.
    pub sni: Option<Box<str>>,
    /// The value of `pool-conn-name`, which alone counts where it is set.
    pub pool: Option<Box<[u8]>>,
}

impl Name {
    fn counts(&self) -> (Option<&[u8]>, Option<&str>) {
        (self.pool.as_deref(), if self.pool.is_some() { None } else { self.sni.as_deref() })
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.counts() == other.counts()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.counts().hash(state);
    }
}

/// Identifies a client's connection, for server connections that are reserved for it.
pub type Session = usize;

/// The request's permission to use connections that others have used.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// `http-reuse`.
    pub strategy: HttpReuse,
    /// Whether neither the client nor we could repeat the request if the connection turns out to be closed.
    pub first: bool,
    /// The client's connection.
    pub session: Session,
}

impl Claim {
    /// The claim of a client's request. If it would be sent again after any failure of a kept connection, it counts as
    /// not being the first, like in HAProxy.
    pub fn new(proxy: &Proxy, first: bool, session: Session) -> Claim {
        let named = |name: &str| {
            proxy.retry_on.iter().flatten().any(|word| word.text == name || word.text == "all-retryable-errors")
        };
        let repeated = named("conn-failure") && named("empty-response") && named("response-timeout");
        Claim { strategy: proxy.http_reuse, first: first && !repeated, session }
    }

    /// Whether the request may use this connection, which has a matching [`Key`] (manual, `http-reuse`).
    pub fn may_have(&self, offer: &Offer) -> bool {
        let by_age = match (self.strategy, self.first) {
            (HttpReuse::Never, _) | (HttpReuse::Safe, true) => false,
            // A connection that has carried a second exchange has shown that its server honours keep-alive; over
            // HTTP/2, one finished exchange shows it.
            (HttpReuse::Aggressive, true) => offer.carried > u64::from(!offer.multiplexed),
            (HttpReuse::Safe | HttpReuse::Aggressive, false) | (HttpReuse::Always, _) => true,
        };
        match (offer.running, self.strategy) {
            (None, _) => by_age,
            // While a connection is in use, a slow reader could hold up others on it; so only the same client may share
            // it.
            (Some(holder), HttpReuse::Safe) => holder == self.session,
            (Some(_), HttpReuse::Aggressive) => offer.carried > 0,
            (Some(_), HttpReuse::Always) => true,
            (Some(_), HttpReuse::Never) => false,
        }
    }
}

/// A connection that a request might use.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// How many exchanges the connection has completed.
    pub carried: u64,
    /// The client of the first exchange running on it, if there is one. Always `None` for HTTP/1.
    pub running: Option<Session>,
    /// Whether the connection speaks HTTP/2.
    pub multiplexed: bool,
}

/// How many idle connections to a server each of `workers` may keep: an equal share of the server's `pool-max-conn`.
pub fn idle_share(settings: &ServerSettings, workers: usize) -> usize {
    usize::try_from(settings.pool_max_conn).map_or(usize::MAX, |all| all.div_ceil(workers))
}

/// Whether the server's `max-reuse` allows another exchange on a connection that has had `begun`.
pub fn may_go_on(settings: &ServerSettings, begun: u64) -> bool {
    u64::try_from(settings.max_reuse).map_or(true, |most| begun <= most)
}

#[cfg(test)]
mod tests;
