//! Passes messages through services that inspect them (`service`, `service-chain`): requests before they go to their
//! servers, responses before they go to their clients.
//!
//! `request` and `response` walk the chain, `ask` holds the conversation with one service, `original` is the message's
//! body meanwhile, `replay` gives it to whoever it goes to, and `verdict` notes what was said. `taps` has copies made.
//!
//! A device (`mode http`, `mode tcp`) forwards the request to us again, so that two exchanges take part. `through` sends it there, `returned` takes it
//! back and goes on with the chain, `crossing` is what connects the two, and `passage` has the response reported and judged. `explicit` is about
//! devices that are asked as proxies.

mod apply;
pub(crate) mod ask;
pub(crate) mod crossing;
mod described;
mod explicit;
mod original;
pub(crate) mod passage;
mod place;
mod replay;
mod request;
mod response;
pub(crate) mod returned;
pub(crate) mod taps;
mod through;
pub(crate) mod verdict;

pub(crate) use described::Described;
pub(crate) use replay::{Inspected, Replay, Replayed};
pub(crate) use request::request;
pub(crate) use response::response;
