//! Signals taken one at a time by the thread that waits for them, never inside a handler.

use std::{io, mem::MaybeUninit, time::Duration};

/// The signals HAProxy gives a meaning to (management guide, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Signal {
    Hup,
    Int,
    Quit,
    Usr1,
    Usr2,
    Term,
    Chld,
    Alrm,
    Ttin,
    Ttou,
}

const KNOWN: [(i32, Signal); 10] = [
    (libc::SIGHUP, Signal::Hup),
    (libc::SIGINT, Signal::Int),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGUSR1, Signal::Usr1),
    (libc::SIGUSR2, Signal::Usr2),
    (libc::SIGTERM, Signal::Term),
    (libc::SIGCHLD, Signal::Chld),
    (libc::SIGALRM, Signal::Alrm),
    (libc::SIGTTIN, Signal::Ttin),
    (libc::SIGTTOU, Signal::Ttou),
];

impl Signal {
    /// The signal's number on this system.
    pub fn number(self) -> i32 {
        KNOWN.iter().find(|(_, s)| *s == self).expect("KNOWN has a row for each").0
    }
}

/// Signals that are blocked in this thread and every thread it starts, so that only [`Signals::wait`] sees them.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks all of [`Signal`]. Call it before the first thread is started.
    ///
    /// # Errors
    /// If pthread_sigmask(3) fails, with its error.
    pub fn block() -> io::Result<Signals> {
        Signals::block_these(&KNOWN.map(|(_, signal)| signal))
    }

    /// Blocks these alone. Programs that are started inherit it, and some do not expect it: perf waits for its child's end.
    ///
    /// # Errors
    /// If pthread_sigmask(3) fails, with its error.
    pub fn block_these(signals: &[Signal]) -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.number());
            }
            let set = set.assume_init();
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(Signals { set }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Unblocks them again, for a process that is about to become another program.
    pub fn unblock(&self) {
        // SAFETY: the set was initialised by `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.set, std::ptr::null_mut()) };
    }

    /// The next signal, or `None` when `patience` has passed without one.
    pub fn wait(&self, patience: Duration) -> Option<Signal> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: both structures are initialised; no information about the sender is asked for.
        let number = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &time) };
        KNOWN.iter().find(|(n, _)| *n == number).map(|(_, signal)| *signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_waits_to_be_taken() {
        let signals = Signals::block().unwrap();
        assert_eq!(signals.wait(Duration::ZERO), None);
        // SAFETY: no memory is involved; the signal goes to this very thread, which has it blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert_eq!(signals.wait(Duration::from_secs(5)), Some(Signal::Usr2));
    }
}
