//! Connections to servers: opened, kept between exchanges, and where names say that servers are.

pub(crate) mod connect;
pub(crate) mod pool;
pub(crate) mod private;
pub(crate) mod resolve;
pub(crate) mod sni;
