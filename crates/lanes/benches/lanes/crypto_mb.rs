//! Intel's crypto_mb, where it is installed.

/// A sentence for the head of the report.
pub fn description() -> &'static str {
    "not installed"
}
