//! How a session ended, as logs tell it (configuration manual, 8.5).

/// Who ended a session, and what it was doing then: the two letters of `%ts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Termination(pub By, pub During);

/// Who or what ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum By {
    /// It ended as it should.
    #[default]
    Nobody = b'-',
    /// The client closed or failed.
    Client = b'C',
    /// The client was waited for too long.
    ClientTimeout = b'c',
    /// The server closed, failed or refused the connection.
    Server = b'S',
    /// The server was waited for too long.
    ServerTimeout = b's',
    /// A rule, or a message that is none.
    Refusal = b'P',
    /// Nothing was left of something: memory, ports, room on a side pool.
    Exhaustion = b'R',
    /// It was answered by ourselves.
    Ourselves = b'L',
    /// The server went down, and `on-marked-down` says so.
    ServerDown = b'D',
    /// A server came back, and `on-marked-up` says that backup servers lose their sessions.
    ServerUp = b'U',
    /// An operator ended it.
    Operator = b'K',
}

/// What the session was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum During {
    /// Nothing any more: it had ended.
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
    /// As `%ts` has it.
    pub fn letters(self) -> [u8; 2] {
        [self.0 as u8, self.1 as u8]
    }

    /// Whether the session ended as it should, be it with an answer of ours.
    pub fn is_normal(self) -> bool {
        self == Termination::default() || self.0 == By::Ourselves
    }
}
