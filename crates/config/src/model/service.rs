//! `service` and `service-chain`: who inspects messages, and in which order.

use crate::span::{Line, Span, Spanned, Word};
use std::{net::SocketAddr, path::PathBuf};

/// What distinguishes a `service` section from a backend.
#[derive(Clone, Debug)]
pub struct Service {
    /// `mode`, once it was written.
    pub mode: Option<ServiceMode>,
    /// `reqmod`: the path that inspects requests.
    pub reqmod: Option<String>,
    /// `respmod`: the path that inspects responses.
    pub respmod: Option<String>,
    /// `device`: how a device in mode http is asked.
    pub device: Device,
    /// `on-failure`: what becomes of a message that the service did not inspect.
    pub on_failure: Fate,
    /// The most bytes of a body that are kept for the service, and of an answer's body.
    pub max_body: u64,
    /// What becomes of a message whose body is longer, if `max-body` says so; [`Fate::Deny`] otherwise.
    pub too_long: Option<Fate>,
    /// The status of a response that says that a message was denied.
    pub deny_status: u16,
    /// `tap`: where a copy of the traffic goes.
    pub tap: Option<Spanned<TapTarget>>,
    /// `tap-buffer`: the most bytes of the copy that wait for its reader.
    pub tap_buffer: u64,
    /// `tap-port`: the server's port in the copy, in place of the one that the client connected to.
    pub tap_port: Option<u16>,
}

/// Where a copy of the traffic goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapTarget {
    /// `file`: files in pcapng, named by their beginning.
    File {
        /// The path, into whose name the time is written.
        path: PathBuf,
        /// `rotate`: the size at which the next file begins.
        rotate: u64,
        /// `keep`: how many files are kept.
        keep: u32,
    },
    /// `fifo`: a named pipe, read as pcapng.
    Fifo(PathBuf),
    /// `pcap-over-ip connect`: a reader that is connected to, and sent pcap.
    Connect(SocketAddr),
    /// `pcap-over-ip listen`: an address that a reader connects to, to be sent pcap.
    Listen(SocketAddr),
    /// `interface`: a network interface that the packets are sent to.
    Interface {
        /// The interface's name.
        name: String,
        /// `mac`: the station that they are sent to.
        to: [u8; 6],
    },
}

impl Default for Service {
    fn default() -> Self {
        Service {
            mode: None,
            reqmod: None,
            respmod: None,
            device: Device::ReverseProxy,
            on_failure: Fate::Deny,
            max_body: 1 << 20,
            too_long: None,
            deny_status: 503,
            tap: None,
            tap_buffer: 4 << 20,
            tap_port: None,
        }
    }
}

/// The `mode` of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceMode {
    /// ICAP (RFC 3507).
    Icap,
    /// A device that requests pass through, over HTTP: it forwards them to the service's own `bind` lines.
    Http,
    /// A device that bytes pass through, between a connection of ours and the service's own `bind` lines.
    Tcp,
    /// A copy of the traffic, as packets.
    Tap,
}

/// How a device in `mode http` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// With a path, as a server is.
    ReverseProxy,
    /// With a whole URL, as a proxy is that clients are configured to use: its scheme, unless that is the request's.
    ExplicitProxy(Option<Scheme>),
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As a URL has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// What becomes of a message that a service did not inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The client gets an error.
    Deny,
    /// The message goes on without having been inspected.
    Bypass,
}

/// A `service-chain` section.
#[derive(Clone, Debug, Default)]
pub struct ServiceChain {
    /// The chain's name, by which rules refer to it.
    pub name: String,
    /// The section's header line.
    pub span: Span,
    /// The services that a message passes, in order.
    pub steps: Vec<ChainStep>,
}

/// `inspect SERVICE [if|unless CONDITION]`.
#[derive(Clone, Debug)]
pub struct ChainStep {
    /// The service's name.
    pub service: Word,
    /// The condition, beginning at `if`; no words if there is none.
    pub condition: Line,
}
