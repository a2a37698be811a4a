//! Peers: processes that share stick tables. One thread speaks with all of them, beside the workers, which only note
//! what they have changed.

mod conversation;
mod section;
mod tables;
mod thread;
mod view;

pub(crate) use section::PeersShared;
pub(crate) use thread::start;
pub use view::{PeerView, PeersView, SharedTableView};
