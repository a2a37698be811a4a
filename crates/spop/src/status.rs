//! Why a connection to an agent ends.

use std::fmt;

/// A status code of a DISCONNECT frame. Agents may send codes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentStatus(pub u32);

impl AgentStatus {
    /// Nothing is wrong.
    pub const NORMAL: AgentStatus = AgentStatus(0);
    /// The connection failed or was closed.
    pub const IO: AgentStatus = AgentStatus(1);
    /// Nothing came in time.
    pub const TIMEOUT: AgentStatus = AgentStatus(2);
    /// A frame is longer than was agreed on.
    pub const TOO_BIG: AgentStatus = AgentStatus(3);
    /// A frame is malformed, or came when it must not.
    pub const INVALID: AgentStatus = AgentStatus(4);
    /// The hello names no version.
    pub const NO_VERSION: AgentStatus = AgentStatus(5);
    /// The hello names no frame size.
    pub const NO_FRAME_SIZE: AgentStatus = AgentStatus(6);
    /// The hello names no capabilities.
    pub const NO_CAPABILITIES: AgentStatus = AgentStatus(7);
    /// The agent speaks another version.
    pub const VERSION: AgentStatus = AgentStatus(8);
    /// The agent's frame size is too big or too small.
    pub const FRAME_SIZE: AgentStatus = AgentStatus(9);
    /// The agent has sent a payload in fragments.
    pub const FRAGMENTED: AgentStatus = AgentStatus(10);
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "normal",
            1 => "I/O error",
            2 => "a timeout occurred",
            3 => "frame is too big",
            4 => "invalid frame received",
            5 => "version value not found",
            6 => "max-frame-size value not found",
            7 => "capabilities value not found",
            8 => "unsupported version",
            9 => "max-frame-size too big or too small",
            10 => "payload fragmentation is not supported",
            11 => "invalid interlaced frames",
            12 => "frame-id not found",
            13 => "resource allocation error",
            _ => "an unknown error occurred",
        })
    }
}
