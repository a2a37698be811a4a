//! Compiles the rules of a whole configuration, proxy by proxy.

use crate::{
    acl::{Acls, Condition},
    action::Action,
    action::{ANSWERED, Body, Build, Captures, Redirect, ReplyTemplate, Slot},
    context::Render,
    expr::Expr,
    facts::ServerRef,
    keyword::Places,
    kind::Kind,
    link::{Linker, Scope},
    log::{LogFormat, Predefined, Purpose},
    patterns::Reference,
    problem::Problem,
    rules::{Rule, Rules},
    stick::{self, StickRule},
    table::{Data, StickTable, TableSpec},
    userlist::Userlist,
    words::Words,
};
use penstock_config::{
    Config, Diagnostics, Files, Line, Span, Word,
    model::{BandwidthShare, PerProxy, Proxy, ProxyId},
};
use std::{collections::BTreeMap, sync::Arc};

/// The rules of one proxy, ready to run.
#[derive(Debug)]
pub struct ProxyRules {
    /// The proxy they belong to.
    pub proxy: ProxyId,
    /// `tcp-request connection`.
    pub tcp_connection: Rules,
    /// `tcp-request client-hello`.
    pub tcp_hello: Rules,
    /// `tcp-request session`.
    pub tcp_session: Rules,
    /// `tcp-request content`.
    pub tcp_content: Rules,
    /// `tcp-response content`.
    pub tcp_response: Rules,
    /// `http-request`.
    pub http_request: Rules,
    /// `redirect`: they come after the `http-request` rules, whatever of those was the last.
    pub redirects: Rules,
    /// `http-response`.
    pub http_response: Rules,
    /// `http-after-response`.
    pub http_after_response: Rules,
    /// `use_backend`, in order; the first rule whose condition holds is used.
    pub use_backend: Vec<Switch>,
    /// `use-server`.
    pub use_server: Vec<UseServer>,
    /// `force-persist` and `ignore-persist`.
    pub persist: Vec<PersistRule>,
    /// `stick on`, `match`, `store-request`, `store-response`.
    pub stick: Vec<StickRule>,
    /// The proxy's own stick table.
    pub table: Option<Arc<StickTable>>,
    /// `monitor fail`: if any of them holds, the monitor's response is 503.
    pub monitor_fail: Vec<Condition>,
    /// `stats http-request`.
    pub stats_request: Rules,
    /// `stats admin`.
    pub stats_admin: Vec<Condition>,
    /// The log line.
    pub log_format: Arc<LogFormat>,
    /// `log-format-sd`, the structured data of RFC 5424.
    pub log_format_sd: Option<LogFormat>,
    /// `error-log-format`.
    pub error_log_format: Option<LogFormat>,
    /// `unique-id-format`.
    pub unique_id_format: Option<Arc<dyn Render>>,
    /// `http-error`: responses by status.
    pub http_errors: BTreeMap<u16, ReplyTemplate>,
    /// Names and lengths of request capture slots; a slot without a name is filled by rules.
    pub request_captures: Vec<CaptureSlot>,
    /// Names and lengths of response capture slots.
    pub response_captures: Vec<CaptureSlot>,
}

/// A capture slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSlot {
    /// The header that is kept in it, in lower case.
    pub header: Option<String>,
    /// The most bytes kept.
    pub len: usize,
}

/// `use_backend`.
#[derive(Clone, Debug)]
pub struct Switch {
    /// The condition under which the rule applies.
    pub condition: Condition,
    /// The backend to which the rule sends the request.
    pub to: Destination,
    /// Where the rule is in the configuration.
    pub span: Span,
}

/// The destination of a `use_backend` rule.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A backend known from the start.
    Backend(ProxyId),
    /// The backend with the name that this format gives.
    Named(LogFormat),
}

/// `use-server`.
#[derive(Clone, Debug)]
pub struct UseServer {
    /// The condition under which the rule applies.
    pub condition: Condition,
    /// The server of this backend to use.
    pub server: ServerOf,
    /// Where the rule is in the configuration.
    pub span: Span,
}

