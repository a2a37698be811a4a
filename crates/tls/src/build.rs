//! From a `bind` line to an [`Acceptor`]: certificates, lists, authorities, each read once, all errors said at once.

use crate::{
    Acceptor, Loader,
    accept::Context,
    authorities,
    certificate::{self, Certificate, Extras, Parts},
    crt_list::{self, Entry},
    line,
    names::Names,
    settings,
    tickets::{KeyRing, PolicyId, PolicySessions, SessionCache, Tickets},
    verify::{Clients, Ignored},
};
use aws_lc_rs::digest;
use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls, CrtStore, TlsConf, Verify},
};
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

/// What the lines of a configuration share: the session cache, and the ticket keys of those lines that name none.
#[derive(Clone)]
pub struct Shared {
    cache: Arc<SessionCache>,
    ring: Arc<KeyRing>,
}

impl Shared {
    /// For one configuration; keep it over a reload, and sessions live on.
    pub fn new(config: &Config) -> Shared {
        let tune = &config.global.tune;
        Shared {
            cache: SessionCache::new(tune.ssl_cachesize as usize, tune.ssl_lifetime),
            ring: KeyRing::rotating(tune.ssl_lifetime),
        }
    }
}

/// One certificate a line presents, before it is a context.
struct Wanted {
    file: PathBuf,
    conf: TlsConf,
    filters: Vec<String>,
    excluded: Vec<String>,
    span: Span,
    /// File and line of the list it stands in.
    origin: Option<String>,
    /// Certificates of one bundle have one number.
    group: usize,
}

/// Builds the acceptor of one line.
pub(crate) fn acceptor(
    config: &Config,
    bind: &Bind,
    shared: &Shared,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Acceptor> {
    let tls = bind.tls.as_ref()?;
    let errors_before = errors(diagnostics);
    let global = &config.global;
    let extras = Extras::new(global.ssl_load_extra_files.as_deref(), global.ssl_load_extra_del_ext);
    let mut builder = Builder {
        config,
        tls,
        bind,
        shared,
        loader,
        extras,
        diagnostics,
        loaded: HashMap::new(),
        verifiers: BTreeMap::new(),
        ring: shared.ring.clone(),
    };
    builder.read_ticket_keys();
    let wanted = builder.wanted();
    let acceptor = builder.contexts(wanted);
    if errors(diagnostics) > errors_before {
        return None;
    }
    if acceptor.contexts.is_empty() {
        if !acceptor.strict_sni {
            diagnostics.error(bind.span, "'ssl' without a certificate").hint("add 'crt FILE' or 'crt-list FILE'");
            return None;
        }
        diagnostics.warning(bind.span, "no certificate for this line: every TLS connection to it will fail");
    }
    Some(acceptor)
}

fn errors(diagnostics: &Diagnostics) -> usize {
    diagnostics.list.iter().filter(|d| d.severity == penstock_config::Severity::Error).count()
}

struct Builder<'a> {
    config: &'a Config,
    tls: &'a BindTls,
    bind: &'a Bind,
    shared: &'a Shared,
    loader: &'a dyn Loader,
    extras: Extras,
    diagnostics: &'a mut Diagnostics,
    loaded: HashMap<PathBuf, Option<Arc<Certificate>>>,
    verifiers: BTreeMap<PolicyId, Option<Arc<Clients>>>,
    ring: Arc<KeyRing>,
}

