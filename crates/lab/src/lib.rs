//! Load generator, studies and reports: measures any TLS server, and says how far the answer can be believed.
//!
//! [`load::run`] carries out a [`LoadPlan`] and gives a [`LoadReport`]; a [`cost::Meter`] reads what the server's processes
//! spent on it. [`study::run`] starts servers side by side and loads them in turn; [`report`] and [`compare`] tell people what
//! came of it. Nothing here knows how the server works: HAProxy and nginx are measured like penstock.

#![forbid(unsafe_code)]

pub mod agents;
pub mod compare;
pub mod cost;
mod histogram;
pub mod load;
pub mod output;
pub mod report;
pub mod statistics;
pub mod study;

pub use histogram::Histogram;
pub use load::{LoadPlan, LoadReport};
