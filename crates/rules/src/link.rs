//! Resolves names in expressions and rules to what they refer to in this configuration.

use crate::{
    context::Decide,
    conv::{self, KeyOfFile, PublicKeys, TokenKeyArg},
    facts::{ServerId, ServerRef},
    hint,
    keyword::{Arg, ArgKind, ArgSpec, Places},
    patterns::{Comparison, Method, Reading, Reference, parse_list, parse_map},
    problem::Problem,
    regexes::Regex,
    table::StickTable,
    userlist::Userlist,
    value::Type,
    vars::{Condition, ProcVar, VarRef},
};
use base64::Engine as _;
use penstock_config::{Config, Files, Span, bytes_of, model::ProxyId};
use penstock_http::proxy_protocol;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
};

/// The place of an expression in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The proxy in whose section it is.
    pub proxy: Option<ProxyId>,
    /// The place in which the expression will be evaluated.
    pub place: Places,
}

/// The names of a configuration.
pub struct Linker<'a> {
    pub(crate) config: &'a Config,
    /// A frontend and a backend may have the same name.
    proxies: HashMap<&'a str, Vec<ProxyId>>,
    files_of_host: &'a dyn Files,
    pub(crate) vars: HashMap<String, VarRef>,
    pub(crate) tables: HashMap<String, Arc<StickTable>>,
    pub(crate) userlists: HashMap<String, Arc<Userlist>>,
    /// The ACLs of the section being compiled, for `acl(...)` in an expression.
    pub(crate) acls: HashMap<String, Arc<dyn Decide>>,
    /// The line being compiled.
    pub(crate) line: Span,
    /// All lists and maps, with the line that named each first, and the number it requested.
    references: Vec<(Span, Option<u32>, Arc<Reference>)>,
    /// Numbers of lists that lines request.
    ids: HashSet<u32>,
    /// Lists and maps by the names of their files.
    files: HashMap<String, Named>,
    /// The servers that expressions name.
    pub(crate) named_servers: Vec<ServerRef>,
    /// The groups of messages that rules send to agents.
    pub(crate) consulted: Vec<Consulted>,
    /// The public keys of `jwt_verify`.
    pub(crate) public_keys: PublicKeys,
    /// Lines that name a file without a public key.
    pub(crate) without_key: Vec<(Span, Problem)>,
    /// Whether an expression looks at the body of a response.
    pub(crate) reads_responses: bool,
    /// Whether an expression looks at the body of a request.
    pub(crate) reads_requests: bool,
    /// What is worth a warning in the format that was compiled last.
    pub(crate) of_no_effect: Vec<Problem>,
}

