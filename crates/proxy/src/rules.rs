//! Rules of a configuration meet a message: they are run, look things up, and what they decide is done.

pub(crate) mod after_response;
pub(crate) mod context;
pub(crate) mod evaluate;
pub(crate) mod login;
pub(crate) mod lookup;
