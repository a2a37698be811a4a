//! Services in `mode tap`: a copy of the traffic, as packets, for whoever reads captures.
//!
//! `copied` is the copy of one connection or exchange, as its worker makes it; `queue` is what waits to be written, within a
//! bound; `thread` makes packets of it and writes them to an `end`: `files`, a `stream`, or a `link`.

pub(crate) mod copied;
mod end;
mod files;
mod link;
pub(crate) mod queue;
mod stream;
pub(crate) mod taps;
mod thread;

pub(crate) use copied::{Copied, Copying};
pub(crate) use taps::Taps;
