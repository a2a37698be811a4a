//! The smaller sections: user lists, resolvers, peers, certificate stores, programs.

use super::{Account, Bind, ServerHost, ServerSettings};
use crate::span::{Line, Span, Spanned, Word};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// `userlist`.
#[derive(Clone, Debug, Default)]
pub struct Userlist {
    /// The userlist's name, by which conditions refer to it.
    pub name: String,
    /// The users of the list, in order.
    pub users: Vec<User>,
    /// The members' names of each group.
    pub groups: BTreeMap<String, Vec<Word>>,
}

/// `user NAME password|insecure-password PASSWORD groups A,B`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct User {
    pub name: String,
    /// A crypt(3) hash, or clear text if `insecure`; if it is empty, the user can never log in.
    pub password: String,
    pub insecure: bool,
    pub groups: Vec<Word>,
    pub span: Span,
}

/// `resolvers`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Resolvers {
    pub name: String,
    /// Name and address of each `nameserver`.
    pub nameservers: Vec<(String, std::net::SocketAddr)>,
    /// `parse-resolv-conf`.
    pub parse_resolv_conf: bool,
    pub resolve_retries: u32,
    pub timeout_resolve: Duration,
    pub timeout_retry: Duration,
    /// `hold STATE TIME`; the states are valid, nx, refused, timeout, other and obsolete.
    pub hold: BTreeMap<String, Duration>,
    pub accepted_payload_size: u16,
    pub span: Span,
}

impl Resolvers {
    /// A section with HAProxy's defaults (manual section 5.3.2).
    pub fn new(name: String, span: Span) -> Self {
        Resolvers {
            name,
            nameservers: Vec::new(),
            parse_resolv_conf: false,
            resolve_retries: 3,
            timeout_resolve: Duration::from_secs(1),
            timeout_retry: Duration::from_secs(1),
            hold: [("valid", 10), ("nx", 30), ("refused", 30), ("timeout", 30), ("other", 30), ("obsolete", 0)]
                .into_iter()
                .map(|(state, seconds)| (state.to_owned(), Duration::from_secs(seconds)))
                .collect(),
            accepted_payload_size: 512,
            span,
        }
    }
}

/// `peers`: processes that share stick tables.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    /// The section's name.
    pub name: String,
    /// Where the section begins in the configuration.
    pub span: Span,
    /// Nothing is exchanged: `disabled`, or none of the peers is this process.
    pub disabled: bool,
    /// All peers, this process included.
    pub peers: Vec<Peer>,
    /// The addresses on which this process listens for the other peers.
    pub binds: Vec<Bind>,
    /// `table`: the name and the words after it.
    pub tables: Vec<(Word, Line)>,
}

/// `peer`, or `server` in a `peers` section.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's name, by which the processes know each other.
    pub name: String,
    /// Where the peer's line is in the configuration.
    pub span: Span,
    /// Whether the peer is this process itself.
    pub is_local: bool,
    /// The peer's IP address or name, and port. A peer without an address is not connected to.
    pub address: Option<(ServerHost, u16)>,
    /// The settings of a server, of which those of TLS matter.
    pub settings: ServerSettings,
}

/// `mailers`: servers that deliver email alerts.
#[derive(Clone, Debug)]
pub struct Mailers {
    /// The section's name.
    pub name: String,
    /// The servers, each of which is given every mail.
    pub mailers: Vec<Mailer>,
    /// `timeout mail`: how long the delivery of a mail may take.
    pub timeout: Duration,
}

impl Mailers {
    pub(crate) fn new(name: String) -> Mailers {
        Mailers { name, mailers: Vec::new(), timeout: Duration::from_secs(10) }
    }
}

/// `mailer`.
#[derive(Clone, Debug)]
pub struct Mailer {
    /// The mailer's name.
    pub name: String,
    /// Where the mailer's line is in the configuration.
    pub span: Span,
    /// The mailer's IP address or name, and port.
    pub address: (ServerHost, u16),
}

/// The `email-alert` lines of a proxy.
#[derive(Clone, Debug)]
pub struct EmailAlert {
    /// Where the first of them is in the configuration.
    pub span: Span,
    /// `mailers`: the name of the section whose servers are used.
    pub mailers: Option<Word>,
    /// `from`: the sender's address.
    pub from: Option<String>,
    /// `to`: the recipient's address.
    pub to: Option<String>,
    /// `level`: the highest syslog severity number that is mailed, 1 (alert) by default.
    pub level: u8,
    /// `myhostname`: what this host calls itself, by default its host name.
    pub host: Option<String>,
}

impl EmailAlert {
    pub(crate) fn new(span: Span) -> EmailAlert {
        EmailAlert { span, mailers: None, from: None, to: None, level: 1, host: None }
    }
}

/// `crt-store`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct CrtStore {
    pub name: String,
    pub crt_base: Option<PathBuf>,
    pub key_base: Option<PathBuf>,
    /// `load`: the words after the keyword.
    pub loads: Vec<Line>,
}

/// `program`: a process that the master starts beside its worker.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ExternalProgram {
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    pub user: Option<Spanned<Account>>,
    pub group: Option<Spanned<Account>>,
    /// `option start-on-reload`: whether a reload starts it again.
    pub start_on_reload: bool,
    pub span: Span,
}
