//! What answers requests inside the process, wired to the data plane.

use penstock_proxy::Services;

/// The stats page and the Prometheus exporter.
pub fn all() -> Services {
    Services::default()
}
