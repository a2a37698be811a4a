//! What an exchange remembers of the agents that were told about it.

/// What an exchange remembers of agents.
#[derive(Debug, Default)]
pub(crate) struct Consulted {
    pub(super) engines: Vec<Had>,
    /// Whether they know that there was a connection to a server: they are told once, however often the request is sent.
    pub(super) knows_server: bool,
}

/// What it has had of one engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had {
    pub(super) engine: usize,
    /// How many payloads it was sent.
    pub(super) frames: u64,
    /// Whether an error has ended its part in the exchange.
    pub(super) is_off: bool,
    pub(super) total_ms: i64,
}
