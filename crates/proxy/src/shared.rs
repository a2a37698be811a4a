//! What all workers share: the configuration as built, which never changes, and a few atomics.

use crate::Services;
use penstock_config::Config;
use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// Immutable configuration and shared state of one running process.
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// What answers inside the process.
    pub services: Services,
    /// Limits and counts of connections.
    pub limits: Limits,
}

impl Shared {
    pub(crate) fn new(config: Config, services: Services) -> Arc<Self> {
        let limits = Limits::new(&config);
        Arc::new(Shared { config, services, limits })
    }
}

/// Counts of client connections against the limits of the process, of each frontend and of each `bind` line.
#[derive(Debug)]
pub struct Limits {
    /// The process: `maxconn` of `global`.
    pub process: Limit,
    /// Each proxy's frontend side, by its place in the configuration.
    pub frontends: Vec<FrontendLimits>,
    /// Wakes acceptors that wait for a place.
    pub(crate) freed: Notify,
    /// How many acceptors wait, so that closing a connection rarely touches `freed`.
    pub(crate) waiting: AtomicU32,
}

/// Limits of one frontend.
#[derive(Debug)]
pub struct FrontendLimits {
    /// `maxconn` of the frontend.
    pub frontend: Limit,
    /// `maxconn` of its `bind` lines.
    pub binds: Vec<Limit>,
}

/// A count with a limit.
#[derive(Debug)]
pub struct Limit {
    /// Connections there are.
    pub current: AtomicU32,
    /// The most there have been.
    pub peak: AtomicU32,
    /// The most there may be.
    pub max: AtomicU32,
    /// All there have been.
    pub total: AtomicU64,
}

impl Limit {
    fn new(max: u32) -> Self {
        Limit {
            current: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            max: AtomicU32::new(max),
            total: AtomicU64::new(0),
        }
    }
    /// Counts one more, unless that would be too many.
    fn enter(&self) -> bool {
        let now = self.current.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.max.load(Ordering::Relaxed) {
            self.current.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        true
    }
    /// Takes a count back that was of no use.
    fn undo(&self) {
        self.leave();
        self.total.fetch_sub(1, Ordering::Relaxed);
    }
    fn leave(&self) {
        self.current.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Limits {
    fn new(config: &Config) -> Self {
        let frontends = config.proxies.iter().map(|proxy| FrontendLimits {
            frontend: Limit::new(proxy.maxconn.unwrap_or(u32::MAX)),
            binds: proxy.binds.iter().map(|bind| Limit::new(bind.maxconn.unwrap_or(u32::MAX))).collect(),
        });
        Limits {
            process: Limit::new(config.global.maxconn.unwrap_or(u32::MAX)),
            frontends: frontends.collect(),
            freed: Notify::new(),
            waiting: AtomicU32::new(0),
        }
    }
    /// A place for one more connection, kept until it is dropped.
    pub(crate) fn enter(shared: &Arc<Shared>, proxy: usize, bind: usize) -> Option<Place> {
        let limits = &shared.limits;
        let frontend = &limits.frontends[proxy];
        if !frontend.binds[bind].enter() {
            return None;
        }
        if !frontend.frontend.enter() {
            frontend.binds[bind].undo();
            return None;
        }
        if !limits.process.enter() {
            frontend.frontend.undo();
            frontend.binds[bind].undo();
            return None;
        }
        Some(Place { shared: shared.clone(), proxy: proxy as u32, bind: bind as u32 })
    }
}

/// The place of one client connection under the limits.
pub(crate) struct Place {
    shared: Arc<Shared>,
    proxy: u32,
    bind: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let limits = &self.shared.limits;
        let frontend = &limits.frontends[self.proxy as usize];
        frontend.binds[self.bind as usize].leave();
        frontend.frontend.leave();
        limits.process.leave();
        if limits.waiting.load(Ordering::SeqCst) > 0 {
            limits.freed.notify_waiters();
        }
    }
}
