//! The typed configuration: what every other crate reads.
//!
//! `defaults` sections are already applied: a [`Proxy`] carries its final values, `None` where neither it nor its
//! defaults say anything. Rules, ACLs, samples and log formats stay words ([`crate::Line`]), which `penstock-rules` compiles.
//! Section and directive names follow HAProxy's configuration manual.

mod bandwidth;
mod bind;
mod cache;
mod compression;
mod global;
mod log;
mod options;
mod others;
mod proxies;
mod proxy;
mod server;
mod service;
mod spoe;
mod tls;

pub use bandwidth::*;
pub use bind::*;
pub use cache::*;
pub use compression::*;
pub use global::*;
pub use log::*;
pub use options::*;
pub use others::*;
pub use proxies::*;
pub use proxy::*;
pub use server::*;
pub use service::*;
pub use spoe::*;
pub use tls::*;

use crate::span::{FileId, Spanned};
use std::collections::BTreeMap;

/// A whole configuration, from all its files.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Name and text of each file read, by [`FileId`].
    pub files: Vec<Source>,
    /// The merged `global` sections.
    pub global: Global,
    /// `frontend`, `backend`, `listen` and `service`, in the order written.
    pub proxies: PerProxy<Proxy>,
    /// `userlist` sections.
    pub userlists: Vec<Userlist>,
    /// `resolvers` sections.
    pub resolvers: Vec<Resolvers>,
    /// `peers` sections.
    pub peers: Vec<Peers>,
    /// `crt-store` sections.
    pub crt_stores: Vec<CrtStore>,
    /// `cache` sections, by [`CacheId`].
    pub caches: Vec<CacheSection>,
    /// `service-chain` sections.
    pub service_chains: Vec<ServiceChain>,
    /// The engines of `filter spoe`, in the order of their filters.
    pub spoe: Vec<SpoeEngine>,
    /// `ring` sections.
    pub rings: Vec<Ring>,
    /// `log-forward` sections.
    pub log_forwards: Vec<LogForward>,
    /// `mailers` sections.
    pub mailers: Vec<Mailers>,
    /// The network namespaces that `namespace_list` sections name.
    pub namespaces: Vec<Spanned<String>>,
    /// `program` sections.
    pub programs: Vec<ExternalProgram>,
    /// `http-errors` sections by name, each with its files by status.
    pub http_errors: BTreeMap<String, BTreeMap<u16, ErrorFile>>,
    /// The environment as `setenv` and its relatives left it: what the `env` fetch reads.
    pub environment: BTreeMap<String, String>,
}

/// A file of the configuration as it was read.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// As given on the command line.
    pub name: String,
    /// The file's text, which diagnostics quote.
    pub text: String,
}

impl Source {
    /// A file whose bytes need not be UTF-8: what is not stays as it is, see [`crate::text_of`].
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Self {
        Source { name: name.into(), text: crate::text_of(bytes) }
    }
}

impl Config {
    /// The source a span points into.
    pub fn source(&self, file: FileId) -> Option<&Source> {
        self.files.get(file.0 as usize)
    }
    /// The proxy of that name that can take traffic from a frontend (`backend` or `listen`).
    pub fn backend(&self, name: &str) -> Option<&Proxy> {
        self.proxies.iter().find(|p| p.kind.has_backend() && p.name == name)
    }
}
