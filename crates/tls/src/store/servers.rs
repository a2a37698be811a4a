//! `server` lines: what their connections present and verify by, and how that is replaced at run time.

use super::{Settings, State, Store, complaint, lines::Builder};
use crate::{
    Connector, Loader,
    certificate::Certificate,
    connect::{Client, SESSIONS},
    loader::Folders,
    settings,
    verify::Servers,
};
use arc_swap::ArcSwap;
use penstock_config::{
    Diagnostics, Span,
    model::{ServerTls, Verify},
};
use rustls::{
    ClientConfig,
    client::{Resumption, Tls12Resumption},
    sign::SingleCertAndKey,
};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// A `server` line in the store.
pub(super) struct Server {
    tls: ServerTls,
    span: Span,
    /// The name of the client certificate.
    certificate: Option<Box<str>>,
    /// Gone once the server is removed.
    live: Weak<ArcSwap<Client>>,
}

/// Builds the connector of one line.
pub(crate) fn connector(
    tls: &ServerTls,
    span: Span,
    store: &Store,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Connector> {
    let settings = store.settings();
    let state = &mut *store.state();
    let mut builder = Builder {
        settings,
        state: &mut *state,
        loader,
        diagnostics,
        read: HashMap::new(),
        folders: Folders::default(),
    };
    let own = tls.crt.as_ref().map(|crt| {
        let name = crt.value.display().to_string();
        builder.certificate(&name, &crt.value, crt.span)
    });
    let client = builder.client(tls, span, own)?;
    let live = Arc::new(ArcSwap::from_pointee(client));
    state.servers.retain(|server| server.live.strong_count() > 0);
    state.servers.push(Server {
        tls: tls.clone(),
        span,
        certificate: tls.crt.as_ref().map(|crt| crt.value.display().to_string().into()),
        live: Arc::downgrade(&live),
    });
    Some(Connector::new(live))
}

impl Builder<'_> {
    /// Builds the settings of a line. `own` is the client certificate: `Some(None)` for one that could not be loaded.
    fn client(&mut self, tls: &ServerTls, span: Span, own: Option<Option<Arc<Certificate>>>) -> Option<Client> {
        let global = &self.settings.global;
        // All are tried even if one fails, so that all errors are reported together.
        let settings = settings::resolve(&tls.conf, &global.tls_server, span, self.diagnostics);
        let servers = self.servers(tls, span);
        let (settings, servers) = (settings?, servers?);
        let servers = Arc::new(servers);
        let builder = ClientConfig::builder_with_provider(settings.provider).with_protocol_versions(settings.versions);
        let builder = match builder {
            Ok(builder) => builder.dangerous().with_custom_certificate_verifier(servers.clone()),
            Err(e) => {
                self.diagnostics.error(span, format!("these TLS settings cannot be used together: {e}"));
                return None;
            }
        };
        let mut built = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let certified = own?.certified.as_ref().clone();
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        built.alpn_protocols = tls.conf.alpn.iter().flatten().map(|protocol| protocol.clone().into_bytes()).collect();
        built.resumption = match tls.no_ssl_reuse {
            true => Resumption::disabled(),
            false if tls.conf.no_tls_tickets || global.tls_server.no_tls_tickets => {
                Resumption::in_memory_sessions(SESSIONS).tls12_resumption(Tls12Resumption::SessionIdOnly)
            }
            false => Resumption::in_memory_sessions(SESSIONS),
        };
        Some(Client { config: Arc::new(built), servers })
    }

    fn servers(&mut self, tls: &ServerTls, span: Span) -> Option<Servers> {
        let verify = tls.conf.verify.or(self.settings.global.ssl_server_verify).unwrap_or(Verify::Required);
        if verify == Verify::None {
            self.authorities_of(&tls.conf)?;
            return Some(Servers::unverified());
        }
        let Some(ca_file) = &tls.conf.ca_file else {
            self.diagnostics
                .error(span, "this server is to be verified, but no authority is named to verify it by")
                .hint("add 'ca-file FILE' or 'ca-file @system-ca'; on a network you trust, 'verify none'");
            return None;
        };
        let anchors = self.authority(ca_file)?;
        let roots = crate::authorities::roots(&anchors, ca_file, self.diagnostics);
        let crls = match &tls.conf.crl_file {
            Some(file) => self.revocations(file)?,
            None => Vec::new(),
        };
        match Servers::new(anchors, roots, crls, tls.verifyhost.clone()) {
            Ok(servers) => Some(servers),
            Err(e) => {
                self.diagnostics.error(span, format!("this server cannot be verified: {e}"));
                None
            }
        }
    }
}

/// The next settings of some servers, before they are applied.
pub(super) type Drafts = Vec<(Arc<ArcSwap<Client>>, Client)>;

/// Drafts new settings for the servers for which `concerned` holds (given their settings and the name of their
/// certificate); `certificate` is the new meaning of a name in the store. Sessions to resume are dropped.
///
/// # Errors
///
/// What is wrong with it, as a sentence.
pub(super) fn draft(
    settings: &Settings,
    state: &mut State,
    concerned: impl Fn(&ServerTls, Option<&str>) -> bool,
    certificate: Option<(&str, &Arc<Certificate>)>,
) -> Result<Drafts, String> {
    let servers = std::mem::take(&mut state.servers);
    let mut drafts = Vec::new();
    let mut failure = None;
    for server in servers.iter().filter(|server| concerned(&server.tls, server.certificate.as_deref())) {
        let Some(live) = server.live.upgrade() else { continue };
        let own = server.certificate.as_deref().map(|name| match certificate {
            Some((next, certificate)) if next == name => Some(certificate.clone()),
            _ => state.certificates.get(name).and_then(|slot| slot.certificate.clone()),
        });
        let mut diagnostics = Diagnostics::default();
        let nothing = crate::Memory::default();
        let mut builder = Builder {
            settings,
            state: &mut *state,
            loader: &nothing,
            diagnostics: &mut diagnostics,
            read: HashMap::new(),
            folders: Folders::default(),
        };
        match builder.client(&server.tls, server.span, own) {
            Some(client) => drafts.push((live, client)),
            None => {
                failure = Some(complaint(&diagnostics).unwrap_or_default());
                break;
            }
        }
    }
    state.servers = servers;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(drafts),
    }
}

impl State {
    pub fn apply_servers(&self, drafts: Drafts) {
        for (live, client) in drafts {
            live.store(Arc::new(client));
        }
    }

    /// Whether `concerned` holds for some server, given its settings and the name of its certificate.
    pub fn server_refers(&self, concerned: impl Fn(&ServerTls, Option<&str>) -> bool) -> bool {
        let there = self.servers.iter().filter(|server| server.live.strong_count() > 0);
        there.into_iter().any(|server| concerned(&server.tls, server.certificate.as_deref()))
    }
}
