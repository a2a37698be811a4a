//! The worker's record buffers. After the handshake a connection owns none: each poll borrows these for its duration.
//!
//! Neither borrow outlives a poll, so one pair serves every connection of the thread. What must outlive it (the start
//! of a record whose end has not arrived, ciphertext the socket did not take) is copied into the connection, in an
//! allocation of just that size.

use crate::output::Output;
use std::cell::RefCell;

/// Smallest read: one record of 2^14 bytes with TLS 1.2's longest expansion, rounded up (RFC 5246, 6.2.3: 2^14 + 2048).
pub(crate) const READ_MIN: usize = 18 * 1024 + 512;
/// Largest read or write in one go: where a flow is fast, larger turns save 30 % of the CPU of a megabyte.
pub(crate) const FLOW_MAX: usize = 256 * 1024;

/// Ciphertext in and out, and small slices of plaintext joined into one record.
#[derive(Default)]
pub(crate) struct Buffers {
    pub input: Vec<u8>,
    pub output: Output,
    pub joined: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Lends the worker's buffers. Not to be nested: nothing called inside polls another stream.
pub(crate) fn with<R>(body: impl FnOnce(&mut Buffers) -> R) -> R {
    BUFFERS.with(|buffers| body(&mut buffers.borrow_mut()))
}
