//! The load generator: what to send ([`LoadPlan`]), and what came of it ([`LoadReport`]).

mod error;
mod plan;
mod report;

pub use error::Error;
pub use plan::{Arrivals, Http, LoadPlan, Mode, Scheme, Source, Target, TlsPlan, TlsVersion};
pub use report::{ClientCost, Doubt, Latency, LoadReport, Negotiated, Second};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a run early: what was measured by then is reported, and marked partial.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Carries out a plan on the threads of this process, and waits for its end.
///
/// # Errors
/// The plan cannot be carried out: the server is not there, speaks no TLS, or does not agree to what is asked. What fails once
/// the load is running is counted in the report.
pub fn run(plan: &LoadPlan) -> Result<LoadReport, Error> {
    run_with(plan, &Stop::default(), &mut |_| {})
}

/// The same; `observe` hears of each second as it ends, and `stop` may cut the run short.
///
/// # Errors
/// See [`run`].
pub fn run_with(plan: &LoadPlan, stop: &Stop, observe: &mut dyn FnMut(&Second)) -> Result<LoadReport, Error> {
    let _ = (plan, stop, observe);
    Err(Error::Unreachable { target: plan.target.to_string(), why: "the generator is not there yet".into() })
}
