//! The first stage of a connection: it is accepted from a listening socket, within the limits.

pub(crate) mod accepted;
pub(crate) mod listener;
pub(crate) mod spread;

use crate::{
    connection::socket::{Socket, Tcp},
    process::{
        gates::Listening,
        memory,
        shared::{Limits, Place},
    },
    worker::{pulse::Stage, state::Worker},
};
use accepted::Accepted;
use listener::{Listener, backlog, is_unix};
use penstock_config::{model::ProxyId, syslog};
use std::{io, net::SocketAddr, rc::Rc, sync::atomic::Ordering, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::Instant,
};

enum Source {
    /// With the local address of every connection it accepts, if there can only be one.
    Tcp(TcpListener, Option<SocketAddr>),
    Unix(UnixListener),
}

impl Source {
    fn new(listener: Listener, transparent: bool) -> io::Result<Self> {
        if is_unix(&listener.socket) {
            let listener = std::os::unix::net::UnixListener::from(listener.socket);
            listener.set_nonblocking(true)?;
            Ok(Source::Unix(UnixListener::from_std(listener)?))
        } else {
            let listener = std::net::TcpListener::from(listener.socket);
            listener.set_nonblocking(true)?;
            // If the socket is bound to every address, or accepts connections to other hosts' addresses, each
            // connection has to be asked.
            let only = |address: &SocketAddr| !transparent && !address.ip().to_canonical().is_unspecified();
            let own = listener.local_addr().ok().filter(only);
            Ok(Source::Tcp(TcpListener::from_std(listener)?, own))
        }
    }
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Source::Tcp(listener, own) => {
                listener.accept().await.map(|(stream, peer)| Socket::Tcp(Tcp::accepted(stream, peer, *own)))
            }
            Source::Unix(listener) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    /// Takes the socket out of the reactor, which may not know of all waiting connections yet.
    fn into_queue(self) -> io::Result<Queue> {
        Ok(match self {
            Source::Tcp(listener, own) => Queue::Tcp(listener.into_std()?, own),
            Source::Unix(listener) => Queue::Unix(listener.into_std()?),
        })
    }
}

/// The accept queue of a listening socket that is outside the reactor, which would not forget that the socket was shut
/// down.
enum Queue {
    Tcp(std::net::TcpListener, Option<SocketAddr>),
    Unix(std::os::unix::net::UnixListener),
}

impl Queue {
    /// Refuses new connections. A unix socket that is shut down cannot listen again, so its clients wait instead.
    fn refuse(&self) {
        if let Queue::Tcp(listener, _) = self {
            // Another worker may share the socket and have shut it down already.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Read);
        }
    }

    /// Accepts connections again.
    fn admit(self, backlog: i32) -> io::Result<Source> {
        Ok(match self {
            Queue::Tcp(listener, own) => {
                rustix::net::listen(&listener, backlog)?;
                Source::Tcp(TcpListener::from_std(listener)?, own)
            }
            Queue::Unix(listener) => Source::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// The next waiting connection, or `WouldBlock`.
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Queue::Tcp(listener, own) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Tcp(Tcp::accepted(TcpStream::from_std(stream)?, peer, *own)))
            }
            Queue::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Unix(UnixStream::from_std(stream)?))
            }
        }
    }
}

