//! Keeps the last invalid message of each proxy for `show errors`: a request for a frontend, a response for a backend.

use crate::process::shared::Shared;
use penstock_config::model::{Config, PerProxy, ProxyId};
use std::{
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// An invalid message.
#[derive(Clone, Debug)]
pub struct BadMessage {
    /// Number of invalid messages before this one.
    pub number: u32,
    /// The time at which the message arrived, in µs since 1970.
    pub unix_us: u64,
    /// The client's frontend.
    pub frontend: ProxyId,
    /// The backend, if one was chosen.
    pub backend: Option<ProxyId>,
    /// The server's name and id, if one was chosen.
    pub server: Option<(String, u32)>,
    /// The client's address; `None` on a unix socket.
    pub source: Option<SocketAddr>,
    /// The listener's id.
    pub listener_id: u32,
    /// What is wrong with the message.
    pub why: String,
    /// The bytes that were read, at most one buffer.
    pub bytes: Vec<u8>,
}

/// The last invalid request and response of each proxy.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    count: AtomicU32,
    requests: PerProxy<Mutex<Option<BadMessage>>>,
    responses: PerProxy<Mutex<Option<BadMessage>>>,
}

impl Captures {
    pub fn new(config: &Config) -> Captures {
        let empty = || config.proxies.iter().map(|_| Mutex::default()).collect();
        Captures { count: AtomicU32::new(0), requests: empty(), responses: empty() }
    }

    /// Number of the next invalid message.
    pub fn next_number(&self) -> u32 {
        self.count.fetch_add(1, Relaxed)
    }

    /// Keeps an invalid request for the frontend that received it.
    pub fn keep_request(&self, message: BadMessage) {
        keep(&self.requests[message.frontend], message);
    }

    /// Keeps an invalid response for its backend.
    pub fn keep_response(&self, message: BadMessage) {
        keep(&self.responses[message.backend.unwrap_or(message.frontend)], message);
    }
}

fn keep(place: &Mutex<Option<BadMessage>>, message: BadMessage) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
}

impl Shared {
    /// Number of invalid messages since the start.
    pub fn bad_messages(&self) -> u32 {
        self.captures.count.load(Relaxed)
    }

    /// The proxy's last invalid request, or its last invalid response.
    pub fn bad_message(&self, proxy: ProxyId, request: bool) -> Option<BadMessage> {
        let places = if request { &self.captures.requests } else { &self.captures.responses };
        places.get(proxy)?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The proxy's number: its `id`, or the next free one.
    pub fn proxy_number(&self, proxy: ProxyId) -> u32 {
        self.proxies[proxy].id
    }
}
