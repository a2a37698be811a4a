//! Encoders for compression, kept by the worker between messages: making one means filling hundreds of kilobytes.

use crate::process::{memory::NoMemory, shared::Shared};
use penstock_compression::{Encoder, Paused};
use penstock_config::model::CompressionAlgorithm;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

/// Encoders that each worker keeps. If more are in use, bodies give theirs back at the end of each turn.
const KEPT: usize = 16;

/// Encoders of brotli and zstd that are in use at the same time in each worker, since they stay with their messages to the end: 72 MiB
/// of zstd, 88 MiB of brotli. Who comes then gets what it accepts besides.
const LASTING_MAX: usize = 64;

/// The unused encoders of one worker.
pub(crate) struct Encoders {
    shared: Arc<Shared>,
    kept: RefCell<Vec<Encoder>>,
    in_use: Cell<usize>,
    /// How many of those stay with their messages to the end.
    lasting: Cell<usize>,
}

impl Encoders {
    pub fn new(shared: Arc<Shared>) -> Encoders {
        Encoders { shared, kept: RefCell::default(), in_use: Cell::default(), lasting: Cell::default() }
    }
    /// Takes an encoder for a message; `None` if there is no place or memory left for it (`maxzlibmem`, or the process's limit).
    pub fn take(&self, algorithm: CompressionAlgorithm) -> Option<Encoder> {
        if !self.have_place(algorithm) {
            return None;
        }
        let encoder = self.take_kept(algorithm).or_else(|| self.make(algorithm))?;
        self.counter(algorithm).update(|count| count + 1);
        Some(encoder)
    }
    /// Whether there are not too many of those that stay with their messages to the end.
    pub fn have_place(&self, algorithm: CompressionAlgorithm) -> bool {
        Encoder::may_pause(algorithm) || self.lasting.get() < LASTING_MAX
    }
    fn counter(&self, algorithm: CompressionAlgorithm) -> &Cell<usize> {
        if Encoder::may_pause(algorithm) { &self.in_use } else { &self.lasting }
    }
    fn take_kept(&self, algorithm: CompressionAlgorithm) -> Option<Encoder> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().rposition(|encoder| encoder.algorithm() == algorithm)?;
        Some(kept.swap_remove(at))
    }
    fn make(&self, algorithm: CompressionAlgorithm) -> Option<Encoder> {
        let (level, bytes) = (self.shared.config.global.tune.comp_maxlevel, Encoder::memory(algorithm));
        if !self.shared.memory.lends(bytes) {
            return None;
        }
        let encoder = self.shared.compressing.take_memory(bytes).then(|| Encoder::new(algorithm, level));
        if encoder.is_none() {
            self.shared.memory.returned(bytes);
        }
        encoder
    }
    /// Takes an encoder back, whatever became of its message.
    pub fn give(&self, encoder: Encoder) {
        let algorithm = encoder.algorithm();
        self.keep(algorithm, encoder.recycle());
    }
    /// Takes an encoder back whose message goes on later: right after a flush.
    pub fn pause(&self, mut encoder: Encoder) -> Paused {
        let paused = encoder.pause();
        self.keep(encoder.algorithm(), Some(encoder));
        paused
    }
    /// How many are in use of those that messages may leave.
    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.in_use.get()
    }
    /// Whether so many are in use that nobody should have one beyond the end of a turn.
    pub fn are_scarce(&self) -> bool {
        self.in_use.get() > KEPT
    }
    /// Whether a message may leave its encoder: one that goes on is sure to find another as long as the process has memory.
    pub fn may_pause(&self, algorithm: CompressionAlgorithm) -> bool {
        Encoder::may_pause(algorithm) && !self.shared.compressing.limits_memory()
    }
    /// Takes an encoder for a message that paused.
    ///
    /// # Errors
    /// If the process has no memory left for it.
    pub fn resume(&self, paused: Paused) -> Result<Encoder, NoMemory> {
        let mut encoder = self.take(paused.algorithm()).ok_or(NoMemory)?;
        encoder.resume(paused);
        Ok(encoder)
    }
    fn keep(&self, algorithm: CompressionAlgorithm, ready: Option<Encoder>) {
        self.counter(algorithm).update(|count| count - 1);
        let mut kept = self.kept.borrow_mut();
        // With limited memory, none is kept that another worker may need.
        let keeps = kept.len() < KEPT && !self.shared.compressing.limits_memory();
        match ready.filter(|_| keeps) {
            Some(encoder) => kept.push(encoder),
            None => {
                let bytes = Encoder::memory(algorithm);
                self.shared.compressing.give_memory(bytes);
                self.shared.memory.returned(bytes);
            }
        }
    }
}
