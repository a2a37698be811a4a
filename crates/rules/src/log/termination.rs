//! How a session ended, as shown in logs (configuration manual, 8.5).

/// Which side ended a session, and at what stage: the two letters of `%ts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Termination(pub By, pub During);

/// What ended a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum By {
    /// Nothing: the session ended normally.
    #[default]
    Nobody = b'-',
    /// The client closed or failed.
    Client = b'C',
    /// The client did not send or receive in time.
    ClientTimeout = b'c',
    /// The server closed, failed or refused the connection.
    Server = b'S',
    /// The server did not send or receive in time.
    ServerTimeout = b's',
    /// A rule refused the session, or a message was invalid.
    Refusal = b'P',
    /// A resource was exhausted: memory, ports, room in a pool.
    Exhaustion = b'R',
    /// The configuration contradicts itself: HTTP has come to a backend in mode tcp.
    Internal = b'I',
    /// The proxy itself responded.
    Ourselves = b'L',
    /// The server went down, with `on-marked-down shutdown-sessions`.
    ServerDown = b'D',
    /// A server came back, with `on-marked-up shutdown-backup-sessions`, which ends sessions on backup servers.
    ServerUp = b'U',
    /// An operator ended the session.
    Operator = b'K',
}

/// The stage that a session was at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum During {
    /// None: the session had ended.
    #[default]
    Nothing = b'-',
    /// Waiting for the client's request.
    Request = b'R',
    /// Waiting in a queue.
    Queue = b'Q',
    /// Waiting for the connection to the server.
    Connect = b'C',
    /// Waiting for the response's head.
    Headers = b'H',
    /// Moving data.
    Data = b'D',
    /// Held back by `tarpit`.
    Tarpit = b'T',
}

impl Termination {
    /// The two letters of `%ts`.
    pub fn letters(self) -> [u8; 2] {
        [self.0 as u8, self.1 as u8]
    }

    /// Whether the session ended normally, including with a response made by the proxy.
    pub fn is_normal(self) -> bool {
        self == Termination::default() || self.0 == By::Ourselves
    }
}
