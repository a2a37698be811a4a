//! What the queue asks of an engine, in three parts: what it would do with an operation, the work itself, and what there is to
//! show of it.

use crate::{Answer, Class, Counters, DeviceReport, Failure, Op};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

/// Identifies an operation between queue and engine. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

impl OpId {
    /// An identifier outside any queue, for measurements.
    pub(crate) fn sample(serial: u64) -> OpId {
        OpId { index: 0, serial }
    }
}

/// Results of an engine, each with the operation it answers.
pub type Answers = Vec<(OpId, Result<Answer, Failure>)>;

/// Computes operations. It may answer in any order, at any time, or never: the queue checks every answer
/// and redoes natively what is wrong, failed or late.
pub trait Engine: Forecast + Describe {
    /// Notes that an operation of `class` has come up. Whether this engine gets it is decided next.
    fn offered(&mut self, _class: Class) {}
    /// Takes an answer that was computed ahead of need, if there is one.
    fn at_hand(&mut self, _op: &Op) -> Option<Answer> {
        None
    }
    /// Starts a closed batch of one class. Operations that the engine has no room for stay in `batch`.
    fn start(&mut self, batch: &mut Vec<(OpId, Rc<Op>)>, now: Instant);
    /// Computes what was started, or collects what a device has finished. `spent`: CPU time that this turn has already used.
    fn run(&mut self, now: Instant, spent: Duration, answers: &mut Answers);
    /// When [`Engine::run`] wants to be called again.
    fn next(&self, now: Instant) -> Next;
    /// Reports a handshake that failed the way a wrong shared secret makes it fail: an unchecked answer may have been wrong.
    fn suspect(&mut self) {}
}

/// What an engine would do with an operation. Questions change nothing.
pub trait Forecast {
    /// Number of operations that make a full batch of `class`; 0 for a class it does not serve.
    fn lanes(&self, class: Class) -> usize;
    /// Most operations of `class` in one batch: a multiple of [`Forecast::lanes`].
    fn most(&self, class: Class) -> usize {
        self.lanes(class)
    }
    /// Fewer operations than this are cheaper computed natively.
    fn break_even(&self, _class: Class) -> usize {
        1
    }
    /// Time the native library takes for one operation of `class`; zero if this engine has not measured it.
    fn native_time(&self, _class: Class) -> Duration {
        Duration::ZERO
    }
    /// Whether the engine can compute this particular operation, whose class it serves.
    fn serves(&self, _op: &Op) -> bool {
        true
    }
    /// Whether an operation that no other can join should be given to this engine rather than computed natively at once. `others`:
    /// the worker has other connections, which a native computation would hold up.
    fn worth_alone(&self, _class: Class, _others: bool) -> bool {
        true
    }
    /// Whether a new batch of this class would only wait behind one in progress.
    fn is_busy(&self, _class: Class) -> bool {
        false
    }
    /// Whether the queue may let answers of this class out unchecked: the engine has checked them, or they need it as little as the
    /// native library's.
    fn checks(&self, _class: Class) -> bool {
        false
    }
    /// Estimated time to answer an operation of `class` submitted now, with `ahead` others of its class before it.
    fn predict(&self, _class: Class, _ahead: usize) -> Duration {
        Duration::ZERO
    }
}

/// What an engine shows of itself in metrics and logs.
pub trait Describe {
    /// The engine's name in metrics and logs.
    fn name(&self) -> &'static str;
    /// State and counters of the device it drives; `None` without one.
    fn device(&self) -> Option<DeviceReport> {
        None
    }
    /// Counters of a queue inside this engine, whose faults are added to its own.
    fn within(&self) -> Option<&Counters> {
        None
    }
}

/// When the queue wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something is submitted.
    Idle,
    /// After the worker's other tasks have run once.
    Soon,
    /// At this time, or when something is submitted.
    At(Instant),
}

impl Next {
    pub(crate) fn sooner(self, other: Next) -> Next {
        match (self, other) {
            (Next::Soon, _) | (_, Next::Soon) => Next::Soon,
            (Next::Idle, x) | (x, Next::Idle) => x,
            (Next::At(a), Next::At(b)) => Next::At(a.min(b)),
        }
    }
}
