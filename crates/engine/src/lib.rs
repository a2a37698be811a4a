//! Op, queue, batching policy, admission; the engines and their metrics. Never sees TLS.
//!
//! An [`Op`] owns everything its computation needs. A worker submits it to its own [`worker`] queue and gets a [`Ticket`]; the
//! queue closes batches by the [`policy`], hands them to the [`Engine`], checks what comes back, redoes natively what was wrong or
//! late, and wakes the holder of the ticket. With no engine installed, or the `native` one, [`perform`] computes at once and
//! nothing waits.
//!
//! Invariants, each with a test:
//! - an operation whose ticket is dropped is finished or forgotten by the queue alone: nothing points back at the caller;
//! - every ticket is answered, whatever the engine does: by its deadline at the latest, natively;
//! - no signature leaves that does not verify.

#![forbid(unsafe_code)]

mod both;
mod class;
mod counters;
mod der;
#[cfg(any(test, feature = "doubles"))]
pub mod doubles;
mod encode;
mod engine;
mod fair;
pub mod hw;
mod key;
mod native;
mod op;
pub mod plan;
pub mod policy;
mod queue;
mod secret;
pub mod sw;
pub mod worker;

pub use both::Both;
pub use class::{Algorithm, Class, Classes, Curve, Work};
pub use counters::{ClassCounters, Counters, TURN_BOUNDS};
pub use engine::{Answers, Describe, Engine, Forecast, Next, OpId};
pub use fair::{Fair, Share};
pub use hw::{DeviceCounters, DeviceReport};
pub use key::{KeyError, KeyKind, Scheme, SigningKey};
pub use native::compute;
pub use op::{Answer, Failure, KemPrivate, Op, Private};
pub use plan::Plan;
pub use queue::{Queue, Settings, Ticket, Watch};
pub use secret::Secret;
pub use worker::perform;
