//! The data plane: worker, accept, handshake, route, forward, pools, health checks, logs.

#![forbid(unsafe_code)]
