//! The rustls acceptor and connector: certificates, SNI, tickets, and handshakes that wait for an operation.
//!
//! A connection's life here: [`Acceptor::accept`] reads a ClientHello, uses it to select the configuration, creates the
//! rustls connection and runs the handshake; [`TlsStream`] then moves the data. Everything is local to one worker.

#![deny(unsafe_code)]

mod accept;
mod authorities;
mod buffers;
mod certificate;
mod chain;
mod ciphers;
mod connect;
mod context;
mod crt_list;
mod der;
mod drive;
mod error;
mod facts;
mod forge;
mod handshake;
mod hkdf;
mod judge;
mod line;
mod loader;
mod names;
mod ocsp;
mod openssl;
mod output;
mod pkcs8;
mod provider;
mod session;
mod settings;
pub mod store;
mod stream;
#[allow(unsafe_code)]
mod suspend;
mod tickets;
mod verify;
mod version1;
mod warm;

pub use accept::{Acceptor, Agreed, Requested, ServerSeen};
pub use connect::{Connector, Probed};
pub use drive::drive_engine;
pub use error::HandshakeError;
pub use forge::Forgeries;
pub use judge::{Invalid, pin};
pub use line::{LineCounts, line_counts};
pub use loader::{Disk, Loader, Memory};
pub use store::{Store, check_stores};
pub use stream::{TlsStream, Truncated};
pub use suspend::{StackCounts, stack_counts};
pub use warm::warm_up;