/// The server that a `use-server` rule selects.
#[derive(Clone, Debug)]
pub enum ServerOf {
    /// A server known from the start.
    Server(ServerRef),
    /// The server with the name that this format gives.
    Named(LogFormat),
}

/// `force-persist` or `ignore-persist`.
#[derive(Clone, Debug)]
pub struct PersistRule {
    /// The condition under which the rule applies.
    pub condition: Condition,
    /// `force-persist`: a server is used even if it is down; otherwise (`ignore-persist`) its cookie is ignored.
    pub force: bool,
}

/// Compiles a configuration's rules. Tables, userlists, variables and pattern files are shared between its proxies.
pub struct Compiler<'a> {
    linker: Linker<'a>,
    diagnostics: &'a mut Diagnostics,
    predefined: Predefined,
}

impl<'a> Compiler<'a> {
    /// Reads stick tables and userlists, to which rules of any proxy may refer.
    pub fn new(config: &'a Config, files: &'a dyn Files, diagnostics: &'a mut Diagnostics) -> Self {
        let mut linker = Linker::new(config, files);
        for list in &config.userlists {
            linker.userlists.insert(list.name.clone(), Arc::new(Userlist::new(list, diagnostics)));
        }
        let servers_stick = stick::tables_with_servers(config);
        let is_active = |name: &String| config.peers.iter().any(|section| section.name == *name && !section.disabled);
        let of_proxies =
            config.proxies.iter().filter_map(|proxy| Some((proxy.name.clone(), None, proxy.stick_table.as_ref()?)));
        let of_peers = config.peers.iter().flat_map(|section| {
            let tables = section.tables.iter();
            tables.map(|(name, line)| (format!("{}/{}", section.name, name.text), Some(section.name.as_str()), line))
        });
        for (name, section, line) in of_proxies.chain(of_peers) {
            match TableSpec::parse_of(&mut Words::new(line), section) {
                Ok(mut spec) => {
                    for again in &spec.repeated {
                        diagnostics.warning(again.span, again.message.clone()).hint.clone_from(&again.hint);
                    }
                    if servers_stick.contains(name.as_str()) {
                        spec.schema.store(Data::ServerId, 0, 1);
                        spec.schema.store(Data::ServerKey, 0, 1);
                    }
                    spec.peers = spec.peers.filter(is_active);
                    linker.tables.insert(name.clone(), Arc::new(StickTable::new(&name, spec)));
                }
                Err(error) => diagnostics.error(error.span, error.message).hint = error.hint,
            }
        }
        Compiler { linker, diagnostics, predefined: Predefined::default() }
    }

    /// Compiles every proxy, in the order of the configuration.
    pub fn proxies(&mut self) -> PerProxy<ProxyRules> {
        let config = self.linker.config;
        let rules = config.proxies.ids().map(|id| self.proxy(id)).collect();
        for (span, problem) in self.linker.without_key.drain(..) {
            problem.warn(span, "", self.diagnostics);
        }
        rules
    }

    /// The stick tables by name.
    pub fn tables(&self) -> BTreeMap<String, Arc<StickTable>> {
        self.linker.tables.iter().map(|(name, table)| (name.clone(), Arc::clone(table))).collect()
    }

    /// The lists and maps that rules read, by number. To be called once everything is compiled.
    pub fn references(&self) -> Vec<Arc<Reference>> {
        self.linker.references()
    }

    /// The servers that anything compiled names as an argument.
    pub fn named_servers(&self) -> Vec<ServerRef> {
        self.linker.named_servers.clone()
    }

    /// Whether anything compiled looks at the body of a request.
    pub fn reads_requests(&self) -> bool {
        self.linker.reads_requests
    }

    /// Whether anything compiled looks at the body of a response.
    pub fn reads_responses(&self) -> bool {
        self.linker.reads_responses
    }

    /// Compiles a stand-alone expression (`sni`, `balance hash`), made of all the words of a line.
    pub fn expression(&mut self, line: &Line, proxy: ProxyId, place: Places) -> Option<Expr> {
        let text = line.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(",");
        let scope = Scope { proxy: Some(proxy), place };
        let span = line.words.first().map_or(line.span, |word| word.span);
        self.linker.line = span;
        match self.linker.expression_in(&text, 0, scope) {
            Ok((expr, end)) if end == text.len() => Some(expr),
            Ok((_, end)) => {
                let problem =
                    Problem::new(end..text.len(), format!("'{}' does not belong to an expression", &text[end..]));
                problem.report(span, &text, self.diagnostics);
                None
            }
            Err(problem) => {
                problem.report(span, &text, self.diagnostics);
                None
            }
        }
    }

