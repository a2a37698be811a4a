//! What operators see of a device.

use crate::Class;
use penstock_qat::{Device, Summary};

/// A worker's use of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Operations given to it, by [`Class`].
    pub given: [u64; Class::COUNT],
    /// Requests in progress.
    pub depth: u64,
    /// Most requests in progress at once.
    pub depth_max: u64,
    /// Times its ring was full.
    pub ring_full: u64,
    /// Suspicious handshake failures, after which the device's answers were rechecked.
    pub suspected: u64,
    /// Times the device was benched.
    pub benched: u64,
    /// Workers that have it on the bench now.
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
    /// Adds the counters of another worker.
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

/// The device, and the workers' use of it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The use by one worker, or by all.
    pub counters: DeviceCounters,
    /// The state of every instance.
    pub instances: Vec<Summary>,
    /// Resets of the device that instances have survived.
    pub restarts: u32,
    /// Instances for compression, whether they are used or not.
    pub compression: usize,
    /// The library through which it is driven.
    pub library: &'static str,
}

impl DeviceReport {
    /// Adds another worker's use. Instances are shared, and are shown as either worker saw them.
    pub fn add(&mut self, other: &DeviceReport) {
        self.counters.add(&other.counters);
    }

    /// Builds a report from a worker's counters and its device.
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
