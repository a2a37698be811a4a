//! A proxy while its section is read.

use super::error_pages::ErrorPages;
use crate::{
    args::{Parsed, Reported},
    keyword::{Keyword, Places},
    model::{Proxy, ProxyKind, Server, ServerSettings},
    span::{Line, Span},
    surroundings::Surroundings,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A proxy, or a `defaults` section, that is being parsed.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) proxy: Proxy,
    pub(crate) place: Places,
    pub(crate) default_server: Arc<ServerSettings>,
    /// `errorfile` and similar lines in order, to be applied once all `http-errors` sections are known.
    pub(crate) error_pages: Vec<ErrorPages>,
    /// The last place of each keyword, in this section or its defaults.
    pub(crate) seen: BTreeMap<&'static str, Span>,
    /// The compression filters of this section.
    pub(crate) compression_filters: Vec<String>,
    /// Of the rules read so far in this section, the one that is evaluated last.
    last_rule: Option<&'static str>,
    /// The first place at which each server name was used.
    server_names: HashMap<String, Span>,
    /// Whether the steps of `http-check` and of `tcp-check` come from the section that this one starts from.
    inherited_steps: [bool; 2],
    /// For a defaults section: the kind of the first proxy that starts from it.
    first_heir: Cell<Option<ProxyKind>>,
}

/// Selects the steps of one kind of health check.
#[derive(Clone, Copy)]
pub(crate) enum Steps {
    Http,
    Tcp,
}

impl Draft {
    pub(crate) fn new(name: String, kind: ProxyKind, place: Places, span: Span) -> Self {
        Draft {
            proxy: Proxy::new(name, kind, span),
            place,
            default_server: Arc::default(),
            error_pages: Vec::new(),
            seen: BTreeMap::new(),
            compression_filters: Vec::new(),
            last_rule: None,
            server_names: HashMap::new(),
            inherited_steps: [false; 2],
            first_heir: Cell::new(None),
        }
    }

    /// Called when the section has check steps itself: drops the inherited ones. (Lines of `http-check` that concern
    /// the whole check are not steps, and stay.) Returns whether this is the first such line.
    pub(crate) fn own_steps(&mut self, steps: Steps) -> bool {
        let inherited = std::mem::take(&mut self.inherited_steps[steps as usize]);
        if inherited {
            match steps {
                Steps::Http => self.proxy.http_check.retain(|line| !is_step(line)),
                Steps::Tcp => self.proxy.tcp_check.clear(),
            }
        }
        inherited
    }

    /// A new section that starts with the values of this one.
    pub(crate) fn inherit(&self, name: String, kind: ProxyKind, place: Places, span: Span) -> Self {
        let mut draft = self.clone();
        draft.proxy.name = name;
        draft.proxy.kind = kind;
        draft.proxy.span = span;
        draft.place = place;
        draft.last_rule = None;
        draft.inherited_steps = [true; 2];
        draft.first_heir.set(None);
        draft
    }

    /// Whether the keyword is allowed in this kind of section. One that is ignored with a warning acts on the draft that is
    /// returned, which is dropped.
    pub(crate) fn allows(
        &mut self,
        keyword: &'static Keyword<Draft>,
        span: Span,
        around: &mut Surroundings,
    ) -> Parsed<Option<Draft>> {
        let defaults = self.place.has(Places::DEFAULTS);
        let allowed = if self.proxy.service.is_some() {
            super::service::has(keyword)
        } else if defaults {
            keyword.places.has(Places::DEFAULTS)
                || (keyword.places.has(Places::NAMED_DEFAULTS) && self.place.has(Places::NAMED_DEFAULTS))
        } else {
            keyword.places.has(self.place)
        };
        if allowed {
            self.seen.insert(keyword.name, span);
            self.order(keyword.name, span, around);
            return Ok(None);
        }
        let (name, section) = (keyword.name, self.section());
        let places = place_names(keyword.places).join(", ");
        let hint = if defaults && keyword.places.has(Places::NAMED_DEFAULTS) {
            "give the defaults section a name, and refer to it with 'from' in the sections that need it".to_owned()
        } else {
            format!("it belongs in {places}")
        };
        // What a service ignored would be a message that is not inspected as written.
        let strict = self.proxy.service.is_some() || keyword.places.has(Places::SERVICE);
        if defaults || strict || refused_in_wrong_place(name) {
            around.diagnostics.error(span, format!("'{name}' is not allowed in a '{section}' section")).hint(hint);
            return Err(Reported);
        }
        around
            .diagnostics
            .warning(span, format!("'{name}' is ignored because a '{section}' section has no use for it"))
            .hint(hint);
        // Nothing evaluates these there, but the names and the conditions in them have to be right too.
        if matches!(name, "monitor fail" | "source" | "use_backend" | "use-server") {
            return Ok(None);
        }
        Ok(Some(Draft::new(self.proxy.name.clone(), self.proxy.kind, self.place, self.proxy.span)))
    }

