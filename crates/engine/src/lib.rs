//! Op, queue, batching policy, admission; the engines and their metrics. Never sees TLS.

#![forbid(unsafe_code)]
