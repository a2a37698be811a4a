//! What an engine has done, as plain data, summed over the workers when it is read.

use crate::{Class, policy::Reason};
use std::time::Duration;

/// Buckets of the wait histogram: bucket n counts waits below 2^n µs; the last counts all the longer ones.
pub const WAIT_BUCKETS: usize = 21;
/// Buckets of the fill histogram: batches of 1 to 8, and larger.
pub const FILL_BUCKETS: usize = 9;

/// Upper bounds of the buckets of the histogram of turns, µs; the last bucket has none. The budget of a turn is among them.
pub const TURN_BOUNDS: [u64; 9] = [50, 100, 150, 200, 250, 300, 400, 500, 1000];

/// Counters of one class of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Operations submitted.
    pub ops: u64,
    /// Operations computed natively without waiting.
    pub inline: u64,
    /// Operations computed natively because their batch was too small when it closed.
    pub few: u64,
    /// Operations answered at once from results computed ahead.
    pub at_hand: u64,
    /// Batches given to an engine.
    pub batches: u64,
    /// Batches by the number of operations of this class in them.
    pub fill: [u64; FILL_BUCKETS],
    /// Histogram of the times from submission to answer.
    pub wait: [u64; WAIT_BUCKETS],
    /// Sum of the times from submission to answer, µs.
    pub wait_us: u64,
    /// Answers that failed their check.
    pub wrong: u64,
    /// Operations that the engine did not answer in time.
    pub late: u64,
    /// Operations that failed on the engine's device.
    pub failed: u64,
    /// Operations redone natively, for any reason or because the engine reported an error.
    pub redone: u64,
    /// Operations whose ticket was dropped before the answer came.
    pub abandoned: u64,
}

/// Counters of one worker's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By [`Class`], in the order of [`Class::ALL`].
    pub classes: [ClassCounters; Class::COUNT],
    /// Batches closed because a class was full.
    pub closed_full: u64,
    /// Batches closed because the oldest operation had waited as long as it may.
    pub closed_age: u64,
    /// Batches closed because nothing else was runnable.
    pub closed_idle: u64,
    /// Times the engine was benched.
    pub benched: u64,
    /// Whether the engine is benched now.
    pub is_benched: bool,
    /// Turns of the queue by their CPU time, in the buckets of [`TURN_BOUNDS`].
    pub turns: [u64; TURN_BOUNDS.len() + 1],
    /// CPU time of all turns, ns.
    pub turns_ns: u64,
    /// CPU time of the longest turn, ns.
    pub turn_ns_max: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            classes: [ClassCounters::default(); Class::COUNT],
            closed_full: 0,
            closed_age: 0,
            closed_idle: 0,
            benched: 0,
            is_benched: false,
            turns: [0; _],
            turns_ns: 0,
            turn_ns_max: 0,
        }
    }
}

impl Counters {
    /// The counters of one class.
    pub fn class(&self, class: Class) -> &ClassCounters {
        &self.classes[class as usize]
    }

    pub(crate) fn class_mut(&mut self, class: Class) -> &mut ClassCounters {
        &mut self.classes[class as usize]
    }

    pub(crate) fn closed(&mut self, reason: Reason) {
        *match reason {
            Reason::Full => &mut self.closed_full,
            Reason::Age => &mut self.closed_age,
            Reason::Idle => &mut self.closed_idle,
        } += 1;
    }

    pub(crate) fn turned(&mut self, ns: u64) {
        self.turns[TURN_BOUNDS.partition_point(|bound| bound * 1000 < ns)] += 1;
        self.turns_ns += ns;
        self.turn_ns_max = self.turn_ns_max.max(ns);
    }

    /// Adds the faults of an inner queue, whose operations the outer one has counted already.
    pub(crate) fn add_faults(&mut self, within: &Counters) {
        self.classes.iter_mut().zip(&within.classes).for_each(|(mine, theirs)| mine.faults(theirs));
        self.benched += within.benched;
        self.is_benched |= within.is_benched;
    }

    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &Counters) {
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.add(theirs);
        }
        self.closed_full += other.closed_full;
        self.closed_age += other.closed_age;
        self.closed_idle += other.closed_idle;
        self.benched += other.benched;
        self.is_benched |= other.is_benched;
        self.turns.iter_mut().zip(other.turns).for_each(|(mine, theirs)| *mine += theirs);
        self.turns_ns += other.turns_ns;
        self.turn_ns_max = self.turn_ns_max.max(other.turn_ns_max);
    }
}

impl ClassCounters {
    /// Mean number of operations in a batch; `None` without a batch.
    pub fn mean_fill(&self) -> Option<f64> {
        (self.batches > 0).then(|| self.filled() as f64 / self.batches as f64)
    }

    /// Operations that were computed in batches.
    fn filled(&self) -> u64 {
        self.fill.iter().zip(1..).map(|(count, fill): (_, u64)| count * fill).sum()
    }

    /// Upper bound below which the given fraction of the waits stayed; `None` if there were no waits.
    pub fn wait_below(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.wait.iter().sum();
        let mut sum = 0;
        let bucket = self.wait.iter().position(|count| {
            sum += count;
            sum > 0 && sum as f64 >= all as f64 * share
        })?;
        Some(if bucket + 1 < WAIT_BUCKETS { Duration::from_micros(1 << bucket) } else { Duration::MAX })
    }

    pub(crate) fn batch(&mut self, fill: usize) {
        self.batches += 1;
        self.fill[fill.clamp(1, FILL_BUCKETS) - 1] += 1;
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.wait[(u64::BITS - us.leading_zeros()).min(WAIT_BUCKETS as u32 - 1) as usize] += 1;
        self.wait_us = self.wait_us.saturating_add(us);
    }

    fn add(&mut self, other: &ClassCounters) {
        self.ops += other.ops;
        self.inline += other.inline;
        self.few += other.few;
        self.at_hand += other.at_hand;
        self.batches += other.batches;
        self.fill.iter_mut().zip(other.fill).for_each(|(mine, theirs)| *mine += theirs);
        self.wait.iter_mut().zip(other.wait).for_each(|(mine, theirs)| *mine += theirs);
        self.wait_us += other.wait_us;
        self.faults(other);
        self.abandoned += other.abandoned;
    }

    fn faults(&mut self, other: &ClassCounters) {
        self.wrong += other.wrong;
        self.late += other.late;
        self.failed += other.failed;
        self.redone += other.redone;
    }
}
