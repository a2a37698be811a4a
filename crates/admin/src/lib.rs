//! The stats page, CSV, JSON and Prometheus metrics: what an operator sees, rendered from one snapshot.
//!
//! [`columns`] is the table of statistics: CSV and JSON are made from it, and the Prometheus metrics refer to it. [`service`] answers HTTP requests, and [`command`]
//! commands of the runtime API.

#![forbid(unsafe_code)]

mod collapses;
pub mod columns;
pub mod command;
pub mod csv;
mod device;
mod engine;
mod handshakes;
mod html;
pub mod json;
pub mod kept;
mod live;
pub mod metrics;
pub mod page;
pub mod prometheus;
mod service;
mod taps;
pub mod value;

pub use service::{Exporter, Stats};
