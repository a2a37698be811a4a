//! The worker's record buffers. After the handshake a connection owns none: each poll borrows these for its duration.
//!
//! No borrow outlives a poll, so one pair serves every connection of the thread. What must outlive it (the start of an
//! incomplete record, or ciphertext the socket did not take) is copied to the connection, in an allocation of exactly
//! that size.

use crate::output::Output;
use std::cell::RefCell;

/// Smallest read: one record of 2^14 bytes with TLS 1.2's longest expansion, rounded up (RFC 5246, 6.2.3: 2^14 + 2048).
pub(crate) const READ_MIN: usize = 18 * 1024 + 512;
/// Largest read or write at once; for fast flows, large ones save 30 % of the CPU time of a megabyte.
pub(crate) const FLOW_MAX: usize = 256 * 1024;

/// Incoming and outgoing ciphertext, and small slices of plaintext that are joined into one record.
#[derive(Default)]
pub(crate) struct Buffers {
    pub input: Vec<u8>,
    pub output: Output,
    pub joined: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Lends the worker's buffers to `body`. Not to be nested: nothing in `body` may poll another stream.
pub(crate) fn with<R>(body: impl FnOnce(&mut Buffers) -> R) -> R {
    BUFFERS.with(|buffers| body(&mut buffers.borrow_mut()))
}
