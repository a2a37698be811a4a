//! From a `bind` line to an [`Acceptor`]: certificates, lists and authorities are each read once, and all errors are
//! reported together.

mod draft;
mod generate;
mod wanted;

pub(super) use wanted::Wanted;

use super::{
    Settings, Slot, State, Store, crt_lists,
    files::{is_certificate_file, is_stored, load, loads},
};
use crate::{
    Acceptor, Loader,
    certificate::{self, Certificate},
    context::{Context, Shape, Table, policy_id},
    line,
    loader::{Folders, Listed},
    settings,
    tickets::{KeyRing, PolicyId},
    verify::{Clients, Ignored},
};
use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use penstock_config::{
    Config, Diagnostic, Diagnostics, Span,
    model::{Bind, BindTls, TlsConf, Verify},
};
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, ResolvesServerCertUsingSni, danger::ClientCertVerifier},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A `bind` line in the store.
pub(super) struct Line {
    /// The frontend of the line, and the file and line where it is written.
    pub frontend: String,
    pub place: String,
    pub tls: BindTls,
    pub span: Span,
    pub ring: Arc<KeyRing>,
    /// The crt-lists and directories that the line names.
    pub lists: Vec<Arc<str>>,
    /// The certificates it presents, in order.
    pub instances: BTreeMap<u64, Instance>,
    shapes: Shapes,
    pub live: Arc<ArcSwap<Table>>,
}

/// One certificate, as presented by one line.
pub(super) struct Instance {
    pub certificate: Arc<str>,
    /// The crt-list, and the number of the entry in it.
    pub entry: Option<(Arc<str>, u64)>,
    pub filters: Vec<String>,
    pub excluded: Vec<String>,
    /// Settings of this certificate alone, which override those of the line.
    conf: TlsConf,
    /// Certificates of one bundle have the same number, and all of `default-crt`.
    group: u64,
    pub context: Arc<Context>,
}

/// Builds the acceptor of one line.
pub(crate) fn acceptor(
    config: &Config,
    bind: &Bind,
    store: &Store,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Acceptor> {
    let tls = bind.tls.as_ref()?;
    let errors_before = errors(diagnostics);
    let settings = store.settings();
    let state = &mut *store.state();
    let mut builder = Builder {
        settings,
        state: &mut *state,
        loader,
        diagnostics: &mut *diagnostics,
        read: HashMap::new(),
        folders: Folders::default(),
    };
    let ring = builder.ticket_keys(tls).unwrap_or_else(|| settings.ring.clone());
    let mut lists = Vec::new();
    let wanted = builder.wanted(tls, &mut lists);
    builder.read_all(&wanted);
    let place = config.files.get(bind.span.file.0 as usize).map_or("", |file| file.name.as_str());
    let of_line = |proxy: &&penstock_config::model::Proxy| proxy.binds.iter().any(|other| other.span == bind.span);
    let mut line = Line {
        frontend: config.proxies.iter().find(of_line).map(|proxy| proxy.name.clone()).unwrap_or_default(),
        place: format!("{place}:{}", bind.span.line),
        tls: tls.clone(),
        span: bind.span,
        ring,
        lists,
        instances: BTreeMap::new(),
        shapes: Vec::new(),
        live: Arc::default(),
    };
    let mut table = Table::default();
    for want in wanted {
        builder.present(&mut line, &mut table, want);
    }
    table.defaults = line.defaults();
    if let Some(generate) = &tls.generate {
        [table.forge, table.untrusted] = builder.forges(&mut line, generate);
    }
    if errors(diagnostics) > errors_before {
        return None;
    }
    let strict_sni = tls.strict_sni || settings.global.tls_bind.strict_sni;
    if table.defaults.is_empty() {
        if !strict_sni {
            diagnostics.error(bind.span, "'ssl' without a certificate").hint("add 'crt FILE' or 'crt-list FILE'");
            return None;
        }
        diagnostics.warning(bind.span, "no certificate for this line: every TLS connection to it will fail");
    }
    line.live.store(Arc::new(table));
    let live = line.live.clone();
    state.keep(line);
    Some(Acceptor {
        live,
        strict_sni,
        capture: settings.global.tune.ssl_capture.unwrap_or(0) as usize,
        destination: bind.transparent,
        share: 0,
        max_wait: settings.global.crypto.max_wait.unwrap_or(line::MAX_WAIT),
    })
}

/// Loads every certificate of every `crt-store`, including those that no line uses, and the files of lines that name them
/// without `ssl`, so that a missing file is found when the configuration is checked.
pub fn check_stores(config: &Config, store: &Store, loader: &dyn Loader, diagnostics: &mut Diagnostics) {
    let state = &mut *store.state();
    let mut builder = Builder {
        settings: store.settings(),
        state,
        loader,
        diagnostics,
        read: HashMap::new(),
        folders: Folders::default(),
    };
    for (crt_store, load) in config.crt_stores.iter().flat_map(|store| loads(store).map(move |load| (store, load))) {
        let name = match load.alias {
            None if crt_store.name.is_empty() => load.path.display().to_string(),
            name => format!("@{}/{}", crt_store.name, name.unwrap_or(load.crt)),
        };
        let _ = builder.certificate(&name, Path::new(&name), load.span);
    }
    for tls in config.proxies.iter().flat_map(|proxy| &proxy.binds).filter_map(|bind| bind.idle_tls.as_ref()) {
        builder.ticket_keys(tls);
        let wanted = builder.wanted(tls, &mut Vec::new());
        builder.read_all(&wanted);
        for want in &wanted {
            let _ = builder.certificate(&want.name, &want.path, want.span);
        }
        let _ = builder.authorities_of(&tls.conf);
    }
    // Those of a server whose connections are in clear text are read too. Servers of one template share their line.
    let mut read = None;
    for server in config.proxies.iter().flat_map(|proxy| &proxy.servers) {
        if server.settings.tls.is_none() && read.replace(server.span) != Some(server.span) {
            let _ = builder.authorities_of(&server.settings.tls_settings.conf);
        }
    }
}

fn errors(diagnostics: &Diagnostics) -> usize {
    diagnostics.list.iter().filter(|d| d.severity == penstock_config::Severity::Error).count()
}

/// Reads what lines name into the store.
pub(super) struct Builder<'a> {
    pub settings: &'a Settings,
    pub state: &'a mut State,
    pub loader: &'a dyn Loader,
    pub diagnostics: &'a mut Diagnostics,
    /// Certificates that were read in advance, with their diagnostics.
    pub read: HashMap<Arc<str>, (Option<Certificate>, Vec<Diagnostic>)>,
    /// The files of directories that are used as crt-lists.
    pub folders: Folders,
}