impl Builder<'_> {
    fn read_ticket_keys(&mut self) {
        let Some(file) = &self.tls.tls_ticket_keys else { return };
        let lifetime = self.config.global.tune.ssl_lifetime;
        if let Some(ring) = KeyRing::from_file(file, lifetime, self.loader, self.diagnostics) {
            self.ring = ring;
        }
    }

    /// Every certificate the line names, in the order HAProxy loads them: `crt` as written, then the lists.
    fn wanted(&mut self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let tls = self.tls;
        for crt in &tls.crt {
            self.expand(&crt.value, crt.span, &Entry::default(), None, &mut wanted);
        }
        for list in &tls.crt_list {
            let text = match self.loader.read(&list.value) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(e) => {
                    let why = certificate::reason(&e);
                    self.diagnostics
                        .error(list.span, format!("crt-list '{}' cannot be read: {why}", list.value.display()));
                    continue;
                }
            };
            let ca_base = self.config.global.ca_base.as_deref();
            for entry in crt_list::parse(&text, &list.value, ca_base, list.span, self.diagnostics) {
                let file = match &self.config.global.crt_base {
                    Some(base) if !is_stored(&entry.file) => base.join(&entry.file),
                    _ => entry.file.clone(),
                };
                let origin = format!("{}:{}", list.value.display(), entry.line);
                self.expand(&file, list.span, &entry, Some(origin), &mut wanted);
            }
        }
        wanted
    }

    /// One name of the configuration may mean a file, a directory of them, or a bundle.
    fn expand(&mut self, path: &Path, span: Span, entry: &Entry, origin: Option<String>, wanted: &mut Vec<Wanted>) {
        let group = wanted.len();
        let mut want = |file: PathBuf, group: usize| {
            wanted.push(Wanted {
                file,
                conf: entry.conf.clone(),
                filters: entry.filters.clone(),
                excluded: entry.excluded.clone(),
                span,
                origin: origin.clone(),
                group,
            });
        };
        if is_stored(path) {
            return want(path.to_owned(), group);
        }
        match self.loader.list(path) {
            Ok(Some(files)) => {
                for (index, file) in files.into_iter().filter(|file| is_certificate_file(file)).enumerate() {
                    want(file, group + index);
                }
            }
            Ok(None) if self.extras.bundle && self.loader.read(path).is_err() => {
                let mut found = false;
                for kind in ["rsa", "dsa", "ecdsa"] {
                    let mut member = path.as_os_str().to_owned();
                    member.push(".");
                    member.push(kind);
                    if self.loader.read(Path::new(&member)).is_ok() {
                        want(member.into(), group);
                        found = true;
                    }
                }
                if !found {
                    want(path.to_owned(), group);
                }
            }
            Ok(None) => want(path.to_owned(), group),
            Err(e) => {
                let why = certificate::reason(&e);
                self.diagnostics.error(span, format!("directory '{}' cannot be read: {why}", path.display()));
            }
        }
    }

    fn contexts(&mut self, wanted: Vec<Wanted>) -> Acceptor {
        let mut contexts: Vec<Context> = Vec::new();
        let mut names = Names::default();
        let mut defaults = Vec::new();
        let default_group = wanted.first().map(|first| first.group);
        let mut default_names: Vec<String> = Vec::new();
        for want in wanted {
            let said = self.diagnostics.list.len();
            let conf = settings::over(&want.conf, &self.tls.conf);
            let certificate = self.certificate(&want.file, want.span);
            let context = certificate.as_deref().and_then(|certificate| self.context(certificate, &conf, want.span));
            if let Some(origin) = &want.origin {
                for diagnostic in &mut self.diagnostics.list[said..] {
                    diagnostic.message = format!("{origin}: {}", diagnostic.message);
                }
            }
            let (Some(certificate), Some(context)) = (certificate, context) else { continue };
            let index = contexts.len();
            contexts.push(context);

            let everything = want.excluded.iter().any(|name| name == "*");
            let own = if want.filters.is_empty() { &certificate.names } else { &want.filters };
            if !everything {
                for name in own.iter().filter(|name| !want.excluded.contains(name)) {
                    names.add(name, index);
                }
                want.excluded.iter().for_each(|name| names.exclude(name, index));
            }
            // The first certificate is the default, and with it those that stand beside it for the same names in another
            // kind of key: who asks for no name still gets one he can verify.
            let beside = !certificate.names.is_empty() && certificate.names == default_names;
            if defaults.is_empty() {
                default_names.clone_from(&certificate.names);
                defaults.push(index);
                if !everything && !want.filters.is_empty() {
                    // HAProxy's manual: the default certificate also answers for its own names.
                    certificate.names.iter().for_each(|name| names.add(name, index));
                }
            } else if Some(want.group) == default_group || beside {
                defaults.push(index);
            }
        }
        Acceptor {
            contexts,
            names,
            defaults,
            strict_sni: self.tls.strict_sni || self.config.global.tls_bind.strict_sni,
            capture: self.config.global.tune.ssl_capture as usize,
            share: 0,
            max_wait: self.config.global.crypto.max_wait.unwrap_or(line::MAX_WAIT),
        }
    }

    fn certificate(&mut self, file: &Path, span: Span) -> Option<Arc<Certificate>> {
        if let Some(known) = self.loaded.get(file) {
            return known.clone();
        }
        let (path, parts) = match stored(self.config, file) {
            Some(Ok(found)) => found,
            Some(Err(what)) => {
                self.diagnostics.error(span, what);
                return None;
            }
            None => (file.to_owned(), Parts::default()),
        };
        let loaded = certificate::load(&path, &parts, &self.extras, self.loader, span, self.diagnostics).map(Arc::new);
        self.loaded.insert(file.to_owned(), loaded.clone());
        loaded
    }

    fn context(&mut self, certificate: &Certificate, conf: &TlsConf, span: Span) -> Option<Context> {
        let defaults = &self.config.global.tls_bind;
        let settings = settings::resolve(conf, defaults, span, self.diagnostics)?;
        let (policy, clients) = self.policy(conf, &certificate.names)?;

        let verified: Arc<dyn ClientCertVerifier> = match &clients {
            Some(clients) => clients.clone(),
            None => Arc::new(rustls::server::NoClientAuth),
        };
        let fixed = Fixed { bare: certificate.certified.clone(), stapled: certificate.stapled.clone() };
        let built = ServerConfig::builder_with_provider(settings.provider).with_protocol_versions(settings.versions);
        let mut built = match built {
            Ok(builder) => builder.with_client_cert_verifier(verified).with_cert_resolver(Arc::new(fixed)),
            Err(e) => {
                self.diagnostics.error(span, format!("these TLS settings cannot be used together: {e}"));
                return None;
            }
        };
        built.ignore_client_order = !(self.tls.prefer_client_ciphers || defaults.prefer_client_ciphers);
        built.session_storage = Arc::new(PolicySessions { cache: self.shared.cache.clone(), policy });
        if self.config.global.tune.ssl_cachesize == 0 {
            built.session_storage = Arc::new(NoServerSessionStorage {});
        }
        if !(conf.no_tls_tickets || defaults.no_tls_tickets) {
            built.ticketer = Tickets::new(self.ring.clone(), policy);
        }
        // One ticket a handshake: each costs a key derivation and an encryption, and each resumed connection brings the
        // next. A client that opens several at once asks for more (RFC 9149).
        built.send_tls13_tickets = 1;
        built.max_tls13_tickets = 4;
        let plain = Arc::new(built.clone());
        built.alpn_protocols = conf.alpn.iter().flatten().map(|protocol| protocol.clone().into_bytes()).collect();
        Some(Context {
            without_alpn: plain,
            config: Arc::new(built),
            kind: certificate.kind,
            clients,
            leaf: certificate.certified.cert.first().map(|leaf| Arc::from(leaf.as_ref())),
        })
    }

    /// Who is let in: the digest of it, and its verifier where anybody is asked.
    fn policy(&mut self, conf: &TlsConf, names: &[String]) -> Option<(PolicyId, Option<Arc<Clients>>)> {
        let verify = conf.verify.unwrap_or_default();
        let mut id = digest::Context::new(&digest::SHA256);
        let mut part = |tag: &str, bytes: &[u8]| {
            id.update(tag.as_bytes());
            id.update(&(bytes.len() as u64).to_be_bytes());
            id.update(bytes);
        };
        part("verify", &[verify as u8]);
        names.iter().for_each(|name| part("name", name.as_bytes()));
        if verify == Verify::None {
            return Some((digest_of(id), None));
        }
        let Some(ca_file) = conf.ca_file.as_ref().or(conf.ca_verify_file.as_ref()) else {
            self.diagnostics
                .error(self.bind.span, "clients are to be verified, but no authority is named to verify them by")
                .hint("add 'ca-file FILE', or 'verify none'");
            return None;
        };
        let anchors = authorities::certificates(ca_file, self.loader, self.diagnostics)?;
        let verify_only = match conf.ca_file.as_ref().and(conf.ca_verify_file.as_ref()) {
            Some(file) => authorities::certificates(file, self.loader, self.diagnostics)?,
            None => Vec::new(),
        };
        let crls = match &conf.crl_file {
            Some(file) => authorities::revocations(file, self.loader, self.diagnostics)?,
            None => Vec::new(),
        };
        let (leaf_errors, ca_errors) = (self.tls.crt_ignore_err.as_deref(), self.tls.ca_ignore_err.as_deref());
        anchors.iter().for_each(|der| part("ca", der));
        verify_only.iter().for_each(|der| part("ca-verify", der));
        crls.iter().for_each(|der| part("crl", der));
        part("crt-ignore-err", leaf_errors.unwrap_or_default().as_bytes());
        part("ca-ignore-err", ca_errors.unwrap_or_default().as_bytes());
        let id = digest_of(id);

        if let Some(known) = self.verifiers.get(&id) {
            return known.clone().map(|clients| (id, Some(clients)));
        }
        let clients = self.clients(verify, ca_file, anchors, verify_only, crls);
        self.verifiers.insert(id, clients.clone());
        clients.map(|clients| (id, Some(clients)))
    }

    fn clients(
        &mut self,
        verify: Verify,
        ca_file: &Spanned<PathBuf>,
        mut anchors: Vec<CertificateDer<'static>>,
        verify_only: Vec<CertificateDer<'static>>,
        crls: Vec<CertificateRevocationListDer<'static>>,
    ) -> Option<Arc<Clients>> {
        let ignored = match Ignored::parse(self.tls.crt_ignore_err.as_deref(), self.tls.ca_ignore_err.as_deref()) {
            Ok(ignored) => ignored,
            Err(word) => {
                self.diagnostics
                    .error(self.bind.span, format!("'{word}' is no verification error"))
                    .hint("'all', or OpenSSL's numbers, comma separated");
                return None;
            }
        };
        // Only those of 'ca-file' are named to the client.
        let hints = authorities::roots(&anchors, ca_file, self.diagnostics).subjects();
        anchors.extend(verify_only);
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(anchors.iter().cloned());
        match Clients::new(anchors, roots, hints, crls, verify == Verify::Required, ignored) {
            Ok(clients) => Some(Arc::new(clients)),
            Err(e) => {
                self.diagnostics.error(self.bind.span, format!("clients cannot be verified: {e}"));
                None
            }
        }
    }
}

