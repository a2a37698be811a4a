//! The data plane: worker, accept, handshake, route, forward, pools, health checks, logs.
//!
//! [`Runtime::build`] checks a configuration without opening a socket, [`Runtime::listen`] opens its listening sockets
//! (or takes inherited ones), [`Runtime::start`] runs the workers and returns the [`Handle`] through which everything an
//! operator can see or change goes.

#![forbid(unsafe_code)]

pub mod balance;
mod buffer;
pub mod counters;
mod forward;
mod handle;
pub mod hash;
mod http1;
mod listener;
mod log;
mod message;
mod parse;
pub mod queue;
mod runtime;
pub mod server;
mod service;
mod shared;
mod socket;
mod stream;
mod timer;
mod upstream;
mod worker;

pub use handle::Handle;
pub use listener::{ListenError, Listener, Listeners};
pub use runtime::Runtime;
pub use service::{Service, ServiceRequest, ServiceResponse, Services};
pub use shared::Shared;
