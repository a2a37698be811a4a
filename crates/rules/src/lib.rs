//! Samples, converters, ACLs, log formats and actions: compiled from configuration, run on a message. Pure.

#![forbid(unsafe_code)]

mod acl;
mod action;
mod answer;
mod chain;
pub mod client_hello;
mod compile;
mod context;
pub mod conv;
mod crypt;
mod expr;
mod facts;
pub mod fetch;
pub mod hash;
pub mod hint;
mod inspection;
mod keyword;
mod kind;
mod link;
pub mod log;
mod lookup;
mod manual;
pub mod patterns;
mod problem;
mod regexes;
mod rules;
mod sample;
mod spoe;
mod start;
mod stick;
pub mod syslog;
pub mod table;
pub mod time;
mod tls_facts;
pub mod turn;
mod userlist;
mod value;
mod vars;
mod verdict;
pub mod words;
pub mod x509;

pub use acl::{Acl, Acls, Condition, PREDEFINED, Test, criteria};
pub use action::{ACTIONS, ActionSpec, Redirect, ReplyTemplate};
pub use answer::Answer;
pub use chain::{Chain, ChainLink};
pub use client_hello::{ClientHello, HelloError};
pub use compile::{CaptureSlot, Compiler, Destination, PersistRule, ProxyRules, ServerOf, Switch, UseServer};
pub use context::{Buffered, Context, Detour, EarlyHint, LogLevel, Phase, Render, RequestLine, Session, Txn};
pub use expr::Expr;
pub use facts::{
    BackendLoad, ConnFacts, FrontendLoad, MuxFacts, NoWorld, Now, OriginFacts, PacketFields, ProxyFacts,
    ServerConnFacts, ServerFacts, ServerId, ServerLoad, ServerRef, StreamFacts, TcpInfo, World,
};
pub use inspection::Inspection;
pub use keyword::{ArgKind, ArgSpec, Places, Support};
pub use kind::Kind;
pub use link::{Linker, Scope as Place};
pub use log::{By, During, LogFacts, LogFormat, Termination};
pub use lookup::Lookup;
pub use manual::manual;
pub use problem::Problem;
pub use regexes::Regex;
pub use rules::{Rule, Rules};
pub use sample::{Fetched, Missing};
pub use spoe::{SpoeGroupSend, SpoeProgram, SpoeSend};
pub use stick::{StickRule, Stuck};
pub use tls_facts::{Captured, PeerCertificate, TlsFacts};
pub use userlist::{Claim, Logins, Userlist};
pub use value::{Type, Value, parse_int, write_int};
pub use vars::{Condition as VarCondition, Scope, Store, VarRef, Variables};
pub use verdict::{Reply, ReplyBody, Verdict, Why};
