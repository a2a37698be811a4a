//! The bench: an engine that answered wrongly, or too often not at all, is out of service until a trial with a known answer passes.

use super::{OpId, Queue, Slot};
use crate::{Answer, Curve, Failure, Op, Private, Secret, native};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

const BENCH_MAX: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    pub retry_at: Instant,
    backoff: Duration,
    trial: Rc<Op>,
    running: Option<OpId>,
}

impl Bench {
    /// The trial in progress.
    pub fn running(self) -> Option<OpId> {
        self.running
    }
}

impl Queue {
    /// Takes the engine out of service; `failed` is the operation it failed at.
    pub(super) fn bench(&mut self, failed: &Rc<Op>, now: Instant) {
        if self.bench.is_some() {
            return;
        }
        let backoff = self.settings.bench;
        self.bench = Some(Bench { retry_at: now + backoff, backoff, trial: trial(failed), running: None });
        self.late_in_a_row = 0;
        self.counters.benched += 1;
        self.counters.is_benched = true;
    }

    /// Starts a trial when one is due.
    pub(super) fn retry_bench(&mut self, now: Instant) {
        let Some(bench) = &mut self.bench else { return };
        if bench.running.is_some() || now < bench.retry_at {
            return;
        }
        let trial = bench.trial.clone();
        // Until it ends, the trial's own deadline is what wakes the queue.
        bench.retry_at = now + self.settings.deadline;
        let id = self.enter(trial.clone(), Rc::new(Slot::default()), now);
        let mut batch = vec![(id, trial.clone())];
        if self.engine.lanes(trial.class()) > 0 {
            self.engine.start(&mut batch, now);
        }
        if batch.is_empty() {
            self.bench.iter_mut().for_each(|bench| bench.running = Some(id));
            self.started.push_back(id);
        } else {
            self.entries.remove(id.index);
            self.end_trial(&trial, Err(Failure::Internal), now);
        }
    }

    pub(super) fn is_trial(&self, id: OpId) -> bool {
        self.bench.as_ref().is_some_and(|bench| bench.running == Some(id))
    }

    pub(super) fn end_trial(&mut self, op: &Op, result: Result<Answer, Failure>, now: Instant) {
        let passed = match (&result, op) {
            (Ok(Answer::Shared(secret)), Op::Derive { .. }) => {
                matches!(native::compute(op), Ok(Answer::Shared(known)) if known.expose() == secret.expose())
            }
            (Ok(answer), _) => op.accepts(answer),
            (Err(_), _) => false,
        };
        let Some(bench) = &mut self.bench else { return };
        if passed {
            self.bench = None;
            self.counters.is_benched = false;
        } else {
            bench.running = None;
            bench.backoff = (bench.backoff * 2).min(BENCH_MAX);
            bench.retry_at = now + bench.backoff;
        }
    }
}

/// An operation like `failed` whose answer can be checked: a signature verifies; a derivation from a fixed key is compared
/// with the native one. Key generation has no right answer, so its curve is tried by a derivation.
fn trial(failed: &Rc<Op>) -> Rc<Op> {
    let curve = match &**failed {
        Op::Sign { .. } => return failed.clone(),
        Op::KeyGen { curve } | Op::Agree { curve, .. } => *curve,
        Op::Derive { private, .. } => private.curve(),
        // ML-KEM's result cannot be foreseen; the device that does it does X25519 beside it.
        Op::KemKeyGen | Op::KemEncapsulate { .. } | Op::KemDecapsulate { .. } => Curve::X25519,
    };
    // Any number below the group order serves; this one is public.
    let private = Private::Scalar(curve, Secret::from(vec![0x42; curve.secret_len()]));
    let peer = match native::compute(&Op::KeyGen { curve }) {
        Ok(Answer::Pair { public, .. }) => public,
        _ => return failed.clone(),
    };
    Rc::new(Op::Derive { private, peer })
}
