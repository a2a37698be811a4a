//! Agents that are asked about sessions (`filter spoe`).
//!
//! `consult` tells an agent what its messages say about an exchange, and does what it answers; `agent` keeps what waits for an
//! agent, for each worker; `link` is one connection to an agent; `consulted` is what an exchange remembers.

mod agent;
mod consult;
mod consulted;
mod link;

pub(crate) use agent::Agents;
pub(crate) use consult::{connected, http, http_group, is_asked, tcp, tcp_group};
pub(crate) use consulted::Consulted;
