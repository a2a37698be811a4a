//! What a `bind` line presents: certificates under their settings, and which of them answers for which name.
//!
//! A table is never changed: a commit makes the next one beside the workers, and swaps it in.

use crate::{
    certificate::Certificate,
    names::{Candidate, Names},
    tickets::{KeyRing, PolicyId, PolicySessions, SessionCache, Tickets},
    verify::Clients,
};
use aws_lc_rs::digest;
use rustls::{ServerConfig, server::ResolvesServerCert, sign::CertifiedKey};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Everything that a handshake chooses from.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub names: Names<Context>,
    /// What answers when no name matches: the first certificate, and those beside it with another kind of key.
    pub defaults: Vec<Arc<Context>>,
}

/// One certificate with the settings it is presented under.
pub(crate) struct Context {
    /// Its place among the certificates of its line.
    pub order: u64,
    pub certificate: Arc<Certificate>,
    pub shape: Arc<Shape>,
    /// Names it does not answer for by a wildcard.
    pub excluded: Vec<String>,
    /// Made at the first handshake that needs it: of fifty thousand certificates few are asked for.
    built: OnceLock<Built>,
}

/// A context in rustls' terms.
pub(crate) struct Built {
    pub config: Arc<ServerConfig>,
    /// For clients whose protocols have none in common with ours: OpenSSL goes on without ALPN, where rustls would refuse.
    pub without_alpn: Arc<ServerConfig>,
    pub leaf: Arc<[u8]>,
}

/// Settings that certificates share: all of a line, but for those of a crt-list line with settings of its own.
pub(crate) struct Shape {
    /// Without a certificate, tickets and sessions.
    pub base: ServerConfig,
    /// Who verifies clients, where they are.
    pub clients: Option<Arc<Clients>>,
    /// All that decides who is let in, but for the certificate's names.
    pub policy: PolicyId,
    /// Where sessions are kept, unless none are.
    pub cache: Option<Arc<SessionCache>>,
    /// What tickets are made with, where there are any.
    pub ring: Option<Arc<KeyRing>>,
}

impl Context {
    pub fn new(order: u64, certificate: Arc<Certificate>, shape: Arc<Shape>, excluded: Vec<String>) -> Context {
        Context { order, certificate, shape, excluded, built: OnceLock::new() }
    }

    pub fn built(&self) -> &Built {
        self.built.get_or_init(|| self.shape.present(&self.certificate))
    }
}

impl Candidate for Context {
    fn order(&self) -> u64 {
        self.order
    }
    fn excludes(&self, name: &str) -> bool {
        self.excluded.iter().any(|excluded| excluded == name)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Shape {
    fn present(&self, certificate: &Arc<Certificate>) -> Built {
        let policy = self.policy_for(certificate);
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(Fixed(certificate.clone()));
        if let Some(cache) = &self.cache {
            config.session_storage = Arc::new(PolicySessions { cache: cache.clone(), policy });
        }
        if let Some(ring) = &self.ring {
            config.ticketer = Tickets::new(ring.clone(), policy);
        }
        let mut without_alpn = config.clone();
        without_alpn.alpn_protocols.clear();
        Built {
            config: Arc::new(config),
            without_alpn: Arc::new(without_alpn),
            leaf: Arc::from(certificate.leaf().as_ref()),
        }
    }

    /// The policy of sessions under this certificate: a session for other names is another policy's.
    fn policy_for(&self, certificate: &Certificate) -> PolicyId {
        let mut id = digest::Context::new(&digest::SHA256);
        id.update(&self.policy);
        for name in &certificate.names {
            id.update(&(name.len() as u64).to_be_bytes());
            id.update(name.as_bytes());
        }
        policy_id(id)
    }
}

/// The digest as the identity of a policy.
pub(crate) fn policy_id(context: digest::Context) -> PolicyId {
    let mut id = PolicyId::default();
    id.copy_from_slice(context.finish().as_ref());
    id
}

/// Presents one certificate to every client: the choice was made before.
struct Fixed(Arc<Certificate>);

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fixed")
    }
}

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.presented())
    }
}
