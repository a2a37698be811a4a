//! Listening sockets from the process before this one, and to the one that comes after it: through the master, or through a
//! `stats socket ... expose-fd listeners` (`-x`).

use crate::{
    flags::Flags,
    ready::Reporter,
    say::warning,
    tie::{Occasion, Tie},
};
use penstock_proxy::{Inherited, Listeners, handover};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixListener},
    thread::JoinHandle,
};

/// The listening sockets of the worker before this one, or those that the process behind `-x` exposes.
///
/// # Errors
/// Why there are none, in a sentence.
pub fn inherit(reporter: &Reporter, flags: &Flags) -> Result<Inherited, String> {
    let of_worker = reporter.inherited().map_err(|e| format!("the master is gone: {e}"))?;
    let is_first = matches!(reporter.occasion(), None | Some(Occasion::Start));
    let exposed = match &flags.heir_of {
        Some(path) if is_first => handover::ask(path).map_err(|e| (path, e)),
        _ => Ok(Vec::new()),
    };
    let exposed = match exposed {
        Ok(sockets) => sockets,
        Err((path, e)) => {
            let why = format!("cannot take over the listening sockets of the process behind {}: {e}", path.display());
            if reporter.occasion().is_none() {
                return Err(why);
            }
            // As HAProxy does: a service is started with the same options when there is nobody before it.
            warning(why);
            Vec::new()
        }
    };
    let sockets = of_worker.into_iter().chain(exposed).collect();
    Inherited::new(sockets).map_err(|e| format!("cannot take over listening sockets: {e}"))
}

/// What the next process inherits of this one.
pub struct Bequest {
    /// Copies of the listening sockets, if anybody is to have them.
    sockets: Vec<OwnedFd>,
    doors: Vec<OwnedFd>,
}

impl Bequest {
    /// Of a process with these sockets.
    ///
    /// # Errors
    /// When there are not enough descriptors.
    pub fn of(listeners: &mut Listeners, reporter: &Reporter) -> io::Result<Bequest> {
        let is_wanted = matches!(reporter, Reporter::Master(_)) || !listeners.exposing.is_empty();
        let sockets = if is_wanted { listeners.copies()? } else { Vec::new() };
        Ok(Bequest { sockets, doors: std::mem::take(&mut listeners.exposing) })
    }

    /// Gives it to the master, and from now on to who asks on a stats socket; reports that this process serves.
    ///
    /// # Errors
    /// A sentence; then nobody knows of this process.
    pub fn offer(self, reporter: Reporter) -> Result<(Option<Exposure>, Option<Tie>), String> {
        let tie = reporter.ready(&self.sockets).map_err(|e| format!("the master is gone: {e}"))?;
        if self.doors.is_empty() {
            return Ok((None, tie));
        }
        let exposure = Exposure::start(self.doors, self.sockets);
        let exposure = exposure.map_err(|e| format!("cannot answer on the stats socket: {e}"))?;
        Ok((Some(exposure), tie))
    }
}

/// Answers on the stats sockets until it is ended.
pub struct Exposure {
    // Closing it ends the thread.
    stop: io::PipeWriter,
    thread: JoinHandle<()>,
}

impl Exposure {
    /// Gives `sockets` to those who ask on one of the `doors`.
    ///
    /// # Errors
    /// When there is no descriptor or thread for it.
    fn start(doors: Vec<OwnedFd>, sockets: Vec<OwnedFd>) -> io::Result<Exposure> {
        let (stopped, stop) = io::pipe()?;
        let doors: Vec<_> = doors.into_iter().map(UnixListener::from).collect();
        // The next process may accept what this one was woken for.
        doors.iter().try_for_each(|door| door.set_nonblocking(true))?;
        let thread = std::thread::Builder::new().name("expose-fd".into());
        let thread = thread.spawn(move || while answer(&doors, &sockets, &stopped) {})?;
        Ok(Exposure { stop, thread })
    }

    /// Closes the copies, so that a listening socket ends with its worker.
    pub fn end(self) {
        drop(self.stop);
        // A panic was reported by the hook when it happened.
        let _ = self.thread.join();
    }
}

/// Waits for a client and answers it; false once the other end of `stopped` is closed.
fn answer(doors: &[UnixListener], sockets: &[OwnedFd], stopped: &io::PipeReader) -> bool {
    let mut waited: Vec<_> = doors.iter().map(|door| PollFd::new(door, PollFlags::IN)).collect();
    waited.push(PollFd::new(stopped, PollFlags::empty()));
    if rustix::io::retry_on_intr(|| poll(&mut waited, None)).is_err() || !waited[doors.len()].revents().is_empty() {
        return false;
    }
    for (door, ready) in doors.iter().zip(&waited) {
        if !ready.revents().is_empty()
            && let Ok((client, _)) = door.accept()
        {
            // A client that fails may ask again.
            let _ = client.set_nonblocking(false).and_then(|()| handover::answer(&client, sockets));
        }
    }
    true
}
