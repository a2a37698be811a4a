//! Receives syslog messages for `log-forward` sections, over UDP, TCP and TLS, and sends them to the sections' log targets.
//! It reads some messages of each sender in turn; a sender that breaks the framing loses its connection.

use super::{LogTargets, Logger};
use crate::{accept::listener::LogSocket, connection::wire::Wire};
use penstock_config::{Config, Diagnostics};
use penstock_rules::syslog::{SyslogMessage, frame};
use penstock_tls::{Acceptor, Disk, Store};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Datagrams that are read before others have their turn.
const DATAGRAMS: usize = 64;
/// How long a TLS handshake may take, if `timeout client` allows more.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A limit that is not set.
const UNLIMITED: Duration = Duration::from_secs(86400 * 365);
/// The pause after the system refused a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A section.
pub(crate) struct Section {
    name: String,
    /// TLS of each `bind` line.
    acceptors: Vec<Option<Acceptor>>,
    maxconn: usize,
    idle: Duration,
}

impl Section {
    /// All sections; `None` if the configuration has errors, which are added to `diagnostics`.
    pub fn all(config: &Config, certificates: &Store, diagnostics: &mut Diagnostics) -> Option<Vec<Section>> {
        let mut complete = true;
        let sections = config.log_forwards.iter().map(|section| {
            let acceptors = section.binds.iter().map(|bind| {
                bind.tls.as_ref()?;
                let built = Acceptor::build(config, bind, certificates, &Disk, diagnostics);
                complete &= built.is_some();
                built
            });
            Section {
                name: section.name.clone(),
                acceptors: acceptors.collect(),
                maxconn: section.maxconn as usize,
                idle: section.client.unwrap_or(UNLIMITED),
            }
        });
        let sections = sections.collect();
        complete.then_some(sections)
    }
}

/// What receives the messages of all sections: on one thread, in tasks that share it.
pub(crate) struct Forwarder {
    tell: Box<dyn Fn(u8, String)>,
    logs: Arc<LogTargets>,
    logger: Logger,
    /// The longest message.
    max: usize,
    /// Free places for connections, by section.
    places: Vec<Arc<Semaphore>>,
    /// When a refusal was last logged: there may be very many.
    refused: Cell<Option<Instant>>,
}

fn datagrams(socket: OwnedFd) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// The connections of senders.
type Connections = Rc<RefCell<JoinSet<()>>>;

impl Forwarder {
    /// For messages of at most `max` bytes. `tell` writes a line about the process to its log.
    pub fn new(logs: Arc<LogTargets>, max: usize, tell: impl Fn(u8, String) + 'static) -> Rc<Forwarder> {
        Rc::new(Forwarder {
            tell: Box::new(tell),
            logger: Logger::new(logs.clone()),
            max,
            places: logs.forwards.iter().map(|section| Arc::new(Semaphore::new(section.maxconn))).collect(),
            refused: Cell::new(None),
            logs,
        })
    }

    /// Receives on these sockets until `drains`, whereupon another process does, and then until all senders that are connected
    /// have left.
    pub async fn run(self: Rc<Self>, sockets: Vec<LogSocket>, drains: impl Future<Output = ()>) {
        let (mut doors, connections) = (JoinSet::new(), Connections::default());
        for LogSocket { section, bind, socket } in sockets {
            let forwarder = self.clone();
            let opened = match bind {
                None => datagrams(socket).map(|socket| doors.spawn_local(receive(forwarder, section, socket))),
                Some(bind) => listener(socket)
                    .map(|listener| doors.spawn_local(accept(forwarder, section, bind, listener, connections.clone()))),
            };
            if let Err(error) = opened {
                self.log(section, 3, &format!("cannot receive: {error}"));
            }
        }
        drains.await;
        doors.shutdown().await;
        while poll_fn(|cx| connections.borrow_mut().poll_join_next(cx)).await.is_some() {}
    }

    /// Gathers a message for the targets, to which [`Logger::flush`] sends it.
    fn forward(&self, section: usize, message: &[u8]) {
        self.logs.received.fetch_add(1, Ordering::Relaxed);
        let unix_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        self.logger.forward(section, unix_us, &SyslogMessage::parse(message));
    }

    fn log(&self, section: usize, severity: u8, text: &str) {
        (self.tell)(severity, format!("Log-forward {}: {text}", self.logs.forwards[section].name));
    }

    /// Logs a refusal, at most one a second.
    fn log_refusal(&self, section: usize, text: &str) {
        if self.refused.get().is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            self.refused.set(Some(Instant::now()));
            self.log(section, 4, text);
        }
    }
}

/// Receives datagrams, each of which is a message.
async fn receive(forwarder: Rc<Forwarder>, section: usize, socket: UdpSocket) {
    let mut buffer = vec![0; forwarder.max];
    loop {
        if socket.readable().await.is_err() {
            sleep(PAUSE).await;
            continue;
        }
        for _ in 0..DATAGRAMS {
            // Any other error concerns what this socket never sends.
            let Ok(length) = socket.try_recv(&mut buffer) else { break };
            forwarder.forward(section, &buffer[..length]);
        }
        forwarder.logger.flush();
        tokio::task::yield_now().await;
    }
}

/// Accepts senders, as many as `maxconn` says.
async fn accept(
    forwarder: Rc<Forwarder>,
    section: usize,
    bind: usize,
    listener: TcpListener,
    connections: Connections,
) {
    loop {
        let Ok(place) = forwarder.places[section].clone().acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // There are no descriptors, for instance.
                sleep(PAUSE).await;
                continue;
            }
        };
        let forwarder = forwarder.clone();
        let mut connections = connections.borrow_mut();
        while connections.try_join_next().is_some() {}
        connections.spawn_local(async move {
            if let Err(why) = converse(&forwarder, section, bind, stream).await {
                forwarder.log_refusal(section, &format!("a connection from {from} is closed: {why}"));
            }
            drop(place);
        });
    }
}

/// Reads the messages of one sender until it leaves, or breaks the framing, which is the error.
async fn converse(forwarder: &Forwarder, section: usize, bind: usize, stream: TcpStream) -> Result<(), String> {
    let own = &forwarder.logs.forwards[section];
    let mut wire: Box<dyn Wire> = match own.acceptors.get(bind).and_then(Option::as_ref) {
        None => Box::new(stream),
        Some(acceptor) => {
            let accepted = timeout(own.idle.min(HANDSHAKE), acceptor.accept(stream, Vec::new())).await;
            let accepted = accepted.map_err(|_| "its handshake takes too long".to_owned())?;
            Box::new(accepted.map_err(|error| error.message().to_owned())?)
        }
    };
    let mut buffer = vec![0; forwarder.max];
    let mut filled = 0;
    loop {
        let read = match timeout(own.idle, wire.read(&mut buffer[filled..])).await {
            Ok(Ok(read)) if read > 0 => read,
            // It is gone, or silent for too long.
            _ => return Ok(()),
        };
        filled += read;
        let mut from = 0;
        let framed = loop {
            match frame(&buffer[from..filled], forwarder.max) {
                Ok(Some((place, end))) => {
                    forwarder.forward(section, &buffer[from + place.start..from + place.end]);
                    from += end;
                }
                Ok(None) => break Ok(()),
                Err(flaw) => break Err(flaw.to_string()),
            }
        };
        forwarder.logger.flush();
        framed?;
        buffer.copy_within(from..filled, 0);
        filled -= from;
        // One that never pauses does not keep the others from their turns.
        tokio::task::yield_now().await;
    }
}
