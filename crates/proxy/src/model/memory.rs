//! In-memory connections, for tests that run whole exchanges through the real code without sockets.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// How many bytes the direction holds at most.
    capacity: usize,
    /// How many bytes have been read.
    moved: usize,
    /// After this many bytes the rest is held back until nothing else is left to do.
    cut: Option<usize>,
    ended: bool,
    /// Whether the direction ended with a reset.
    reset: bool,
    /// Whether the reader is gone.
    gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end of a connection.
pub(crate) struct Memory {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    /// A timer that runs while bytes are held back. The clock is virtual: it advances when no task has anything to do.
    held: RefCell<Option<Pin<Box<Sleep>>>>,
    resets: Cell<bool>,
    /// A planted fault: reading wakes the task again although there is nothing to read.
    spins: bool,
    addresses: [SocketAddr; 2],
}

/// The properties of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Most bytes in flight in each direction.
    pub capacity: usize,
    /// The offset at which the bytes that the proxy reads are cut in two.
    pub cut: Option<usize>,
    /// Whether the proxy's end has a planted spin.
    pub spins: bool,
}

/// Counts the bytes that a connection has carried, even after its end.
pub(crate) struct Meter([Rc<RefCell<Pipe>>; 2]);

impl Meter {
    /// Bytes that the proxy has read, and bytes that were read from it.
    pub fn moved(&self) -> [usize; 2] {
        [self.0[0].borrow().moved, self.0[1].borrow().moved]
    }
}

/// Makes a connection; the first end returned is the proxy's.
pub(crate) fn pair(shape: Shape, proxy: SocketAddr, other: SocketAddr) -> (Memory, Memory, Meter) {
    let pipe = |cut| Rc::new(RefCell::new(Pipe { capacity: shape.capacity, cut, ..Pipe::default() }));
    let (inward, outward) = (pipe(shape.cut), pipe(None));
    let end = |incoming: &Rc<_>, outgoing: &Rc<_>, spins, addresses| Memory {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        held: RefCell::default(),
        resets: Cell::new(false),
        spins,
        addresses,
    };
    let ours = end(&inward, &outward, shape.spins, [proxy, other]);
    let theirs = end(&outward, &inward, false, [other, proxy]);
    (ours, theirs, Meter([inward, outward]))
}

impl Memory {
    /// Ready when a read would return something.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.borrow_mut();
        if pipe.cut == Some(pipe.moved) && !(pipe.bytes.is_empty() && pipe.ended) {
            let mut held = self.held.borrow_mut();
            let sleep = held.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(1))));
            std::task::ready!(sleep.as_mut().poll(cx));
            (pipe.cut, *held) = (None, None);
        }
        if !pipe.bytes.is_empty() || pipe.ended {
            return Poll::Ready(Ok(()));
        }
        if self.spins {
            cx.waker().wake_by_ref();
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }
    /// Copies what is there without consuming it.
    pub fn try_peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let pipe = self.incoming.borrow();
        if pipe.bytes.is_empty() && !pipe.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let seen = pipe.bytes.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(&pipe.bytes) {
            *place = *byte;
        }
        Ok(seen)
    }
    /// Makes the proxy's end close with a reset.
    pub fn reset_on_close(&self) {
        self.resets.set(true);
    }
    /// This end's address and the other's.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.addresses
    }
    /// Ends what this end sends.
    pub fn shut(&self) {
        let mut pipe = self.outgoing.borrow_mut();
        pipe.ended = true;
        pipe.wake();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.outgoing.borrow_mut().reset |= self.resets.get();
        self.shut();
        let mut pipe = self.incoming.borrow_mut();
        pipe.gone = true;
        pipe.wake();
    }
}

impl AsyncRead for Memory {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_read_ready(cx))?;
        let mut pipe = self.incoming.borrow_mut();
        if pipe.bytes.is_empty() && pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let limit = pipe.cut.map_or(usize::MAX, |cut| cut.saturating_sub(pipe.moved));
        let n = pipe.bytes.len().min(into.remaining()).min(limit);
        let taken: Vec<u8> = pipe.bytes.drain(..n).collect();
        into.put_slice(&taken);
        pipe.moved += n;
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.gone || pipe.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let n = from.len().min(pipe.capacity - pipe.bytes.len());
        if n == 0 && !from.is_empty() {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.bytes.extend(&from[..n]);
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(n))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut();
        Poll::Ready(Ok(()))
    }
}

/// Makes the connections to servers.
type Network = Box<dyn Fn(SocketAddr) -> Memory>;

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Makes the proxy on this thread connect through `network` instead of the system's.
pub(crate) fn set_network(network: Option<Network>) {
    NETWORK.with_borrow_mut(|place| *place = network);
}

/// A connection to a server, if such a network is set.
pub(crate) fn connect(to: SocketAddr) -> Option<Memory> {
    NETWORK.with_borrow(|network| network.as_ref().map(|network| network(to)))
}
