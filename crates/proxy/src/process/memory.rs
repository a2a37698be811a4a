//! How much memory the process may still take, where the system limits it (`RLIMIT_DATA`, `RLIMIT_AS`; option `-m`).
//!
//! Rust ends a process whose allocation fails. So what clients can make it allocate stops before that: with less than the
//! margin left, no more connections are accepted and clients that take nothing are disconnected; with less than half of it,
//! whatever needs another buffer fails. The rest, and a reserve that the allocator falls back on, is for small allocations
//! of what is under way.

pub(super) mod watch;

use std::{
    cell::{Cell, OnceCell},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The margin: this share of the limit, within these bounds.
const MARGIN_SHARE: u64 = 8;
const MARGIN_MIN: u64 = 4 << 20;
const MARGIN_MAX: u64 = 128 << 20;

/// What a connection is expected to take soon: its tasks, its first request, and a handshake if it has one.
const CONNECTION: usize = 16 * 1024;
const TLS_CONNECTION: usize = 48 * 1024;

/// What a stream of HTTP/2 is expected to take soon: its task, its request and its response, and the gaps that their buffers
/// leave in the heap. Measured: 27 KiB of data segment for each of 1,000 streams whose upload is slow, 19 KiB of them resident.
const STREAM: usize = 32 * 1024;

/// What a header field of HTTP/2 takes while its request is converted.
const FIELD: usize = 512;

/// What a connection is expected to take.
pub(crate) fn of_connection(is_tls: bool) -> usize {
    if is_tls { TLS_CONNECTION } else { CONNECTION }
}

/// What a stream of HTTP/2 with this many fields is expected to take.
pub(crate) fn of_stream(fields: usize) -> usize {
    STREAM + FIELD * fields
}

/// How long a client may take nothing while memory is short.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// There is no memory for what a client needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

impl From<NoMemory> for std::io::Error {
    fn from(NoMemory: NoMemory) -> Self {
        std::io::ErrorKind::OutOfMemory.into()
    }
}

/// The memory that is left.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes that may still be taken, as measured last.
    measured: AtomicI64,
    /// Bytes that may still be taken: `measured`, less what was taken since and not returned.
    room: AtomicI64,
    /// Bytes that connections and streams are expected to take while they last; off by those from before there was a limit.
    promised: AtomicI64,
    /// 0 if there is no limit.
    margin: AtomicI64,
    short: AtomicBool,
    /// Connections and buffers that there was no memory for, and that the log has not told of.
    refused: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            measured: AtomicI64::new(i64::MAX),
            room: AtomicI64::new(i64::MAX),
            promised: AtomicI64::new(0),
            margin: AtomicI64::new(0),
            short: false.into(),
            refused: 0.into(),
        }
    }
}

impl Memory {
    fn set_limit(&self, bytes: Option<u64>) {
        let margin = bytes.map_or(0, |bytes| (bytes / MARGIN_SHARE).clamp(MARGIN_MIN, MARGIN_MAX));
        self.margin.store(margin as i64, Relaxed);
    }

    /// Whether a client may connect, which is expected to take `bytes`.
    pub fn admits(&self, bytes: usize) -> bool {
        self.promise(bytes, self.margin.load(Relaxed))
    }

    fn promise(&self, bytes: usize, least: i64) -> bool {
        let enough = self.take(bytes, least);
        // Only how much it grows is of interest: where there is no limit, workers write nothing that they share.
        if enough && least > 0 {
            self.promised.fetch_add(bytes as i64, Relaxed);
        }
        enough
    }

    /// Records that what was expected to take `bytes` has ended.
    pub fn ended(&self, bytes: usize) {
        if self.margin.load(Relaxed) > 0 {
            self.promised.fetch_sub(bytes as i64, Relaxed);
            self.returned(bytes);
        }
    }

    /// Whether an allocation of `bytes` may be made for a client that is connected.
    pub fn lends(&self, bytes: usize) -> bool {
        self.take(bytes, self.margin.load(Relaxed) / 2)
    }

    fn take(&self, bytes: usize, least: i64) -> bool {
        if least == 0 {
            return true;
        }
        let bytes = bytes as i64;
        let enough = self.room.load(Relaxed) - bytes >= least;
        if enough {
            self.room.fetch_sub(bytes, Relaxed);
        } else {
            self.refused.fetch_add(1, Relaxed);
        }
        enough
    }

