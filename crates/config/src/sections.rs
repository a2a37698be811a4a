//! Assigns lines to sections, and completes each section at its end.

use crate::{
    args::{Parsed, Reported, expected},
    cache, chain, check,
    dispatch::dispatch,
    env::{Env, Files},
    global,
    keyword::{Places, Table},
    log_forward, mailers,
    model::{
        Bind, CacheSection, Config, CrtStore, ErrorFile, ExternalProgram, Global, LogForward, Mailers, Mode, Peers,
        Proxy, ProxyKind, Resolvers, Ring, ServiceChain, Userlist,
    },
    name::valid_name,
    others,
    peers::{self, PeersDraft},
    proxy::{self, Draft, ErrorPages, HttpErrors},
    ring,
    span::{Span, Spanned, Word},
    surroundings::Surroundings,
};
use std::collections::{BTreeMap, HashMap};

/// Every word that starts a section, and whether a name must follow it.
pub(crate) const SECTIONS: &[(&str, Name)] = &[
    ("global", Name::None),
    ("defaults", Name::Optional),
    ("frontend", Name::Required),
    ("backend", Name::Required),
    ("listen", Name::Required),
    ("service", Name::Required),
    ("service-chain", Name::Required),
    ("userlist", Name::Required),
    ("resolvers", Name::Required),
    ("peers", Name::Required),
    ("crt-store", Name::Optional),
    ("http-errors", Name::Required),
    ("cache", Name::Required),
    ("mailers", Name::Required),
    ("namespace_list", Name::None),
    ("program", Name::Required),
    ("ring", Name::Required),
    ("log-forward", Name::Required),
    ("fcgi-app", Name::Required),
    ("log-profile", Name::Required),
    ("acme", Name::Required),
    ("traces", Name::None),
];

/// Whether a section must have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    None,
    Optional,
    Required,
}

pub(crate) fn is_section(word: &str) -> bool {
    SECTIONS.iter().any(|(name, _)| *name == word)
}

/// The word that starts a section of this kind, as a static string.
pub(crate) fn kind(word: &str) -> &'static str {
    SECTIONS.iter().find(|(name, _)| *name == word).map_or("", |(name, _)| name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    SECTIONS.iter().map(|(name, _)| *name)
}

/// The sections that `word` belongs in, if it is a keyword of other sections.
pub(crate) fn places_of(word: &str) -> Option<String> {
    let of = |k: &crate::manual::Entry| k.name == word || k.name.split(' ').next() == Some(word);
    let entry = crate::manual::entries().iter().find(|k| of(k))?;
    Some(match entry.section {
        "proxy" => format!("'{}' belongs in {}", entry.name, crate::proxy::place_names(entry.places).join(", ")),
        line @ ("bind" | "server") => format!("'{}' is a setting of '{line}' lines", entry.name),
        section => format!("'{}' belongs in '{section}'", entry.name),
    })
}

/// The section that is being read.
pub(crate) enum Section {
    /// Before the first section.
    None,
    /// A section with a wrong header: errors in its lines are not reported.
    Skipped,
    Global,
    Proxy(Box<Draft>),
    Userlist(Userlist),
    Resolvers(Box<Resolvers>),
    Peers(Box<PeersDraft>),
    CrtStore(CrtStore),
    HttpErrors(HttpErrors),
    Cache(CacheSection),
    ServiceChain(ServiceChain),
    Ring(Box<Ring>),
    LogForward(Box<LogForward>),
    Program(Box<ExternalProgram>),
    Mailers(Mailers),
    Namespaces(Vec<Spanned<String>>),
    /// A section whose keywords are known and checked, but have no effect.
    Other(&'static Table<()>),
}

/// Everything read so far.
pub(crate) struct Sections {
    current: Section,
    global: Global,
    userlists: Vec<Userlist>,
    resolvers: Vec<Resolvers>,
    peers: Vec<Peers>,
    crt_stores: Vec<CrtStore>,
    http_errors: Vec<HttpErrors>,
    caches: Vec<CacheSection>,
    programs: Vec<ExternalProgram>,
    rings: Vec<Ring>,
    log_forwards: Vec<LogForward>,
    mailers: Vec<Mailers>,
    namespaces: Vec<Spanned<String>>,
    chains: Vec<ServiceChain>,
    proxies: Vec<Proxy>,
    /// Places in `proxies`, and the error pages that wait for the `http-errors` sections, which may follow.
    error_pages: Vec<(usize, Vec<ErrorPages>)>,
    /// `defaults` sections, named or not; a proxy without `from` inherits from the last one.
    defaults: Vec<Draft>,
    /// The first place at which each section name was used, by kind of section.
    names: HashMap<(&'static str, String), Span>,
}

impl Sections {
    pub(crate) fn new(env: &Env<'_>) -> Self {
        Sections {
            current: Section::None,
            global: Global { localpeer: Some(env.local_peer.clone()), strict_limits: true, ..Global::default() },
            userlists: Vec::new(),
            resolvers: Vec::new(),
            peers: Vec::new(),
            crt_stores: Vec::new(),
            http_errors: Vec::new(),
            caches: Vec::new(),
            programs: Vec::new(),
            rings: Vec::new(),
            log_forwards: Vec::new(),
            mailers: Vec::new(),
            namespaces: Vec::new(),
            chains: Vec::new(),
            proxies: Vec::new(),
            error_pages: Vec::new(),
            defaults: Vec::new(),
            names: HashMap::new(),
        }
    }