    /// Compiles a stand-alone log-format string (`http-check send hdr`).
    pub fn format(&mut self, word: &Word, purpose: Purpose, proxy: ProxyId, place: Places) -> Option<LogFormat> {
        let scope = Scope { proxy: Some(proxy), place };
        self.linker.line = word.span;
        let compiled = self.linker.log_format(&word.text, purpose, scope);
        for problem in self.linker.of_no_effect.drain(..) {
            problem.warn(word.span, &word.text, self.diagnostics);
        }
        match compiled {
            Ok(format) => Some(format),
            Err(problem) => {
                problem.report(word.span, &word.text, self.diagnostics);
                None
            }
        }
    }

    /// Compiles a step of a health check that sets or unsets a variable: `set-var(check.port) int(80)`.
    pub fn check_step(&mut self, line: &Line, proxy: ProxyId) -> Option<Rules> {
        let mut section = Section { id: proxy, acls: &mut Acls::default(), captures: Captures::default(), realm: "" };
        let rule = self.build(&mut section, Kind::Check, line, line.words.first()?, Places::CHECK).rule(line)?;
        Some(Rules::new(Kind::Check, vec![rule]))
    }

    /// The list to which errors in the configuration are reported.
    pub fn diagnostics(&mut self) -> &mut Diagnostics {
        self.diagnostics
    }

    pub(crate) fn parts(&mut self) -> (&mut Linker<'a>, &mut Diagnostics) {
        (&mut self.linker, self.diagnostics)
    }

