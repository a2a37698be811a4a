//! Servers behind a proxy: their states, which of them takes a request, who waits for a place, what checks find, whether a
//! failed request is repeated, and which connection it may use. Pure: bytes and `now` come in; no socket, no clock.
//!
//! [`server::Backends`] holds the servers of a configuration and what is known of them; [`server::Backend::assign`] gives a
//! request its place.

#![forbid(unsafe_code)]

pub mod balance;
pub mod check;
pub mod hash;
pub mod queue;
pub mod random;
pub mod retry;
pub mod reuse;
pub mod server;
