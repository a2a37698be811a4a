//! A reader at the other end of a named pipe or a TCP connection. There is one at a time.

use penstock_capture::CaptureFormat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::PathBuf,
    time::Duration,
};

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
                    Ok(file) if file.metadata()?.file_type().is_fifo() => Some(Pipe::Fifo(file)),
                    Ok(_) => return Err(io::Error::other("it is not a named pipe")),
                    // Nobody has it open for reading.
                    Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => None,
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
    /// What to write to. A new reader gets the head first, for which its empty pipe has room.
    pub fn writer(&mut self, head: &[u8]) -> io::Result<&mut dyn Write> {
        let Some(pipe) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        let writer: &mut dyn Write = match pipe {
            Pipe::Fifo(file) => file,
            Pipe::Tcp(stream) => stream,
        };
        if !std::mem::replace(&mut self.begun, true) {
            writer.write_all(head)?;
        }
        Ok(writer)
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

/// Whether somebody still has the other end of a pipe open: what is in the pipe is not for whoever opens it next.
fn has_reader(pipe: &File) -> bool {
    let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
    let _ = poll(&mut asked, Some(&Timespec::default()));
    !asked[0].revents().contains(PollFlags::ERR)
}
