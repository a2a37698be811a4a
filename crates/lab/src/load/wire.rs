//! One connection: a socket, and TLS over it.

use super::failure::{Failure, When};
use super::session::{Pass, Session};
use super::settings::Tls;
use super::tally::Live;
use super::{LoadPlan, Source, tunnel};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream as Plain};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// What one read may bring: several records of 16 KiB, when bodies are large.
const READ_BYTES: usize = 256 * 1024;

/// How long a server has to close after our close_notify before we end our direction ourselves.
const CLOSE_PATIENCE: Duration = Duration::from_millis(250);

thread_local! {
    /// Every read of a thread goes here; what remains of a record is copied to its connection.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// The addresses a connection goes to and comes from.
#[derive(Clone)]
pub(crate) struct Route {
    pub to: SocketAddr,
    pub from: Option<Source>,
    pub tls: Option<Tls>,
    /// The request for a tunnel, where `to` is a proxy.
    pub tunnel: Option<Vec<u8>>,
}

/// How long the parts of a connection's beginning took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub connect: Duration,
    /// How long the proxy took to make the tunnel.
    pub tunnel: Option<Duration>,
    /// When the handshake was complete; `None` in clear text.
    pub handshake: Option<Duration>,
}

/// Memory that a slot's connections use one after the other.
#[derive(Default)]
pub(crate) struct Buffers {
    held: Vec<u8>,
    output: Vec<u8>,
}

/// What the connections of a thread carry together.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    pub live: Arc<Live>,
    pub bytes_in: Cell<u64>,
    pub bytes_out: Cell<u64>,
    /// The server was seen to close only at the end of TCP: it is not waited for again.
    pub half_close: Cell<bool>,
}

/// A connection.
pub(crate) struct Wire {
    socket: TcpStream,
    session: Option<Session>,
    /// The start of a record that has not come whole.
    held: Vec<u8>,
    /// What is still to be sent.
    output: Vec<u8>,
    sent: usize,
    ended: bool,
    gauge: Rc<Gauge>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.gauge.live.closed();
    }
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    /// The server has ended its direction: by a close_notify, or, with `false`, by the end of TCP alone.
    End(bool),
}

impl Wire {
    /// Connects, through the route's proxy if it has one, and shakes hands. The last flight is not sent yet: what the caller writes next goes with it.
    pub(crate) async fn open(
        route: &Route,
        buffers: Buffers,
        gauge: &Rc<Gauge>,
        stage: &Cell<When>,
    ) -> Result<(Wire, Opened), Failure> {
        stage.set(When::Connect);
        let Buffers { mut held, mut output } = buffers;
        held.clear();
        output.clear();
        let mut session = None;
        if let Some(tls) = &route.tls {
            let mut new = Session::new(tls.config.clone(), tls.name.clone())?;
            new.pass(&mut [], &mut |_| (), &mut output)?;
            session = Some(new);
        }
        let began = Instant::now();
        let failed = |e: io::Error| match Failure::of_socket(&e, When::Connect) {
            Failure::Refused if route.tunnel.is_some() => {
                Failure::Proxy("it refused the connection: nothing listens there".into())
            }
            failure => failure,
        };
        let mut plain = connect(route).map_err(failed)?;
        // Over the loopback device, and with a server nearby by the time the socket is known to the poller, a connection is
        // ready at once: the first flight goes in the same turn.
        let first = route.tunnel.as_ref().unwrap_or(&output);
        let mut sent = if first.is_empty() { 0 } else { try_write(&mut plain, first).map_err(failed)? };
        let mut connected = (sent > 0).then(Instant::now);
        let socket = TcpStream::from_std(plain).map_err(failed)?;
        if connected.is_none() {
            socket.writable().await.map_err(failed)?;
            if let Some(e) = socket.take_error().map_err(failed)? {
                return Err(failed(e));
            }
            connected = Some(Instant::now());
        }
        let connected = connected.expect("set in both branches");
        gauge.bytes_out.update(|n| n + sent as u64);
        let mut ready = connected;
        if let Some(request) = &route.tunnel {
            stage.set(When::Tunnel);
            tunnel::make(&socket, &request[sent..], gauge).await?;
            sent = 0;
            ready = Instant::now();
        }
        stage.set(When::Handshake);
        gauge.live.opened();
        let mut wire = Wire { socket, session, held, output, sent, ended: false, gauge: Rc::clone(gauge) };
        let tunnel = route.tunnel.as_ref().map(|_| ready - connected);
        let mut opened = Opened { connect: connected - began, tunnel, handshake: None };
        if wire.session.is_some() {
            wire.flush(When::Handshake).await?;
            while wire.session.as_ref().is_some_and(|session| session.is_handshaking()) {
                let flow = wire.read(When::Handshake, &mut |_| ()).await?;
                let handshaking = wire.session.as_ref().is_some_and(|session| session.is_handshaking());
                if handshaking && flow != Flow::More {
                    return Err(Failure::Closed(When::Handshake));
                }
                if handshaking {
                    wire.flush(When::Handshake).await?;
                }
            }
            opened.handshake = Some(ready.elapsed());
        }
        Ok((wire, opened))
    }

    /// The TLS session; `None` in clear text.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// The memory, for the next connection. The socket is closed.
    pub(crate) fn into_buffers(mut self) -> Buffers {
        Buffers { held: std::mem::take(&mut self.held), output: std::mem::take(&mut self.output) }
    }

