//! Whom a process asks for everything after its start: its predecessor, which connects by itself, and if that does not
//! happen one of its peers after the other.

use std::collections::HashSet;

/// How long each step is waited for, as in HAProxy.
const PATIENCE_MS: u64 = 5_000;

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncState {
    /// The process's predecessor, which is to connect.
    Local,
    /// A peer that can be asked.
    Remote,
    /// Nothing more.
    Done,
}

/// The state of one section's resynchronisation. Peers are numbers.
#[derive(Clone, Debug)]
pub struct Resync {
    state: ResyncState,
    until: u64,
    asked: Option<usize>,
    partial: HashSet<usize>,
    /// Whether a teacher that knew everything has said so; otherwise time ran out.
    complete: bool,
}

impl Resync {
    /// Starts at `now`. A process without predecessor asks its peers at once.
    pub fn new(now: u64, has_predecessor: bool) -> Resync {
        let state = if has_predecessor { ResyncState::Local } else { ResyncState::Remote };
        Resync { state, until: now + PATIENCE_MS, asked: None, partial: HashSet::new(), complete: false }
    }

    /// What is waited for.
    pub fn state(&self) -> ResyncState {
        self.state
    }

    /// Whether everything was learned from someone who knew everything, or nobody is left to learn from: this process
    /// can then teach others everything.
    pub fn is_up_to_date(&self) -> bool {
        self.state == ResyncState::Done
    }

    /// Whether a teacher has finished.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Milliseconds until the current step ends by itself; `None` if it does not.
    pub fn left(&self, now: u64) -> Option<u64> {
        (self.state != ResyncState::Done && self.asked.is_none()).then(|| self.until.saturating_sub(now))
    }

    /// The peer that is being asked.
    pub fn asked(&self) -> Option<usize> {
        self.asked
    }

    /// Ends steps whose time is over.
    pub fn tick(&mut self, now: u64) {
        if self.left(now) == Some(0) {
            self.state = match self.state {
                ResyncState::Local => ResyncState::Remote,
                ResyncState::Remote | ResyncState::Done => ResyncState::Done,
            };
            self.until = now + PATIENCE_MS;
        }
    }

    /// Whether this peer, with which there is a session, is to be asked now.
    pub fn asks(&mut self, peer: usize) -> bool {
        let asks = self.state == ResyncState::Remote && self.asked.is_none() && !self.partial.contains(&peer);
        if asks {
            self.asked = Some(peer);
        }
        asks
    }

    /// The predecessor has connected.
    pub fn predecessor_teaches(&mut self, peer: usize) {
        if self.state == ResyncState::Local {
            self.asked = Some(peer);
        }
    }

    /// A peer has sent everything; `finished` if it knew everything.
    pub fn taught(&mut self, peer: usize, finished: bool, now: u64) {
        if self.asked != Some(peer) {
            return;
        }
        self.asked = None;
        self.until = now + PATIENCE_MS;
        if finished {
            self.state = ResyncState::Done;
            self.complete = true;
        } else {
            self.partial.insert(peer);
        }
    }

    /// A session has ended.
    pub fn lost(&mut self, peer: usize, now: u64) {
        if self.asked == Some(peer) {
            self.asked = None;
            self.until = now + PATIENCE_MS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predecessor_comes_first_then_each_peer_then_time_decides() {
        let mut resync = Resync::new(100, true);
        assert!(!resync.asks(1), "the predecessor may still come");
        resync.tick(5_099);
        assert_eq!(resync.state(), ResyncState::Local);
        resync.tick(5_100);
        assert_eq!(resync.state(), ResyncState::Remote);
        assert!(resync.asks(1) && !resync.asks(2), "one at a time");
        resync.tick(60_000);
        assert_eq!(resync.state(), ResyncState::Remote, "as long as one teaches, nobody is impatient");
        resync.taught(1, false, 60_000);
        assert!(!resync.asks(1) && resync.asks(2));
        resync.lost(2, 61_000);
        assert!(resync.asks(2), "it may be asked again");
        resync.taught(2, true, 62_000);
        assert!(resync.is_up_to_date() && resync.is_complete());
    }

    #[test]
    fn without_anyone_to_ask_a_process_believes_itself() {
        let mut resync = Resync::new(0, false);
        assert_eq!(resync.left(1_000), Some(4_000));
        resync.tick(5_000);
        assert!(resync.is_up_to_date() && !resync.is_complete());
        assert_eq!(resync.left(9_000), None);
    }

    #[test]
    fn a_predecessor_that_teaches_all_ends_it() {
        let mut resync = Resync::new(0, true);
        resync.predecessor_teaches(0);
        resync.tick(10_000);
        assert_eq!(resync.state(), ResyncState::Local);
        resync.taught(0, true, 11_000);
        assert!(resync.is_up_to_date());
    }
}
