//! The services that answer requests inside the process.

use penstock_admin::{Exporter, Stats};
use penstock_proxy::Services;
use std::sync::Arc;

/// The stats page and the Prometheus exporter.
pub fn all() -> Services {
    let version = || env!("CARGO_PKG_VERSION").to_string();
    Services {
        stats: Some(Arc::new(Stats::new(version()))),
        named: vec![("prometheus-exporter", Arc::new(Exporter { version: version() }))],
    }
}