    /// Starts a section with this header line.
    pub(crate) fn begin(&mut self, words: &[Word], around: &mut Surroundings) {
        self.current = self.header(words, around).unwrap_or(Section::Skipped);
    }

    fn header(&mut self, words: &[Word], around: &mut Surroundings) -> Parsed<Section> {
        let Some((kind, naming)) = SECTIONS.iter().find(|(name, _)| *name == words[0].text) else {
            return Err(Reported);
        };
        let name = words.get(1);
        let mut extra = words.get(2);
        if *naming == Name::Required && name.is_none() {
            let end = Span { start: words[0].span.end, end: words[0].span.end + 1, ..words[0].span };
            around
                .diagnostics
                .error(end, format!("'{kind}' needs a name"))
                .hint(format!("for instance '{kind} {}'", if *kind == "backend" { "app" } else { "www" }));
            return Err(Reported);
        }
        let proxy = proxy_kind(kind);
        if *naming == Name::None {
            extra = name;
        } else if let Some(name) = name.filter(|n| !(*kind == "defaults" && n.text == "from")) {
            valid_name(name, around)?;
            // HAProxy adds the users of a second list of a name to the list above it, so that the two are one only if they are
            // neighbours.
            if *kind == "userlist" && self.userlists.last().is_some_and(|list| list.name == name.text) {
                around
                    .diagnostics
                    .warning(name.span, format!("the userlist '{}' is continued here", name.text))
                    .hint("move these lines up to the others, and remove this one");
                return Ok(Section::Userlist(self.userlists.pop().unwrap_or_default()));
            }
            if *kind != "defaults" {
                self.unique(kind, name, around)?;
            }
        }
        if proxy.is_some() || *kind == "defaults" {
            return self.proxy_header(kind, proxy, words, around);
        }
        if let Some(extra) = extra {
            around.diagnostics.error(extra.span, format!("'{}' is not expected after '{kind}'", extra.text));
            return Err(Reported);
        }
        let span = words[0].span.to(words[words.len() - 1].span);
        let name = name.map(|n| n.text.clone()).unwrap_or_default();
        Ok(match *kind {
            "global" => Section::Global,
            "userlist" => Section::Userlist(Userlist { name, ..Userlist::default() }),
            "resolvers" => Section::Resolvers(Box::new(Resolvers::new(name, span))),
            "peers" => {
                around.has_peers = true;
                let local = self.global.localpeer.as_deref().unwrap_or_default();
                Section::Peers(Box::new(PeersDraft::new(name, local, span)))
            }
            "crt-store" => Section::CrtStore(CrtStore { name, ..CrtStore::default() }),
            "service" => {
                let base = self.defaults.last();
                Section::Proxy(Box::new(proxy::service::begin(name, base, span)))
            }
            "service-chain" => Section::ServiceChain(ServiceChain { name, span, steps: Vec::new() }),
            "http-errors" => Section::HttpErrors(HttpErrors { name, files: Vec::new() }),
            "log-forward" => Section::LogForward(Box::new(LogForward::new(name, span))),
            "ring" => {
                ring::name(&words[1], around)?;
                Section::Ring(Box::new(Ring::new(name, self.global.tune.bufsize as u64, span)))
            }
            "cache" => Section::Cache(CacheSection::new(name, span)),
            "mailers" => Section::Mailers(Mailers::new(name)),
            "namespace_list" => Section::Namespaces(Vec::new()),
            "program" => Section::Program(Box::new(ExternalProgram {
                name,
                command: Vec::new(),
                user: None,
                group: None,
                start_on_reload: true,
                span,
            })),
            other => others::begin(other, words[0].span, around)?,
        })
    }