    fn proxy(&mut self, id: ProxyId) -> ProxyRules {
        let proxy = &self.linker.config.proxies[id];
        let scope = |place| Scope { proxy: Some(id), place };
        let mut acls = self.linker.acls(&proxy.acls, scope(Places::ALWAYS), self.diagnostics);
        let mut section = Section { id, acls: &mut acls, captures: slots(proxy), realm: &proxy.name };

        let tcp_connection =
            self.rules(&mut section, Kind::TcpConnection, &proxy.tcp_request_connection, Places::CONNECTION);
        let tcp_hello = self.rules(&mut section, Kind::TcpHello, &proxy.tcp_request_client_hello, Places::HELLO);
        let tcp_session = self.rules(&mut section, Kind::TcpSession, &proxy.tcp_request_session, Places::SESSION);
        let tcp_content = self.rules(&mut section, Kind::TcpContent, &proxy.tcp_request_content, Places::REQUEST);
        let tcp_response = self.rules(&mut section, Kind::TcpResponse, &proxy.tcp_response_content, Places::RESPONSE);
        let http_request = self.rules(&mut section, Kind::HttpRequest, &proxy.http_request, Places::REQUEST);
        let http_response = self.rules(&mut section, Kind::HttpResponse, &proxy.http_response, Places::RESPONSE);
        let http_after_response =
            self.rules(&mut section, Kind::HttpAfterResponse, &proxy.http_after_response, Places::RESPONSE);
        let redirects = proxy.redirects.iter().filter_map(|line| self.redirect(&mut section, line));
        let redirects = Rules::redirects(redirects.collect());
        let stats_request = match &proxy.stats {
            Some(stats) => {
                section.realm = stats.realm.as_deref().unwrap_or("HAProxy Statistics");
                self.rules(&mut section, Kind::HttpRequest, &stats.http_request, Places::REQUEST)
            }
            None => Rules::none(Kind::HttpRequest),
        };
        section.realm = &proxy.name;
        let stats_admin = proxy.stats.iter().flat_map(|stats| &stats.admin);
        let stats_admin =
            stats_admin.filter_map(|line| self.condition_of(&mut section, line, Places::REQUEST)).collect();
        let monitor_fail = proxy.monitor_fail.iter();
        let monitor_fail =
            monitor_fail.filter_map(|line| self.condition_of(&mut section, line, Places::REQUEST)).collect();
        let use_backend = proxy.use_backend.iter().filter_map(|line| self.switch(&mut section, line)).collect();
        let use_server = proxy.use_server.iter().filter_map(|line| self.use_server(&mut section, line)).collect();
        let persist = proxy.persist_rules.iter().filter_map(|line| self.persist(&mut section, line)).collect();
        let stick = proxy.stick.iter().filter_map(|line| self.stick(&mut section, line)).collect();
        let http_errors = proxy.http_errors.values().filter_map(|line| self.http_error(&mut section, line)).collect();
        for filter in &proxy.bandwidth_filters {
            if matches!(filter.share, BandwidthShare::Entry { .. })
                && let Err((span, problem)) = self.linker.table_of(filter, &proxy.name)
            {
                problem.report(span, "", self.diagnostics);
            }
        }
        if let Some(word) = proxy.default_backend.as_ref().filter(|_| !proxy.disabled && proxy.kind.has_frontend()) {
            let found = self.linker.proxy(&word.text, 0..word.text.len(), "backend", |kind| kind.has_backend());
            if let Err(problem) = found {
                problem.report(word.span, &word.text, self.diagnostics);
            }
        }

        let log = |this: &mut Self, word: &Option<Word>, place| {
            word.as_ref().and_then(|word| this.format(word, Purpose::Log, id, place))
        };
        let log_format = match &proxy.log_format {
            Some(_) => Arc::new(log(self, &proxy.log_format, Places::LOG).unwrap_or_default()),
            None => self.predefined.of(proxy, |text| self.linker.log_format(text, Purpose::Log, scope(Places::LOG))),
        };
        let log_format_sd = log(self, &proxy.log_format_sd, Places::LOG);
        let error_log_format = log(self, &proxy.error_log_format, Places::ERROR);
        let unique_id_format = proxy.unique_id_format.as_ref();
        let unique_id_format = unique_id_format
            .and_then(|word| self.format(word, Purpose::UniqueId, id, Places::REQUEST))
            .map(|format| Arc::new(format) as _);
        let Captures { request, response, named } = section.captures;
        for (of_response, slot, span) in named {
            let slots = if of_response { &response } else { &request };
            // A backend may fill a slot that only the frontend before it declares.
            if proxy.kind.has_frontend() && slot >= slots.len() {
                self.diagnostics
                    .error(span, format!("there is no capture slot {slot}"))
                    .hint("'declare capture' makes one in the frontend; the first is 0");
            }
        }
        ProxyRules {
            proxy: id,
            tcp_connection,
            tcp_hello,
            tcp_session,
            tcp_content,
            tcp_response,
            http_request,
            redirects,
            http_response,
            http_after_response,
            use_backend,
            use_server,
            persist,
            stick,
            table: self.linker.tables.get(&proxy.name).cloned(),
            monitor_fail,
            stats_request,
            stats_admin,
            log_format,
            log_format_sd,
            error_log_format,
            unique_id_format,
            http_errors,
            request_captures: capture_slots(&request),
            response_captures: capture_slots(&response),
        }
    }

    fn rules(&mut self, section: &mut Section<'_>, kind: Kind, lines: &[Line], place: Places) -> Rules {
        let list = lines.iter().filter_map(|line| {
            let Some(first) = line.words.first() else {
                self.diagnostics.error(line.span, format!("'{}' needs an action", kind.name()));
                return None;
            };
            self.build(section, kind, line, first, place).rule(line)
        });
        let mut list: Vec<Rule> = list.collect();
        let mut behind_hint = false;
        for rule in &mut list {
            let is_hint = matches!(rule.action, Action::EarlyHint { .. });
            if let Action::EarlyHint { follows, .. } = &mut rule.action {
                *follows = behind_hint && rule.condition.is_always();
            }
            behind_hint = is_hint;
        }
        Rules::new(kind, list)
    }

