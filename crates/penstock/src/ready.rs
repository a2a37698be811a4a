//! Reports that this process serves: a byte through a pipe to a parent, the listening sockets to a master, a datagram
//! to systemd.

use crate::tie::{Occasion, Tie};
use penstock_proxy::handover;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

/// Whom to tell that the process is ready.
#[derive(Debug)]
pub enum Reporter {
    /// Nowhere.
    Nobody,
    /// To a parent that waits for a byte.
    Parent(io::PipeWriter),
    /// To a master, which passes the previous worker's listening sockets and waits for ours.
    Master(Tie),
}

/// The end of the pipe that waits for a byte.
#[derive(Debug)]
pub struct Waiter(io::PipeReader);

/// A pair for a fork: the child reports, the parent waits.
///
/// # Errors
/// If there is no descriptor left for a pipe.
pub fn pipe() -> io::Result<(Reporter, Waiter)> {
    let (reader, writer) = io::pipe()?;
    Ok((Reporter::Parent(writer), Waiter(reader)))
}

impl Reporter {
    /// Why this process was started, if by a master.
    pub fn occasion(&self) -> Option<Occasion> {
        match self {
            Reporter::Master(tie) => Some(tie.occasion()),
            Reporter::Nobody | Reporter::Parent(_) => None,
        }
    }

    /// The files of a master's in which the worker before keeps its counters, and this one is to keep its own; once.
    pub fn counters(&mut self) -> Option<(File, File)> {
        match self {
            Reporter::Master(tie) => tie.counters(),
            Reporter::Nobody | Reporter::Parent(_) => None,
        }
    }

    /// The listening sockets that the master has for us.
    ///
    /// # Errors
    ///
    /// If the master is gone.
    pub fn inherited(&self) -> io::Result<Vec<OwnedFd>> {
        match self {
            Reporter::Master(tie) => handover::take(tie.socket()),
            Reporter::Nobody | Reporter::Parent(_) => Ok(Vec::new()),
        }
    }

    /// Reports success; a parent that has gone does not matter. The connection to a master stays open.
    ///
    /// # Errors
    ///
    /// If the master is gone, so that it does not know of this process.
    pub fn ready(self, sockets: &[OwnedFd]) -> io::Result<Option<Tie>> {
        match self {
            Reporter::Nobody => Ok(None),
            Reporter::Parent(mut pipe) => {
                let _ = pipe.write_all(b"1");
                Ok(None)
            }
            Reporter::Master(mut tie) => {
                tie.report(sockets)?;
                Ok(Some(tie))
            }
        }
    }
}

impl Waiter {
    /// Waits for the report; returns false if the other side ended without one.
    pub fn wait(mut self) -> bool {
        self.0.read_exact(&mut [0]).is_ok()
    }
}

/// Notifies systemd, if it listens.
pub fn notify(state: &str) {
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Custom(state)]);
}

/// Notifies systemd that the configuration is being reloaded, and since when (`Type=notify-reload`).
pub fn reloading() {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since = since.tv_sec * 1_000_000 + since.tv_nsec / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={since}\nSTATUS=Reloading Configuration."));
}
