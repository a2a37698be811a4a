//! The last message of each proxy that was none, as `show errors` shows it: of a frontend a request, of a backend a response.

use crate::{connection::Conn, exchange::state::Exchange, process::shared::Shared};
use penstock_http::Error;
use std::{
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// A message that was none.
#[derive(Clone, Debug)]
pub struct BadMessage {
    /// How many there were before.
    pub number: u32,
    /// When, in µs since 1970.
    pub unix_us: u64,
    /// The frontend that its client came to, by its place in the configuration.
    pub frontend: usize,
    /// The backend, once chosen.
    pub backend: Option<usize>,
    /// The server's name and number, once chosen.
    pub server: Option<(String, u32)>,
    /// Where the client is; `None` on a unix socket.
    pub source: Option<SocketAddr>,
    /// The number of the listener.
    pub listener_id: u32,
    /// What is wrong with it.
    pub why: String,
    /// What was read of it: a buffer at most.
    pub bytes: Vec<u8>,
}

/// Of each proxy its last request and its last response that was none.
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

    /// A client sent what is no request: `bytes`, or if they have been read already, the head in `x`.
    pub fn request(&self, conn: &Conn, x: &Exchange, bytes: &[u8], why: Error) {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            x.request.write_to(&mut bytes);
        }
        keep(&self.requests[conn.frontend], self.captured(conn, x, bytes, why));
    }

    /// A server sent what is no response.
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
    /// How many messages were none since start.
    pub fn bad_messages(&self) -> u32 {
        self.captures.count.load(Relaxed)
    }

    /// The last request that was none of this proxy, or the last response.
    pub fn bad_message(&self, proxy: usize, request: bool) -> Option<BadMessage> {
        let places = if request { &self.captures.requests } else { &self.captures.responses };
        places.get(proxy)?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of a proxy: its `id`, or the next that was free.
    pub fn proxy_number(&self, proxy: usize) -> u32 {
        self.proxies[proxy].id
    }
}