    /// Warns if this rule is evaluated before rules above it: rules are evaluated kind by kind, whatever the order of
    /// their lines.
    fn order(&mut self, name: &'static str, span: Span, around: &mut Surroundings) {
        let rank = |name| RULES_IN_ORDER.iter().position(|rule| *rule == name);
        let Some(own) = rank(name) else { return };
        match self.last_rule {
            Some(last) if rank(last) > Some(own) => {
                around
                    .diagnostics
                    .warning(span, format!("this '{name}' rule is evaluated before the '{last}' rules above it"))
                    .hint("move it up, so that the file reads as it works");
            }
            _ => self.last_rule = Some(name),
        }
    }

    pub(crate) fn section(&self) -> &'static str {
        match self.proxy.kind {
            _ if self.place.has(Places::DEFAULTS) => "defaults",
            _ if self.proxy.service.is_some() => "service",
            kind => kind.name(),
        }
    }

    /// Adds a server; reports an error if its name is taken.
    pub(crate) fn push_server(&mut self, server: Server, name: Span, around: &mut Surroundings) {
        if let Some(first) = self.server_names.get(&server.name) {
            around
                .diagnostics
                .error(name, format!("the server name '{}' is already used in this section", server.name))
                .hint(format!("the first one is at line {}", first.line));
            return;
        }
        self.server_names.insert(server.name.clone(), name);
        self.proxy.servers.push(Arc::new(server));
    }

    /// Why a proxy of this kind, or another defaults section, cannot start from this one; `None` if it can. The rules
    /// of a defaults section must be for frontends only or for backends only (manual, section 4.2, `http-request`).
    pub(crate) fn refuses(&self, heir: Option<ProxyKind>) -> Option<String> {
        if !self.has_rules() {
            return None;
        }
        let (name, line) = (&self.proxy.name, self.proxy.span.line);
        match heir {
            None => Some(format!(
                "a defaults section cannot inherit from '{name}' at line {line}, which has TCP or HTTP rules"
            )),
            Some(ProxyKind::Listen) => Some(format!(
                "a listen section cannot inherit from '{name}' at line {line}, which has TCP or HTTP rules"
            )),
            Some(ProxyKind::Frontend) if !self.proxy.tcp_response_content.is_empty() => Some(format!(
                "a frontend section cannot inherit from '{name}' at line {line}, which has 'tcp-response content' rules"
            )),
            Some(kind) => {
                let first = self.first_heir.get().unwrap_or(kind);
                self.first_heir.set(Some(first));
                (first != kind).then(|| {
                    format!("frontends and backends cannot both inherit from '{name}' at line {line}, which has TCP or HTTP rules")
                })
            }
        }
    }

    /// Whether the section has any TCP or HTTP rules.
    pub(crate) fn has_rules(&self) -> bool {
        let p = &self.proxy;
        [
            &p.tcp_request_connection,
            &p.tcp_request_client_hello,
            &p.tcp_request_session,
            &p.tcp_request_content,
            &p.tcp_response_content,
            &p.http_request,
            &p.http_response,
            &p.http_after_response,
        ]
        .iter()
        .any(|rules| !rules.is_empty())
    }

    /// Returns the proxy, and the error pages that it is still to be given.
    pub(crate) fn finish(mut self) -> (Proxy, Vec<ErrorPages>) {
        self.proxy.default_server = self.default_server;
        (self.proxy, self.error_pages)
    }
}

/// The kinds of rules, in the order in which they apply to a connection.
const RULES_IN_ORDER: &[&str] = &[
    "tcp-request connection",
    "tcp-request client-hello",
    "tcp-request session",
    "tcp-request content",
    "monitor fail",
    "http-request",
    "redirect",
    "use_backend",
    "use-server",
];

/// Keywords whose misplacement is an error in HAProxy, which ignores most others with a warning.
fn refused_in_wrong_place(name: &str) -> bool {
    matches!(
        name,
        "server"
            | "server-template"
            | "default-server"
            | "use-fcgi-app"
            | "retry-on"
            | "tcp-response content"
            | "tcp-response inspect-delay"
            | "tcp-request connection"
            | "tcp-request client-hello"
            | "tcp-request session"
            | "declare capture request"
            | "declare capture response"
    )
}

/// The names of the sections in which a keyword is allowed.
pub(crate) fn place_names(places: Places) -> Vec<&'static str> {
    [
        (Places::DEFAULTS, "defaults"),
        (Places::NAMED_DEFAULTS, "defaults with a name"),
        (Places::FRONTEND, "frontend"),
        (Places::LISTEN, "listen"),
        (Places::BACKEND, "backend"),
        (Places::SERVICE, "service"),
    ]
    .into_iter()
    .filter(|(place, _)| places.has(*place))
    .map(|(_, name)| name)
    .collect()
}

/// Whether a line of `http-check` is a step of the check.
pub(crate) fn is_step(line: &Line) -> bool {
    !line.words.first().is_some_and(|verb| matches!(verb.text.as_str(), "disable-on-404" | "send-state"))
}
