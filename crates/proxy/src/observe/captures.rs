//! Keeps the last invalid message of each proxy for `show errors`: a request for a frontend, a response for a backend.

use crate::{connection::Conn, exchange::state::Exchange, process::shared::Shared};
use penstock_http::Error;
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
    /// When it arrived, in µs since 1970.
    pub unix_us: u64,
    /// Index of the client's frontend in the configuration.
    pub frontend: usize,
    /// Index of the backend in the configuration, if one was chosen.
    pub backend: Option<usize>,
    /// The server's name and id, if one was chosen.
    pub server: Option<(String, u32)>,
    /// The client's address; `None` on a unix socket.
    pub source: Option<SocketAddr>,
    /// The listener's id.
    pub listener_id: u32,
    /// What is wrong with it.
    pub why: String,
    /// The bytes that were read, at most one buffer.
    pub bytes: Vec<u8>,
}

/// The last invalid request and response of each proxy.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    count: AtomicU32,
    requests: Vec<Mutex<Option<BadMessage>>>,
    responses: Vec<Mutex<Option<BadMessage>>>,
}

impl Captures {
    pub fn new(proxies: usize) -> Captures {
        let empty = || (0..proxies).map(|_| Mutex::default()).collect();
        Captures { count: AtomicU32::new(0), requests: empty(), responses: empty() }
    }

    /// Keeps an invalid request: `bytes`, or the head in `x` if it has already been consumed.
    pub fn request(&self, conn: &Conn, x: &Exchange, bytes: &[u8], why: Error) {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            x.request.write_to(&mut bytes);
        }
        keep(&self.requests[conn.frontend], self.captured(conn, x, bytes, why));
    }

    /// Keeps an invalid response.
    pub fn response(&self, conn: &Conn, x: &Exchange, bytes: &[u8], why: Error) {
        let backend = x.backend.unwrap_or(conn.frontend);
        keep(&self.responses[backend], self.captured(conn, x, bytes.to_vec(), why));
    }

    fn captured(&self, conn: &Conn, x: &Exchange, bytes: Vec<u8>, why: Error) -> BadMessage {
        BadMessage {
            number: self.count.fetch_add(1, Relaxed),
            unix_us: conn.worker.clock.unix_us(),
            frontend: conn.frontend,
            backend: x.backend,
            server: x.server.as_ref().map(|server| (server.name.clone(), server.id)),
            source: conn.facts.source(),
            listener_id: conn.facts.listener_id,
            why: why.to_string(),
            bytes,
        }
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
    pub fn bad_message(&self, proxy: usize, request: bool) -> Option<BadMessage> {
        let places = if request { &self.captures.requests } else { &self.captures.responses };
        places.get(proxy)?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The proxy's number: its `id`, or the next free one.
    pub fn proxy_number(&self, proxy: usize) -> u32 {
        self.proxies[proxy].id
    }
}
