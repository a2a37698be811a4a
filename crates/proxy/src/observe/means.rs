//! Means over the last 512 values, as HAProxy's statistics show them.

use super::counters::Count;

/// The mean in milliseconds of the last 512 values, or of all if there are fewer.
#[derive(Debug, Default)]
pub struct Mean {
    sum: Count,
    values: Count,
    max: Count,
}

const WINDOW: u64 = 512;

impl Mean {
    /// Adds a value.
    pub fn push(&self, ms: u64) {
        self.max.raise(ms);
        let values = self.values.read();
        let sum = self.sum.read();
        if values < WINDOW {
            self.values.inc();
            self.sum.add(ms);
        } else {
            self.sum.set(sum - sum.div_ceil(WINDOW) + ms);
        }
    }

    /// Forgets the largest value, and with `all` the mean too.
    pub(super) fn clear(&self, all: bool) {
        self.max.set(0);
        if all {
            self.sum.set(0);
            self.values.set(0);
        }
    }
}

/// The combined means of several workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanTotal {
    sum: u64,
    values: u64,
    /// The largest value so far.
    pub max: u64,
}

impl MeanTotal {
    /// Adds one worker's mean.
    pub(super) fn add(&mut self, mean: &Mean) {
        self.sum += mean.sum.read();
        self.values += mean.values.read();
        self.max = self.max.max(mean.max.read());
    }

    /// The mean, rounded up.
    pub fn mean(&self) -> u64 {
        if self.values == 0 { 0 } else { self.sum.div_ceil(self.values) }
    }
}
