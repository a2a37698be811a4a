//! QuickAssist devices through libqat, which is looked for when a process starts: nothing of it is needed to build.
//!
//! A [`Device`] is opened once a process, after its last fork, and stopped when the last hold on it goes. Each worker opens a
//! [`Channel`] to it: a share of its instances, and pinned memory for the requests it has in progress. A request belongs to the
//! channel until the device has answered it; its submitter may leave, give up or end before that.
//!
//! Invariants, each with a test:
//! - memory that the device may still write to is neither reused nor freed, whatever happens to the request, the channel or
//!   the worker; what is never answered is kept until the device has been stopped;
//! - a slot is wiped before it serves again, and before it is freed;
//! - the library answers on the thread that polls it, which may be another worker's: an answer is an atomic store, no more.
//!
//! All of this crate's `unsafe` is calls of the library (`library`, `device`, `channel`, `deflate`) and memory shared with it
//! (`memory`, `request`, `deflate::block`).

pub mod abi;
mod channel;
mod curve;
pub mod deflate;
mod device;
mod instance;
mod library;
mod memory;
mod quiet;
mod request;
mod unavailable;

pub use channel::{Channel, Outcome, Refused, Tag};
pub use curve::{Curve, is_scalar};
pub use deflate::{Deflated, Deflater};
pub use device::{Device, Options};
pub use instance::{Capabilities, Health, Summary};
pub use request::{Answer, Request, RsaNumbers};
pub use unavailable::Unavailable;
