//! A reader at the other end of a named pipe or a TCP connection. There is one at a time.

use penstock_capture::CaptureFormat;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, flock},
    io::Errno,
    pipe::fcntl_setpipe_size,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::PathBuf,
    time::Duration,
};

/// How many bytes a named pipe holds, if the kernel lets it.
const PIPE: usize = 1 << 20;

/// How often to look whether to go on while a reader takes nothing, and whether the other process has written its packets.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const PAUSE: Duration = Duration::from_millis(1);

/// How long connecting to it may take.
const CONNECT: Duration = Duration::from_secs(1);

pub(super) struct Stream {
    to: To,
    open: Option<Pipe>,
    /// Whether the reader has the head.
    begun: bool,
}

enum To {
    Fifo(PathBuf),
    Connect(SocketAddr),
    Listen(Option<TcpListener>),
}

enum Pipe {
    Fifo(File),
    Tcp(TcpStream),
}

impl Stream {
    fn new(to: To) -> Self {
        Stream { to, open: None, begun: false }
    }
    pub fn fifo(path: PathBuf) -> Self {
        Self::new(To::Fifo(path))
    }
    pub fn connect(address: SocketAddr) -> Self {
        Self::new(To::Connect(address))
    }
    /// Listens at once. The next process may do so while this one still does.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(16)?;
        Ok(Self::new(To::Listen(Some(socket.into()))))
    }
    pub fn format(&self) -> CaptureFormat {
        match self.to {
            To::Fifo(_) => CaptureFormat::PcapNg,
            To::Connect(_) | To::Listen(_) => CaptureFormat::Pcap,
        }
    }
    /// Looks for a reader; `false` if there is none now.
    pub fn open(&mut self) -> io::Result<bool> {
        let found = match &self.to {
            To::Fifo(path) => {
                let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
                match OpenOptions::new().write(true).custom_flags(flags).open(path) {
                    Ok(file) if file.metadata()?.file_type().is_fifo() => {
                        // Without the right to that much it keeps its size.
                        let _ = fcntl_setpipe_size(&file, PIPE);
                        Some(Pipe::Fifo(file))
                    }
                    Ok(_) => return Err(io::Error::other("it is not a named pipe")),
                    // Nobody has it open for reading.
                    Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => None,
                    Err(e) => return Err(e),
                }
            }
            To::Connect(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT)?;
                stream.set_nonblocking(true)?;
                Some(Pipe::Tcp(stream))
            }
            To::Listen(None) => None,
            To::Listen(Some(listener)) => match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    Some(Pipe::Tcp(stream))
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
                Err(e) => return Err(e),
            },
        };
        self.open = found;
        self.begun = false;
        Ok(self.open.is_some())
    }
    pub fn is_open(&mut self) -> bool {
        match &mut self.open {
            None => false,
            Some(Pipe::Fifo(file)) => has_reader(file),
            Some(Pipe::Tcp(stream)) => {
                // Readers say nothing; should one, it is ignored.
                let mut said = [0; 512];
                match stream.read(&mut said) {
                    Ok(0) => false,
                    Ok(_) => true,
                    Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
                }
            }
        }
    }
    /// Writes whole packets; a new reader gets the head first. While it takes nothing, `goes_on` decides whether it is waited for.
    pub fn write(&mut self, head: &[u8], packets: &[u8], goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let Some(pipe) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        let head = if std::mem::replace(&mut self.begun, true) { &[] } else { head };
        match pipe {
            Pipe::Tcp(stream) => {
                write_all(stream, head, goes_on)?;
                write_all(stream, packets, goes_on)
            }
            Pipe::Fifo(file) => {
                // During a reload two processes write to it, and neither may begin within a packet of the other.
                lock(file, goes_on)?;
                write_all(file, head, goes_on)?;
                write_all(file, packets, goes_on)?;
                Ok(flock(&*file, FlockOperation::Unlock)?)
            }
        }
    }
    pub fn close(&mut self) {
        self.open = None;
    }
    pub fn stop_listening(&mut self) {
        if let To::Listen(listener) = &mut self.to {
            *listener = None;
        }
    }
}

/// Waits until no other process writes to it.
fn lock(pipe: &File, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    while let Err(e) = flock(pipe, FlockOperation::NonBlockingLockExclusive) {
        if e != Errno::WOULDBLOCK || !goes_on() {
            return Err(e.into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Writes all of it to something that does not block. It is never left in the middle of a packet, unless it is given up.
fn write_all(pipe: &mut (impl Write + AsFd), mut bytes: &[u8], goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && goes_on() => {
                let _ = poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&LOOK));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether somebody still has the other end of a pipe open: what is in the pipe is not for whoever opens it next.
fn has_reader(pipe: &File) -> bool {
    let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
    let _ = poll(&mut asked, Some(&Timespec::default()));
    !asked[0].revents().contains(PollFlags::ERR)
}
