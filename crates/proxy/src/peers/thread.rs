//! The thread that speaks with all peers: it connects, accepts, keeps one session with each, and at the end teaches the
//! next process.

use super::{
    conversation::{self, End, PATIENCE, Shared},
    section::{PeersSection, PeersShared},
    view::{PeerView, PeersView, SharedTableView},
};
use crate::{
    connection::wire::Wire,
    process::handle::{Handle, State},
};
use penstock_peers::{
    Acknowledged, Hello, HelloStatus, PeerSession, PeerTables, PeerVersion, Resync, ResyncState, SessionKind,
};
use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// The wait after a failure, as in HAProxy.
const RECONNECT: Duration = Duration::from_secs(5);
/// After a session, two peers must not connect to each other at the same moment: the wait is random, 50 to 2050 ms.
const SPREAD_MS: (u64, u64) = (50, 2_000);
/// Changes are collected for this long before they are sent.
const COLLECT: Duration = Duration::from_millis(2);
/// How often the resynchronisation is looked at, until it is over.
const RESYNC: Duration = Duration::from_millis(100);
/// Most connections to a `bind` line whose peers have not said who they are.
const STRANGERS_MAX: usize = 64;

/// Starts the thread, if there are peers.
pub(crate) fn start(handle: &Handle, sockets: Vec<(usize, usize, OwnedFd)>, succeeds: bool) -> io::Result<()> {
    if handle.shared().peers.sections.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let own = handle.clone();
    let thread = std::thread::Builder::new().name("peers".into()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, serve(own, sockets, succeeds));
    })?;
    // A drain lasts until the next process has been taught.
    handle.inner.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(thread);
    Ok(())
}

