//! What the other layers tell the rules about a connection, its two sides and the process.

use crate::{context::Render, kind::Kind, table::Millis, tls_facts::TlsFacts};
use penstock_config::Span;
use penstock_config::model::ProxyId;
use penstock_http::proxy_protocol::Tlvs;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::AtomicU32},
};

/// Identifies a server of a backend: its slot, and which of the slot's successive servers it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    /// The server's index in tables.
    pub slot: u32,
    /// How many servers had the slot before it.
    pub generation: u32,
}

impl ServerId {
    /// The id of the server that the configuration has at this place.
    pub fn configured(place: usize) -> ServerId {
        ServerId { slot: place as u32, generation: 0 }
    }

    /// The slot, as an index.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// A reference to a server from outside its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerRef {
    /// The backend.
    pub proxy: ProxyId,
    /// The server in it.
    pub server: ServerId,
}

/// What the packets of a connection carry for routers and firewalls, where rules say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketFields {
    /// The mark (socket(7), `SO_MARK`), which stays on this machine.
    pub mark: Option<u32>,
    /// The type of service or traffic class: the byte with the DSCP (RFC 2474).
    pub tos: Option<u8>,
}

/// The properties of a proxy that do not change once the configuration is read.
#[derive(Clone, Debug, Default)]
pub struct ProxyFacts {
    /// The proxy's name.
    pub name: String,
    /// `id`, configured or assigned.
    pub id: u32,
    /// `mode http`.
    pub http: bool,
    /// `default_backend`, as written.
    pub default_backend: Option<String>,
    /// `option logasap`.
    pub logasap: bool,
    /// Whether the log shows how the persistence cookie was used.
    pub manages_cookie: bool,
    /// `timeout client` in ms; 0 if there is none.
    pub timeout_client_ms: u64,
    /// `timeout server` in ms; 0 if there is none.
    pub timeout_server_ms: u64,
    /// `timeout tunnel` in ms; 0 if there is none.
    pub timeout_tunnel_ms: u64,
    /// The most bytes that each capture slot keeps, of requests and of responses, from [`crate::ProxyRules`].
    pub capture_lengths: [Vec<usize>; 2],
    /// `unique-id-format`, from [`crate::ProxyRules`].
    pub unique_id_format: Option<Arc<dyn Render>>,
}

/// The properties of a server that do not change.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The server's name.
    pub name: String,
    /// `id`, configured or assigned.
    pub id: u32,
}

/// The time of an evaluation, read once by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// A monotonic clock in ms, used by stick tables and rates.
    pub mono: Millis,
    /// Microseconds since 1970.
    pub unix_us: u64,
}

/// A connection from a client. Created when it is accepted, and completed by the PROXY protocol and the TLS handshake.
#[derive(Clone, Debug, Default)]
pub struct ConnFacts {
    /// The client's address, as `tcp-request connection` rules may have changed it; `None` on a unix socket.
    pub src: Option<SocketAddr>,
    /// The address the client connected to, as `tcp-request connection` rules may have changed it.
    pub dst: Option<SocketAddr>,
    /// Overrides `src`: set by the PROXY protocol or `tcp-request session` rules.
    pub session_src: Option<SocketAddr>,
    /// Overrides `dst`: set by the PROXY protocol or `tcp-request session` rules.
    pub session_dst: Option<SocketAddr>,
    /// The socket's remote address, regardless of the PROXY protocol.
    pub peer: Option<SocketAddr>,
    /// The socket's local address.
    pub local: Option<SocketAddr>,
    /// The place of the `bind` line in its section.
    pub bind: u32,
    /// Number of the listener (`bind ... id`, or counted from 1).
    pub listener_id: u32,
    /// `bind ... name`.
    pub listener_name: Option<Arc<str>>,
    /// The time at which the connection was accepted, in µs since 1970.
    pub accepted_unix_us: u64,
    /// The fields of a PROXY header, boxed since few connections have one; `None` if there was no such header.
    pub proxy_header: Option<Box<Tlvs>>,
    /// The `tcp-request client-hello` rule that decided, if one did.
    pub hello_rule: Option<Span>,
    /// The server in whose place the client is answered: `tcp-request client-hello intercept`.
    pub origin: Option<Arc<OriginFacts>>,
    /// 1 or 2 for HTTP, 0 for a raw connection.
    pub http_major: u8,
    /// What HTTP/2 counts on it.
    pub mux: Option<Arc<MuxFacts>>,
    /// HAProxy's number and text of the connection's error, 0 for none.
    pub error: (u32, &'static str),
    /// OpenSSL's number and reason for a failed handshake.
    pub tls_error: Option<(u32, &'static str)>,
    /// The results of the TLS handshake.
    pub tls: Option<Arc<TlsFacts>>,
    /// The descriptor number of its socket, which may belong to another by now: see [`World::tcp_info`].
    pub socket: Option<i32>,
}

/// What is counted on an HTTP/2 connection. Its task writes, and the rules of its streams read.
#[derive(Debug, Default)]
pub struct MuxFacts {
    /// How often the peer did what is wrong or odd.
    pub glitches: AtomicU32,
    /// Streams that are open.
    pub streams: AtomicU32,
    /// How many may be.
    pub streams_limit: AtomicU32,
}

impl ConnFacts {
    /// The client's address according to its connection and session.
    pub fn source(&self) -> Option<SocketAddr> {
        self.session_src.or(self.src)
    }

    /// The address that the client connected to, according to its connection and session.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.session_dst.or(self.dst)
    }
}

/// One end of an exchange, as its connection numbers it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFacts {
    /// The id of its HTTP/2 stream, or how many requests its HTTP/1 connection has carried before; 0 for a raw connection.
    pub id: u64,
    /// The code with which the peer has reset it, if it has.
    pub reset: Option<u32>,
}