fn digest_of(context: digest::Context) -> PolicyId {
    let mut id = PolicyId::default();
    id.copy_from_slice(context.finish().as_ref());
    id
}

/// Presents one certificate to every client: the choice was made before. Its OCSP response goes with it while that is current.
#[derive(Debug)]
struct Fixed {
    bare: Arc<CertifiedKey>,
    stapled: Option<(Arc<CertifiedKey>, Option<i64>)>,
}

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match &self.stapled {
            Some((stapled, until)) if until.is_none_or(|until| certificate::now() < until) => Some(stapled.clone()),
            _ => Some(self.bare.clone()),
        }
    }
}

/// HAProxy's choice among the files of a directory.
fn is_certificate_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let reserved = |e: &std::ffi::OsStr| ["key", "issuer", "ocsp", "sctl"].iter().any(|r| e == *r);
    !hidden && !path.extension().is_some_and(reserved)
}

/// `@STORE/NAME` points into a `crt-store`.
fn is_stored(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"@")
}

/// One `load` line of a `crt-store`.
struct Load<'c> {
    /// The certificate's file as written, by which lines may refer to it.
    crt: &'c str,
    alias: Option<&'c str>,
    path: PathBuf,
    parts: Parts,
    span: Span,
}

fn loads(store: &CrtStore) -> impl Iterator<Item = Load<'_>> {
    let based = |base: &Option<PathBuf>, file: &str| match base {
        Some(base) if !file.starts_with('/') => base.join(file),
        _ => PathBuf::from(file),
    };
    store.loads.iter().filter_map(move |line| {
        let value = |keyword: &str| {
            let at = line.words.iter().position(|word| word.text == keyword)?;
            line.words.get(at + 1).map(|word| word.text.as_str())
        };
        let crt = value("crt")?;
        let parts =
            Parts { key: value("key").map(|key| based(&store.key_base, key)), ocsp: value("ocsp").map(PathBuf::from) };
        Some(Load { crt, alias: value("alias"), path: based(&store.crt_base, crt), parts, span: line.span })
    })
}

