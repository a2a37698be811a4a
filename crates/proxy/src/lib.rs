//! The data plane: worker, accept, handshake, route, forward, pools, health checks, logs.
//!
//! [`Runtime::build`] checks a configuration without opening a socket, [`Runtime::listen`] opens its listening sockets
//! (or takes inherited ones), [`Runtime::start`] runs the workers and returns the [`Handle`] through which everything an
//! operator can see or change goes.

#![forbid(unsafe_code)]

mod accept;
mod aside;
pub mod balance;
mod body;
mod buffer;
pub mod check;
mod clock;
mod conn;
mod connect;
mod cookie;
pub mod counters;
mod debug;
pub mod engine;
mod exchange;
mod finish;
mod forward;
mod forwarded;
mod handle;
pub mod handover;
mod handshake;
pub mod hash;
mod headers;
mod http1;
mod http2;
mod judge;
mod listener;
mod log;
mod login;
#[cfg(test)]
mod memory;
mod message;
#[cfg(test)]
mod model;
mod own;
mod parse;
mod patience;
mod pool;
mod program;
pub mod queue;
mod resolve;
mod respond;
mod reuse;
mod route;
mod runtime;
mod serve;
pub mod server;
mod service;
mod shared;
pub mod snapshot;
mod socket;
mod stream;
mod tcp;
mod timer;
mod turn;
mod upstream;
mod watchdog;
mod worker;
mod world;

pub use aside::AsideReport;
pub use handle::{Handle, State};
pub use listener::{Inherited, ListenError, Listener, Listeners};
pub use program::Program;
pub use runtime::Runtime;
pub use service::{Service, ServiceRequest, ServiceResponse, Services};
pub use shared::Shared;
pub use snapshot::Snapshot;
