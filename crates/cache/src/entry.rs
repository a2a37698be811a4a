//! A stored response.

use crate::vary::Variant;
use penstock_http::{Fields, Framing, ResponseHead};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A stored response. It stays whole for as long as anyone reads it, whatever happens to the cache meanwhile.
#[derive(Debug)]
pub struct CacheEntry {
    /// The head as it was stored, without an age.
    pub head: ResponseHead,
    /// How the body was framed.
    pub framing: Framing,
    /// The trailers of the response.
    pub trailers: Option<Fields>,
    /// What `If-Modified-Since` is compared with, in seconds since 1970: `Last-Modified`, else `Date`, else when it was stored.
    pub last_modified_s: u64,
    /// The body.
    pub(crate) body: Vec<Vec<u8>>,
    pub(crate) length: u64,
    pub(crate) variant: Variant,
    pub(crate) age_s: u64,
    pub(crate) stored_s: u64,
    pub(crate) expires_s: u64,
    pub(crate) room: Room,
}

impl CacheEntry {
    /// The response's age in seconds at `now_s`, which is in seconds since 1970.
    pub fn age_s(&self, now_s: u64) -> u64 {
        self.age_s + now_s.saturating_sub(self.stored_s)
    }
    /// The length of the response's body in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }
    /// Whether the response's body is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
    /// A piece of the body; `None` after the last.
    pub fn piece(&self, number: usize) -> Option<&[u8]> {
        self.body.get(number).map(Vec::as_slice)
    }
    /// The position of the byte at offset `at` of the body: the number of its piece, and its offset there.
    pub fn place(&self, mut at: u64) -> (usize, usize) {
        let before = self.body.iter().take_while(|piece| {
            let rest = at.checked_sub(piece.len() as u64);
            at = rest.unwrap_or(at);
            rest.is_some()
        });
        (before.count(), at as usize)
    }
}

/// Bytes of a cache that are taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) bytes: usize,
    used: Arc<AtomicUsize>,
}

impl Room {
    pub(crate) fn none(used: &Arc<AtomicUsize>) -> Room {
        Room { bytes: 0, used: used.clone() }
    }
    /// Takes more, unless that makes it more than `total`.
    pub(crate) fn grow(&mut self, bytes: usize, total: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= total);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