    fn proxy_header(
        &mut self,
        kind: &'static str,
        proxy: Option<(ProxyKind, Places)>,
        words: &[Word],
        around: &mut Surroundings,
    ) -> Parsed<Section> {
        let named = words.get(1).filter(|w| proxy.is_some() || w.text != "from");
        let rest = &words[1 + usize::from(named.is_some())..];
        let inherited = match rest {
            [from, base] if from.text == "from" => Some(self.base(base, around)?),
            // `defaults` starts anew; a proxy inherits from the last one.
            [] if proxy.is_some() => self.defaults.last(),
            [] => None,
            [word, ..] if word.text == "from" => {
                around
                    .diagnostics
                    .error(rest.get(2).unwrap_or(word).span, "'from' is followed by the name of one defaults section");
                return Err(Reported);
            }
            // HAProxy ignores whatever follows the name of a defaults section, silently.
            [word, ..] if proxy.is_none() => {
                around
                    .diagnostics
                    .notice(
                        word.span.to(words[words.len() - 1].span),
                        "everything after the name of a 'defaults' section is ignored",
                    )
                    .hint("write keywords on lines of their own");
                None
            }
            [word, ..] => {
                around
                    .diagnostics
                    .error(word.span, format!("'{}' is not expected after the name of a '{kind}'", word.text))
                    .hint(
                        "only 'from' and the name of a defaults section may follow; addresses belong on 'bind' lines",
                    );
                return Err(Reported);
            }
        };
        if let Some(message) = inherited.and_then(|base| base.refuses(proxy.map(|(kind, _)| kind))) {
            around
                .diagnostics
                .error(rest.last().map_or(words[0].span, |word| word.span), message)
                .hint("put the rules into a defaults section of their own, which only frontends or only backends name in 'from'");
            return Err(Reported);
        }
        let span = words[0].span.to(words[words.len() - 1].span);
        let name = named.map(|n| n.text.clone()).unwrap_or_default();
        let (kind, place) = proxy.unwrap_or((
            ProxyKind::Listen,
            if named.is_some() { Places::DEFAULTS.or(Places::NAMED_DEFAULTS) } else { Places::DEFAULTS },
        ));
        let draft = match inherited {
            Some(base) => base.inherit(name, kind, place, span),
            None => Draft::new(name, kind, place, span),
        };
        Ok(Section::Proxy(Box::new(draft)))
    }

    /// The defaults section that `from` names.
    fn base(&self, name: &Word, around: &mut Surroundings) -> Parsed<&Draft> {
        let mut found = self.defaults.iter().filter(|d| d.proxy.name == name.text && !name.text.is_empty());
        match (found.next(), found.next()) {
            (Some(base), None) => Ok(base),
            (Some(_), Some(again)) => {
                let line = again.proxy.span.line;
                around
                    .diagnostics
                    .error(name.span, format!("more than one defaults section is called '{}'", name.text))
                    .hint(format!("rename the one at line {line}"));
                Err(Reported)
            }
            (None, _) => {
                let known: Vec<&str> = self.defaults.iter().map(|d| d.proxy.name.as_str()).collect();
                let finding = around
                    .diagnostics
                    .error(name.span, format!("no defaults section is called '{}' before this line", name.text));
                if let Some(near) = crate::units::nearest(&name.text, known.iter().copied()) {
                    finding.hint(format!("did you mean '{near}'?"));
                }
                Err(Reported)
            }
        }
    }

    /// Checks that no other section of this kind has the name; a frontend and a backend may share one.
    fn unique(&mut self, kind: &'static str, name: &Word, around: &mut Surroundings) -> Parsed {
        let sides: &[&'static str] = match kind {
            "frontend" | "log-forward" => &["frontend"],
            "backend" => &["backend"],
            "listen" => &["frontend", "backend"],
            // Servers, tables and counters are found by these names.
            "service" => &["backend"],
            other => &[other],
        };
        for side in sides {
            if let Some(first) = self.names.insert((side, name.text.clone()), name.span) {
                around
                    .diagnostics
                    .error(name.span, format!("the name '{}' is already used by another section", name.text))
                    .hint(format!("the first one is at line {}", first.line));
                return Err(Reported);
            }
        }
        Ok(())
    }

    /// Parses a line of the current section.
    pub(crate) fn keyword(&mut self, words: &[Word], around: &mut Surroundings) -> Parsed {
        let result = self.dispatch(words, around);
        let first = &words[0];
        // A misspelt section header: the lines after it do not belong to the section before it.
        if result.is_err()
            && first.span.start == 0
            && places_of(&first.text).is_none()
            && crate::units::nearest(&first.text, names()).is_some()
        {
            self.end_section(around);
            self.current = Section::Skipped;
        }
        result
    }

