//! What compression may take, and takes, in the whole process: `maxcomprate`, `maxcompcpuusage`, `maxzlibmem`.

use crate::observe::snapshot::CompressionLoad;
use penstock_config::model::Global;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The limits of compression and what is measured against them.
#[derive(Debug, Default)]
pub(crate) struct Compressing {
    /// Bytes per second; 0 for no limit.
    limit: AtomicU64,
    /// The share of their time, in percent, that workers must have waited for more to be compressed; 0 for no limit.
    idle_min: u32,
    /// That share in the last second.
    idle: AtomicU32,
    /// The most memory that encoders may take; `None` for no limit.
    memory_max: Option<u64>,
    memory: AtomicU64,
    taken: Flow,
    made: Flow,
}

impl Compressing {
    pub fn new(global: &Global) -> Compressing {
        Compressing {
            limit: AtomicU64::new(u64::from(global.maxcomprate) << 10),
            idle_min: global.maxcompcpuusage.map_or(0, |percent| 100 - percent),
            idle: AtomicU32::new(100),
            memory_max: (global.maxzlibmem > 0).then(|| u64::from(global.maxzlibmem) << 20),
            ..Compressing::default()
        }
    }
    fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }
    /// Sets the limit in bytes per second; 0 for none.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }
    /// Records how much of the last second workers waited, in percent.
    pub fn rested(&self, percent: u32) {
        self.idle.store(percent, Relaxed);
    }
    /// Records how many bytes were compressed to how many.
    pub fn count(&self, taken: u64, made: u64, now_ms: u64) {
        self.taken.add(taken, now_ms);
        self.made.add(made, now_ms);
    }
    /// The figures that are shown to operators.
    pub fn view(&self, now_ms: u64) -> CompressionLoad {
        CompressionLoad {
            taken: self.taken.read(now_ms),
            made: self.made.read(now_ms),
            limit: self.limit(),
            memory: self.memory.load(Relaxed),
            memory_max: self.memory_max.unwrap_or(0),
        }
    }
    /// Whether another message may be compressed.
    pub fn may_begin(&self, now_ms: u64) -> bool {
        !self.exceeds(&self.taken, now_ms)
    }
    /// Whether there is a limit on rate or CPU time, so that levels change.
    pub fn has_limits(&self) -> bool {
        self.idle_min > 0 || self.limit() > 0
    }
    /// Whether messages are to be compressed less than now.
    pub fn is_overloaded(&self, now_ms: u64) -> bool {
        self.exceeds(&self.made, now_ms)
    }
    fn exceeds(&self, flow: &Flow, now_ms: u64) -> bool {
        let limit = self.limit();
        (limit > 0 && flow.read(now_ms) > limit) || self.idle.load(Relaxed) < self.idle_min
    }
    /// Whether memory is limited.
    pub fn limits_memory(&self) -> bool {
        self.memory_max.is_some()
    }
    /// Takes memory for an encoder; returns whether that much is allowed.
    pub fn take_memory(&self, bytes: usize) -> bool {
        let now = self.memory.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        let fits = self.memory_max.is_none_or(|max| now <= max);
        if !fits {
            self.give_memory(bytes);
        }
        fits
    }
    /// Gives the memory of an encoder back.
    pub fn give_memory(&self, bytes: usize) {
        self.memory.fetch_sub(bytes as u64, Relaxed);
    }
}

/// Bytes per second, counted by all workers: those of the current second, and a part of the previous second's, in proportion
/// to its overlap with the last 1000 ms.
#[derive(Debug, Default)]
struct Flow {
    second: AtomicU64,
    current: AtomicU64,
    previous: AtomicU64,
}

impl Flow {
    fn add(&self, bytes: u64, now_ms: u64) {
        let (second, was) = (now_ms / 1000, self.second.load(Relaxed));
        // One worker begins the new second; a few bytes that others count meanwhile may fall into the second before.
        if second > was && self.second.compare_exchange(was, second, Relaxed, Relaxed).is_ok() {
            let last = self.current.swap(0, Relaxed);
            self.previous.store(if second == was + 1 { last } else { 0 }, Relaxed);
        }
        self.current.fetch_add(bytes, Relaxed);
    }
    fn read(&self, now_ms: u64) -> u64 {
        let (second, left) = (now_ms / 1000, 1000 - now_ms % 1000);
        let (current, previous) = match second.checked_sub(self.second.load(Relaxed)) {
            Some(0) => (self.current.load(Relaxed), self.previous.load(Relaxed)),
            Some(1) => (0, self.current.load(Relaxed)),
            _ => (0, 0),
        };
        current + previous * left / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_rate_is_not_begun_and_what_runs_is_compressed_less() {
        let limits = Compressing::new(&Global { maxcomprate: 1, ..Global::default() });
        assert!(limits.may_begin(5000) && !limits.is_overloaded(5000));
        limits.count(1024, 500, 5000);
        assert!(limits.may_begin(5100));
        limits.count(1, 500, 5100);
        assert!(!limits.may_begin(5200) && !limits.is_overloaded(5200));
        limits.count(0, 100, 5900);
        assert!(limits.is_overloaded(5900));
        assert!(limits.may_begin(6100), "a tenth of the last second is over");
        let seen = |now_ms| (limits.view(now_ms).taken, limits.view(now_ms).made);
        assert_eq!((seen(6500), seen(8000)), ((512, 550), (0, 0)));
    }

    #[test]
    fn busy_workers_compress_less_if_that_was_asked_for() {
        let limits = Compressing::new(&Global { maxcompcpuusage: Some(70), ..Global::default() });
        assert!(limits.has_limits() && limits.may_begin(0));
        limits.rested(29);
        assert!(!limits.may_begin(0) && limits.is_overloaded(0));
        limits.rested(30);
        assert!(limits.may_begin(0) && !limits.is_overloaded(0));
    }

    #[test]
    fn memory_is_given_out_up_to_its_limit() {
        let limits = Compressing::new(&Global { maxzlibmem: 1, ..Global::default() });
        assert!(limits.take_memory(1 << 19) && limits.take_memory(1 << 19) && !limits.take_memory(1));
        limits.give_memory(1 << 19);
        assert!(limits.take_memory(1 << 19));
        assert_eq!(limits.view(0).memory, 1 << 20);
    }
}
