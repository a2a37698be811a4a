//! What all workers share: the configuration as built, which never changes, and a few atomics.

use super::{
    compiled::Program,
    compressing::Compressing,
    files,
    gates::{Door, Throttles},
    letter_case,
    machine::hostname,
    memory::{Memory, of_connection},
    namespaces::Namespaces,
    programs::Programs,
    returning::{Awaited, Returning, Unknown},
    slow_work::Aside,
    states::{Saved, Unused},
};
use crate::{
    inspect::crossing::Crossings,
    log::LogTargets,
    observe::{
        captures::Captures,
        counter_file::Carried,
        counters::{Counters, Shape},
        engine::Reports,
        history,
        rates::Pace,
    },
    peers::PeersShared,
    server::{Backends, Notice, Parts, ServerRef, numbers},
    servers::{
        checks::plans,
        resolve::{at_start, counts::Resolving},
    },
    tap::Taps,
    worker::pulse::Pulse,
};
use penstock_cache::{Cache, CacheLimits};
use penstock_config::{
    Config, Diagnostics,
    model::{CacheSection, PerProxy, Proxy, ProxyId, ServerSettings},
};
use penstock_http::LetterCase;
use penstock_rules::{ProxyFacts, ServerFacts};
use penstock_tls::{Acceptor, Connector, Disk, Store};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering},
};
use std::time::Instant;
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

/// Immutable configuration and shared state of one running process.
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// The network namespaces that it names.
    pub namespaces: Namespaces,
    /// Limits and counts of connections.
    pub limits: Limits,
    /// How many connections to stats sockets there have been.
    pub(crate) operators: AtomicU64,
    /// Backends and their servers.
    pub backends: Backends,
    /// What rules can see of each proxy.
    pub(crate) proxies: PerProxy<ProxyFacts>,
    /// Certificates and the other files that TLS needs, by file name.
    pub certificates: Store,
    /// TLS of each proxy's `bind` lines; `None` for clear text.
    pub(crate) acceptors: PerProxy<Vec<Option<Acceptor>>>,
    /// Notices of what happens to servers, until a worker takes the receiver.
    notices: Mutex<Option<UnboundedReceiver<Notice>>>,
    /// Rules and everything else that is compiled.
    pub program: Program,
    pub(crate) logs: Arc<LogTargets>,
    /// Counters, by worker.
    pub counters: Arc<Counters>,
    /// Reports of the workers' crypto engines.
    pub engines: Reports,
    /// How many requests, and connections in TCP mode, there were so far: `%rt`.
    pub(crate) requests: AtomicU32,
    /// How many log lines each frontend has written so far: `%lc`.
    pub(crate) log_lines: PerProxy<AtomicU32>,
    /// How many connections each worker has, counted from acceptance; it shows which worker is least busy.
    pub(crate) loads: Vec<AtomicU32>,
    /// Programs of external checks.
    pub(crate) programs: Programs,
    /// Threads that hash passwords, and one that runs services. They are separate so that neither waits for the other.
    pub(crate) hashing: Aside,
    pub(crate) answering: Aside,
    /// What was counted before this process, and where its own counters are kept.
    pub(crate) carried: OnceLock<Carried>,
    /// The caches, by [`penstock_config::model::CacheId`].
    pub caches: Vec<Arc<Cache>>,
    /// Requests that pass a device.
    pub(crate) crossings: Arc<Crossings>,
    /// Where copies of the traffic go.
    pub taps: Taps,
    /// Peers, and the tables that are shared with them.
    pub(crate) peers: PeersShared,
    /// The memory that is left.
    pub(crate) memory: Arc<Memory>,
    /// Limits of compression.
    pub(crate) compressing: Compressing,
    /// Rates over the last second.
    pub(crate) pace: Pace,
    /// What happened over time.
    pub(crate) history: history::SharedHistory,
    /// Saved states of servers that do not exist, until the changes from before the start are made.
    pub(crate) unused_states: Mutex<Unused>,
    /// What the watchdog sees of each worker.
    pub(crate) pulses: Vec<Pulse>,
    /// Counts of DNS queries.
    pub resolving: Resolving,
    /// The last invalid messages, for `show errors`.
    pub(crate) captures: Captures,
    /// The machine's name.
    pub(crate) hostname: String,
    /// The letter case of field names, for peers that depend on it.
    pub(crate) letter_case: Arc<LetterCase>,
}

