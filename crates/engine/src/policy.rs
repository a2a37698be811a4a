//! When a batch closes: a pure function of what waits.

use std::time::Duration;

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Operations queued.
    pub queued: usize,
    /// One of the classes has a full batch.
    pub full: bool,
    /// Age of the oldest.
    pub oldest: Duration,
    /// The worker has something else to run: an operation was queued since it was last asked.
    pub runnable: bool,
}

/// Bounds of the wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// No operation is older than this when its batch closes, whatever else could still join it.
    pub age_max: Duration,
    /// With nothing else runnable, wait on until the oldest has this age; zero closes at once.
    pub delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { age_max: Duration::from_millis(1), delay: Duration::ZERO }
    }
}

/// Why a batch closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A class has as many operations as the engine has lanes for it.
    Full,
    /// The oldest has waited as long as any may.
    Age,
    /// Nothing else is runnable: waiting longer gains nothing.
    Idle,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing waits.
    Nothing,
    /// Let the worker run on; ask again after its next turn, or after this time.
    Wait(Duration),
    /// Compute what is queued.
    Close(Reason),
}

/// Closes when full, when the oldest reaches its cap, or when nothing else is runnable.
pub fn decide(load: &Load, limits: &Limits) -> Decision {
    if load.queued == 0 {
        Decision::Nothing
    } else if load.full {
        Decision::Close(Reason::Full)
    } else if load.oldest >= limits.age_max {
        Decision::Close(Reason::Age)
    } else if !load.runnable && load.oldest >= limits.delay {
        Decision::Close(Reason::Idle)
    } else {
        let until = if load.runnable { limits.age_max } else { limits.delay.min(limits.age_max) };
        Decision::Wait(until.saturating_sub(load.oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_closes_when_full_old_or_idle() {
        const US: fn(u64) -> Duration = Duration::from_micros;
        let eager = Limits { age_max: US(1000), delay: US(0) };
        let patient = Limits { age_max: US(1000), delay: US(300) };
        let table = [
            // queued, full, oldest, runnable, limits -> decision
            (0, false, 0, true, eager, Decision::Nothing),
            (1, false, 0, false, eager, Decision::Close(Reason::Idle)),
            (1, false, 0, true, eager, Decision::Wait(US(1000))),
            (7, false, 999, true, eager, Decision::Wait(US(1))),
            (7, false, 1000, true, eager, Decision::Close(Reason::Age)),
            (8, true, 0, true, eager, Decision::Close(Reason::Full)),
            (1, false, 100, false, patient, Decision::Wait(US(200))),
            (1, false, 300, false, patient, Decision::Close(Reason::Idle)),
            (1, false, 300, true, patient, Decision::Wait(US(700))),
        ];
        for (queued, full, oldest, runnable, limits, expected) in table {
            let load = Load { queued, full, oldest: US(oldest), runnable };
            assert_eq!(decide(&load, &limits), expected, "{load:?}");
        }
    }
}
