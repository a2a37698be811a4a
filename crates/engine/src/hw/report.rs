//! What there is to see of a device.

use crate::Class;
use penstock_qat::{Device, Summary};

/// What a worker has asked its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Operations given to it, by [`Class`].
    pub given: [u64; Class::COUNT],
    /// Requests under way.
    pub depth: u64,
    /// The most there have been.
    pub depth_max: u64,
    /// Times its ring was full.
    pub ring_full: u64,
    /// Handshakes that failed as one with a wrong secret does, so that it was looked at closer.
    pub suspected: u64,
    /// Times it was benched.
    pub benched: u64,
    /// Workers for whom it is benched now.
    pub is_benched: u64,
}

impl Default for DeviceCounters {
    fn default() -> Self {
        DeviceCounters {
            given: [0; Class::COUNT],
            depth: 0,
            depth_max: 0,
            ring_full: 0,
            suspected: 0,
            benched: 0,
            is_benched: 0,
        }
    }
}

impl DeviceCounters {
    /// Adds another worker's.
    pub fn add(&mut self, other: &DeviceCounters) {
        self.given.iter_mut().zip(other.given).for_each(|(mine, theirs)| *mine += theirs);
        self.depth += other.depth;
        self.depth_max = self.depth_max.max(other.depth_max);
        self.ring_full += other.ring_full;
        self.suspected += other.suspected;
        self.benched += other.benched;
        self.is_benched += other.is_benched;
    }
}

/// The device, and what workers have asked it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Of one worker, or of all.
    pub counters: DeviceCounters,
    /// Every instance, as it is.
    pub instances: Vec<Summary>,
    /// Resets that instances have come back from.
    pub restarts: u32,
    /// Instances for compression, which nothing uses yet.
    pub compression: usize,
    /// The library by which it is reached.
    pub library: &'static str,
}

impl DeviceReport {
    /// Adds what another worker has asked. The instances are everybody's, and shown as either saw them.
    pub fn add(&mut self, other: &DeviceReport) {
        self.counters.add(&other.counters);
    }

    /// Of a worker's counters and its device.
    pub(super) fn new(device: &Device, counters: DeviceCounters) -> DeviceReport {
        DeviceReport {
            counters,
            instances: device.instances(),
            restarts: device.restarts(),
            compression: device.compression_instances(),
            library: device.library(),
        }
    }
}
