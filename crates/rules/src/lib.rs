//! Samples, converters, ACLs, log formats and actions: compiled from configuration, run on a message. Pure.

#![forbid(unsafe_code)]

pub mod client_hello;
mod context;
mod facts;
pub mod hint;
pub mod log;
pub mod table;
mod tls_facts;
mod value;
mod vars;
mod verdict;
pub mod words;

pub use client_hello::{ClientHello, HelloError};
pub use context::{Buffered, Context, LogLevel, RequestLine, Session, SocketWishes, Txn};
pub use facts::{
    BackendLoad, ConnFacts, FrontendLoad, NoWorld, Now, ProxyFacts, ProxyHeaderFacts, ProxyId, ServerConnFacts,
    ServerFacts, ServerId, ServerLoad, TcpInfo, World,
};
pub use log::LogFacts;
pub use tls_facts::{PeerCertificate, TlsFacts};
pub use value::{Type, Value, parse_int, write_int};
pub use vars::{Condition as VarCondition, Scope, Store, VarRef};
pub use verdict::{Reply, ReplyBody, Verdict, Why};
