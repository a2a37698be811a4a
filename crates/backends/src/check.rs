//! The logic of health checks: a script per backend ([`compile`]), a run of it for each check ([`run`]), and when the
//! next check is due and what a result means ([`schedule`]). The caller has the sockets and the clock. Like in HAProxy,
//! an internal error counts as a failed check.

pub mod agent;
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
