//! The control thread: answers commands on the stats sockets, and passes the listening sockets to a successor.
//!
//! Workers do not depend on it. It has its own reactor, a task for each socket and one for each client; commands reach
//! the data plane through [`Handle`].

mod audit;
mod changes;
mod client;

pub use changes::Changes;

use crate::{
    name::{NAME, Name},
    tie::Rights,
};
use client::Client;
use penstock_admin::command::{Executor, Facts, Socket};
use penstock_config::model::{ListenAddress, SeverityOutput, StatsLevel};
use penstock_control::{Level, Settings, TABLE};
use penstock_proxy::Handle;
use penstock_sys::Spares;
use rustix::io::Errno;
use std::{
    io::{self, Write},
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixListener,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    time::Duration,
};
use tokio::{
    runtime::LocalOptions,
    sync::{Mutex, Semaphore, mpsc, watch},
};

/// How long a client may be silent if `stats timeout` is not set, and how many clients there may be without `stats
/// maxconn`.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAXCONN: u32 = 10;

/// Descriptors kept for clients of its sockets and of the master when the process has no others: enough for a few at once, and for losing one to the
/// workers, which also want any that becomes free.
const SPARES: usize = 4;

/// How long a process that is ending waits while its sockets are passed to a successor.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The control thread, which runs until the process ends.
pub struct Control {
    orders: mpsc::UnboundedSender<Order>,
    spares: Arc<Spares>,
    /// How many clients are getting an answer.
    answering: Arc<AtomicUsize>,
    /// The master, which is told once the sockets are closed.
    master: Option<std::os::unix::net::UnixStream>,
}

/// What the thread needs to answer commands.
pub struct Material {
    /// The listening sockets, for clients that may have them.
    pub copies: Vec<OwnedFd>,
    pub startup_log: String,
    pub handle: Handle,
    /// What keeps the changes that commands make.
    pub changes: Option<Changes>,
}

/// A message to the thread.
enum Order {
    /// Begin to answer; the first message.
    Begin(Box<Material>),
    /// Close the sockets, and confirm.
    Close(SyncSender<()>),
    /// Answer a client that came through the master.
    Client(std::os::unix::net::UnixStream, Rights),
}

impl Control {
    /// Starts the thread, for these sockets, each with the place of its `stats socket` line. It already holds all
    /// descriptors that it needs, since clients may take every other as soon as the process serves.
    ///
    /// # Errors
    /// When there is no descriptor or thread for it.
    pub fn start(sockets: Vec<(usize, OwnedFd)>) -> io::Result<Control> {
        let (orders, mut told) = mpsc::unbounded_channel();
        let (begun, begins) = sync_channel(1);
        let spares = Arc::new(Spares::new(SPARES));
        spares.refill();
        let kept = spares.clone();
        let answering = Arc::new(AtomicUsize::new(0));
        let counted = answering.clone();
        std::thread::Builder::new().name("control".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build_local(LocalOptions::default());
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(e) => return drop(begun.send(Err(e))),
            };
            runtime.block_on(async move {
                match Doors::open(sockets) {
                    Ok(doors) => {
                        let _ = begun.send(Ok(()));
                        if let Some(Order::Begin(material)) = told.recv().await {
                            doors.serve(*material, kept, counted, told).await;
                        }
                    }
                    Err(e) => drop(begun.send(Err(e))),
                }
            });
        })?;
        begins.recv().unwrap_or_else(|_| Err(io::Error::other("the control thread has ended")))?;
        Ok(Control { orders, spares, answering, master: None })
    }

    /// Has the master behind this socket told once the sockets are closed.
    pub fn tell(&mut self, master: std::os::unix::net::UnixStream) {
        self.master = Some(master);
    }

    /// Begins to answer.
    pub fn begin(&self, material: Material) {
        let _ = self.orders.send(Order::Begin(Box::new(material)));
    }

    /// The descriptors that are kept for clients.
    pub fn spares(&self) -> Arc<Spares> {
        self.spares.clone()
    }

    /// Returns a function that accepts clients who come through the master.
    pub fn introductions(&self) -> impl Fn(std::os::unix::net::UnixStream, Rights) + Send + use<> {
        let orders = self.orders.clone();
        move |client, rights| drop(orders.send(Order::Client(client, rights)))
    }

    /// Whether a client is getting an answer, which would be cut if the process ended. `stats timeout` bounds how long one may take that does
    /// not read.
    pub fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Acquire) > 0
    }

    /// Closes the sockets and the copies of the listening sockets, so that the latter end with their workers. Clients
    /// that are connected may stay.
    pub fn close(&self) {
        let (done, is_done) = sync_channel(1);
        if self.orders.send(Order::Close(done)).is_ok() {
            let _ = is_done.recv_timeout(CLOSE_PATIENCE);
        }
        if let Some(mut master) = self.master.as_ref() {
            // If it is gone, nobody waits.
            let _ = master.write_all(b".");
        }
    }
}

