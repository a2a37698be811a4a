//! What operators see: counters, the reports of crypto engines, and the snapshot that collects everything.

pub(crate) mod captures;
pub mod counters;
pub mod engine;
pub mod pace;
pub mod snapshot;
