//! Servers behind a proxy: their states, which of them gets a request, queues, the logic of health checks, retries, and
//! the reuse of connections. Pure: bytes and `now` are passed in; there are no sockets and no clock.
//!
//! [`server::Backends`] holds the servers of a configuration and their states; [`server::Backend::assign`] gives a
//! request its place.

#![forbid(unsafe_code)]

pub mod balance;
pub mod check;
pub mod hash;
pub mod mail;
pub mod queue;
pub mod retry;
pub mod reuse;
pub mod server;