/// What is known of the server that a client's connection was intercepted for.
#[derive(Clone, Debug, Default)]
pub struct OriginFacts {
    /// Its backend.
    pub backend: ProxyId,
    /// What is wrong with it: it was not reached, or its certificate does not validate.
    pub error: Option<Box<str>>,
    /// The digest of its certificate, if that does not validate and the client was shown so.
    pub pinned: Option<[u8; 32]>,
}

/// A connection to a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConnFacts {
    /// Our address.
    pub src: Option<SocketAddr>,
    /// The server's address.
    pub dst: Option<SocketAddr>,
    /// Whether it was opened: what rules see of one that was not is where it should have led, and why it did not.
    pub opened: bool,
    /// 1 or 2 for HTTP, 0 for a raw connection.
    pub http_major: u8,
    /// What HTTP/2 counts on it.
    pub mux: Option<Arc<MuxFacts>>,
    /// HAProxy's number and text of the connection's error, 0 for none.
    pub error: (u32, &'static str),
    /// OpenSSL's number and reason for a failed handshake.
    pub tls_error: Option<(u32, &'static str)>,
    /// The results of the TLS handshake.
    pub tls: Option<Arc<TlsFacts>>,
    /// The descriptor number of its socket, which may belong to another by now: see [`World::tcp_info`].
    pub socket: Option<i32>,
}

/// Load and health of a backend at this moment.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct BackendLoad {
    /// Servers that can take traffic (`nbsrv`).
    pub usable_servers: u32,
    /// Current connections.
    pub conn: u32,
    /// Requests in its queue, without the servers' queues.
    pub queue: u32,
    /// Requests in its queue and in those of its servers.
    pub queue_total: u32,
    /// New sessions in the last second.
    pub sess_rate: u32,
    /// Sum of `maxconn` minus connections over usable servers; -1 if one has no `maxconn`.
    pub conn_free: i64,
    /// Free connection and queue slots; -1 if a server has no limit.
    pub conn_slots: i64,
}

/// Load of a frontend at this moment.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct FrontendLoad {
    pub conn: u32,
    pub sess_rate: u32,
    pub req_rate: u32,
}

/// Load and health of a server at this moment.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct ServerLoad {
    /// Whether the server can take traffic.
    pub up: bool,
    pub conn: u32,
    /// `maxconn` minus connections; -1 if it has no `maxconn`.
    pub conn_free: i64,
    pub queue: u32,
    pub sess_rate: u32,
    /// Effective weight (including slow start), in the user's scale.
    pub weight: u32,
    /// `weight` as configured.
    pub initial_weight: u32,
    /// `weight` as set at present.
    pub user_weight: u32,
}

/// What the kernel knows about a TCP connection.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct TcpInfo {
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    pub reordering: u32,
}

/// Access to the rest of the process. Every function has a default for "not known", so that a test or a tool can use
/// [`NoWorld`], and a real worker overrides what it can answer.
pub trait World {
    /// The most bytes of names and values that rules may make a head contain.
    fn head_bytes(&self) -> usize {
        usize::MAX
    }
    /// Load and health of a backend.
    fn backend(&self, _: ProxyId) -> BackendLoad {
        BackendLoad::default()
    }
    /// Load of a frontend.
    fn frontend(&self, _: ProxyId) -> FrontendLoad {
        FrontendLoad::default()
    }
    /// The number of connections of the listener that accepted this one.
    fn listener(&self, _: ProxyId, _: &ConnFacts) -> u32 {
        0
    }
    /// Load and health of a server.
    fn server(&self, _: ServerRef) -> ServerLoad {
        ServerLoad::default()
    }
    /// A backend by name.
    fn find_backend(&self, _name: &[u8]) -> Option<ProxyId> {
        None
    }
    /// A server by `backend/server`.
    fn find_server(&self, _name: &[u8]) -> Option<ServerRef> {
        None
    }
    /// 64 random bits, good enough for spreading load and for request identifiers.
    fn random(&self) -> u64 {
        0
    }
    /// How many seconds local time is ahead of UTC at this time.
    fn utc_offset_s(&self, _unix_s: i64) -> i32 {
        0
    }
    /// The machine's name.
    fn hostname(&self) -> &str {
        "localhost"
    }
    /// The process number.
    fn pid(&self) -> u32 {
        0
    }
    /// This worker's number, from 0.
    fn thread(&self) -> u32 {
        0
    }
    /// Whether the process is draining.
    fn stopping(&self) -> bool {
        false
    }
    /// Whether an address belongs to this machine.
    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback()
    }
    /// What the kernel knows about the connection of this socket with this peer; `None` once it is closed.
    fn tcp_info(&self, _socket: Option<i32>, _peer: Option<SocketAddr>) -> Option<TcpInfo> {
        None
    }
    /// Has the packets that the kernel sends on the connection of this socket with this peer carry these values.
    fn mark_packets(&self, _socket: Option<i32>, _peer: Option<SocketAddr>, _fields: PacketFields) {}
    /// Connections of the process.
    fn connections(&self) -> u32 {
        0
    }
    /// Called when a rule starts, so that the watchdog can name one that does not end; with `None` after the last of a
    /// list.
    fn at_rule(&self, _: Option<(Kind, penstock_config::Span)>) {}
}

/// Knows nothing of the rest of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWorld;

impl World for NoWorld {}