impl Builder<'_> {
    fn ticket_keys(&mut self, tls: &BindTls) -> Option<Arc<KeyRing>> {
        let file = tls.tls_ticket_keys.as_ref()?;
        let name = file.value.display().to_string();
        if let Some((_, ring)) = self.state.rings.iter().find(|(known, _)| *known == name) {
            return Some(ring.clone());
        }
        let lifetime = self.settings.global.tune.ssl_lifetime;
        let ring = KeyRing::from_file(file, lifetime, self.loader, self.diagnostics)?;
        self.state.rings.push((name, ring.clone()));
        Some(ring)
    }

    /// Every certificate that the line names: the defaults, and then in the order in which HAProxy loads them `crt` as written
    /// and the lists.
    fn wanted(&mut self, tls: &BindTls, lists: &mut Vec<Arc<str>>) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let defaults = self.state.number();
        let written = tls.default_crt.iter().map(|crt| (crt, true)).chain(tls.crt.iter().map(|crt| (crt, false)));
        for (crt, is_default) in written {
            match self.expand(&crt.value, crt.span) {
                Expanded::Files(files) => {
                    let group = if is_default { defaults } else { self.state.number() };
                    wanted.extend(files.into_iter().map(|path| Wanted {
                        name: path.to_string_lossy().into(),
                        path,
                        entry: None,
                        conf: TlsConf::default(),
                        filters: Vec::new(),
                        excluded: Vec::new(),
                        span: crt.span,
                        origin: None,
                        group,
                    }));
                }
                Expanded::Directory(name, files) => {
                    self.state.directory(&name, files);
                    lists.push(name.as_str().into());
                    wanted.extend(self.state.wanted_of(&name, crt.span));
                }
            }
        }
        for list in &tls.crt_list {
            let name = list.value.display().to_string();
            if self.read_list(&name, list) {
                lists.push(name.as_str().into());
                wanted.extend(self.state.wanted_of(&name, list.span));
            }
        }
        wanted
    }

    /// A path in the configuration may mean a file, a directory of files, or a bundle.
    pub fn expand(&mut self, path: &Path, span: Span) -> Expanded {
        let one = || Expanded::Files(vec![path.to_owned()]);
        if is_stored(path) {
            return one();
        }
        match self.loader.list(path) {
            Ok(Some(files)) => {
                let name = crt_lists::directory_name(path);
                self.folders.add(&files);
                let files = files.into_iter().filter(|file| is_certificate_file(file)).collect();
                Expanded::Directory(name, files)
            }
            Ok(None) if self.settings.extras.bundle && self.loader.read(path).is_err() => {
                let member = |kind: &str| {
                    let mut member = path.as_os_str().to_owned();
                    member.push(".");
                    member.push(kind);
                    PathBuf::from(member)
                };
                let members = ["rsa", "dsa", "ecdsa"].map(member);
                let found: Vec<_> = members.into_iter().filter(|member| self.loader.read(member).is_ok()).collect();
                if found.is_empty() { one() } else { Expanded::Files(found) }
            }
            Ok(None) => one(),
            Err(e) => {
                let why = certificate::reason(&e);
                self.diagnostics.error(span, format!("directory '{}' cannot be read: {why}", path.display()));
                Expanded::Files(Vec::new())
            }
        }
    }

    /// Reads and checks certificates that are not in the store yet, on as many threads as there are processors, since
    /// keys and signatures take the time. Errors are reported in the order of the list.
    fn read_all(&mut self, wanted: &[Wanted]) {
        /// How many certificates make another thread worthwhile.
        const PER_THREAD: usize = 32;
        const THREADS_MAX: usize = 32;
        let mut seen = HashSet::new();
        let missing = wanted.iter().filter(|want| !self.state.has(&want.name) && seen.insert(&want.name));
        let missing: Vec<&Wanted> = missing.collect();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(THREADS_MAX).min(missing.len() / PER_THREAD);
        if threads < 2 {
            return;
        }
        let next = AtomicUsize::new(0);
        let read = Mutex::new(HashMap::with_capacity(missing.len()));
        let settings = self.settings;
        let loader = &Listed { loader: self.loader, folders: &self.folders };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(want) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut said = Diagnostics::default();
                        let loaded =
                            load(&settings.crt_stores, &settings.extras, &want.path, loader, want.span, &mut said);
                        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                        read.insert(want.name.clone(), (loaded, said.list));
                    }
                });
            }
        });
        self.read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// The certificate of that name, read if it is not in the store. Its errors are reported once.
    pub fn certificate(&mut self, name: &str, path: &Path, span: Span) -> Option<Arc<Certificate>> {
        if let Some(slot) = self.state.certificates.get(name) {
            return slot.certificate.clone();
        }
        if self.state.refused.contains(name) {
            return None;
        }
        let loaded = match self.read.remove(name) {
            Some((loaded, said)) => {
                self.diagnostics.list.extend(said);
                loaded
            }
            None => {
                let loader = &Listed { loader: self.loader, folders: &self.folders };
                load(&self.settings.crt_stores, &self.settings.extras, path, loader, span, self.diagnostics)
            }
        };
        let Some(loaded) = loaded else {
            self.state.refused.insert(name.to_owned());
            return None;
        };
        let loaded = Arc::new(loaded);
        let slot = Slot { certificate: Some(loaded.clone()), ..Slot::default() };
        self.state.certificates.insert(name.to_owned(), slot);
        Some(loaded)
    }

    /// Adds a certificate to those of the line, and to the table. `None` if something is wrong with it.
    pub fn present(&mut self, line: &mut Line, table: &mut Table, want: Wanted) -> Option<u64> {
        let said = self.diagnostics.list.len();
        let conf = settings::over(&want.conf, &line.tls.conf);
        let certificate = self.certificate(&want.name, &want.path, want.span);
        let shape = certificate.is_some().then(|| self.shape(line, &conf, want.span)).flatten();
        if let Some(origin) = &want.origin {
            for diagnostic in &mut self.diagnostics.list[said..] {
                diagnostic.message = format!("{origin}: {}", diagnostic.message);
            }
        }
        let (certificate, shape) = (certificate?, shape?);
        let order = line.instances.last_key_value().map_or(0, |(last, _)| last + 1);
        let context = Arc::new(Context::new(order, certificate, shape, want.excluded.clone()));
        let instance = Instance {
            certificate: want.name,
            entry: want.entry,
            filters: want.filters,
            excluded: want.excluded,
            conf,
            group: want.group,
            context,
        };
        for pattern in instance.patterns() {
            table.names.add(&pattern, &instance.context);
        }
        line.instances.insert(order, instance);
        Some(order)
    }

    /// The settings that a certificate is presented under: those of the line, or a crt-list entry's own.
    pub fn shape(&mut self, line: &mut Line, conf: &TlsConf, span: Span) -> Option<Arc<Shape>> {
        if let Some((_, shape)) = line.shapes.iter().find(|(known, _)| known == conf) {
            return Some(shape.clone());
        }
        let shape = Arc::new(self.new_shape(line, conf, span)?);
        line.shapes.push((conf.clone(), shape.clone()));
        Some(shape)
    }

    fn new_shape(&mut self, line: &Line, conf: &TlsConf, span: Span) -> Option<Shape> {
        let global = &self.settings.global;
        let defaults = &global.tls_bind;
        let settings = settings::resolve(conf, defaults, span, self.diagnostics)?;
        let (policy, clients) = self.policy(&line.tls, line.span, conf)?;
        let verified: Arc<dyn ClientCertVerifier> = match &clients {
            Some(clients) => clients.clone(),
            None => Arc::new(rustls::server::NoClientAuth),
        };
        let built = ServerConfig::builder_with_provider(settings.provider).with_protocol_versions(settings.versions);
        let mut base = match built {
            // The certificate is added with the context.
            Ok(builder) => builder
                .with_client_cert_verifier(verified)
                .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())),
            Err(e) => {
                self.diagnostics.error(span, format!("these TLS settings cannot be used together: {e}"));
                return None;
            }
        };
        base.ignore_client_order = !(line.tls.prefer_client_ciphers || defaults.prefer_client_ciphers);
        base.session_storage = Arc::new(NoServerSessionStorage {});
        // One ticket per handshake: each costs a key derivation and an encryption, and each resumed connection brings
        // the next. A client that opens several connections at once asks for more (RFC 9149).
        base.send_tls13_tickets = 1;
        base.max_tls13_tickets = 4;
        base.alpn_protocols = conf.alpn.iter().flatten().map(|protocol| protocol.clone().into_bytes()).collect();
        let tickets = !(conf.no_tls_tickets || defaults.no_tls_tickets);
        Some(Shape {
            base,
            clients,
            policy,
            cache: (global.tune.ssl_cachesize > 0).then(|| self.settings.cache.clone()),
            ring: tickets.then(|| line.ring.clone()),
        })
    }

    /// The policy on clients: its digest, and the verifier if certificates are asked for.
    fn policy(&mut self, tls: &BindTls, span: Span, conf: &TlsConf) -> Option<(PolicyId, Option<Arc<Clients>>)> {
        let verify = conf.verify.unwrap_or_default();
        let mut id = digest::Context::new(&digest::SHA256);
        let mut part = |tag: &str, bytes: &[u8]| {
            id.update(tag.as_bytes());
            id.update(&(bytes.len() as u64).to_be_bytes());
            id.update(bytes);
        };
        part("verify", &[verify as u8]);
        if verify == Verify::None {
            self.authorities_of(conf)?;
            return Some((policy_id(id), None));
        }
        let Some(ca_file) = conf.ca_file.as_ref().or(conf.ca_verify_file.as_ref()) else {
            self.diagnostics
                .error(span, "clients are to be verified, but no authority is named to verify them by")
                .hint("add 'ca-file FILE', or 'verify none'");
            return None;
        };
        let mut anchors = self.authority(ca_file)?;
        let verify_only = match conf.ca_file.as_ref().and(conf.ca_verify_file.as_ref()) {
            Some(file) => self.authority(file)?,
            None => Vec::new(),
        };
        let crls = match &conf.crl_file {
            Some(file) => self.revocations(file)?,
            None => Vec::new(),
        };
        let (leaf_errors, ca_errors) = (tls.crt_ignore_err.as_deref(), tls.ca_ignore_err.as_deref());
        anchors.iter().for_each(|der| part("ca", der));
        verify_only.iter().for_each(|der| part("ca-verify", der));
        crls.iter().for_each(|der| part("crl", der));
        part("crt-ignore-err", leaf_errors.unwrap_or_default().as_bytes());
        part("ca-ignore-err", ca_errors.unwrap_or_default().as_bytes());

        let ignored = match Ignored::parse(leaf_errors, ca_errors) {
            Ok(ignored) => ignored,
            Err(word) => {
                self.diagnostics
                    .error(span, format!("'{word}' is not a verification error"))
                    .hint("'all', or OpenSSL's numbers, comma separated");
                return None;
            }
        };
        // Only those of 'ca-file' are named to the client.
        let hints = crate::authorities::roots(&anchors, ca_file, self.diagnostics).subjects();
        anchors.extend(verify_only);
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(anchors.iter().cloned());
        match Clients::new(anchors, roots, hints, crls, verify == Verify::Required, ignored) {
            Ok(clients) => Some((policy_id(id), Some(Arc::new(clients)))),
            Err(e) => {
                self.diagnostics.error(span, format!("clients cannot be verified: {e}"));
                None
            }
        }
    }
}