    fn build<'b, 'l>(
        &'b mut self,
        section: &'b mut Section<'_>,
        kind: Kind,
        line: &'l Line,
        word: &'l Word,
        place: Places,
    ) -> Build<'b, 'l, 'a> {
        let mut words = Words::new(line);
        words.next();
        self.linker.line = line.span;
        Build {
            linker: &mut self.linker,
            diagnostics: self.diagnostics,
            acls: section.acls,
            scope: Scope { proxy: Some(section.id), place },
            kind,
            captures: &mut section.captures,
            realm: section.realm,
            words,
            word,
            inside: "",
        }
    }

    /// Compiles a line whose words are a condition.
    fn condition_of(&mut self, section: &mut Section<'_>, line: &Line, place: Places) -> Option<Condition> {
        let scope = Scope { proxy: Some(section.id), place };
        self.linker.condition(&mut Words::new(line), section.acls, scope, self.diagnostics)
    }

    fn redirect(&mut self, section: &mut Section<'_>, line: &Line) -> Option<Rule> {
        let Some(first) = line.words.first() else {
            self.diagnostics.error(line.span, "'redirect' needs a 'location', a 'prefix' or a 'scheme'");
            return None;
        };
        let mut build = self.build(section, Kind::HttpRequest, line, first, Places::REQUEST);
        build.words = Words::new(line);
        let redirect: Redirect = build.redirect(false)?;
        let condition = build.condition()?;
        Some(Rule { condition, action: crate::action::Action::Redirect(redirect), span: line.span })
    }

    fn switch(&mut self, section: &mut Section<'_>, line: &Line) -> Option<Switch> {
        let Some(name) = line.words.first() else {
            self.diagnostics.error(line.span, "'use_backend' needs the name of a backend");
            return None;
        };
        let to = if name.text.contains('%') {
            Destination::Named(self.format(name, Purpose::Text, section.id, Places::REQUEST)?)
        } else {
            let found = self.linker.proxy(&name.text, 0..name.text.len(), "backend", |kind| kind.has_backend());
            match found {
                Ok(id) => Destination::Backend(id),
                Err(problem) => {
                    problem.report(name.span, &name.text, self.diagnostics);
                    return None;
                }
            }
        };
        let mut words = Words::new(line);
        words.next();
        let scope = Scope { proxy: Some(section.id), place: Places::REQUEST };
        let condition = self.linker.condition(&mut words, section.acls, scope, self.diagnostics)?;
        Some(Switch { condition, to, span: line.span })
    }

    fn use_server(&mut self, section: &mut Section<'_>, line: &Line) -> Option<UseServer> {
        let Some(name) = line.words.first() else {
            self.diagnostics.error(line.span, "'use-server' needs the name of a server");
            return None;
        };
        let scope = Scope { proxy: Some(section.id), place: Places::REQUEST };
        let server = if name.text.contains('%') {
            ServerOf::Named(self.format(name, Purpose::Text, section.id, Places::REQUEST)?)
        } else {
            match self.linker.server(&name.text, 0..name.text.len(), scope) {
                Ok(server) => ServerOf::Server(server),
                Err(problem) => {
                    problem.report(name.span, &name.text, self.diagnostics);
                    return None;
                }
            }
        };
        let mut words = Words::new(line);
        words.next();
        let condition = self.linker.condition(&mut words, section.acls, scope, self.diagnostics)?;
        Some(UseServer { condition, server, span: line.span })
    }

    fn persist(&mut self, section: &mut Section<'_>, line: &Line) -> Option<PersistRule> {
        let mut words = Words::new(line);
        let force = words.next().is_some_and(|word| word.text == "force-persist");
        let scope = Scope { proxy: Some(section.id), place: Places::REQUEST };
        let condition = self.linker.condition(&mut words, section.acls, scope, self.diagnostics)?;
        Some(PersistRule { condition, force })
    }

    fn stick(&mut self, section: &mut Section<'_>, line: &Line) -> Option<StickRule> {
        self.linker.line = line.span;
        stick::compile(&mut self.linker, section.acls, section.id, line, self.diagnostics)
    }

    /// `http-error status 503 content-type ... string ...`.
    fn http_error(&mut self, section: &mut Section<'_>, line: &Line) -> Option<(u16, ReplyTemplate)> {
        let Some(first) = line.words.first().filter(|word| word.text == "status") else {
            let span = line.words.first().map_or(line.span, |word| word.span);
            self.diagnostics.error(span, "'http-error' begins with 'status' and a code");
            return None;
        };
        let mut build = self.build(section, Kind::HttpRequest, line, first, Places::REQUEST);
        build.words = Words::new(line);
        let reply = build.reply(0, Body::Empty)?;
        if !ANSWERED.contains(&reply.status) {
            let codes: Vec<String> = ANSWERED.iter().map(u16::to_string).collect();
            let span = line.words.get(1).map_or(line.span, |word| word.span);
            self.diagnostics.error(span, format!("the proxy never answers {} by itself", reply.status)).hint =
                Some(format!("one of {}", codes.join(", ")));
            return None;
        }
        // Without a file for it in the section that the line names, it is as if the line were not there, as in HAProxy.
        let is_missing = matches!(reply.body, Body::Empty) && line.words.iter().any(|word| word.text == "errorfiles");
        (!is_missing).then_some((reply.status, reply))
    }
}

