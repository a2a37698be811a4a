//! Runs the rules of a configuration on a message: evaluates them, answers their lookups, and carries out what they
//! decide.

pub(crate) mod after_response;
pub(crate) mod context;
pub(crate) mod evaluate;
pub(crate) mod login;
pub(crate) mod lookup;
pub(crate) mod resolve;