    /// Records that `bytes` that were taken are free again. What was taken before the last measurement shows in the next.
    pub fn returned(&self, bytes: usize) {
        if self.margin.load(Relaxed) > 0 {
            let measured = self.measured.load(Relaxed);
            if self.room.fetch_add(bytes as i64, Relaxed) + bytes as i64 > measured {
                self.room.store(measured, Relaxed);
            }
        }
    }

    /// Whether clients that take nothing are to be disconnected.
    pub fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// Records how much is left, whether the reserve is spent, and how much of it is promised and not taken yet.
    fn record(&self, room: u64, is_spent: bool, promised: i64) {
        let (room, margin) = (i64::try_from(room).unwrap_or(i64::MAX), self.margin.load(Relaxed));
        let room_now = if is_spent { 0 } else { room - promised };
        self.measured.store(room_now, Relaxed);
        self.room.store(room_now, Relaxed);
        let was = self.is_short();
        // It ends with more than it began with, so that it does not come and go with each connection.
        let short = is_spent || room < margin + if was { margin / 4 } else { 0 };
        self.short.store(short, Relaxed);
    }
}

/// What is lent to a connection besides buffers; returned when it ends.
#[derive(Debug, Default)]
pub(crate) struct Loan {
    /// The memory in which the loan counts; before it is set, whatever is asked for is lent.
    memory: OnceCell<Arc<Memory>>,
    bytes: Cell<usize>,
    /// Whether the loan is for memory that will be taken later, rather than at once.
    is_promise: Cell<bool>,
}

impl Loan {
    /// Has the loan count in `memory` from now on.
    pub fn count_in(&self, memory: &Arc<Memory>, is_promise: bool) {
        let _ = self.memory.set(memory.clone());
        self.is_promise.set(is_promise);
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn take(&self, bytes: usize) -> Result<(), NoMemory> {
        let is_lent = match self.memory.get() {
            Some(memory) if self.is_promise.get() => memory.promise(bytes, memory.margin.load(Relaxed) / 2),
            Some(memory) => memory.lends(bytes),
            None => true,
        };
        if !is_lent {
            return Err(NoMemory);
        }
        self.bytes.set(self.bytes.get() + bytes);
        Ok(())
    }

    /// Returns `bytes`, at most what was taken.
    pub fn give(&self, bytes: usize) {
        let bytes = bytes.min(self.bytes.get());
        self.bytes.set(self.bytes.get() - bytes);
        match self.memory.get() {
            Some(memory) if self.is_promise.get() => memory.ended(bytes),
            Some(memory) => memory.returned(bytes),
            None => {}
        }
    }

    /// Returns the share of one of `users`.
    pub fn give_share(&self, users: usize) {
        self.give(self.bytes.get().div_ceil(users.max(1)));
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.give(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_everything_is_lent() {
        let memory = Memory::default();
        assert!(memory.admits(usize::MAX >> 1) && memory.lends(usize::MAX >> 1) && !memory.is_short());
        memory.returned(1);
        assert!(memory.admits(1));
    }

    #[test]
    fn clients_are_refused_first_and_buffers_later() {
        let memory = Memory::default();
        memory.set_limit(Some(256 << 20));
        memory.record(34 << 20, false, 1 << 20);
        assert!(!memory.is_short());
        assert!(memory.admits(1 << 20) && !memory.admits(1), "a margin of 32 MiB is left");
        assert!(memory.lends(16 << 20) && !memory.lends(1), "half of it is left");
        memory.returned(100 << 20);
        assert!(memory.admits(1 << 20) && !memory.admits(1), "no more is returned than was taken");
        assert_eq!(memory.refused.load(Relaxed), 3);
    }

    #[test]
    fn a_shortage_ends_with_more_memory_than_it_began_with() {
        let memory = Memory::default();
        memory.set_limit(Some(256 << 20));
        for (room_mib, short) in [(33, false), (31, true), (39, true), (40, false)] {
            memory.record(room_mib << 20, false, 0);
            assert_eq!(memory.is_short(), short, "{room_mib}");
        }
        memory.record(40 << 20, true, 0);
        assert!(memory.is_short() && !memory.lends(1), "the reserve is spent");
        memory.set_limit(None);
        memory.record(u64::MAX, false, 0);
        assert!(!memory.is_short() && memory.admits(1));
    }
}
