//! A response on its way into a cache.

use crate::{collapse::Fetch, entry::CacheEntry, store::Cache, store::cost_of};
use penstock_http::{Fields, Framing};
use std::{mem::size_of, sync::Arc};

/// A response that is being stored. It is not visible before [`Storing::complete`]; if it is dropped before that,
/// nothing is stored.
#[derive(Debug)]
pub struct Storing {
    pub(crate) cache: Arc<Cache>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) number: u64,
    /// The entry, until it is complete.
    pub(crate) entry: Option<CacheEntry>,
    /// How many more bytes the body may have.
    pub(crate) left: usize,
    /// Where others wait for it; it ends after this has left the list of those that are being stored.
    pub(crate) fetch: Option<Fetch>,
}

/// The largest piece of a body: what is allocated at a time.
const PIECE: usize = 16 << 10;

impl Storing {
    /// The response is that of a request whose response others wait for.
    pub fn carry(&mut self, fetch: Fetch) {
        let Some(entry) = self.entry.as_ref() else { return };
        if fetch.is_for(&self.cache, &self.key) {
            fetch.varies(&entry.variant);
            self.fetch = Some(fetch);
        } else {
            fetch.refuse(entry.stored_s);
        }
    }

    /// Adds a part of the body; returns whether there was room. Without, the response is to be dropped.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let fits = self.grow(bytes);
        if !fits && let Some((fetch, entry)) = self.fetch.as_mut().zip(self.entry.as_ref()) {
            fetch.note_refused(entry.stored_s);
        }
        fits
    }

    fn grow(&mut self, mut bytes: &[u8]) -> bool {
        let Some(entry) = &mut self.entry else { return false };
        if bytes.len() > self.left {
            return false;
        }
        let left = self.left;
        self.left -= bytes.len();
        entry.length += bytes.len() as u64;
        while !bytes.is_empty() {
            if entry.body.last().is_none_or(|piece| piece.len() == piece.capacity()) {
                // The first piece has the size of what has come, since many bodies come at once; a body that comes in small
                // parts fills larger ones.
                let wanted = if entry.body.is_empty() { bytes.len() } else { bytes.len().max(PIECE / 4) };
                let size = wanted.min(PIECE).min(left);
                // Twice the place in the list, which doubles as it grows.
                if !self.cache.take(&mut entry.room, size + size_of::<Vec<u8>>() * 2) {
                    return false;
                }
                entry.body.push(Vec::with_capacity(size));
            }
            let piece = entry.body.last_mut().expect("there is one with room");
            let taken = bytes.len().min(piece.capacity() - piece.len());
            piece.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
        }
        true
    }

    /// Makes the response available, now that it is whole; unless the key was invalidated meanwhile.
    pub fn complete(mut self, trailers: Option<&Fields>) {
        let Some(mut entry) = self.entry.take() else { return };
        if matches!(entry.framing, Framing::Length(announced) if announced != entry.length) {
            return;
        }
        if let Some(trailers) = trailers.filter(|trailers| !trailers.is_empty()) {
            if !self.cache.take(&mut entry.room, cost_of(trailers)) {
                return;
            }
            entry.trailers = Some(trailers.clone());
        }
        self.cache.publish(&self.key, self.number, Arc::new(entry));
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.cache.forget(&self.key, self.number);
    }
}
