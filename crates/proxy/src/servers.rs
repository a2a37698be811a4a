//! Connections to servers: opening them, keeping them between exchanges, checking the servers' health, and resolving
//! their names.

pub(crate) mod checks;
pub(crate) mod connect;
pub(crate) mod key;
mod mail;
pub(crate) mod pool;
pub(crate) mod private;
pub(crate) mod question;
pub(crate) mod resolve;
