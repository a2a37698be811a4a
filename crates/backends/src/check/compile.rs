//! Compiles `option httpchk`, `http-check`, `option tcp-check`, `tcp-check` and similar lines to a [`Script`].

use super::{
    protocol,
    script::{Action, Connect, Expect, Kind, Pattern, Request, Script, Step},
    steps::{Words, is_variable},
};
use penstock_config::model::{CheckKind, Proxy, ProxyId};
use penstock_rules::{Compiler, LogFormat};
use std::sync::Arc;

/// The health checks of all backends. Those of backends that say nothing of theirs are one: where sections are
/// generated, there are thousands.
#[derive(Default)]
pub struct Scripts {
    plain: Option<Arc<Script>>,
}

impl Scripts {
    /// The health check of a backend's servers; errors are added to the compiler's diagnostics.
    pub fn of(&mut self, proxy: &Proxy, id: ProxyId, compiler: &mut Compiler<'_>) -> Arc<Script> {
        let is_plain =
            matches!(proxy.check, CheckKind::Connect) && proxy.tcp_check.is_empty() && proxy.http_check.is_empty();
        if !is_plain {
            return Arc::new(compile(proxy, id, compiler));
        }
        Arc::clone(self.plain.get_or_insert_with(|| Arc::new(protocol::connect())))
    }
}

/// The health check of a backend's servers; errors are added to the compiler's diagnostics.
///
/// Lines that the check does not use are compiled too, for their errors: they may be meant for a section that inherits them.
pub(super) fn compile(proxy: &Proxy, id: ProxyId, compiler: &mut Compiler<'_>) -> Script {
    if !matches!(proxy.check, CheckKind::Tcp) {
        compile_tcp(proxy, id, compiler);
    }
    if !matches!(proxy.check, CheckKind::Http { .. }) {
        compile_http(proxy, id, [None; 3], compiler);
    }
    match &proxy.check {
        CheckKind::Connect => protocol::connect(),
        CheckKind::SslHello => protocol::ssl_hello(),
        CheckKind::Smtp(hello) => {
            let (hello, domain) = hello.as_ref().map_or(("HELO", "localhost"), |(h, d)| (h.as_str(), d.as_str()));
            protocol::smtp(hello, domain)
        }
        CheckKind::Mysql(user) => protocol::mysql(user.as_ref()),
        CheckKind::Pgsql(user) => protocol::pgsql(user),
        CheckKind::Redis => protocol::redis(),
        CheckKind::Spop => protocol::spop(),
        CheckKind::Ldap => protocol::ldap(),
        // A program decides; nothing is connected to.
        CheckKind::External => Script::default(),
        CheckKind::Tcp => compile_tcp(proxy, id, compiler),
        CheckKind::Http { method, uri, version } => {
            compile_http(proxy, id, [method.as_deref(), uri.as_deref(), version.as_deref()], compiler)
        }
    }
}

fn implicit() -> Step {
    let connect = Connect { implicit: true, as_server: true, ..Connect::default() };
    Step { action: Action::Connect(connect), comment: None }
}

/// Adds the initial connection if it is not written.
fn with_connection(mut steps: Vec<Step>) -> Vec<Step> {
    let first = steps.iter().find(|step| step.action.acts());
    if !matches!(first.map(|step| &step.action), Some(Action::Connect(_))) {
        steps.insert(0, implicit());
    }
    steps
}

fn compile_tcp(proxy: &Proxy, id: ProxyId, compiler: &mut Compiler<'_>) -> Script {
    let mut steps = Vec::new();
    for line in &proxy.tcp_check {
        let words = &mut Words::new(line, id, compiler);
        let Some(verb) = words.next() else { continue };
        let step = match verb.text.as_str() {
            "connect" => words.connect(&steps),
            "comment" => words.comment(verb),
            "expect" => words.expect(Kind::Tcp),
            name if is_variable(name) => words.variable(),
            "send" | "send-lf" | "send-binary" | "send-binary-lf" => words.send(verb),
            _ => words.unknown(verb),
        };
        steps.extend(step);
    }
    Script { steps: with_connection(steps), kind: Kind::Tcp, ..Script::default() }
}

fn compile_http(proxy: &Proxy, id: ProxyId, option: [Option<&str>; 3], compiler: &mut Compiler<'_>) -> Script {
    let [method, uri, version] = option;
    let mut script = Script { kind: Kind::Http, ..Script::default() };
    // Before there was `http-check send`, headers were added after the version; this still works.
    let (version, extra) =
        version.unwrap_or("HTTP/1.0").split_once("\r\n").unwrap_or((version.unwrap_or("HTTP/1.0"), ""));
    let headers = extra.split("\r\n").filter_map(|line| line.split_once(':'));
    let asked = Request {
        method: method.unwrap_or("OPTIONS").into(),
        uri: LogFormat::literal(uri.unwrap_or("/").as_bytes()),
        version: version.into(),
        headers: headers
            .map(|(name, value)| (name.trim().into(), LogFormat::literal(value.trim().as_bytes())))
            .collect(),
        body: LogFormat::default(),
    };
    let mut option = Some(asked);
    let mut steps = Vec::new();
    for line in &proxy.http_check {
        let words = &mut Words::new(line, id, compiler);
        let Some(verb) = words.next() else { continue };
        match verb.text.as_str() {
            "disable-on-404" => script.disable_on_404 = words.ends(),
            "send-state" => script.send_state = words.ends(),
            "connect" => steps.extend(words.connect(&steps)),
            "comment" => steps.extend(words.comment(verb)),
            name if is_variable(name) => steps.extend(words.variable()),
            "expect" => steps.extend(words.expect(Kind::Http)),
            // The first one completes what the option says.
            "send" => steps.push(words.request(option.take().unwrap_or_else(unspecified))),
            _ => steps.extend(words.unknown(verb)),
        }
    }
    if let Some(request) = option {
        let at = steps.iter().position(|step| matches!(step.action, Action::Expect(_))).unwrap_or(steps.len());
        steps.insert(at, Step { action: Action::Request(request), comment: None });
    }
    steps = with_connection(steps);
    if !steps.iter().any(|step| matches!(step.action, Action::Expect(_))) {
        let well = Expect::new(Pattern::Status(vec![(200, 399)]));
        steps.push(Step { action: Action::Expect(well), comment: None });
    }
    Script { steps, ..script }
}

/// A request with default settings.
fn unspecified() -> Request {
    Request {
        method: "OPTIONS".into(),
        uri: LogFormat::literal(b"/"),
        version: "HTTP/1.0".into(),
        ..Request::default()
    }
}
