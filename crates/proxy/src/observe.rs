//! What operators see: counters, the reports of crypto engines, the snapshot that collects everything, and its history.

pub(crate) mod captures;
mod collect;
pub(crate) mod counter_file;
pub mod counters;
pub mod engine;
pub mod histogram;
pub mod history;
pub(crate) mod http_counters;
mod means;
pub mod rates;
pub(crate) mod sampling;
pub mod snapshot;
pub mod stats_file;
