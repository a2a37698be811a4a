//! The logic of health checks: a script for each backend ([`compile`]), a run of it for each check ([`run`]), and when
//! the next one is due and what its result means ([`schedule`]). Who runs them has the sockets and the clock. HAProxy
//! counts an internal error as a failed check; so do we.

pub mod compile;
mod outcome;
mod protocol;
pub mod run;
pub mod schedule;
pub mod script;
mod steps;

pub use outcome::{Effect, Outcome, Verdict};

#[cfg(test)]
mod tests;
