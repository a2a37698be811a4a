//! Tests of penstock alone: where the proxies before it fail, and what needs bytes that no well-behaved client sends.

pub mod floods;
mod held;
mod limits;
mod memory;
mod resets;
mod smuggling;
mod spread;
mod strict;

use crate::Failure;
use crate::process::Subject;
use crate::run::Run;
use crate::scenario::Scenario;

/// A test written in Rust.
pub struct Probe {
    /// Its name, as `smuggling/length-and-chunked`.
    pub name: String,
    /// Runs it.
    pub run: Box<dyn Fn() -> Result<(), Failure> + Send + Sync>,
}

impl Probe {
    fn new(name: impl Into<String>, run: impl Fn() -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Every probe.
pub fn all() -> Vec<Probe> {
    let mut probes = smuggling::probes();
    probes.extend(resets::probes());
    probes.extend(floods::probes());
    probes.extend(limits::probes());
    probes.extend(memory::probes());
    probes.extend(held::probes());
    probes.extend(spread::probes());
    probes
}

/// Runs penstock with a scenario's `[config]`, `[origin]`, `[answer]` and `[file]` sections, and does `work` with it.
fn with_penstock(sections: &str, work: impl FnOnce(&mut Run<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let scenario = Scenario::parse("probe", &format!("# A probe.\n{sections}"))?;
    let mut run = Run::prepare(&scenario, subject())?;
    run.start()?;
    work(&mut run)
}

/// Penstock, unless `PENSTOCK_PROBE=haproxy` asks what HAProxy does in the same place.
fn subject() -> Subject {
    match std::env::var("PENSTOCK_PROBE") {
        Ok(name) if name == "haproxy" => Subject::Haproxy,
        _ => Subject::Penstock,
    }
}
