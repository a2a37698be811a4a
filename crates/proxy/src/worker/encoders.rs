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

/// The unused encoders of one worker.
pub(crate) struct Encoders {
    shared: Arc<Shared>,
    kept: RefCell<Vec<Encoder>>,
    in_use: Cell<usize>,
}

impl Encoders {
    pub fn new(shared: Arc<Shared>) -> Encoders {
        Encoders { shared, kept: RefCell::default(), in_use: Cell::default() }
    }
    /// Takes an encoder for a message; `None` if there is no memory left for it (`maxzlibmem`, or the process's limit).
    pub fn take(&self, algorithm: CompressionAlgorithm) -> Option<Encoder> {
        let encoder = self.take_kept(algorithm).or_else(|| self.make(algorithm))?;
        self.in_use.set(self.in_use.get() + 1);
        Some(encoder)
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
    /// How many are in use.
    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.in_use.get()
    }
    /// Whether so many are in use that nobody should have one beyond the end of a turn.
    pub fn are_scarce(&self) -> bool {
        self.in_use.get() > KEPT
    }
    /// Whether a message that paused is sure to find an encoder as long as the process has memory.
    pub fn may_pause(&self) -> bool {
        !self.shared.compressing.limits_memory()
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
        self.in_use.set(self.in_use.get() - 1);
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
