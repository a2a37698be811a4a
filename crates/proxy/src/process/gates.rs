//! What admits connections: whether a frontend listens, and how many connections may come in per second.

use penstock_config::model::Global;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Whether a frontend accepts connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// The frontend accepts connections.
    #[default]
    Open,
    /// The frontend has stopped for now: its sockets refuse connections.
    Paused,
    /// The frontend has stopped for good: its sockets are closed.
    Shut,
}

/// A frontend's [`Listening`] state, which its acceptors follow.
#[derive(Debug)]
pub(crate) struct Door(pub watch::Sender<Listening>);

impl Default for Door {
    fn default() -> Self {
        Door(watch::Sender::new(Listening::Open))
    }
}

/// What a rate limit of the process counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rated {
    /// Client connections.
    Connections,
    /// Sessions.
    Sessions,
    /// TLS handshakes.
    Tls,
}

/// A limit per second, shared by all acceptors; 0 for none. Tokens are refilled evenly.
#[derive(Debug)]
pub(crate) struct Throttle {
    limit: AtomicU32,
    tokens: Mutex<(Instant, f64)>,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle { limit: AtomicU32::new(0), tokens: Mutex::new((Instant::now(), 0.0)) }
    }
}

impl Throttle {
    pub fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    pub fn set(&self, limit: u32) {
        *self.tokens.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), f64::from(limit));
        self.limit.store(limit, Relaxed);
    }

    /// How long until the next one may be admitted; `None` if that is now.
    fn delay(&self, now: Instant) -> Option<Duration> {
        let limit = f64::from(self.limit());
        if limit == 0.0 {
            return None;
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, left) = *tokens;
        *tokens = (now, (left + now.saturating_duration_since(since).as_secs_f64() * limit).min(limit));
        (tokens.1 < 1.0).then(|| Duration::from_secs_f64((1.0 - tokens.1) / limit))
    }

    /// Counts one that was admitted. Acceptors that waited at the same time may admit slightly more than the tokens
    /// there are; the balance is then negative.
    fn count(&self) {
        if self.limit() > 0 {
            self.tokens.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1.0;
        }
    }
}

/// The rate limits of the whole process.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    pub connections: Throttle,
    pub sessions: Throttle,
    pub tls: Throttle,
}

impl Throttles {
    pub fn new(global: &Global) -> Throttles {
        let throttles = Throttles::default();
        throttles.connections.set(global.maxconnrate);
        throttles.sessions.set(global.maxsessrate);
        throttles.tls.set(global.maxsslrate);
        throttles
    }

    fn of(&self, tls: bool) -> impl Iterator<Item = &Throttle> {
        [&self.connections, &self.sessions].into_iter().chain(tls.then_some(&self.tls))
    }

    /// Returns once another connection, with or without TLS, may be admitted. An operator may change the limits
    /// meanwhile.
    pub async fn wait(&self, tls: bool) {
        while let Some(delay) = self.of(tls).filter_map(|throttle| throttle.delay(Instant::now())).max() {
            tokio::time::sleep(delay.min(Duration::from_millis(100))).await;
        }
    }

    /// Counts one connection that was admitted.
    pub fn count(&self, tls: bool) {
        self.of(tls).for_each(Throttle::count);
    }
}