/// What a path in the configuration stands for.
pub(super) enum Expanded {
    /// A file, or the members of a bundle.
    Files(Vec<PathBuf>),
    Directory(String, Vec<PathBuf>),
}

/// The settings of each group of a line's entries, ready for rustls.
type Shapes = Vec<(TlsConf, Arc<Shape>)>;

impl State {
    /// Adds a line with all its certificates.
    fn keep(&mut self, line: Line) {
        let index = self.lines.len();
        for (order, instance) in &line.instances {
            if let Some(slot) = self.certificates.get_mut(&*instance.certificate) {
                slot.instances.push((index, *order));
            }
        }
        self.lines.push(line);
    }

    fn has(&self, name: &str) -> bool {
        self.certificates.contains_key(name) || self.refused.contains(name)
    }

    /// Whether `concerned` holds for the settings of some line.
    pub fn line_refers(&self, concerned: impl Fn(&TlsConf) -> bool) -> bool {
        self.lines.iter().any(|line| line.shapes.iter().any(|(conf, _)| concerned(conf)))
    }
}

impl Line {
    /// The first certificate is the default, together with those beside it for the same names with another type of key:
    /// a client that sends no name still gets one it can verify. `default-crt` says which they are.
    pub fn defaults(&self) -> Vec<Arc<Context>> {
        let Some(first) = self.instances.values().next() else { return Vec::new() };
        let names = &first.context.certificate.names;
        let by_name = self.tls.default_crt.is_empty() && !names.is_empty();
        let beside =
            |other: &Instance| other.group == first.group || by_name && other.context.certificate.names == *names;
        let rest = self.instances.values().skip(1).filter(|instance| beside(instance));
        std::iter::once(first).chain(rest).map(|instance| instance.context.clone()).collect()
    }

