//! The load generator: what to send ([`LoadPlan`]), and the results ([`LoadReport`]).
//!
//! In the order of a run: `plan`, `probe`, `worker` (a thread), `pace` (when units are due), `slot` (a connection after the
//! other; `fresh`: its names), `wire` (a socket, a `tunnel`, and TLS: `session`), `http1` or `http2`, `tally`, `report`, `doubts`.

mod doubts;
mod error;
mod exchange;
mod failure;
mod fresh;
mod http1;
mod http2;
mod machine;
mod names;
mod pace;
mod plan;
mod probe;
mod report;
mod run;
mod session;
mod settings;
mod slot;
mod tally;
mod tunnel;
mod wire;
mod worker;

pub use error::Error;
pub use plan::{Arrivals, Http, LoadPlan, Mode, Scheme, Source, Target, TlsPlan, TlsVersion};
pub use report::{AgentShare, ClientCost, Doubt, Latency, LoadReport, Negotiated, Second};
pub use run::{Stop, run, run_with};

pub(crate) use doubts::of_counts as doubts_of_counts;
pub(crate) use run::Ready;