async fn serve(handle: Handle, sockets: Vec<(usize, usize, OwnedFd)>, succeeds: bool) {
    let shared = handle.shared().clone();
    let peers = &shared.peers;
    let mut ending = peers.ending.subscribe();
    let changes = watch::Sender::new(0);
    let sections: Vec<_> = (0..peers.sections.len())
        .map(|section| Rc::new(Running::new(handle.clone(), section, changes.clone(), succeeds)))
        .collect();
    let mut tasks = JoinSet::new();
    tasks.spawn_local(penstock_tls::drive_engine());
    tasks.spawn_local(pump(peers.changes.clone(), changes));
    let (asker, questions) = mpsc::unbounded_channel();
    peers.answer_with(asker);
    tasks.spawn_local(answer(sections.clone(), questions));
    for running in &sections {
        tasks.spawn_local(resync(running.clone()));
        let connected_to = |peer: &usize| {
            let place = &running.section().peers[*peer];
            !place.is_local && place.address.is_some()
        };
        for peer in (0..running.section().peers.len()).filter(connected_to) {
            tasks.spawn_local(connect(running.clone(), peer));
        }
    }
    for (section, bind, socket) in sockets {
        let Some(running) = sections.iter().find(|running| running.section().at == section) else { continue };
        match listener(socket) {
            Ok(listener) => drop(tasks.spawn_local(accept(running.clone(), bind, listener))),
            Err(error) => running.log(3, &format!("cannot accept connections of peers: {error}")),
        }
    }
    while handle.state() == State::Running {
        if ending.changed().await.is_err() {
            break;
        }
    }
    // All sessions end here, and nothing listens any more: the successor does.
    drop(tasks);
    peers.connected.store(0, Relaxed);
    peers.active.store(0, Relaxed);
    let mut lessons = JoinSet::new();
    lessons.spawn_local(async {
        penstock_tls::drive_engine().await;
    });
    let teaching = async {
        for running in &sections {
            teach_successor(running).await;
        }
    };
    let stopped = async {
        while handle.state() != State::Stopping {
            if ending.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = teaching => {}
        () = stopped => {}
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Tells sessions of changes.
async fn pump(source: Arc<super::section::Changes>, changes: watch::Sender<u64>) {
    loop {
        source.wait().await;
        sleep(COLLECT).await;
        source.see();
        changes.send_modify(|number| *number += 1);
    }
}

async fn answer(sections: Vec<Rc<Running>>, mut questions: mpsc::UnboundedReceiver<super::section::Question>) {
    while let Some(question) = questions.recv().await {
        // Whoever asked may have lost patience.
        let _ = question.send(sections.iter().map(|running| running.view()).collect());
    }
}

/// A section that runs.
pub(super) struct Running {
    handle: Handle,
    section: usize,
    started: Instant,
    resync: RefCell<Resync>,
    peers: Vec<RefCell<PeerState>>,
    changes: watch::Sender<u64>,
    hasher: RandomState,
    /// When a refusal was last logged: there may be very many.
    refused: Cell<Option<Instant>>,
}

/// The state of a peer.
#[derive(Default)]
struct PeerState {
    current: Option<Current>,
    progress: Acknowledged,
    /// Whether the peer refused version 2.1 of the protocol.
    is_old: bool,
    status: &'static str,
    handshake: Option<Instant>,
    reconnect: Option<Instant>,
    is_reported: bool,
    silent: u64,
    sessions: u64,
    protocol_errors: u64,
    collisions: u64,
    /// Woken when a session has ended.
    ended: Rc<Notify>,
}

/// The session with a peer.
struct Current {
    number: u64,
    session: Shared,
    turn: Rc<Notify>,
    stop: Rc<Notify>,
}

impl Running {
    fn new(handle: Handle, section: usize, changes: watch::Sender<u64>, succeeds: bool) -> Running {
        let peers = &handle.shared().peers.sections[section].peers;
        let peers = peers.iter().map(|_| RefCell::new(PeerState { status: "NONE", ..PeerState::default() })).collect();
        let resync = RefCell::new(Resync::new(0, succeeds));
        let (started, hasher, refused) = (Instant::now(), RandomState::new(), Cell::new(None));
        Running { handle, section, started, resync, peers, changes, hasher, refused }
    }

    fn shared(&self) -> &PeersShared {
        &self.handle.shared().peers
    }

    pub fn section(&self) -> &PeersSection {
        &self.shared().sections[self.section]
    }

    /// Milliseconds since the thread started.
    pub fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn updates_max(&self) -> usize {
        self.shared().updates_max
    }

    pub fn is_ending(&self) -> bool {
        self.handle.state() != State::Running
    }

    pub fn is_up_to_date(&self) -> bool {
        self.resync.borrow().is_up_to_date()
    }

    pub fn taught(&self, peer: usize, finished: bool) {
        self.resync.borrow_mut().taught(peer, finished, self.now());
        self.ask();
    }

    /// Asks the next peer for everything, if one is to be asked.
    fn ask(&self) {
        for (at, peer) in self.peers.iter().enumerate() {
            let peer = peer.borrow();
            let Some(current) = &peer.current else { continue };
            if !self.section().peers[at].is_local && self.resync.borrow_mut().asks(at) {
                current.session.borrow_mut().ask();
                current.turn.notify_one();
            }
        }
    }

    fn log(&self, severity: u8, text: &str) {
        self.handle.log(severity, format!("Peers {}: {text}", self.section().name));
    }

    /// Logs a refusal, at most one a second.
    fn log_refusal(&self, text: &str) {
        if self.refused.get().is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            self.refused.set(Some(Instant::now()));
            self.log(4, text);
        }
    }

    fn random_wait(&self, peer: usize) -> Duration {
        let random = self.hasher.hash_one((peer, self.now()));
        Duration::from_millis(SPREAD_MS.0 + random % SPREAD_MS.1)
    }

    /// Runs a session whose handshake has succeeded; it takes the place of one that there is.
    async fn converse(
        &self,
        peer: usize,
        kind: SessionKind,
        version: PeerVersion,
        wire: Box<dyn Wire>,
        rest: Vec<u8>,
    ) -> End {
        let (session, turn, stop, number) = {
            let mut state = self.peers[peer].borrow_mut();
            let tables = &self.section().tables;
            let session = PeerSession::new(kind, version, &state.progress, &**tables, self.now());
            if let Some(old) = state.current.take() {
                state.collisions += 1;
                state.progress = old.session.borrow().progress();
                self.shared().connected.fetch_sub(1, Relaxed);
                old.stop.notify_one();
            }
            state.sessions += 1;
            let (session, turn, stop) =
                (Rc::new(RefCell::new(session)), Rc::new(Notify::new()), Rc::new(Notify::new()));
            let number = state.sessions;
            state.current = Some(Current { number, session: session.clone(), turn: turn.clone(), stop: stop.clone() });
            (state.status, state.handshake, state.is_reported) = ("ESTA", Some(Instant::now()), false);
            (session, turn, stop, number)
        };
        self.shared().connected.fetch_add(1, Relaxed);
        let name = &self.section().peers[peer].name;
        self.log(5, &format!("session with {name} open"));
        match kind {
            SessionKind::Predecessor => self.resync.borrow_mut().predecessor_teaches(peer),
            SessionKind::Remote => self.ask(),
            SessionKind::Successor => {}
        }
        let end = conversation::run(self, peer, wire, rest, &session, &turn, &stop).await;
        let mut state = self.peers[peer].borrow_mut();
        match &end {
            End::Flaw(_) => state.protocol_errors += 1,
            End::Silent | End::Stalled => state.silent += 1,
            _ => {}
        }
        if state.current.as_ref().is_some_and(|current| current.number == number) {
            state.progress = session.borrow().progress();
            state.current = None;
            state.status = if matches!(end, End::Flaw(_)) { "PROT" } else { "CLOS" };
            self.shared().connected.fetch_sub(1, Relaxed);
            self.resync.borrow_mut().lost(peer, self.now());
            state.ended.notify_one();
        }
        drop(state);
        let severity = if matches!(end, End::Closed | End::Replaced | End::Confirmed) { 5 } else { 4 };
        self.log(severity, &format!("session with {name} over: {end}"));
        end
    }

    fn view(&self) -> PeersView {
        let (resync, now) = (self.resync.borrow(), self.now());
        let section = self.section();
        let peers = self.peers.iter().zip(&section.peers).map(|(state, place)| {
            let state = state.borrow();
            let session = state.current.as_ref().map(|current| current.session.borrow());
            let tables = section.tables.tables.iter().enumerate().map(|(at, table)| {
                let base = SharedTableView {
                    name: table.name.clone(),
                    local_id: at + 1,
                    newest: table.newest_change(),
                    ..SharedTableView::default()
                };
                match session.as_ref().and_then(|session| session.tables().nth(at)) {
                    None => base,
                    Some(shared) => SharedTableView {
                        remote_id: shared.remote_id,
                        remote_data: shared.remote_data,
                        last_acked: shared.last_acked,
                        last_pushed: shared.last_pushed,
                        last_get: shared.last_get,
                        update: shared.acknowledged,
                        ..base
                    },
                }
            });
            PeerView {
                name: place.name.clone(),
                is_local: place.is_local,
                address: place.address.or(section.successor.filter(|_| place.is_local)),
                status: state.status,
                is_connected: session.is_some(),
                handshake_ago: state.handshake.map(|at| at.elapsed().as_millis() as u64),
                reconnect_left: state
                    .reconnect
                    .map(|at| at.saturating_duration_since(Instant::now()).as_millis() as u64),
                heartbeat_left: session.as_ref().map(|session| session.left(now)),
                heartbeats: session.as_ref().map(|session| session.heartbeats()).unwrap_or_default(),
                silent: state.silent,
                sessions: state.sessions,
                protocol_errors: state.protocol_errors,
                collisions: state.collisions,
                tables: tables.collect(),
                names: session.as_ref().map(|session| session.names()).unwrap_or_default(),
            }
        });
        PeersView {
            section: section.at,
            resync: match resync.state() {
                ResyncState::Local => "local",
                ResyncState::Remote => "remote",
                ResyncState::Done => "done",
            },
            resync_left: resync.left(now),
            is_taught: resync.is_complete(),
            peers: peers.collect(),
        }
    }
}

/// Moves the resynchronisation on until it is over.
async fn resync(running: Rc<Running>) {
    while !running.is_up_to_date() {
        running.resync.borrow_mut().tick(running.now());
        running.ask();
        sleep(RESYNC).await;
    }
}

/// Keeps a session with a peer.
async fn connect(running: Rc<Running>, peer: usize) {
    let ended = running.peers[peer].borrow().ended.clone();
    loop {
        // The peer may have connected to us.
        while running.peers[peer].borrow().current.is_some() {
            ended.notified().await;
            let wait = running.random_wait(peer);
            running.peers[peer].borrow_mut().reconnect = Some(Instant::now() + wait);
            sleep(wait).await;
        }
        running.peers[peer].borrow_mut().reconnect = None;
        let wait = match open(&running, peer).await {
            Ok((wire, version, rest)) => {
                running.converse(peer, SessionKind::Remote, version, wire, rest).await;
                running.random_wait(peer)
            }
            Err(why) => {
                let name = &running.section().peers[peer].name;
                let is_new = !std::mem::replace(&mut running.peers[peer].borrow_mut().is_reported, true);
                if is_new {
                    running.log(4, &format!("no session with {name}: {why}"));
                }
                RECONNECT
            }
        };
        running.peers[peer].borrow_mut().reconnect = Some(Instant::now() + wait);
        sleep(wait).await;
    }
}

/// Connects to a peer, and says hello.
async fn open(running: &Running, peer: usize) -> Result<(Box<dyn Wire>, PeerVersion, Vec<u8>), String> {
    let place = &running.section().peers[peer];
    let address = place.address.ok_or("it has no address")?;
    let status = |status| running.peers[peer].borrow_mut().status = status;
    status("CONN");
    let result = reach(running, peer, address).await;
    let mut state = running.peers[peer].borrow_mut();
    match result {
        Ok((wire, version, HelloStatus::Ok, rest)) => Ok((wire, version, rest)),
        Ok((_, _, refusal, _)) => {
            state.status = match refusal {
                HelloStatus::Ok | HelloStatus::TryAgain => "RETR",
                HelloStatus::Protocol => "ERPR",
                HelloStatus::Version => "ERVE",
                HelloStatus::NotMe => "ERRH",
                HelloStatus::Unknown => "ERLH",
            };
            state.is_old ^= refusal == HelloStatus::Version;
            Err(format!("it answers {}", refusal as u16))
        }
        Err(why) => {
            state.status = "CONN";
            Err(why)
        }
    }
}

type Reached = (Box<dyn Wire>, PeerVersion, HelloStatus, Vec<u8>);

/// Connects to an address, and says hello to the peer there.
async fn reach(running: &Running, peer: usize, address: std::net::SocketAddr) -> Result<Reached, String> {
    let section = running.section();
    let place = &section.peers[peer];
    let version = if running.peers[peer].borrow().is_old { PeerVersion::V20 } else { PeerVersion::V21 };
    let work = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let mut wire: Box<dyn Wire> = match &place.connector {
            None => Box::new(stream),
            Some(connector) => {
                Box::new(connector.connect(stream, None).await.map_err(|error| error.message().to_owned())?)
            }
        };
        let pid = std::process::id().into();
        let hello = Hello { version, to: place.name.clone(), from: section.local.clone(), pid };
        let (status, rest) = conversation::greet(&mut wire, &hello).await.map_err(|end| end.to_string())?;
        Ok((wire, version, status, rest))
    };
    timeout(PATIENCE, work).await.unwrap_or_else(|_| Err("it does not answer in time".into()))
}

/// Accepts connections of peers.
async fn accept(running: Rc<Running>, bind: usize, listener: TcpListener) {
    let mut open: JoinSet<()> = JoinSet::new();
    let strangers = Rc::new(Cell::new(0));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let Ok((stream, from)) = accepted else {
            // There are no descriptors, for instance.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        if strangers.get() >= STRANGERS_MAX {
            running.log_refusal(&format!(
                "too many connections that do not say who they are; the one from {from} is closed"
            ));
            continue;
        }
        strangers.set(strangers.get() + 1);
        let _ = stream.set_nodelay(true);
        let (running, strangers) = (running.clone(), strangers.clone());
        open.spawn_local(async move {
            let known = timeout(PATIENCE, identify(&running, bind, stream)).await;
            strangers.set(strangers.get() - 1);
            match known {
                Ok(Ok((peer, version, wire, rest))) => {
                    let is_local = running.section().peers[peer].is_local;
                    let kind = if is_local { SessionKind::Predecessor } else { SessionKind::Remote };
                    running.converse(peer, kind, version, wire, rest).await;
                }
                Ok(Err(why)) => running.log_refusal(&format!("a connection from {from} is refused: {why}")),
                Err(_) => {
                    running.log_refusal(&format!("a connection from {from} is closed: it does not say who it is"))
                }
            }
        });
    }
}