/// The sockets of the thread.
struct Doors(Vec<(usize, Door)>);

enum Door {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

/// A socket that accepts clients.
struct Entrance {
    /// The socket's address in the audit log.
    address: String,
    /// The initial settings of the socket's sessions.
    settings: Settings,
    /// Whether the socket's clients may get the listening sockets.
    exposes: bool,
}

/// What the tasks of the thread share.
struct Hub {
    executor: Executor,
    /// The sockets for a successor.
    copies: Mutex<Vec<OwnedFd>>,
    /// The file that keeps changes for the next process, if there is one.
    changes: Option<Mutex<Changes>>,
    /// Free places for clients.
    places: Semaphore,
    /// Descriptors for clients when no others are left.
    spares: Arc<Spares>,
    /// How many clients are getting an answer.
    answering: Arc<AtomicUsize>,
    /// The initial settings of sessions that do not depend on the socket.
    settings: Settings,
    /// Whether the sockets have been closed.
    closed: watch::Sender<bool>,
}

impl Doors {
    fn open(sockets: Vec<(usize, OwnedFd)>) -> io::Result<Doors> {
        let door = |(line, socket): (usize, OwnedFd)| {
            let is_unix = rustix::net::sockopt::socket_domain(socket.as_fd())? == rustix::net::AddressFamily::UNIX;
            let door = if is_unix {
                let listener = UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                Door::Unix(tokio::net::UnixListener::from_std(listener)?)
            } else {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                Door::Tcp(tokio::net::TcpListener::from_std(listener)?)
            };
            Ok((line, door))
        };
        Ok(Doors(sockets.into_iter().map(door).collect::<io::Result<_>>()?))
    }

    async fn serve(
        self,
        material: Material,
        spares: Arc<Spares>,
        answering: Arc<AtomicUsize>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let Material { copies, startup_log, handle, changes } = material;
        let shared = handle.shared().clone();
        let global = &shared.config.global;
        let sockets = global.stats_sockets.iter();
        let sockets = sockets.map(|line| Socket { address: written(&line.address), level: level(line.level) });
        let facts = Facts {
            is_haproxy: *NAME == Name::Haproxy,
            version: env!("CARGO_PKG_VERSION").into(),
            release_date: env!("PENSTOCK_DATE").into(),
            sockets: sockets.collect(),
            startup_log,
            listeners: listeners(&shared.config),
        };
        let hub = Rc::new(Hub {
            executor: Executor { handle, facts },
            copies: Mutex::new(copies),
            changes: changes.map(Mutex::new),
            places: Semaphore::new(global.stats_maxconn.unwrap_or(MAXCONN) as usize),
            spares,
            answering,
            settings: Settings {
                table: TABLE,
                level: Level::User,
                severity: penstock_control::SeverityOutput::None,
                timeout: global.stats_timeout.unwrap_or(TIMEOUT),
                line_max: global.tune.bufsize,
                payload_max: global.tune.cli_max_payload_size,
                name: "",
                expert: false,
                experimental: false,
            },
            closed: watch::Sender::new(false),
        });
        for (line, door) in self.0 {
            let line = &global.stats_sockets[line];
            let (level, severity) = (level(line.level), severity(line.severity_output));
            let entrance = Entrance {
                address: written(&line.address),
                settings: Settings { level, severity, ..hub.settings },
                exposes: line.exposes_over_unix(),
            };
            tokio::task::spawn_local(accept(hub.clone(), Rc::new(entrance), door));
        }
        let (paces, keeper) = (hub.executor.handle.clone(), hub.clone());
        tokio::task::spawn_local(async move {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                paces.pace();
                keeper.spares.refill();
            }
        });
        while let Some(order) = orders.recv().await {
            match order {
                Order::Close(done) => {
                    hub.closed.send_replace(true);
                    // Lets the acceptors run first.
                    tokio::task::yield_now().await;
                    hub.copies.lock().await.clear();
                    let _ = done.send(());
                }
                Order::Begin(_) => {}
                Order::Client(client, rights) => {
                    let Ok(client) = Client::of_master(client) else { continue };
                    let level = level(rights.level);
                    let Rights { severity, expert, experimental, .. } = rights;
                    let settings = Settings { level, severity, expert, experimental, ..hub.settings };
                    let entrance = Entrance { address: "the master".into(), settings, exposes: false };
                    let hub = hub.clone();
                    tokio::task::spawn_local(async move {
                        client::converse(hub.clone(), Rc::new(entrance), client).await;
                        hub.spares.refill();
                    });
                }
            }
        }
        // The process ends without telling this thread.
        std::future::pending::<()>().await;
    }
}

