//! Telling whoever started us that we serve: a byte through a pipe to a parent, a datagram to systemd.

use std::{
    io::{self, Read, Write},
    os::fd::AsRawFd,
    process::Command,
};

/// The environment variable that holds the descriptor a worker reports to.
const VARIABLE: &str = "PENSTOCK_READY_FD";

/// The end that reports.
#[derive(Debug)]
pub struct Reporter(Option<std::fs::File>);

/// The end that waits.
#[derive(Debug)]
pub struct Waiter(io::PipeReader);

/// A pair for a fork: the child reports, the parent waits.
pub fn pipe() -> io::Result<(Reporter, Waiter)> {
    let (reader, writer) = io::pipe()?;
    Ok((Reporter(Some(std::os::fd::OwnedFd::from(writer).into())), Waiter(reader)))
}

impl Reporter {
    /// Nobody waits.
    pub fn nobody() -> Reporter {
        Reporter(None)
    }

    /// The one that the parent left in the environment of this program, if any.
    pub fn inherited() -> Reporter {
        let fd = std::env::var(VARIABLE).ok().and_then(|n| n.parse().ok());
        Reporter(fd.and_then(|fd| penstock_sys::adopt(fd).ok()).map(Into::into))
    }

    /// Hands this end to a program about to be started.
    pub fn give_to(self, command: &mut Command) -> io::Result<Reporter> {
        if let Some(file) = &self.0 {
            penstock_sys::inheritable(file)?;
            command.env(VARIABLE, file.as_raw_fd().to_string());
        }
        // The caller drops this end once the program has been started.
        Ok(self)
    }

    /// Reports success; a parent that has gone does not matter.
    pub fn ready(self) {
        if let Some(mut file) = self.0 {
            let _ = file.write_all(b"1");
        }
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
