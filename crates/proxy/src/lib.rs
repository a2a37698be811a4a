//! The data plane: worker, accept, handshake, route, forward, pools, health checks, logs.
//!
//! [`Runtime::build`] checks a configuration without opening a socket, [`Runtime::listen`] opens its listening sockets
//! (or takes inherited ones), [`Runtime::start`] runs the workers and returns the [`Handle`] through which everything an
//! operator can see or change goes.

#![forbid(unsafe_code)]

mod accept;
mod connection;
mod exchange;
mod handshake;
mod http1;
mod http2;
mod inspect;
mod log;
#[cfg(test)]
mod model;
mod observe;
mod peers;
mod process;
mod route;
mod rules;
pub mod server;
mod servers;
mod spoe;
mod tap;
mod tcp;
mod worker;

pub use accept::listener::{Inherited, ListenError, Listener, Listeners, LogSocket};
pub use log::ring;
pub use observe::{
    captures::BadMessage,
    counter_file::{Before, Predecessor},
    counters, engine, history, rates, snapshot,
    snapshot::Snapshot,
    stats_file,
};
pub use peers::{PeerView, PeersView, SharedTableView};
pub use penstock_cache::{Cache, Collapses, EntryView};
pub use penstock_tls::{Forgeries, store as certificates};
pub use process::{
    activity::WorkerView,
    compiled::Program,
    files::read_saved,
    gates::{Listening, Rated},
    handle::{Handle, State},
    handover,
    machine::local_offset,
    membership::AddServerError,
    namespaces::{Namespaces, first_to_enter},
    runtime::Runtime,
    service::{Service, ServiceRequest, ServiceResponse, Services},
    sessions::SessionList,
    shared::Shared,
    slow_work::AsideReport,
};
pub use servers::resolve::counts as resolving;
pub use tap::taps::{TapState, TapView, Taps};
pub use worker::roster::SessionView;
