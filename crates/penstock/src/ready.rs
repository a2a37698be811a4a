//! Telling whoever started us that we serve: a byte through a pipe to a parent, our listening sockets to a master, a
//! datagram to systemd.

use penstock_proxy::handover;
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
};

/// The environment variable that holds the descriptor of a worker's socket to its master, and so marks a worker.
const VARIABLE: &str = "PENSTOCK_MASTER_FD";

/// The end that reports.
#[derive(Debug)]
pub enum Reporter {
    /// Nobody waits.
    Nobody,
    /// Waits for a byte.
    Parent(io::PipeWriter),
    /// Gives the listening sockets of the worker before, and waits for ours.
    Master(UnixStream),
}

/// The end that waits for a byte.
#[derive(Debug)]
pub struct Waiter(io::PipeReader);

/// A pair for a fork: the child reports, the parent waits.
pub fn pipe() -> io::Result<(Reporter, Waiter)> {
    let (reader, writer) = io::pipe()?;
    Ok((Reporter::Parent(writer), Waiter(reader)))
}

/// Whether this process was started by a master.
pub fn is_worker() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// A socket to a worker about to be started. The second half is the worker's, and to be dropped once it has been started.
pub fn worker_socket(command: &mut Command) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    penstock_sys::inheritable(&theirs)?;
    command.env(VARIABLE, theirs.as_raw_fd().to_string());
    Ok((ours, theirs))
}

impl Reporter {
    /// To the master, which left its socket in the environment.
    ///
    /// # Errors
    /// When it is not there.
    pub fn to_master() -> io::Result<Reporter> {
        let number = std::env::var(VARIABLE).ok().and_then(|n| n.parse().ok());
        let socket = penstock_sys::adopt(number.ok_or(io::ErrorKind::NotFound)?)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Reporter::Master(socket.into()))
    }

    /// The listening sockets that whoever waits has for us.
    ///
    /// # Errors
    /// When a master is gone.
    pub fn inherited(&self) -> io::Result<Vec<OwnedFd>> {
        match self {
            Reporter::Master(socket) => handover::take(socket),
            Reporter::Nobody | Reporter::Parent(_) => Ok(Vec::new()),
        }
    }

    /// Reports success; a parent that has gone does not matter.
    ///
    /// # Errors
    /// When a master is gone: it knows nothing of this process.
    pub fn ready(self, sockets: &[OwnedFd]) -> io::Result<()> {
        match self {
            Reporter::Nobody => {}
            Reporter::Parent(mut pipe) => drop(pipe.write_all(b"1")),
            Reporter::Master(socket) => handover::give(&socket, sockets)?,
        }
        Ok(())
    }
}

impl Waiter {
    /// Waits until the other side has reported; false when it ended without.
    pub fn wait(mut self) -> bool {
        self.0.read_exact(&mut [0]).is_ok()
    }
}

/// Tells systemd; nothing happens where it does not listen.
pub fn notify(state: &str) {
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Custom(state)]);
}