type Identified = (usize, PeerVersion, Box<dyn Wire>, Vec<u8>);

/// Finds out which peer has connected, and answers it.
async fn identify(running: &Running, bind: usize, stream: TcpStream) -> Result<Identified, String> {
    let section = running.section();
    let mut wire: Box<dyn Wire> = match section.acceptors.get(bind).and_then(Option::as_ref) {
        None => Box::new(stream),
        Some(acceptor) => {
            Box::new(acceptor.accept(stream, Vec::new()).await.map_err(|error| error.message().to_owned())?)
        }
    };
    let (status, why) = match conversation::greeted(&mut wire).await {
        Err(None) => return Err("it closed the connection".into()),
        Err(Some(HelloStatus::Version)) => (HelloStatus::Version, "it speaks another version".to_owned()),
        Err(Some(status)) => (status, "it does not speak the protocol".to_owned()),
        Ok((hello, _)) if hello.to != section.local => {
            (HelloStatus::NotMe, format!("it looks for {:?}, and this is {:?}", hello.to, section.local))
        }
        Ok((hello, rest)) => match section.peers.iter().position(|peer| peer.name == hello.from) {
            Some(peer) => {
                conversation::answer(&mut wire, HelloStatus::Ok).await.map_err(|end| end.to_string())?;
                return Ok((peer, hello.version, wire, rest));
            }
            None => (HelloStatus::Unknown, format!("no peer is called {:?}", hello.from)),
        },
    };
    let _ = conversation::answer(&mut wire, status).await;
    Err(why)
}

/// Sends everything to the process that takes our place, if there is one.
async fn teach_successor(running: &Running) {
    let section = running.section();
    let Some((peer, address)) = section.peers.iter().position(|peer| peer.is_local).zip(section.successor) else {
        return;
    };
    if section.tables.definitions().is_empty() {
        return;
    }
    // Nobody listens if there is no successor.
    let Ok((wire, version, HelloStatus::Ok, rest)) = reach(running, peer, address).await else { return };
    running.converse(peer, SessionKind::Successor, version, wire, rest).await;
}