/// How long an acceptor pauses after the system had no descriptor or memory for a connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Accepts on one listening socket until the worker drains, and then whatever is still in its queue.
pub(crate) async fn run(worker: Rc<Worker>, listener: Listener) {
    let (proxy, bind) = (listener.proxy, listener.bind);
    let transparent = worker.shared.config.proxies[proxy].binds[bind].transparent;
    let mut listening = match Source::new(listener, transparent) {
        Ok(listening) => listening,
        Err(e) => return worker.log_process(syslog::ALERT, &format!("cannot accept connections: {e}")),
    };
    let answers_stats = worker.shared.config.proxies[proxy].stats.is_some();
    let mut enough = worker.accepted_enough.subscribe();
    let tls = worker.shared.acceptors[proxy][bind].is_some();
    let cost = memory::of_connection(tls);
    let limits = &worker.shared.limits;
    // What comes back from a device is not held up by what clients use up.
    let throttles = limits.frontends[proxy].returning.is_none().then_some(&limits.throttles);
    let mut door = limits.frontends[proxy].door.0.subscribe();
    let mut rate = RateLimit::new(worker.shared.config.proxies[proxy].rate_limit_sessions);
    loop {
        let next = async {
            rate.wait().await;
            if let Some(throttles) = throttles {
                throttles.wait(tls).await;
            }
            wait_for_place(&worker, proxy, bind).await;
            listening.accept().await
        };
        let next = tokio::select! {
            biased;
            _ = door.wait_for(|door| *door != Listening::Open) => None,
            next = next => Some(next),
            _ = enough.wait_for(|enough| *enough) => break,
        };
        let Some(next) = next else {
            let reopened = match listening.into_queue() {
                Ok(queue) => {
                    queue.refuse();
                    tokio::select! {
                        _ = enough.wait_for(|enough| *enough) => return,
                        _ = door.wait_for(|door| *door != Listening::Paused) => {}
                    }
                    let conf = &worker.shared.config.proxies[proxy];
                    match worker.handle.listening(proxy) {
                        Listening::Open => queue.admit(backlog(conf, &conf.binds[bind])),
                        _ => return,
                    }
                }
                Err(e) => Err(e),
            };
            match reopened {
                Ok(source) => listening = source,
                Err(e) => {
                    let text =
                        format!("frontend {} cannot listen again: {e}", worker.shared.config.proxies[proxy].name);
                    return worker.log_process(syslog::ALERT, &text);
                }
            }
            continue;
        };
        match next {
            // Closing it here takes nothing, and tells the client to go elsewhere.
            Ok(_) if !worker.shared.memory.admits(cost) => {}
            Ok(socket) if is_unwelcome(&worker, &socket) => {}
            Ok(socket) => {
                let Some(place) = enter(&worker, proxy, bind).await else { continue };
                rate.count();
                throttles.inspect(|throttles| throttles.count(tls));
                worker.pulse().enter(Stage::Accept);
                let accepted = worker.clock.tick();
                spread::take(&worker, Accepted { socket, place, proxy, bind, accepted });
            }
            Err(e) if is_exhausted(&e) => {
                // The descriptors kept in reserve let an operator reach the stats page to see why.
                if !(answers_stats && worker.spend_reserve()) {
                    worker.accept_failed(&e);
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
            // The client left before it was accepted, or a firewall refused it; that is no concern of ours.
            Err(_) => {}
        }
    }
    // A socket that no other process has takes the connections in its queue with it when it is closed. A socket that a
    // successor shares keeps filling; so no more connections are accepted than can have been waiting.
    let Ok(queue) = listening.into_queue() else { return };
    let accepted = worker.clock.tick();
    let conf = &worker.shared.config.proxies[proxy];
    for _ in 0..backlog(conf, &conf.binds[bind]) {
        if !worker.shared.limits.has_place(proxy, bind) {
            return;
        }
        match queue.accept() {
            Ok(socket) if is_unwelcome(&worker, &socket) => {}
            Ok(socket) => {
                let Some(place) = enter(&worker, proxy, bind).await else { return };
                spread::start(&worker, Accepted { socket, place, proxy, bind, accepted });
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || is_exhausted(&e) => return,
            Err(_) => {}
        }
    }
}

/// The first port that a program needs no rights for (RFC 6335, 6).
const PRIVILEGED_PORTS_END: u16 = 1024;

/// Whether `harden.reject-privileged-ports.tcp` turns the client away.
fn is_unwelcome(worker: &Worker, socket: &Socket) -> bool {
    worker.shared.config.global.reject_privileged_ports
        && socket.peer_addr().is_ok_and(|peer| (1..PRIVILEGED_PORTS_END).contains(&peer.port()))
}

fn is_exhausted(e: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(e);
    use rustix::io::Errno as E;
    matches!(errno, Some(E::MFILE | E::NFILE | E::NOBUFS | E::NOMEM))
}

/// Returns once the limits would admit another connection; until then, connections stay in the system's queue.
async fn wait_for_place(worker: &Worker, proxy: ProxyId, bind: usize) {
    let limits = &worker.shared.limits;
    while !limits.has_place(proxy, bind) {
        limits.waiting.fetch_add(1, Ordering::SeqCst);
        let freed = limits.freed.notified();
        // Between that check and the registration a place may have become free without a notification.
        if !limits.has_place(proxy, bind) {
            // An operator may also raise a limit, which notifies no acceptor.
            let _ = tokio::time::timeout(Duration::from_secs(1), freed).await;
        }
        limits.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes a place for a connection that has been accepted, waiting if another worker has just taken the last one.
async fn enter(worker: &Worker, proxy: ProxyId, bind: usize) -> Option<Place> {
    loop {
        if let Some(place) = Limits::enter(&worker.shared, proxy, bind, worker.id) {
            return Some(place);
        }
        wait_for_place(worker, proxy, bind).await;
    }
}

/// This worker's share of `rate-limit sessions`: tokens are refilled evenly over each second.
struct RateLimit {
    per_second: Option<f64>,
    tokens: f64,
    refilled: Instant,
}

impl RateLimit {
    fn new(limit: Option<u32>) -> Self {
        let per_second = limit.filter(|&limit| limit > 0).map(f64::from);
        RateLimit { per_second, tokens: per_second.unwrap_or(0.0), refilled: Instant::now() }
    }
    async fn wait(&mut self) {
        let Some(per_second) = self.per_second else { return };
        loop {
            let now = Instant::now();
            self.tokens = (self.tokens + (now - self.refilled).as_secs_f64() * per_second).min(per_second);
            self.refilled = now;
            if self.tokens >= 1.0 {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.tokens) / per_second)).await;
        }
    }
    fn count(&mut self) {
        if self.per_second.is_some() {
            self.tokens -= 1.0;
        }
    }
}
