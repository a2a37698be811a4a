//! HAProxy's Stream Processing Offload Protocol (SPOP 2.0), spoken with agents. Pure: bytes and `now` in, bytes and events out.
//!
//! The specification is HAProxy's `doc/SPOE.txt`, part 3. An [`AgentSession`] is one connection to an agent: it greets, sends the
//! payloads of NOTIFY frames, and says which was acknowledged. [`NotifyPayload`] writes such a payload, and [`ack_actions`]
//! reads what an agent answers. Numbers are written as in the peers protocol.

#![forbid(unsafe_code)]

mod actions;
mod data;
mod frame;
mod hello;
mod notify;
mod session;
mod status;

pub use actions::{AckAction, AckScope, ack_actions};
pub use data::AgentData;
pub use frame::{FRAME_PREFIX, FRAME_SIZE_MIN};
pub use notify::{ARGUMENTS_MAX, NotifyPayload};
pub use session::{AgentEvent, AgentSession, AgentSettings, check_answer, check_request};
pub use status::AgentStatus;