impl Shared {
    /// Builds it; `None` if the configuration has errors, which are added to `diagnostics`.
    pub(crate) fn build(mut config: Config, workers: usize, diagnostics: &mut Diagnostics) -> Option<Arc<Self>> {
        let mut complete = true;
        at_start::resolve_sources(&mut config, diagnostics);
        at_start::resolve_mailers(&mut config, diagnostics);
        let namespaces = Namespaces::open(&config, diagnostics);
        let certificates = Store::new(&config);
        penstock_tls::check_stores(&config, &certificates, &Disk, diagnostics);
        let acceptors = config.proxies.iter().zip(0..).map(|(proxy, share)| {
            let acceptors = proxy.binds.iter().map(|bind| {
                bind.tls.as_ref()?;
                let built = Acceptor::build(&config, bind, &certificates, &Disk, diagnostics);
                complete &= built.is_some();
                built.map(|acceptor| acceptor.with_share(share))
            });
            acceptors.collect::<Vec<_>>()
        });
        let acceptors = acceptors.collect();
        let connectors = config.proxies.iter().map(|proxy| {
            let connectors = proxy.servers.iter().map(|server| {
                let tls = server.settings.prepared_tls()?;
                let built = Connector::build(tls, server.span, &certificates, &Disk, diagnostics);
                complete &= built.is_some();
                built
            });
            connectors.collect::<Vec<_>>()
        });
        let mut connectors: PerProxy<Vec<Option<Connector>>> = connectors.collect();
        let mut program = Program::compile(&config, diagnostics);
        let check_connectors = config.proxies.iter().zip(&program.checks).map(|(proxy, script)| {
            let servers = proxy.servers.iter();
            servers
                .map(|server| plans::connector(script.as_deref(), server, &certificates, diagnostics))
                .collect::<Vec<_>>()
        });
        let mut check_connectors: PerProxy<Vec<Option<Connector>>> = check_connectors.collect();
        if !complete || diagnostics.has_errors() {
            return None;
        }
        let letter_case = letter_case::read(&config.global, diagnostics);
        let limits = Limits::new(&config);
        let (teller, notices) = unbounded_channel();
        let backends = {
            // Once the first worker has ended, the notices have no receiver.
            let announce = move |notice: &Notice| drop(teller.send(notice.clone()));
            let mut parts = |at: ServerRef, id: u32| {
                let (proxy, place) = (at.proxy, at.server.index());
                let facts = ServerFacts { name: config.proxies[proxy].servers[place].name.clone(), id };
                Parts {
                    expressions: program.servers[proxy][place].take().unwrap_or_default(),
                    connector: connectors[proxy][place].take(),
                    check_connector: check_connectors[proxy][place].take(),
                    ..Parts::new(facts, workers)
                }
            };
            let maxconn = config.global.maxconn.unwrap_or(MAXCONN);
            Backends::new(&config, maxconn, Instant::now(), Box::new(announce), &mut parts)
        };
        for named in &program.named_servers {
            if let Some(server) = backends.server(*named) {
                server.pin();
            }
        }
        let taps = Taps::build(&config, diagnostics);
        let peers = PeersShared::build(&config, &program, &certificates, backends.started(), diagnostics)?;
        let logs = Arc::new(LogTargets::build(&config, &certificates, diagnostics)?);
        let saved = Saved::read(&config, files::read_saved, diagnostics);
        at_start::resolve(&backends, &saved, diagnostics);
        let mut unused_states = saved.restore(&backends);
        // Where changes are kept, they may add these servers before the process serves.
        if config.global.runtime_changes_file.is_none()
            && let Some(told) = std::mem::take(&mut unused_states).told()
        {
            diagnostics.warning(None, told);
        }
        if diagnostics.has_errors() {
            return None;
        }
        Some(Arc::new(Shared {
            counters: Arc::new(Counters::new(
                workers,
                &Shape(config.proxies.iter().map(|proxy| proxy.binds.len()).collect()),
            )),
            engines: Reports::new(workers),
            namespaces,
            limits,
            backends,
            proxies: config
                .proxies
                .entries()
                .zip(proxy_numbers(&config))
                .map(|((id, proxy), number)| ProxyFacts {
                    unique_id_format: program.of(id).unique_id_format.clone(),
                    capture_lengths: [&program.of(id).request_captures, &program.of(id).response_captures]
                        .map(|slots| slots.iter().map(|slot| slot.len).collect()),
                    ..proxy_facts(number, proxy)
                })
                .collect(),
            program,
            certificates,
            acceptors,
            notices: Mutex::new(Some(notices)),
            logs,
            requests: AtomicU32::new(0),
            log_lines: config.proxies.iter().map(|_| AtomicU32::new(0)).collect(),
            operators: AtomicU64::new(0),
            loads: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            hostname: hostname(),
            letter_case,
            programs: Programs::default(),
            hashing: Aside::new("hashing", (workers / 2).max(1)),
            answering: Aside::new("answering", 1),
            carried: OnceLock::new(),
            caches: config.caches.iter().map(cache).collect(),
            crossings: Arc::default(),
            taps,
            peers,
            memory: Arc::default(),
            compressing: Compressing::new(&config.global),
            pace: Pace::default(),
            resolving: Resolving::new(&config),
            captures: Captures::new(&config),
            history: history::SharedHistory::default(),
            unused_states: Mutex::new(unused_states),
            pulses: (0..workers).map(|_| Pulse::default()).collect(),
            config,
        }))
    }
}

