//! The studies: servers started side by side and loaded in turn, and the results.

mod catalogue;
mod certificate;
mod configuration;
mod contestant;
mod facts;
mod forwarder;
mod network;
mod orchestration;
mod perf;
mod place;
mod procedure;
mod result;
mod run;
mod search;
mod server;
mod setup;
mod stacks;
mod summary;
mod vitals;
mod window;

pub use catalogue::{Measure, Origin, STUDIES, Study};
pub use contestant::{Contestant, Program, known};
pub use place::{Placement, Step};
pub use result::{Cell, Group, Outcome, Point, Probe, Rates, Window};
pub use run::run;
pub use setup::{Network, Wish};
pub use stacks::{Code, Frame, Stacks};
pub use summary::{against_baseline, in_rounds, version};

#[cfg(test)]
pub(crate) use result::example;
