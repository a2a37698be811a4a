//! Facts of a request that only its log line needs.

use super::Termination;
use std::net::SocketAddr;

/// Timers, counters and states of one request or TCP session, which the proxy updates as it goes; -1 is "did not
/// happen", as in HAProxy's logs. The names are those of the manual's sections 8.4 and 8.2.6.
#[derive(Clone, Debug)]
#[allow(non_snake_case)]
pub struct LogFacts {
    /// Duration of handshakes (TLS, PROXY), ms.
    pub Th: i64,
    /// Idle time before the request, ms.
    pub Ti: i64,
    /// Time to receive the request head, ms.
    pub TR: i64,
    /// Time in queues, ms.
    pub Tw: i64,
    /// Time to connect to the server, ms.
    pub Tc: i64,
    /// Time to wait for the response head, ms.
    pub Tr: i64,
    /// From the request's first byte to the end, ms.
    pub Ta: i64,
    /// Time to transfer data, ms.
    pub Td: i64,
    /// From accept to the end, ms.
    pub Tt: i64,
    /// Th + Ta, ms.
    pub Tu: i64,
    /// Whether the line is written before the end (`option logasap`), so that totals get a `+`.
    pub as_soon_as: bool,
    /// When the request started, in µs since 1970 (`%tr`); `%t` is the connection's accept date or, on a kept-alive
    /// connection, the time it became ready for this request.
    pub request_unix_us: u64,
    /// The accept date to show, in µs since 1970.
    pub accept_unix_us: u64,
    /// Bytes sent to the client.
    pub bytes_read: u64,
    /// Bytes received from the client.
    pub bytes_uploaded: u64,
    /// Which side ended the request or session, and at what stage.
    pub termination: Termination,
    /// Two flags for the persistence cookie: what the client sent, and what was done with it; `--` if none is
    /// configured.
    pub cookie: [u8; 2],
    /// Connections of the process.
    pub actconn: u32,
    /// Connections of the frontend.
    pub feconn: u32,
    /// Connections of the backend.
    pub beconn: u32,
    /// Connections of the server.
    pub srv_conn: u32,
    /// Number of repeated connection attempts.
    pub retries: u32,
    /// Whether the last attempt went to another server, so that retries get a `+`.
    pub redispatched: bool,
    /// Requests before this one in the server's queue.
    pub srv_queue: u32,
    /// Requests before this one in the backend's queue.
    pub backend_queue: u32,
    /// Number of the request in the process (`%rt`).
    pub request_counter: u32,
    /// Log lines of the frontend so far (`%lc`).
    pub log_counter: u32,
    /// What to show instead of a server's name if none was used: `<NOSRV>`, `<STATS>`, or a service's name.
    pub no_server: &'static str,
    /// Address and port of the server, set even if the connection failed.
    pub server_address: Option<SocketAddr>,
}

impl Default for LogFacts {
    fn default() -> Self {
        LogFacts {
            Th: -1,
            Ti: -1,
            TR: -1,
            Tw: -1,
            Tc: -1,
            Tr: -1,
            Ta: -1,
            Td: -1,
            Tt: 0,
            Tu: 0,
            as_soon_as: false,
            request_unix_us: 0,
            accept_unix_us: 0,
            bytes_read: 0,
            bytes_uploaded: 0,
            termination: Termination::default(),
            cookie: *b"--",
            actconn: 0,
            feconn: 0,
            beconn: 0,
            srv_conn: 0,
            retries: 0,
            redispatched: false,
            srv_queue: 0,
            backend_queue: 0,
            request_counter: 0,
            log_counter: 0,
            no_server: "<NOSRV>",
            server_address: None,
        }
    }
}

impl LogFacts {
    /// Whether it is an error: such exchanges are logged despite `dontlog-normal`, and `log-separate-errors` raises their
    /// level.
    pub fn is_error(&self, status: Option<u16>) -> bool {
        !self.termination.is_normal() || self.retries > 0 || status.is_some_and(|status| status >= 500)
    }
    /// `%Tq`: Th + Ti + TR, -1 while the request is not complete.
    #[allow(non_snake_case)]
    pub fn Tq(&self) -> i64 {
        if self.TR < 0 { -1 } else { self.Th.max(0) + self.Ti.max(0) + self.TR }
    }
}
