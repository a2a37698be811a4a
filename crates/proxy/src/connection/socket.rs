//! A connected stream socket, TCP or unix, as everything above it uses it.

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::SockRef;
use std::{
    cell::{Cell, OnceCell},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// A connected socket registered with the worker's reactor.
pub(crate) enum Socket {
    Tcp(Tcp),
    Unix(UnixStream),
    #[cfg(test)]
    Memory(crate::model::memory::Memory),
}

/// A TCP connection that asks the kernel for its addresses at most once, rather than for each request.
pub(crate) struct Tcp {
    stream: TcpStream,
    ends: Box<Ends>,
}

/// What is known of a connection's ends.
#[derive(Default)]
struct Ends {
    /// The local address, once known.
    local: OnceCell<SocketAddr>,
    /// The remote address, once known.
    peer: OnceCell<SocketAddr>,
    /// Whether the peer has closed, and the end that it sent was read.
    peer_closed: Cell<bool>,
}

impl Tcp {
    /// An accepted connection: its remote address is known, and its local address if the listening socket has only one.
    pub fn accepted(stream: TcpStream, peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        let local = local.map_or_else(OnceCell::new, OnceCell::from);
        Tcp { stream, ends: Box::new(Ends { local, peer: peer.into(), peer_closed: Cell::default() }) }
    }
    fn local(&self) -> io::Result<SocketAddr> {
        known(&self.ends.local, || self.stream.local_addr())
    }
    fn peer(&self) -> io::Result<SocketAddr> {
        known(&self.ends.peer, || self.stream.peer_addr())
    }
    /// The underlying stream.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }
}

fn known(address: &OnceCell<SocketAddr>, ask: impl FnOnce() -> io::Result<SocketAddr>) -> io::Result<SocketAddr> {
    match address.get() {
        Some(address) => Ok(*address),
        None => ask().map(|found| *address.get_or_init(|| found)),
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket::Tcp(Tcp { stream, ends: Box::default() })
    }
}

impl Socket {
    /// Ready when there may be bytes, an end of stream or an error to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(s) => s.stream.poll_read_ready(cx),
            Socket::Unix(s) => s.poll_read_ready(cx),
            #[cfg(test)]
            Socket::Memory(s) => s.poll_read_ready(cx),
        }
    }
    /// Copies the first bytes without consuming them.
    ///
    /// # Errors
    /// `WouldBlock` if there are none yet; what the kernel says if the connection is broken.
    pub fn try_peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let peek = || Ok(recv(self.as_fd(), &mut *into, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.1);
        match self {
            Socket::Tcp(s) => s.stream.try_io(Interest::READABLE, peek),
            Socket::Unix(s) => s.try_io(Interest::READABLE, peek),
            #[cfg(test)]
            Socket::Memory(s) => s.try_peek(into),
        }
    }
    /// Reads bytes that were peeked at.
    ///
    /// # Errors
    /// `WouldBlock` if there are none; what the kernel says if the connection is broken.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => s.stream.try_read(into),
            Socket::Unix(s) => s.try_read(into),
            #[cfg(test)]
            Socket::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
    /// The descriptor number of a TCP connection.
    pub fn number(&self) -> Option<i32> {
        match self {
            Socket::Tcp(s) => Some(s.stream.as_raw_fd()),
            _ => None,
        }
    }
    /// How many bytes that were sent the peer has not received yet.
    pub fn untaken(&self) -> usize {
        #[cfg(test)]
        if let Socket::Memory(_) = self {
            return 0;
        }
        penstock_sys::unsent(self.as_fd()).unwrap_or(0)
    }
    /// The remote address; a unix socket has none and counts as `0.0.0.0:0`.
    ///
    /// # Errors
    /// If the connection is gone already.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(s) => s.peer(),
            Socket::Unix(_) => Ok(UNSPECIFIED),
            #[cfg(test)]
            Socket::Memory(s) => Ok(s.addresses()[1]),
        }
    }
    /// The local address.
    ///
    /// # Errors
    /// If the connection is gone already.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(s) => s.local(),
            Socket::Unix(_) => Ok(UNSPECIFIED),
            #[cfg(test)]
            Socket::Memory(s) => Ok(s.addresses()[0]),
        }
    }
    /// The address that the client has connected to: where this machine's packet filter has redirected it, the one that it meant
    /// (SO_ORIGINAL_DST).
    ///
    /// # Errors
    /// If the connection is gone already.
    pub fn destination(&self) -> io::Result<SocketAddr> {
        let local = self.local_addr()?;
        let Socket::Tcp(tcp) = self else { return Ok(local) };
        let socket = SockRef::from(&tcp.stream);
        let meant = match local.ip().to_canonical() {
            IpAddr::V4(_) => socket.original_dst_v4(),
            IpAddr::V6(_) => socket.original_dst_v6(),
        };
        let meant = meant.ok().and_then(|meant| meant.as_socket()).unwrap_or(local);
        Ok(match meant.ip() {
            // IPv4 on a listening socket of IPv6.
            IpAddr::V4(ip) if local.is_ipv6() => SocketAddr::new(ip.to_ipv6_mapped().into(), meant.port()),
            _ => meant,
        })
    }
    /// Makes closing invisible to the peer: the kernel drops the connection silently or, if this process may not ask
    /// for that, sends a reset that does not pass the first router.
    pub fn vanish_on_close(&self) {
        #[cfg(test)]
        if let Socket::Memory(_) = self {
            return self.reset_on_close();
        }
        if penstock_sys::forget_on_close(self.as_fd()).is_ok() {
            return;
        }
        // If this fails, the connection is already gone.
        let _ = socket2::SockRef::from(self).set_ttl_v4(1);
        self.reset_on_close();
    }
    /// Makes closing send RST, unless the peer has closed first. Whoever closes first is left with a socket in TIME_WAIT, which
    /// would occupy one of a proxy's few source ports for a minute.
    pub fn hang_up_on_close(&self) {
        if !matches!(self, Socket::Tcp(s) if s.ends.peer_closed.get()) {
            self.reset_on_close();
        }
    }
    /// Makes closing send RST and drop unsent data, so that the peer does not take what it received for the whole.
    pub fn reset_on_close(&self) {
        #[cfg(test)]
        if let Socket::Memory(s) = self {
            return s.reset_on_close();
        }
        let socket = socket2::SockRef::from(self);
        // If this fails, the connection is already gone.
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

/// The address of a socket that has none.
pub(crate) const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(s) => s.stream.as_fd(),
            Socket::Unix(s) => s.as_fd(),
            #[cfg(test)]
            Socket::Memory(_) => unreachable!("there is no descriptor in memory, and none is asked for"),
        }
    }
}