    /// Whether replacing these certificates (given with their previous contexts) may change the defaults.
    fn defaults_follow(&self, table: &Table, changed: &[(u64, Arc<Context>)]) -> bool {
        let Some(first) = self.instances.values().next() else { return true };
        let names = &first.context.certificate.names;
        table.defaults.is_empty()
            || changed.iter().any(|(order, before)| {
                let now = self.instances.get(order).map(|instance| &instance.context.certificate.names);
                table.defaults.iter().any(|default| default.order == *order)
                    || now == Some(names)
                    || before.certificate.names == *names
            })
    }

    /// Swaps the table in. The old one is dropped here, beside the workers, once none of them uses it: dropping fifty
    /// thousand certificates takes a while.
    pub fn publish(&self, table: Table) {
        const LOOK: Duration = Duration::from_micros(50);
        let old = self.live.swap(Arc::new(table));
        // A worker uses it for microseconds. If one is delayed, it will have to drop the table itself, which is all the
        // harm done.
        for _ in 0..2000 {
            if Arc::strong_count(&old) == 1 {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Stops presenting a certificate that is no longer in the list.
    pub fn remove(&mut self, order: u64) {
        let Some(instance) = self.instances.remove(&order) else { return };
        // The files of authorities that only its settings named are no longer in use.
        let Line { shapes, instances, tls, .. } = self;
        shapes.retain(|(conf, _)| *conf == tls.conf || instances.values().any(|left| left.conf == *conf));
        let mut table = Table::clone(&self.live.load());
        instance.patterns().iter().for_each(|pattern| table.names.remove(pattern, order));
        table.defaults = self.defaults();
        self.publish(table);
    }
}

impl Instance {
    /// The names it is used for: those of its filters, or its own if there are none, minus those excluded. (HAProxy's manual says that the
    /// first certificate is used for its own names in any case; HAProxy does not, and a client could pass by the line that asks for its certificate.)
    fn patterns(&self) -> Vec<String> {
        self.patterns_for(&self.context.certificate.names)
    }

    fn patterns_for(&self, own: &[String]) -> Vec<String> {
        if self.excluded.iter().any(|name| name == "*") {
            return Vec::new();
        }
        let names = if self.filters.is_empty() { own } else { &self.filters };
        names.iter().filter(|name| !self.excluded.contains(name)).cloned().collect()
    }
}
