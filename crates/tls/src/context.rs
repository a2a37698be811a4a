//! What a `bind` line presents: certificates with their settings, and which of them is used for which name.
//!
//! A table is never modified: a commit builds the next one beside the workers, and swaps it in.

use crate::{
    certificate::Certificate,
    forge::Forge,
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

/// Everything that a handshake selects from.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub names: Names<Context>,
    /// The certificates used if no name matches: the first one, and those with another type of key beside it.
    pub defaults: Vec<Arc<Context>>,
    /// What makes certificates for other names: `generate-certificates`.
    pub forge: Option<Arc<Forge>>,
    /// What makes certificates in place of those that do not validate: `ca-sign-untrusted`.
    pub untrusted: Option<Arc<Forge>>,
}

/// One certificate, with the settings it is presented under.
pub(crate) struct Context {
    /// The certificate's place among those of its line.
    pub order: u64,
    pub certificate: Arc<Certificate>,
    pub shape: Arc<Shape>,
    /// Names it is not used for although a wildcard matches them.
    pub excluded: Vec<String>,
    /// Built for the first handshake that needs it, since few of fifty thousand certificates are ever asked for.
    built: OnceLock<Built>,
}

/// The protocols that ALPN chooses from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    /// Those of the line.
    OfLine,
    /// This one, on which a server has agreed.
    Only(Vec<u8>),
    /// None: the client offers none of them, or its server agreed on none.
    None,
}

/// A context in rustls' types.
pub(crate) struct Built {
    pub config: Arc<ServerConfig>,
    /// For clients that have no protocol in common with us: OpenSSL continues without ALPN, where rustls would refuse.
    pub without_alpn: Arc<ServerConfig>,
    pub leaf: Arc<[u8]>,
}

/// Settings that certificates share: all those of a line, except crt-list entries with settings of their own.
pub(crate) struct Shape {
    /// A configuration without certificate, tickets and sessions.
    pub base: ServerConfig,
    /// The verifier of clients, if they are verified.
    pub clients: Option<Arc<Clients>>,
    /// The digest of everything that decides who is let in, except the certificate's names.
    pub policy: PolicyId,
    /// The session cache, if sessions are kept.
    pub cache: Option<Arc<SessionCache>>,
    /// The keys for tickets, if tickets are issued.
    pub ring: Option<Arc<KeyRing>>,
}

impl Context {
    pub fn new(order: u64, certificate: Arc<Certificate>, shape: Arc<Shape>, excluded: Vec<String>) -> Context {
        Context { order, certificate, shape, excluded, built: OnceLock::new() }
    }

    pub fn built(&self) -> &Built {
        self.built.get_or_init(|| self.shape.present(&self.certificate))
    }

    /// The configuration for a client that may agree on these protocols.
    pub fn config(&self, protocols: &Protocols) -> Arc<ServerConfig> {
        let built = self.built();
        match protocols {
            Protocols::OfLine => built.config.clone(),
            Protocols::None => built.without_alpn.clone(),
            Protocols::Only(protocol) => {
                let mut config = ServerConfig::clone(&built.config);
                config.alpn_protocols = vec![protocol.clone()];
                Arc::new(config)
            }
        }
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
    /// The same for certificates that must not be taken for others with the same names: sessions begun with one are not continued
    /// with the other.
    pub fn apart(&self, why: &str) -> Shape {
        let mut id = digest::Context::new(&digest::SHA256);
        id.update(&self.policy);
        id.update(why.as_bytes());
        let Shape { base, clients, cache, ring, .. } = self;
        let (base, clients, cache, ring) = (base.clone(), clients.clone(), cache.clone(), ring.clone());
        Shape { base, clients, policy: policy_id(id), cache, ring }
    }

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

    /// The policy of sessions under this certificate: a session for other names belongs to another policy.
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

/// Presents one certificate to every client, since the selection was made before.
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
