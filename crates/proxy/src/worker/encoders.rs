//! Encoders for compression, kept by the worker between messages: making one means filling hundreds of kilobytes.

use crate::process::shared::Shared;
use penstock_compression::Encoder;
use penstock_config::model::CompressionAlgorithm;
use std::{cell::RefCell, sync::Arc};

/// Unused encoders kept by each worker; more than that, after a burst, are freed.
const KEPT: usize = 16;

/// The unused encoders of one worker.
pub(crate) struct Encoders {
    shared: Arc<Shared>,
    kept: RefCell<Vec<Encoder>>,
}

impl Encoders {
    pub fn new(shared: Arc<Shared>) -> Encoders {
        Encoders { shared, kept: RefCell::default() }
    }
    /// Takes an encoder for a message; `None` if there is no memory left for it (`maxzlibmem`, or the process's limit).
    pub fn take(&self, algorithm: CompressionAlgorithm) -> Option<Encoder> {
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().rposition(|encoder| encoder.algorithm() == algorithm) {
            return Some(kept.swap_remove(at));
        }
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
        let mut kept = self.kept.borrow_mut();
        let bytes = Encoder::memory(encoder.algorithm());
        // With limited memory, none is kept that another worker may need.
        let keeps = kept.len() < KEPT && !self.shared.compressing.limits_memory();
        match keeps.then(|| encoder.recycle()).flatten() {
            Some(encoder) => kept.push(encoder),
            None => {
                self.shared.compressing.give_memory(bytes);
                self.shared.memory.returned(bytes);
            }
        }
    }
}