    fn dispatch(&mut self, words: &[Word], around: &mut Surroundings) -> Parsed {
        let free = |_: &mut _, _: &'static _, _: Span, _: &mut Surroundings| Ok(None);
        match &mut self.current {
            Section::None if words[0].text.starts_with('\u{feff}') => {
                around
                    .diagnostics
                    .error(words[0].span, "the file begins with a byte order mark, which cannot be seen")
                    .hint("save it as UTF-8 without BOM");
                self.current = Section::Skipped;
                Err(Reported)
            }
            Section::None => {
                let finding =
                    around.diagnostics.error(words[0].span, format!("'{}' stands before any section", words[0].text));
                finding.hint(match places_of(&words[0].text) {
                    Some(places) => places,
                    None => expected(&words[0].text, names()),
                });
                // More errors would only repeat this one.
                self.current = Section::Skipped;
                Err(Reported)
            }
            Section::Skipped => Ok(()),
            Section::Global => dispatch(&global::TABLE, &mut self.global, words, around, free),
            Section::Proxy(draft) => {
                dispatch(&proxy::TABLE, draft.as_mut(), words, around, |draft, keyword, span, around| {
                    draft.allows(keyword, span, around)
                })
            }
            Section::Userlist(list) => dispatch(&others::USERLIST, list, words, around, |_, _, _, _| Ok(None)),
            Section::Resolvers(resolvers) => {
                dispatch(&others::RESOLVERS, resolvers.as_mut(), words, around, |_, _, _, _| Ok(None))
            }
            Section::Peers(peers) => dispatch(&peers::TABLE, peers.as_mut(), words, around, |_, _, _, _| Ok(None)),
            Section::CrtStore(store) => dispatch(&others::CRT_STORE, store, words, around, |_, _, _, _| Ok(None)),
            Section::HttpErrors(errors) => dispatch(&others::HTTP_ERRORS, errors, words, around, |_, _, _, _| Ok(None)),
            Section::Cache(cache) => dispatch(&cache::TABLE, cache, words, around, |_, _, _, _| Ok(None)),
            Section::ServiceChain(chain) => dispatch(&chain::TABLE, chain, words, around, |_, _, _, _| Ok(None)),
            Section::Ring(ring) => dispatch(&ring::TABLE, ring.as_mut(), words, around, |_, _, _, _| Ok(None)),
            Section::LogForward(section) => {
                dispatch(&log_forward::TABLE, section.as_mut(), words, around, |_, _, _, _| Ok(None))
            }
            Section::Program(program) => {
                dispatch(&others::PROGRAM, program.as_mut(), words, around, |_, _, _, _| Ok(None))
            }
            Section::Mailers(section) => dispatch(&mailers::TABLE, section, words, around, |_, _, _, _| Ok(None)),
            Section::Namespaces(list) => dispatch(&others::NAMESPACE_LIST, list, words, around, |_, _, _, _| Ok(None)),
            Section::Other(table) => dispatch(table, &mut (), words, around, |_, _, _, _| Ok(None)),
        }
    }

    /// Called when the next section starts, or the file ends.
    pub(crate) fn end_section(&mut self, around: &mut Surroundings) {
        match std::mem::replace(&mut self.current, Section::None) {
            Section::Proxy(draft) if draft.place.has(Places::DEFAULTS) => {
                self.defaults.push(*draft);
            }
            Section::Proxy(mut draft) => {
                if draft.proxy.service.is_some() {
                    // A wrong one is kept, so that its name is known.
                    let _ = proxy::service::finish(&mut draft, around);
                }
                check::proxy(&mut draft, around);
                let (proxy, error_pages) = draft.finish();
                if !error_pages.is_empty() {
                    self.error_pages.push((self.proxies.len(), error_pages));
                }
                self.proxies.push(proxy);
            }
            Section::Userlist(mut list) => {
                others::end_userlist(&mut list, around);
                self.userlists.push(list);
            }
            Section::Resolvers(resolvers) => self.resolvers.push(*resolvers),
            Section::Peers(draft) => self.peers.push(peers::end(*draft, around)),
            Section::CrtStore(store) => {
                others::end_crt_store(&store, around);
                self.crt_stores.push(store);
            }
            Section::HttpErrors(errors) => self.http_errors.push(errors),
            Section::Cache(cache) => {
                cache::end(&cache, around);
                self.caches.push(cache);
            }
            Section::ServiceChain(chain) => {
                // One without services is an error, and is kept so that its name is known.
                let _ = chain::end(&chain, around);
                self.chains.push(chain);
            }
            Section::Ring(ring) => {
                ring::end(&ring, around);
                self.rings.push(*ring);
            }
            Section::LogForward(section) => {
                log_forward::end(&section, around);
                self.log_forwards.push(*section);
            }
            Section::Program(program) => self.programs.extend(others::end_program(*program, around)),
            Section::Mailers(section) => self.mailers.push(section),
            Section::Namespaces(list) => self.namespaces.extend(list),
            Section::None | Section::Skipped | Section::Global | Section::Other(_) => {}
        }
    }

