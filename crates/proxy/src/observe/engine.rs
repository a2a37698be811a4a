//! The reports of each worker's crypto engine, published for other threads.

use penstock_engine::{Counters, DeviceReport, hw::CompressionReport, worker};
use penstock_tls::{LineCounts, StackCounts};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The engines of all workers, as they last reported.
#[derive(Debug)]
pub struct Reports(Vec<Mutex<Report>>);

/// The engine of one worker, or the sum of all.
#[derive(Clone, Debug)]
pub struct Report {
    /// The engine's name.
    pub engine: &'static str,
    /// The engine's counters.
    pub counters: Counters,
    /// The engine's device, if it drives one.
    pub device: Option<DeviceReport>,
    /// Compression by a device, if that is configured.
    pub compression: Option<CompressionReport>,
    /// The stacks of suspended handshakes.
    pub stacks: StackCounts,
    /// The line of handshakes that wait in front of it.
    pub line: LineCounts,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            engine: "native",
            counters: Counters::default(),
            device: None,
            compression: None,
            stacks: StackCounts::default(),
            line: LineCounts::default(),
        }
    }
}

impl Reports {
    pub(crate) fn new(workers: usize) -> Reports {
        Reports((0..workers).map(|_| Mutex::default()).collect())
    }

    /// The sum over all workers.
    pub fn sum(&self) -> Report {
        let mut sum = Report::default();
        for report in &self.0 {
            let report = lock(report);
            sum.engine = report.engine;
            sum.counters.add(&report.counters);
            match (&mut sum.device, &report.device) {
                (Some(sum), Some(worker)) => sum.add(worker),
                (sum @ None, worker) => sum.clone_from(worker),
                (Some(_), None) => {}
            }
            match (&mut sum.compression, &report.compression) {
                (Some(sum), Some(worker)) => sum.counters.add(&worker.counters),
                (sum @ None, worker) => sum.clone_from(worker),
                (Some(_), None) => {}
            }
            sum.stacks.add(&report.stacks);
            sum.line.add(&report.line);
        }
        sum
    }

    /// One worker's.
    pub fn of(&self, worker: usize) -> Report {
        lock(&self.0[worker]).clone()
    }

    /// Replaces the report of the calling worker.
    pub(crate) fn publish(&self, id: usize, compression: Option<CompressionReport>) {
        let report = Report {
            engine: worker::engine_name(),
            counters: worker::counters(),
            device: worker::device(),
            compression,
            stacks: penstock_tls::stack_counts(),
            line: penstock_tls::line_counts(),
        };
        *lock(&self.0[id]) = report;
    }
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
