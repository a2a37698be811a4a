//! Stats page, CSV, Prometheus metrics: what an operator sees, rendered from one snapshot.

#![forbid(unsafe_code)]