    /// Completes the configuration, and reads the files whose contents belong to it.
    pub(crate) fn finish(&mut self, around: &mut Surroundings, files: &dyn Files) -> Config {
        let mut contents = HashMap::new();
        let mut proxies = std::mem::take(&mut self.proxies);
        for (place, pages) in self.error_pages.drain(..) {
            pages.into_iter().for_each(|page| page.apply(&mut proxies[place], &self.http_errors, around));
        }
        for proxy in &mut proxies {
            for errorfile in proxy.errorfiles.values_mut() {
                read_errorfile(errorfile, &mut contents, files, self.global.tune.bufsize, around);
            }
            if proxy.mode == Mode::Http && self.global.tune.bufsize >= HTTP2_BUFSIZE_MIN {
                proxy.binds.iter_mut().for_each(Bind::offer_http);
            }
        }
        let mut http_errors = BTreeMap::new();
        for section in self.http_errors.drain(..) {
            let mut by_status: BTreeMap<u16, ErrorFile> = section.files.into_iter().collect();
            for errorfile in by_status.values_mut() {
                read_errorfile(errorfile, &mut contents, files, self.global.tune.bufsize, around);
            }
            http_errors.insert(section.name, by_status);
        }
        let size = self.global.tune.bufsize as u64;
        self.rings.extend(around.rings.drain(..).map(|ring| Ring { size, ..ring }));
        if self.resolvers.iter().all(|section| section.name != "default") {
            // As in HAProxy, the name servers of /etc/resolv.conf.
            let own = Resolvers::new("default".to_owned(), Span::default());
            self.resolvers.push(Resolvers { parse_resolv_conf: true, ..own });
        }
        Config {
            http_errors,
            caches: std::mem::take(&mut self.caches),
            programs: std::mem::take(&mut self.programs),
            rings: std::mem::take(&mut self.rings),
            log_forwards: std::mem::take(&mut self.log_forwards),
            mailers: std::mem::take(&mut self.mailers),
            namespaces: std::mem::take(&mut self.namespaces),
            service_chains: std::mem::take(&mut self.chains),
            global: std::mem::take(&mut self.global),
            proxies: proxies.into(),
            userlists: std::mem::take(&mut self.userlists),
            resolvers: std::mem::take(&mut self.resolvers),
            peers: std::mem::take(&mut self.peers),
            crt_stores: std::mem::take(&mut self.crt_stores),
            ..Config::default()
        }
    }
}

/// With smaller buffers HTTP/2 is not offered by itself: a frame of the size that all peers may send would not fit (RFC 9113 section 4.2).
const HTTP2_BUFSIZE_MIN: usize = 16384;

fn read_errorfile(
    errorfile: &mut ErrorFile,
    contents: &mut HashMap<std::path::PathBuf, Option<Vec<u8>>>,
    files: &dyn Files,
    bufsize: usize,
    around: &mut Surroundings,
) {
    // `errorfile 503 /dev/null` is a well-known way to send nothing.
    if errorfile.path.as_os_str() == "/dev/null" {
        return;
    }
    let content = contents.entry(errorfile.path.clone()).or_insert_with(|| match files.read(&errorfile.path) {
        Ok(content) => match crate::errorfile::mistake(&content, bufsize) {
            None => Some(content),
            Some(mistake) => {
                let path = errorfile.path.display();
                around
                    .diagnostics
                    .error(errorfile.span, format!("the error file '{path}' cannot be sent: {mistake}"))
                    .hint("expected a file that holds a whole HTTP response, header included");
                None
            }
        },
        Err(error) => {
            around
                .diagnostics
                .error(errorfile.span, format!("cannot read the error file '{}': {error}", errorfile.path.display()))
                .hint("expected a file that holds a whole HTTP response, or /dev/null for none");
            None
        }
    });
    errorfile.content = content.clone().unwrap_or_default();
}

fn proxy_kind(kind: &str) -> Option<(ProxyKind, Places)> {
    Some(match kind {
        "frontend" => (ProxyKind::Frontend, Places::FRONTEND),
        "backend" => (ProxyKind::Backend, Places::BACKEND),
        "listen" => (ProxyKind::Listen, Places::LISTEN),
        _ => return None,
    })
}