    /// Appends `data` to what is still to be sent.
    pub(crate) fn queue(&mut self, data: &[u8]) -> Result<(), Failure> {
        match &mut self.session {
            Some(session) => Ok(session.encrypt(&mut self.held, data, &mut self.output)?),
            None => {
                self.output.extend_from_slice(data);
                Ok(())
            }
        }
    }

    /// Sends everything.
    pub(crate) async fn flush(&mut self, stage: When) -> Result<(), Failure> {
        poll_fn(|cx| self.poll_flush(cx)).await.map_err(|e| Failure::of_socket(&e, stage))
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            match self.socket.try_write(&self.output[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    self.gauge.bytes_out.update(|sum| sum + n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.socket.poll_write_ready(cx))?,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.output.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Waits for bytes and hands the plaintext among them to `plain`.
    pub(crate) async fn read(&mut self, stage: When, plain: &mut dyn FnMut(&[u8])) -> Result<Flow, Failure> {
        poll_fn(|cx| self.poll_read(cx, stage, plain)).await
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stage: When,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<Flow, Failure>> {
        if self.ended {
            return Poll::Ready(Ok(Flow::End(true)));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                let held = self.held.len();
                if scratch.len() < held + READ_BYTES / 2 {
                    scratch.resize(held + READ_BYTES, 0);
                }
                match self.socket.try_read(&mut scratch[held..]) {
                    Ok(0) => return Poll::Ready(Ok(Flow::End(false))),
                    Ok(n) => {
                        self.gauge.bytes_in.update(|sum| sum + n as u64);
                        scratch[..held].copy_from_slice(&self.held);
                        return Poll::Ready(self.take(&mut scratch[..held + n], plain));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        if let Err(e) = ready!(self.socket.poll_read_ready(cx)) {
                            return Poll::Ready(Err(Failure::of_socket(&e, stage)));
                        }
                    }
                    Err(e) => return Poll::Ready(Err(Failure::of_socket(&e, stage))),
                }
            }
        })
    }

    fn take(&mut self, input: &mut [u8], plain: &mut dyn FnMut(&[u8])) -> Result<Flow, Failure> {
        let Some(session) = &mut self.session else {
            plain(input);
            return Ok(Flow::More);
        };
        let (taken, pass) = session.pass(input, plain, &mut self.output)?;
        self.held.clear();
        self.held.extend_from_slice(&input[taken..]);
        if pass == Pass::PeerClosed {
            self.ended = true;
            return Ok(Flow::End(true));
        }
        Ok(Flow::More)
    }

    /// Says goodbye, and waits until the server has closed, so that no port of ours is left waiting for its last packets.
    /// Whether that was done cleanly; a server that does not answer a close_notify sees the end of TCP after a while.
    pub(crate) async fn close(&mut self) -> Result<bool, Failure> {
        self.goodbye()?;
        self.flush(When::Close).await?;
        self.closed_by_peer().await
    }

    /// Waits for the end of TCP; where it does not come soon our direction is ended, and `false` said.
    pub(crate) async fn closed_by_peer(&mut self) -> Result<bool, Failure> {
        self.ended = false;
        if !self.gauge.half_close.get() {
            match tokio::time::timeout(CLOSE_PATIENCE, self.drain()).await {
                Ok(outcome) => return outcome.map(|()| true),
                Err(_) => self.gauge.half_close.set(true),
            }
        }
        self.shut_down();
        self.drain().await.map(|()| false)
    }

    /// Closes our direction: appends the closing message to what is still to be sent.
    pub(crate) fn goodbye(&mut self) -> Result<(), Failure> {
        match &mut self.session {
            Some(session) => Ok(session.close_notify(&mut self.held, &mut self.output)?),
            None => {
                self.shut_down();
                Ok(())
            }
        }
    }

    /// Number of bytes still to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        loop {
            // The end of TCP, behind a close_notify or without one.
            if self.read(When::Close, &mut |_| ()).await? == Flow::End(false) {
                return Ok(());
            }
            self.ended = false;
        }
    }

    fn shut_down(&self) {
        // Where that fails the connection is gone already.
        let _ = socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write);
    }
}

fn connect(route: &Route) -> io::Result<Plain> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(route.to), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    match &route.from {
        Some(Source::Address(address)) => {
            // The port is chosen when the destination is known, which makes many more connections possible.
            penstock_sys::set_bind_address_no_port(socket.as_fd())?;
            socket.bind(&SockAddr::from(SocketAddr::new(*address, 0)))?;
        }
        Some(Source::Interface(name)) => socket.bind_device(Some(name.as_bytes()))?,
        None => {}
    }
    match socket.connect(&SockAddr::from(route.to)) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(socket.into())
}

/// How much was taken; nothing while the connection is being made.
fn try_write(socket: &mut Plain, data: &[u8]) -> io::Result<usize> {
    match socket.write(data) {
        Ok(n) => Ok(n),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => Ok(0),
        Err(e) => Err(e),
    }
}

/// The source of the connection with this number, of those the plan gives.
pub(crate) fn source(plan: &LoadPlan, number: usize, to: IpAddr) -> Option<Source> {
    let fits = |source: &&Source| match source {
        Source::Address(address) => address.is_ipv4() == to.is_ipv4(),
        Source::Interface(_) => true,
    };
    let sources: Vec<&Source> = plan.sources.iter().filter(fits).collect();
    (!sources.is_empty()).then(|| sources[number % sources.len()].clone())
}
