//! Load generator, studies and reports: measures any TLS server, and says how far the answer can be believed.
//!
//! [`load::run`] carries out a [`LoadPlan`] and gives a [`LoadReport`]; a [`cost::Meter`] reads what the server's processes
//! spent on it. Nothing here knows how the server works: HAProxy and nginx are measured like penstock.

#![forbid(unsafe_code)]

pub mod cost;
mod histogram;
pub mod load;

pub use histogram::Histogram;
pub use load::{LoadPlan, LoadReport};