impl Shared {
    /// How many idle connections to a server each worker may keep: the server's `pool-max-conn`, divided evenly.
    pub(crate) fn share_of_idle(&self, settings: &ServerSettings) -> usize {
        penstock_backends::reuse::idle_share(settings, self.loads.len())
    }
    /// Takes the receiver of notices about servers; only the first call gets it.
    pub(crate) fn take_notices(&self) -> Option<UnboundedReceiver<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The limit of connections of the process if `maxconn` is not set and no limit of descriptors was asked for.
const MAXCONN: u32 = 8192;

fn cache(section: &CacheSection) -> Arc<Cache> {
    // What does not fit into the memory of a small machine is a limit that is never reached.
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let limits = CacheLimits {
        total: bytes(section.total_size),
        object: bytes(section.object_size()),
        age_s: section.max_age_s,
        vary: section.process_vary,
        variants: section.secondary_entries,
        ranges: section.answer_ranges,
        collapse_ms: section.collapse.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    };
    Cache::new(&section.name, limits)
}

/// The number of every proxy. A `stats socket` counts as a proxy, and comes first.
fn proxy_numbers(config: &Config) -> Vec<u32> {
    let first = 1 + u32::from(!config.global.stats_sockets.is_empty());
    numbers(config.proxies.iter().map(|proxy| proxy.id), first)
}

fn proxy_facts(id: u32, proxy: &Proxy) -> ProxyFacts {
    let ms = |timeout: Option<std::time::Duration>| timeout.map_or(0, |t| t.as_millis() as u64);
    // Timeouts for a backend that a frontend merely inherited from its defaults do not count as its own.
    let of_backend = |timeout| if proxy.kind.has_backend() { ms(timeout) } else { 0 };
    ProxyFacts {
        name: proxy.name.clone(),
        id,
        http: proxy.mode == penstock_config::model::Mode::Http,
        default_backend: proxy.default_backend.as_ref().map(|word| word.text.clone()),
        logasap: proxy.options.logasap,
        manages_cookie: proxy.manages_cookie(),
        timeout_client_ms: ms(proxy.timeouts.client),
        timeout_server_ms: of_backend(proxy.timeouts.server),
        timeout_tunnel_ms: of_backend(proxy.timeouts.tunnel),
        capture_lengths: Default::default(),
        unique_id_format: None,
    }
}

/// Client connections counted against the limits of the process, of each frontend and of each `bind` line.
#[derive(Debug)]
pub struct Limits {
    /// The process: `maxconn` of `global`.
    pub process: Limit,
    /// Limits of each proxy's frontend side.
    pub frontends: PerProxy<FrontendLimits>,
    /// Limits per second.
    pub(crate) throttles: Throttles,
    /// Wakes acceptors that wait for a free place.
    pub(crate) freed: Notify,
    /// How many acceptors wait, so that closing a connection rarely has to touch `freed`.
    pub(crate) waiting: AtomicU32,
}

/// Limits of one frontend.
#[derive(Debug)]
pub struct FrontendLimits {
    /// `maxconn` of the frontend.
    pub frontend: Limit,
    /// `maxconn` of its `bind` lines.
    pub binds: Vec<Limit>,
    /// Whether the frontend accepts connections, has paused, or has shut.
    pub(crate) door: Door,
    /// Of a service: its connections are counted here, and not against the limit of the process.
    pub(crate) returning: Option<Arc<Returning>>,
}

/// A counter with a limit.
#[derive(Debug)]
pub struct Limit {
    /// Current count.
    pub current: AtomicU32,
    /// Highest count so far.
    pub peak: AtomicU32,
    /// Highest count allowed.
    pub max: AtomicU32,
    /// How many were counted in total.
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
    /// The current count.
    pub fn current(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }
    fn has_room(&self) -> bool {
        self.current() < self.max.load(Ordering::Relaxed)
    }
    /// Counts one more unless that exceeds the limit; returns whether it did count.
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
    /// Takes back a count that turned out not to be needed.
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
            door: Door::default(),
            returning: (proxy.service.is_some() && proxy.kind.has_frontend()).then(Arc::default),
        });
        Limits {
            process: Limit::new(config.global.maxconn.unwrap_or(u32::MAX)),
            frontends: frontends.collect(),
            throttles: Throttles::new(&config.global),
            freed: Notify::new(),
            waiting: AtomicU32::new(0),
        }
    }
    /// Resets the highest count so far, and with `all` the total.
    pub(crate) fn clear(&self, all: bool) {
        let of_frontends = self.frontends.iter().flat_map(|limits| limits.binds.iter().chain([&limits.frontend]));
        for limit in of_frontends.chain([&self.process]) {
            limit.peak.store(0, Ordering::Relaxed);
            if all {
                limit.total.store(0, Ordering::Relaxed);
            }
        }
    }
    /// Whether one more connection would be let in.
    pub(crate) fn has_place(&self, proxy: ProxyId, bind: usize) -> bool {
        let frontend = &self.frontends[proxy];
        let has_room = match &frontend.returning {
            Some(returning) => returning.has_place(),
            None => self.process.has_room(),
        };
        has_room && frontend.frontend.has_room() && frontend.binds[bind].has_room()
    }
    /// Makes room for a connection that comes back to a service; `None` if nothing can.
    pub(crate) fn expect_return(&self, service: ProxyId) -> Option<Awaited> {
        let awaited = self.frontends[service].returning.as_ref()?.expect();
        self.wake();
        Some(awaited)
    }
    /// Wakes acceptors that wait for a place.
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
    /// Takes a place for one more connection of a worker, until the returned guard is dropped.
    pub(crate) fn enter(shared: &Arc<Shared>, proxy: ProxyId, bind: usize, worker: usize) -> Option<Place> {
        let limits = &shared.limits;
        let frontend = &limits.frontends[proxy];
        if !frontend.binds[bind].enter() {
            return None;
        }
        if !frontend.frontend.enter() {
            frontend.binds[bind].undo();
            return None;
        }
        let entered = match &frontend.returning {
            Some(returning) => returning.enter(),
            None => limits.process.enter(),
        };
        if !entered {
            frontend.frontend.undo();
            frontend.binds[bind].undo();
            return None;
        }
        shared.loads[worker].fetch_add(1, Ordering::Relaxed);
        Some(Place {
            shared: shared.clone(),
            proxy,
            bind: bind as u32,
            worker: worker as u32,
            is_unknown: frontend.returning.is_some(),
        })
    }
}

