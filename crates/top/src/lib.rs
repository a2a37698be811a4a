//! A terminal view of a running load balancer, from its metrics: its engine, its frontends, backends and servers.
//!
//! [`Address::fetch`] reads the metrics of the process, [`Sample::parse`] parses them, [`frame`] renders two samples as lines,
//! and [`Screen`] shows these. Only the first and the last do I/O.

#![forbid(unsafe_code)]

mod choices;
mod engine;
mod fetch;
mod rates;
mod sample;
mod screen;
mod table;
mod trail;
mod view;

pub use choices::Choices;
pub use fetch::Address;
pub use sample::Sample;
pub use screen::{Key, Screen};
pub use trail::Trail;
pub use view::{Looks, frame};