/// A proxy that is being compiled.
struct Section<'s> {
    id: ProxyId,
    acls: &'s mut Acls,
    captures: Captures,
    /// The realm that `auth` shows if none is given.
    realm: &'s str,
}

/// The capture slots of a proxy, numbered in the order in which they are written: those of a named `defaults` come
/// first, and so do rules before `capture` and `declare` lines.
fn slots(proxy: &Proxy) -> Captures {
    let mut all: Vec<(bool, Slot)> = Vec::new();
    for (request, headers) in [(true, &proxy.capture_request_headers), (false, &proxy.capture_response_headers)] {
        all.extend(headers.iter().map(|capture| {
            let header = Some(capture.name.to_ascii_lowercase());
            (request, Slot { header, len: capture.len as usize, at: capture.span })
        }));
    }
    for &(request, len, at) in &proxy.declare_captures {
        all.push((request, Slot { header: None, len: len as usize, at }));
    }
    for line in proxy.tcp_request_content.iter().chain(&proxy.http_request) {
        let mut words = line.words.iter().map(|word| word.text.as_str());
        if words.next() == Some("capture")
            && words.any(|word| word == "len")
            && let Some(len) = words.next().and_then(|len| len.parse().ok())
        {
            all.push((true, Slot { header: None, len, at: line.span }));
        }
    }
    // Lines are only compared within one file; files are read one after the other.
    all.sort_by_key(|(_, slot)| (slot.at.file, slot.at.line));
    let (request, response): (Vec<_>, Vec<_>) = all.into_iter().partition(|(request, _)| *request);
    let slots = |list: Vec<(bool, Slot)>| list.into_iter().map(|(_, slot)| slot).collect();
    Captures { request: slots(request), response: slots(response), named: Vec::new() }
}

fn capture_slots(slots: &[Slot]) -> Vec<CaptureSlot> {
    slots.iter().map(|slot| CaptureSlot { header: slot.header.clone(), len: slot.len }).collect()
}

impl ProxyRules {
    /// Captures the request headers that `capture request header` names. All slots are created, so that rules find
    /// those without a header, and logs find those of the response even if there never is one.
    pub fn capture_request(&self, fields: &penstock_http::Fields, txn: &mut crate::Txn) {
        txn.response_captures.resize(self.response_captures.len(), None);
        capture(&self.request_captures, fields, &mut txn.request_captures);
    }

    /// Captures the response headers that `capture response header` names.
    pub fn capture_response(&self, fields: &penstock_http::Fields, txn: &mut crate::Txn) {
        capture(&self.response_captures, fields, &mut txn.response_captures);
    }
}

/// The last occurrence of each header is kept, as in HAProxy.
fn capture(slots: &[CaptureSlot], fields: &penstock_http::Fields, into: &mut Vec<Option<Vec<u8>>>) {
    if into.len() < slots.len() {
        into.resize(slots.len(), None);
    }
    for (slot, kept) in slots.iter().zip(into) {
        let Some(header) = &slot.header else { continue };
        if let Some(value) = fields.get_all(header.as_bytes()).next_back() {
            *kept = Some(value[..value.len().min(slot.len)].to_vec());
        }
    }
}