/// The place of one client connection, counted against the limits and for its worker.
pub(crate) struct Place {
    shared: Arc<Shared>,
    proxy: ProxyId,
    bind: u32,
    worker: u32,
    /// Whether it is counted as one that has brought nothing back.
    is_unknown: bool,
}

impl Place {
    /// Counts the connection for another worker, which it is handed to.
    pub fn move_to(&mut self, worker: usize) {
        let loads = &self.shared.loads;
        loads[self.worker as usize].fetch_sub(1, Ordering::Relaxed);
        loads[worker].fetch_add(1, Ordering::Relaxed);
        self.worker = worker as u32;
    }
    /// What counts the connection as one that has brought nothing back, on a `bind` line of a service.
    pub fn take_unknown(&mut self) -> Option<Unknown> {
        let returning = self.shared.limits.frontends[self.proxy].returning.as_ref()?;
        std::mem::take(&mut self.is_unknown).then(|| Unknown(returning.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_tls = self.shared.acceptors[self.proxy][self.bind as usize].is_some();
        self.shared.memory.ended(of_connection(is_tls));
        let limits = &self.shared.limits;
        let frontend = &limits.frontends[self.proxy];
        frontend.binds[self.bind as usize].leave();
        frontend.frontend.leave();
        match &frontend.returning {
            Some(returning) if self.is_unknown => returning.leave(),
            Some(_) => {}
            None => limits.process.leave(),
        }
        self.shared.loads[self.worker as usize].fetch_sub(1, Ordering::Relaxed);
        limits.wake();
    }
}