/// Loads every certificate of every `crt-store`, those that no line uses as well: a file that is missing is found when the
/// configuration is checked.
pub fn check_stores(config: &Config, loader: &dyn Loader, diagnostics: &mut Diagnostics) {
    let extras = Extras::new(config.global.ssl_load_extra_files.as_deref(), config.global.ssl_load_extra_del_ext);
    for load in config.crt_stores.iter().flat_map(loads) {
        // What is wrong with it is among the diagnostics.
        let _ = certificate::load(&load.path, &load.parts, &extras, loader, load.span, diagnostics);
    }
}

/// The files a `crt-store` gives a name, `None` for a path of its own.
fn stored(config: &Config, path: &Path) -> Option<Result<(PathBuf, Parts), String>> {
    let text = path.to_str()?.strip_prefix('@')?;
    let (store_name, wanted) = text.split_once('/')?;
    let Some(store) = config.crt_stores.iter().find(|store| store.name == store_name) else {
        return Some(Err(format!("there is no crt-store '{store_name}'")));
    };
    let found = loads(store).find(|load| load.alias == Some(wanted) || load.crt == wanted);
    Some(match found {
        Some(load) => Ok((load.path, load.parts)),
        None => Err(format!("crt-store '{store_name}' loads no certificate '{wanted}'")),
    })
}
