//! Passes messages through services that inspect them (`service`, `service-chain`): requests before they go to their
//! servers, responses before they go to their clients.
//!
//! `request` and `response` walk the chain, `ask` holds the conversation with one service, `original` is the message's
//! body meanwhile, `replay` gives it to whoever it goes to, and `verdict` notes what was said. `taps` has copies made.

mod apply;
mod ask;
mod described;
mod original;
mod place;
mod replay;
mod request;
mod response;
pub(crate) mod taps;
mod verdict;

pub(crate) use described::Described;
pub(crate) use replay::{Inspected, Replay, Replayed};
pub(crate) use request::request;
pub(crate) use response::response;