/// Reads and writes of TCP connections make the system call directly: libc's functions are cancellation points, which
/// cost four atomic operations per request that no thread here needs.
impl Tcp {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let asked = room.len();
            match recv(&self.stream, &mut *room, RecvFlags::empty()) {
                Ok((_, read)) => {
                    // A read that did not fill the buffer emptied the socket, which will report when more arrives.
                    if 0 < read && read < asked {
                        self.not_ready(Interest::READABLE);
                    }
                    if read == 0 && asked > 0 {
                        self.ends.peer_closed.set(true);
                    }
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => self.not_ready(Interest::READABLE),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
    /// Tries at once, since a socket is nearly always writable.
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match send(&self.stream, buf, SendFlags::NOSIGNAL) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::AGAIN) => {
                    self.not_ready(Interest::WRITABLE);
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
    /// Clears the reactor's readiness, which has been used up.
    fn not_ready(&self, interest: Interest) {
        let _ = self.stream.try_io(interest, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(s) => s.poll_read(cx, buf),
            Socket::Unix(s) => Pin::new(s).poll_read(cx, buf),
            #[cfg(test)]
            Socket::Memory(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(s) => s.poll_write(cx, buf),
            Socket::Unix(s) => Pin::new(s).poll_write(cx, buf),
            #[cfg(test)]
            Socket::Memory(s) => Pin::new(s).poll_write(cx, buf),
        }
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(s) => Pin::new(&mut s.stream).poll_write_vectored(cx, bufs),
            Socket::Unix(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            #[cfg(test)]
            Socket::Memory(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(s) => Pin::new(&mut s.stream).poll_shutdown(cx),
            Socket::Unix(s) => Pin::new(s).poll_shutdown(cx),
            #[cfg(test)]
            Socket::Memory(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
