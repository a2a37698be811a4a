//! The `peers` sections of a configuration, ready to run.

use super::{tables::Tables, view::PeersView};
use crate::process::compiled::Program;
use penstock_config::{
    Config, Diagnostics,
    model::{ListenAddress, Peer, Peers, ServerHost},
};
use penstock_tls::{Acceptor, Connector, Disk, Store};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc::UnboundedSender, watch};

/// How long an operator's question waits for the thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// A question about the state of all sections.
pub(super) type Question = mpsc::Sender<Vec<PeersView>>;

/// What the thread of peers shares with the rest of the process.
pub(crate) struct PeersShared {
    pub sections: Vec<PeersSection>,
    /// Most entries sent at a time.
    pub updates_max: usize,
    pub changes: Arc<Changes>,
    /// Increased whenever the process is told to end.
    pub ending: watch::Sender<u8>,
    /// Sessions that there should be, and sessions that there are.
    pub active: AtomicU32,
    pub connected: AtomicU32,
    asker: Mutex<Option<UnboundedSender<Question>>>,
}

/// Wakes the thread when an entry has changed, once until it looks.
#[derive(Default)]
pub(crate) struct Changes {
    some: AtomicBool,
    notify: Notify,
}

impl Changes {
    fn tell(&self) {
        if !self.some.swap(true, SeqCst) {
            self.notify.notify_one();
        }
    }

    /// Waits for changes.
    pub async fn wait(&self) {
        while !self.some.load(SeqCst) {
            self.notify.notified().await;
        }
    }

    /// Declares those so far as seen.
    pub fn see(&self) {
        self.some.store(false, SeqCst);
    }
}

/// A section that is not disabled.
pub(crate) struct PeersSection {
    /// The section's index in the configuration's peers sections.
    pub at: usize,
    pub name: String,
    /// The name of this process.
    pub local: String,
    pub peers: Vec<PeerPlace>,
    /// TLS of each `bind` line.
    pub acceptors: Vec<Option<Acceptor>>,
    /// The address on which a successor of this process listens.
    pub successor: Option<SocketAddr>,
    pub tables: Arc<Tables>,
}

/// A peer, and how it is reached.
pub(crate) struct PeerPlace {
    pub name: String,
    pub is_local: bool,
    pub address: Option<SocketAddr>,
    pub connector: Option<Connector>,
}

impl PeersShared {
    /// Builds all sections; `None` if the configuration has errors, which are added to `diagnostics`.
    pub fn build(
        config: &Config,
        program: &Program,
        certificates: &Store,
        started: Instant,
        diagnostics: &mut Diagnostics,
    ) -> Option<PeersShared> {
        let changes = Arc::new(Changes::default());
        let mut complete = true;
        let mut sections = Vec::new();
        for (at, section) in config.peers.iter().enumerate().filter(|(_, section)| !section.disabled) {
            let tables = Arc::new(Tables::new(tables_of(config, section, program), started));
            for table in &tables.tables {
                let changes = changes.clone();
                table.on_change(move || changes.tell());
            }
            let acceptors = section.binds.iter().map(|bind| {
                bind.tls.as_ref()?;
                let built = Acceptor::build(config, bind, certificates, &Disk, diagnostics);
                complete &= built.is_some();
                built
            });
            let acceptors = acceptors.collect();
            let peers = section.peers.iter().map(|peer| {
                let connector = peer.settings.prepared_tls().and_then(|tls| {
                    let built = Connector::build(tls, peer.span, certificates, &Disk, diagnostics);
                    complete &= built.is_some();
                    built
                });
                let (name, address) = (peer.name.clone(), address(peer, diagnostics));
                PeerPlace { name, is_local: peer.is_local, address, connector }
            });
            let peers: Vec<_> = peers.collect();
            let local = section.peers.iter().find(|peer| peer.is_local).map(|peer| peer.name.clone());
            sections.push(PeersSection {
                at,
                name: section.name.clone(),
                local: local.unwrap_or_default(),
                peers,
                acceptors,
                successor: successor(section),
                tables,
            });
        }
        let active = sections.iter().flat_map(|section| &section.peers).filter(|peer| !peer.is_local).count();
        (complete && !diagnostics.has_errors()).then(|| PeersShared {
            sections,
            updates_max: config.global.tune.peers_max_updates as usize,
            changes,
            ending: watch::Sender::new(0),
            active: AtomicU32::new(active as u32),
            connected: AtomicU32::new(0),
            asker: Mutex::default(),
        })
    }

    /// Peers, and those with which there is a session.
    pub fn counts(&self) -> (u32, u32) {
        (self.active.load(SeqCst), self.connected.load(SeqCst))
    }

    /// The state of all sections. Waits for the thread's answer, so no worker may ask.
    pub fn view(&self) -> Vec<PeersView> {
        let (answer, answered) = mpsc::channel();
        let asked = self.lock().as_ref().is_some_and(|asker| asker.send(answer).is_ok());
        if asked { answered.recv_timeout(PATIENCE).unwrap_or_default() } else { Vec::new() }
    }

    pub(super) fn answer_with(&self, asker: UnboundedSender<Question>) {
        *self.lock() = Some(asker);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<UnboundedSender<Question>>> {
        self.asker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tables of a section, with the names that peers know: its own have a slash before theirs.
fn tables_of(
    config: &Config,
    section: &Peers,
    program: &Program,
) -> Vec<(String, Arc<penstock_rules::table::StickTable>)> {
    let own = section.tables.iter().filter_map(|(name, _)| {
        let table = program.tables.get(&format!("{}/{}", section.name, name.text))?;
        Some((format!("/{}", name.text), table.clone()))
    });
    let of_proxies = config.proxies.iter().filter(|proxy| proxy.stick_table.is_some()).filter_map(|proxy| {
        let table = program.tables.get(&proxy.name)?;
        (table.spec.peers.as_ref() == Some(&section.name)).then(|| (proxy.name.clone(), table.clone()))
    });
    own.chain(of_proxies).collect()
}

fn address(peer: &Peer, diagnostics: &mut Diagnostics) -> Option<SocketAddr> {
    let (host, port) = peer.address.as_ref()?;
    match host {
        ServerHost::Ip(ip) => Some(SocketAddr::new(*ip, *port)),
        ServerHost::Name(name) => {
            let found = (name.as_str(), *port).to_socket_addrs().ok().and_then(|mut found| found.next());
            if found.is_none() {
                let message = format!("the address '{name}' of the peer '{}' cannot be resolved", peer.name);
                diagnostics.error(peer.span, message).hint("give its IP address");
            }
            found
        }
        ServerHost::Unix(_) | ServerHost::Abstract(_) => None,
    }
}

/// The address at which the next process of this section can be reached from this machine: its first `bind` address.
fn successor(section: &Peers) -> Option<SocketAddr> {
    let address = &section.binds.first()?.addresses.first()?.value;
    let (ip, port) = match address {
        ListenAddress::Ip { ip, first, .. } => (*ip, *first),
        ListenAddress::Host { host, first, .. } => {
            return (host.as_str(), *first).to_socket_addrs().ok()?.next();
        }
        _ => return None,
    };
    let ip = match ip {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(ip, port))
}
