//! Log lines and everything else made from a `log-format` string.

mod alias;
mod cbor;
mod facts;
mod flags;
mod format;
mod json;
mod predefined;
mod termination;

pub use alias::{ALIASES, AliasSpec};
pub use facts::LogFacts;
pub use flags::Flags;
pub use format::{CLF, DEFAULT_HTTP, DEFAULT_TCP, HTTP, HTTPS, LogFormat, Purpose, TCP};
pub(crate) use predefined::Predefined;
pub use termination::{By, During, Termination};
