//! When a batch closes: a pure function of what waits.

use std::time::Duration;

/// What the decision about one class is based on.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Operations queued.
    pub queued: usize,
    /// Number that makes a full batch.
    pub lanes: usize,
    /// Time the oldest has been waiting.
    pub oldest: Duration,
    /// The engine is still working on an earlier batch of this class; another would only wait behind it.
    pub busy: bool,
    /// The worker has something else to run: its handshakes have made steps since it was last asked.
    pub runnable: bool,
}

/// Bounds on how long operations wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A batch closes once its oldest operation has this age, whatever else could still join it.
    pub age_max: Duration,
    /// With nothing else runnable, wait on until the oldest has this age; zero closes at once.
    pub delay: Duration,
    /// Close in the first turn, without giving the worker's other tasks another one. Kept for the experiment that chose
    /// against it: batches are smaller.
    pub eager: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { age_max: Duration::from_millis(1), delay: Duration::ZERO, eager: false }
    }
}

/// Why a batch closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// As many operations were queued as make a full batch.
    Full,
    /// The oldest operation has waited as long as it may.
    Age,
    /// Nothing else is runnable: waiting longer gains nothing.
    Idle,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing waits, or nothing can be done before the engine has answered.
    Nothing,
    /// Let the worker run on; ask again after its next turn, or after this time.
    Wait(Duration),
    /// Compute what is queued.
    Close(Reason),
}

/// Closes when full, when the oldest reaches its cap, or when nothing else is runnable.
pub fn decide(load: &Load, limits: &Limits) -> Decision {
    if load.queued == 0 || load.busy {
        Decision::Nothing
    } else if load.queued >= load.lanes {
        Decision::Close(Reason::Full)
    } else if load.oldest >= limits.age_max {
        Decision::Close(Reason::Age)
    } else if limits.eager || (!load.runnable && load.oldest >= limits.delay) {
        Decision::Close(Reason::Idle)
    } else {
        let until = if load.runnable { limits.age_max } else { limits.delay.min(limits.age_max) };
        Decision::Wait(until.saturating_sub(load.oldest))
    }
}

/// Number of `queued` operations that a batch closing now takes: whole multiples of a full one while there are any, so
/// that no lanes run empty while others wait.
pub fn batch(queued: usize, lanes: usize, most: usize) -> usize {
    match queued / lanes.max(1) {
        0 => queued,
        full => (full * lanes.max(1)).min(most.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_closes_when_full_old_or_idle() {
        const US: fn(u64) -> Duration = Duration::from_micros;
        let default = Limits { age_max: US(1000), delay: US(0), eager: false };
        let patient = Limits { delay: US(300), ..default };
        let eager = Limits { eager: true, ..default };
        let table = [
            // queued of 8, oldest, busy, runnable, limits -> decision
            (0, 0, false, true, default, Decision::Nothing),
            (1, 0, false, false, default, Decision::Close(Reason::Idle)),
            (1, 0, false, true, default, Decision::Wait(US(1000))),
            (1, 0, false, true, eager, Decision::Close(Reason::Idle)),
            (7, 999, false, true, default, Decision::Wait(US(1))),
            (7, 1000, false, true, default, Decision::Close(Reason::Age)),
            (8, 0, false, true, default, Decision::Close(Reason::Full)),
            (20, 5000, true, false, default, Decision::Nothing),
            (1, 100, false, false, patient, Decision::Wait(US(200))),
            (1, 300, false, false, patient, Decision::Close(Reason::Idle)),
            (1, 300, false, true, patient, Decision::Wait(US(700))),
        ];
        for (queued, oldest, busy, runnable, limits, expected) in table {
            let load = Load { queued, lanes: 8, oldest: US(oldest), busy, runnable };
            assert_eq!(decide(&load, &limits), expected, "{load:?}");
        }
    }

    #[test]
    fn no_lane_runs_empty_while_operations_wait() {
        for (queued, lanes, most, taken) in
            [(1, 4, 8, 1), (3, 4, 8, 3), (4, 4, 8, 4), (7, 4, 8, 4), (8, 4, 8, 8), (23, 4, 8, 8), (9, 8, 8, 8)]
        {
            assert_eq!(batch(queued, lanes, most), taken, "{queued} of {lanes}");
        }
    }
}
