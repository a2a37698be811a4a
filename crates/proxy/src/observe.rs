//! What operators see: counters, the reports of crypto engines, the snapshot that collects everything, and its history.

pub(crate) mod captures;
pub mod counters;
pub mod engine;
pub mod histogram;
pub mod history;
pub(crate) mod ledger;
mod look;
mod mean;
pub mod pace;
pub mod past;
pub(crate) mod sampling;
pub mod snapshot;
pub(crate) mod tally;