/// Where a list or a map comes from, as the prefix of its name says.
enum Source<'a> {
    /// `file@`, or no prefix.
    File(&'a str),
    /// `opt@`: the file may be missing.
    Optional(&'a str),
    /// `virt@`: there is no file, only what is added at run time.
    Virtual(&'a str),
}

impl<'a> Source<'a> {
    fn of(written: &'a str) -> Source<'a> {
        match written.split_once('@') {
            Some(("opt", name)) => Source::Optional(name),
            Some(("file", name)) => Source::File(name),
            Some(("virt", _)) => Source::Virtual(written),
            _ => Source::File(written),
        }
    }

    /// The name under which rules and the runtime API find it.
    fn name(&self) -> &'a str {
        match self {
            Source::File(name) | Source::Optional(name) | Source::Virtual(name) => name,
        }
    }
}

/// A group of messages that a rule sends.
pub(crate) struct Consulted {
    /// The engine, by its place among those of the configuration.
    pub engine: usize,
    /// The group, by its place among those of the engine.
    pub group: usize,
    /// Where the rule is evaluated.
    pub place: Places,
}

/// The list or map of a file, once some rule reads it: actions that change it may come before that rule.
pub(crate) type Named = Arc<OnceLock<Arc<Reference>>>;

impl<'a> Linker<'a> {
    /// A linker that knows the proxies and servers of a configuration; tables and userlists are added to it.
    pub fn new(config: &'a Config, host: &'a dyn Files) -> Self {
        let mut proxies: HashMap<&str, Vec<ProxyId>> = HashMap::new();
        for (id, proxy) in config.proxies.entries() {
            proxies.entry(&proxy.name).or_default().push(id);
        }
        Linker {
            config,
            proxies,
            files_of_host: host,
            vars: HashMap::new(),
            tables: HashMap::new(),
            userlists: HashMap::new(),
            acls: HashMap::new(),
            line: Span::default(),
            references: Vec::new(),
            ids: HashSet::new(),
            files: HashMap::new(),
            named_servers: Vec::new(),
            consulted: Vec::new(),
            public_keys: PublicKeys::default(),
            without_key: Vec::new(),
            reads_responses: false,
            reads_requests: false,
            of_no_effect: Vec::new(),
        }
    }

    /// The content of a file that a rule names, or why it cannot be read.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        self.files_of_host.read(Path::new(name)).map_err(|error| format!("{name} cannot be read: {error}"))
    }

    /// What a list or a map begins with.
    fn entries(&self, source: &Source<'_>) -> Result<Vec<u8>, String> {
        match source {
            Source::File(name) => self.read(name),
            Source::Optional(name) => match self.files_of_host.read(Path::new(name)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
                _ => self.read(name),
            },
            Source::Virtual(_) => Ok(Vec::new()),
        }
    }

    /// Resolves one argument of a keyword.
    pub(crate) fn argument(
        &mut self,
        keyword: &str,
        place: usize,
        spec: &ArgSpec,
        given: Option<(&str, Range<usize>)>,
        name: Range<usize>,
        scope: Scope,
    ) -> Result<Arg, Problem> {
        // If an argument that names a section is omitted or empty, it means the current section.
        let named = matches!(spec.kind, ArgKind::Backend | ArgKind::Frontend | ArgKind::Table);
        let (text, at) = match given {
            Some((text, at)) if !(text.is_empty() && (named || spec.optional && !spec.kind.is_text())) => (text, at),
            // Another table than that of the counter itself: nothing between parentheses is this section's own.
            None if spec.kind == ArgKind::Table && spec.optional => return Ok(Arg::None),
            _ if named => return self.current(keyword, spec, name, scope),
            _ if spec.optional => return Ok(Arg::None),
            _ => {
                let message =
                    format!("'{keyword}' needs {} ({}) as argument {}", spec.name, spec.kind.describe(), place + 1);
                return Err(Problem::new(name, message));
            }
        };
        let wrong = |what: &str| {
            Err(Problem::new(
                at.clone(),
                format!("argument {} of '{keyword}': '{text}' is not a valid {what}", place + 1),
            ))
        };
        Ok(match spec.kind {
            ArgKind::Int => match saturated(text) {
                Some(n) => Arg::Int(n),
                None => return wrong("integer"),
            },
            ArgKind::NonZero => match text.parse() {
                Ok(n) if n != 0 => Arg::Int(n),
                _ => return wrong("integer other than 0"),
            },
            ArgKind::Range(low, high) => match text.parse() {
                Ok(n) if (low..=high).contains(&n) => Arg::Int(n),
                _ => return wrong(&spec.kind.describe()),
            },
            ArgKind::Word if text.is_empty() => return wrong("text: it is empty"),
            ArgKind::Within(letters) if !text.chars().all(|letter| letters.contains(letter)) => {
                return wrong(&format!("text of the letters '{letters}'"));
            }
            ArgKind::Str | ArgKind::Word | ArgKind::Within(_) => Arg::Bytes(bytes_of(text).into()),
            ArgKind::IntOrVar => match saturated(text) {
                Some(n) => Arg::Int(n),
                None => Arg::Var(self.var(text).map_err(|p| Problem { at: at.clone(), ..p })?),
            },
            ArgKind::FromOrVar(least) => match saturated(text) {
                Some(n) if n >= least => Arg::Int(n),
                Some(_) => return wrong(&spec.kind.describe()),
                None => Arg::Var(self.var(text).map_err(|p| Problem { at: at.clone(), ..p })?),
            },
            ArgKind::Base64OrVar => match self.var(text) {
                Ok(var) => Arg::Var(var),
                Err(_) if base64::engine::general_purpose::STANDARD.decode(text).is_ok() => {
                    Arg::Bytes(text.as_bytes().into())
                }
                Err(_) => return wrong("base64 text or variable name"),
            },
            ArgKind::Var => Arg::Var(self.var(text).map_err(|p| Problem { at: at.clone(), ..p })?),
            ArgKind::VarCondition => match Condition::parse(text) {
                Some(condition) => Arg::Condition(condition),
                None => return wrong("condition of an assignment"),
            },
            ArgKind::Hex => match crate::patterns::parse_hex(text) {
                Some(bytes) if !text.is_empty() => Arg::Bytes(bytes.into()),
                _ => return wrong("text of an even number of hexadecimal digits"),
            },
            ArgKind::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Arg::Int(1),
                "false" | "0" => Arg::Int(0),
                _ => return wrong("boolean"),
            },
            ArgKind::Ipv4 => match text.parse() {
                Ok(ip) => Arg::Ipv4(ip),
                Err(_) => return wrong("IPv4 address"),
            },
            ArgKind::Ipv6 => match text.parse() {
                Ok(ip) => Arg::Ipv6(ip),
                Err(_) => return wrong("IPv6 address"),
            },
            ArgKind::Mask4 => match crate::patterns::parse_mask4(text) {
                Some(mask) => Arg::Ipv4(mask.into()),
                None => return wrong("IPv4 mask"),
            },
            ArgKind::Mask6 => match crate::patterns::parse_mask6(text) {
                Some(mask) => Arg::Ipv6(mask.into()),
                None => return wrong("IPv6 mask"),
            },
            ArgKind::Regex => Arg::Regex(Regex::new(text, false).map_err(|p| Problem { at, ..p })?),
            ArgKind::Tlv => match tlv_type(text) {
                Some(kind) => Arg::Int(kind.into()),
                None => return wrong("type of a field, 0 to 255 or its name"),
            },
            ArgKind::Digest => match conv::digest_named(text) {
                Some(found) => Arg::Word(found),
                None => {
                    let known = format!("one of {}", conv::DIGESTS.join(", "));
                    return wrong("digest").map_err(|problem: Problem| problem.hint(known));
                }
            },
            ArgKind::TokenAlgorithm => match (self.var(text), conv::algorithm_named(bytes_of(text).as_ref())) {
                (Ok(var), _) => Arg::Var(var),
                (Err(_), Some(algorithm)) => Arg::Word(algorithm),
                (Err(_), None) => return wrong("algorithm of JSON web tokens or variable name"),
            },
            ArgKind::TokenKey => Arg::TokenKey(match self.var(text) {
                Ok(var) => TokenKeyArg::Variable(var, self.public_keys.clone()),
                Err(_) => TokenKeyArg::Given(bytes_of(text).into(), None),
            }),
            ArgKind::FieldNumber => match text.split('.').map(str::parse).collect::<Result<Box<[u32]>, _>>() {
                Ok(numbers) => Arg::Numbers(numbers),
                Err(_) => return wrong("number of a field, or several separated by dots"),
            },
            ArgKind::FixTag => match conv::tag_named(text) {
                Some(tag) => Arg::Int(tag.into()),
                None => return wrong("tag of FIX"),
            },
            ArgKind::MqttPacket => match conv::packet_named(text) {
                Some(packet) => Arg::Word(packet),
                None => return wrong("packet of MQTT of which fields are read, connect or connack"),
            },
            ArgKind::MqttField => match conv::field_named(text) {
                Some(field) => field,
                None => return wrong("field of an MQTT packet"),
            },
            ArgKind::OneOf(words) => match words.iter().position(|word| *word == text) {
                Some(found) => Arg::Word(found),
                None => {
                    return Err(Problem::new(
                        at,
                        format!("argument {} of '{keyword}': unknown word '{text}'", place + 1),
                    )
                    .hint(
                        hint::nearest(text, words.iter().copied()).or(Some(format!("one of {}", words.join(", ")))),
                    ));
                }
            },
            ArgKind::Backend => Arg::Proxy(self.proxy(text, at, "backend", |kind| kind.has_backend())?),
            ArgKind::Frontend => Arg::Proxy(self.proxy(text, at, "frontend", |kind| kind.has_frontend())?),
            ArgKind::Table => Arg::Table(self.table(text, at)?),
            ArgKind::Acl => {
                let name = text.strip_prefix('!').unwrap_or(text);
                Arg::Acl { acl: self.acl_named(name, at, scope)?, negated: name != text }
            }
            ArgKind::Server => {
                let server = self.server(text, at, scope)?;
                self.named_servers.push(server);
                Arg::Server(server)
            }
            ArgKind::Userlist => match self.userlists.get(text) {
                Some(list) => Arg::Userlist(Arc::clone(list)),
                None => {
                    return Err(Problem::new(at, format!("there is no userlist '{text}'"))
                        .hint(hint::nearest(text, self.userlists.keys().map(String::as_str))));
                }
            },
            ArgKind::Map => {
                let (method, output) = conv::map_kind(keyword).unwrap_or((Method::Str, Type::Str));
                let how = Comparison { groups: keyword == "map_regm", ..Comparison::by(method) };
                Arg::Map(self.map(text, how, output).map_err(|p| Problem { at, ..p })?)
            }
        })
    }

    /// The key of a file that may be one of a public key. If the algorithm is known and needs one, its absence is worth a warning.
    pub(crate) fn public_key(&mut self, file: &[u8], at: Range<usize>, algorithm: Option<usize>) -> Option<KeyOfFile> {
        if algorithm.is_some_and(|algorithm| !conv::needs_public_key(algorithm)) {
            return None;
        }
        if let Some(key) = self.public_keys.find(file) {
            return Some(KeyOfFile(key));
        }
        let name = String::from_utf8_lossy(file);
        let (problem, hint) = match self.read(&name) {
            Ok(content) => match conv::PublicKey::read(&content) {
                Some(key) => return Some(self.public_keys.add(file, key)),
                None => (
                    format!("{name} holds no public key, so that no token is verified with it"),
                    Some(
                        "it begins with BEGIN PUBLIC KEY; 'openssl x509 -pubkey -noout' makes one of a certificate"
                            .into(),
                    ),
                ),
            },
            Err(problem) => (format!("{problem}: no token is verified with it"), None),
        };
        if algorithm.is_some() {
            self.without_key.push((self.line, Problem::new(at, problem).hint(hint)));
        }
        None
    }

    /// The places in which an expression is evaluated, taking into account whether its section has a backend.
    pub(crate) fn place(&self, scope: Scope) -> Places {
        let proxy = scope.proxy.and_then(|id| self.config.proxies.get(id));
        match proxy.is_some_and(|proxy| proxy.kind.has_backend()) && scope.place.meets(Places::REQUEST) {
            true => scope.place.or(Places::BACKEND_REQUEST),
            false => scope.place,
        }
    }

    /// Resolves an argument to the section that the expression is in.
    fn current(&self, keyword: &str, spec: &ArgSpec, name: Range<usize>, scope: Scope) -> Result<Arg, Problem> {
        let proxy = scope.proxy.and_then(|id| self.config.proxies.get(id).map(|proxy| (id, proxy)));
        match (spec.kind, proxy) {
            (ArgKind::Table, Some((_, proxy))) if self.tables.contains_key(&proxy.name) => {
                Ok(Arg::Table(Arc::clone(&self.tables[&proxy.name])))
            }
            (ArgKind::Table, _) => Err(Problem::new(
                name,
                format!("'{keyword}' needs the name of a stick table: this section declares none of its own"),
            )),
            (ArgKind::Backend, Some((id, proxy))) if proxy.kind.has_backend() => Ok(Arg::Proxy(id)),
            (ArgKind::Frontend, Some((id, proxy))) if proxy.kind.has_frontend() => Ok(Arg::Proxy(id)),
            // A frontend has no servers; without a value, a test of their number would always fail.
            (ArgKind::Backend, Some(_)) => {
                Err(Problem::new(name, format!("'{keyword}' needs the name of a backend: this section is not one")))
            }
            _ if spec.optional => Ok(Arg::None),
            _ => Err(Problem::new(
                name,
                format!("'{keyword}' needs the name of a {}: this section is not one", spec.kind.describe()),
            )),
        }
    }

    /// Finds a proxy of this kind by name.
    pub(crate) fn proxy(
        &self,
        name: &str,
        at: Range<usize>,
        what: &str,
        fits: impl Fn(penstock_config::model::ProxyKind) -> bool,
    ) -> Result<ProxyId, Problem> {
        let proxies = &self.config.proxies;
        let found = self.proxies.get(name).and_then(|named| named.iter().find(|&&id| fits(proxies[id].kind)));
        found.copied().ok_or_else(|| {
            let fitting = proxies.iter().filter(|proxy| fits(proxy.kind)).map(|proxy| proxy.name.as_str());
            Problem::new(at, format!("there is no {what} '{name}'")).hint(hint::nearest(name, fitting))
        })
    }

    /// Finds a stick table by the name of its section.
    pub(crate) fn table(&self, name: &str, at: Range<usize>) -> Result<Arc<StickTable>, Problem> {
        self.tables.get(name).cloned().ok_or_else(|| {
            let exists = self.proxies.contains_key(name);
            let message = if exists {
                format!("the proxy '{name}' has no stick table")
            } else {
                format!("there is no stick table '{name}'")
            };
            Problem::new(at, message).hint(hint::nearest(name, self.tables.keys().map(String::as_str)))
        })
    }

    /// Finds a server by `backend/server`, or by its name in the current section.
    pub(crate) fn server(&self, name: &str, at: Range<usize>, scope: Scope) -> Result<ServerRef, Problem> {
        let (proxy, server) = match name.split_once('/') {
            Some((backend, server)) => (self.proxy(backend, at.clone(), "backend", |kind| kind.has_backend())?, server),
            None => match scope.proxy {
                Some(proxy) => (proxy, name),
                None => return Err(Problem::new(at, format!("'{name}' needs its backend: backend/{name}"))),
            },
        };
        let servers = self.config.proxies.get(proxy).map_or(&[][..], |proxy| &proxy.servers);
        match servers.iter().position(|known| known.name == server) {
            Some(place) => Ok(ServerRef { proxy, server: ServerId::configured(place) }),
            None => Err(Problem::new(at, format!("there is no server '{server}' here"))
                .hint(hint::nearest(server, servers.iter().map(|known| known.name.as_str())))),
        }
    }

    /// Resolves a variable by its name with scope.
    pub(crate) fn var(&mut self, name: &str) -> Result<VarRef, Problem> {
        use crate::vars::Scope;
        if let Some(var) = self.vars.get(name) {
            return Ok(var.clone());
        }
        let problem = |message: String, hint: Option<String>| Err(Problem::new(0..name.len(), message).hint(hint));
        let Some((prefix, rest)) = name.split_once('.') else {
            return problem(
                format!("'{name}' is not a variable: its scope is missing"),
                Some(format!("write txn.{name}; the scopes are proc, sess, txn, req, res, check")),
            );
        };
        let scope = match prefix {
            "proc" => Scope::Proc,
            "sess" => Scope::Sess,
            "txn" => Scope::Txn,
            "req" => Scope::Req,
            "res" => Scope::Res,
            "check" => Scope::Check,
            other => {
                return problem(
                    format!("'{other}' is not a scope of variables"),
                    Some("the scopes are proc, sess, txn, req, res, check".into()),
                );
            }
        };
        if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_')) {
            return problem(
                format!("'{name}' is not a valid variable name: letters, digits, '.' and '_' may follow its scope"),
                None,
            );
        }
        let shared = (scope == Scope::Proc).then(|| Arc::new(ProcVar::default()));
        let var = VarRef { scope, id: self.vars.len() as u32, shared };
        self.vars.insert(name.to_owned(), var.clone());
        Ok(var)
    }

    /// Opens a map for a converter.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a line of it is invalid for this comparison or this type of value.
    pub(crate) fn map(&mut self, name: &str, how: Comparison, output: Type) -> Result<Reading, Problem> {
        self.pattern_file(name, how, true, Some(output))
    }

    /// Opens the list or map of a file, which is read once even if several rules use it; an ACL needs no type of
    /// values.
    ///
    /// # Errors
    ///
    /// As for [`Linker::map`], and if a list is asked for and the file is already used as a map, or the other way
    /// round.
    pub(crate) fn pattern_file(
        &mut self,
        name: &str,
        how: Comparison,
        map: bool,
        output: Option<Type>,
    ) -> Result<Reading, Problem> {
        let acl = output.is_none();
        let whole = 0..name.len();
        let (written, source) = (name, Source::of(name));
        let (name, named) = (source.name(), self.file_named(written));
        let reference = match named.get() {
            Some(known) => Arc::clone(known),
            None => {
                let content = self.entries(&source).map_err(|why| Problem::new(whole.clone(), why))?;
                let entries: &mut dyn Iterator<Item = (&[u8], &[u8])> = match map {
                    true => &mut parse_map(&content).map(|(_, key, value)| (key, value)),
                    false => &mut parse_list(&content).map(|(_, key)| (key, &b""[..])),
                };
                Reference::new(name, map, entries)
            }
        };
        if reference.is_map() != map {
            let (is, wanted) = if reference.is_map() { ("a map", "a list") } else { ("a list", "a map") };
            let message = format!("'{name}' is used as {is} already, and cannot be {wanted} as well");
            let hint = "in an ACL, -M -f reads the keys of a map".to_owned();
            return Err(Problem::new(whole, message).hint(hint));
        }
        let reading = reference.reading(how, output).map_err(|(at, problem)| {
            let content = self.entries(&source).unwrap_or_default();
            let line = parse_list(&content).nth(at).map_or(0, |(line, _)| line);
            Problem::new(whole, format!("{name}, line {line}: {}", problem.message)).hint(problem.hint)
        })?;
        let (file, line) = self.written();
        let kind = if map { "map" } else { "acl" };
        if named.set(Arc::clone(&reference)).is_ok() {
            let reader = format!("pattern loaded from file '{written}' used by {kind} at file '{file}' line {line}");
            reference.describe(&reader, acl);
            self.keep(reference, None);
        } else {
            reference.describe(&format!("by {kind} at file '{file}' line {line}"), acl);
        }
        Ok(reading)
    }

    /// The list or map of a file that some rule reads or will read, so that actions can change it.
    pub(crate) fn file_named(&mut self, name: &str) -> Named {
        Arc::clone(self.files.entry(Source::of(name).name().to_owned()).or_default())
    }

    /// Reserves a number for a list; returns whether it was free.
    pub(crate) fn take_id(&mut self, id: u32) -> bool {
        self.ids.insert(id)
    }

    /// Registers a list or map that the current line is the first to name.
    pub(crate) fn keep(&mut self, reference: Arc<Reference>, id: Option<u32>) {
        self.references.push((self.line, id, reference));
    }

    /// File and line number of the current line.
    pub(crate) fn written(&self) -> (&str, u32) {
        let file = self.config.files.get(self.line.file.0 as usize);
        (file.map_or("", |file| &file.name), self.line.line)
    }

    /// All lists and maps, numbered in the order in which their lines are written, except those that requested a
    /// number.
    pub(crate) fn references(&self) -> Vec<Arc<Reference>> {
        let mut all: Vec<_> = self.references.iter().collect();
        all.sort_by_key(|(span, ..)| (span.file, span.line));
        let mut free = (0..).filter(|id| !self.ids.contains(id));
        for (_, id, reference) in &all {
            reference.number(id.or_else(|| free.next()).unwrap_or(u32::MAX));
        }
        let mut all: Vec<_> = all.into_iter().map(|(.., reference)| Arc::clone(reference)).collect();
        all.sort_by_key(|reference| reference.id());
        all
    }
}

/// Parses a number; one that is out of range becomes the nearest valid one.
/// The type of a field of the PROXY header: its name, or a number in decimal or in hexadecimal.
fn tlv_type(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => {
            let named = proxy_protocol::NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
            named.or_else(|| text.parse().ok())
        }
    }
}

fn saturated(text: &str) -> Option<i64> {
    text.parse().map_or_else(
        |error: std::num::ParseIntError| match error.kind() {
            std::num::IntErrorKind::PosOverflow => Some(i64::MAX),
            std::num::IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
        Some,
    )
}
