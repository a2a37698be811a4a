//! Servers from this side: connections to them, opened and kept between exchanges, the checks of their health, and where
//! names say that they are.

pub(crate) mod checks;
pub(crate) mod connect;
pub(crate) mod key;
pub(crate) mod pool;
pub(crate) mod private;
pub(crate) mod question;
pub(crate) mod resolve;