/// Accepts clients on a socket until it is closed.
async fn accept(hub: Rc<Hub>, entrance: Rc<Entrance>, door: Door) {
    let mut closed = hub.closed.subscribe();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            accepted = next(&hub, &door) => accepted,
        };
        match accepted {
            Ok(client) => {
                let (hub, entrance) = (hub.clone(), entrance.clone());
                tokio::task::spawn_local(async move {
                    client::converse(hub.clone(), entrance, client).await;
                    hub.spares.refill();
                    hub.places.add_permits(1);
                });
            }
            Err(e) if is_exhausted(&e) && hub.spares.spend() => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whether a call failed because there was no descriptor for it.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The next client, once there is a place for it; others wait in the socket's queue.
async fn next(hub: &Rc<Hub>, door: &Door) -> io::Result<Client> {
    let place = hub.places.acquire().await.map_err(io::Error::other)?;
    let client = match door {
        Door::Unix(door) => Client::unix(door.accept().await?.0),
        Door::Tcp(door) => {
            let (stream, peer) = door.accept().await?;
            Client::tcp(stream, peer)
        }
    }?;
    // The place is returned when the client is dropped.
    place.forget();
    Ok(client)
}

/// An address as shown by `show cli sockets`.
fn written(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Unix(path) => format!("unix@{}", path.display()),
        ListenAddress::Abstract(name) => penstock_config::model::shown_abstract(name),
        ListenAddress::Ip { ip, first, .. } if ip.is_ipv4() => format!("ipv4@{ip}:{first}"),
        ListenAddress::Ip { ip, first, .. } => format!("ipv6@[{ip}]:{first}"),
        ListenAddress::Host { host, first, .. } => format!("{host}:{first}"),
        ListenAddress::Fd(number) => format!("fd@{number}"),
    }
}

fn level(level: StatsLevel) -> Level {
    match level {
        StatsLevel::User => Level::User,
        StatsLevel::Operator => Level::Operator,
        StatsLevel::Admin => Level::Admin,
    }
}

fn severity(output: SeverityOutput) -> penstock_control::SeverityOutput {
    match output {
        SeverityOutput::None => penstock_control::SeverityOutput::None,
        SeverityOutput::Number => penstock_control::SeverityOutput::Number,
        SeverityOutput::Text => penstock_control::SeverityOutput::Text,
    }
}

/// The number of addresses that the process listens on, including stats sockets.
fn listeners(config: &penstock_config::Config) -> u32 {
    let proxies = config.proxies.iter().filter(|proxy| !proxy.disabled && proxy.kind.has_frontend());
    let addresses = proxies.flat_map(|proxy| &proxy.binds).map(|bind| bind.addresses.len());
    (addresses.sum::<usize>() + config.global.stats_sockets.len()) as u32
}
