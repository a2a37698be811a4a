//! Everything that is compiled from a configuration: rules, log lines and expressions, and what they refer to.

use super::machine::hostname;
use crate::server::Expressions;
use penstock_backends::check::{self, script::Script};
use penstock_config::{
    Config, Diagnostics, Files, Line, Span, Word,
    model::{BalanceKey, PerProxy, Proxy, ProxyId},
};
use penstock_rules::{
    Chain, Compiler, Expr, LogFormat, Now, Places, ProxyRules, ServerRef, SpoeGroupSend, SpoeProgram, Variables, World,
    log::{self, Purpose},
    patterns::Reference,
    table::StickTable,
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The compiled configuration.
pub struct Program {
    /// Rules of each proxy.
    pub rules: PerProxy<ProxyRules>,
    /// Stick tables by name.
    pub tables: BTreeMap<String, Arc<StickTable>>,
    /// Lists and maps that rules read, by number.
    pub references: Vec<Arc<Reference>>,
    /// The variables of the process.
    pub variables: Variables,
    /// The servers that rules name, which therefore cannot be removed.
    pub(crate) named_servers: Vec<ServerRef>,
    /// Whether some rule looks at the body of a response.
    pub(crate) reads_responses: bool,
    /// Whether some rule looks at the body of a request.
    pub(crate) reads_requests: bool,
    /// Whether the rules of some backend have services inspect its messages.
    pub(crate) backends_inspect: bool,
    /// The log line of a connection that fails in its handshake, up to the reason.
    pub(crate) handshake_failure: LogFormat,
    /// The log line of a connection that is passed on without being decrypted, unless the proxy has a `log-format`.
    pub(crate) bypassed: PerProxy<Option<LogFormat>>,
    /// The chains of services.
    pub(crate) chains: Vec<Chain>,
    /// The engines of `filter spoe`.
    pub(crate) spoe: Vec<SpoeProgram>,
    /// The groups of messages that rules send to agents.
    pub(crate) spoe_groups: Vec<SpoeGroupSend>,
    /// What is evaluated for each connection to a server, by server.
    pub(crate) servers: PerProxy<Vec<Option<Expressions>>>,
    /// The backend to which a proxy sends requests that no rule routes: its `default_backend`, or the proxy itself.
    pub(crate) default_backend: PerProxy<Option<ProxyId>>,
    backends: HashMap<String, ProxyId>,
    /// The expression of `balance hash` or `balance rdp-cookie`.
    pub(crate) balance: PerProxy<Option<Expr>>,
    /// The expression of `persist rdp-cookie`.
    pub(crate) rdp_cookie: PerProxy<Option<Expr>>,
    /// The health check script of each backend.
    pub(crate) checks: PerProxy<Option<Arc<Script>>>,
}

/// Lets rules read files anywhere.
pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        penstock_sys::read_file(path)
    }
}

/// The facts that rules may ask for before a worker runs.
struct Starting(String);

impl World for Starting {
    fn hostname(&self) -> &str {
        &self.0
    }
    fn pid(&self) -> u32 {
        std::process::id()
    }
    fn random(&self) -> u64 {
        RandomState::new().hash_one(())
    }
}

impl Program {
    /// Compiles all of it; errors are added to `diagnostics`.
    pub fn compile(config: &Config, diagnostics: &mut Diagnostics) -> Program {
        let mut compiler = Compiler::new(config, &Disk, diagnostics);
        compiler.set_variables(&config.global.set_vars, now(), &Starting(hostname()));
        let rules = compiler.proxies();
        let chains = compiler.chains();
        let mut servers = Vec::new();
        let (mut balance, mut rdp_cookie) = (Vec::new(), Vec::new());
        let mut default_backend = Vec::new();
        let backends =
            config.proxies.entries().rev().filter(|(_, proxy)| proxy.kind.has_backend() && proxy.service.is_none());
        let backends: HashMap<String, ProxyId> = backends.map(|(id, proxy)| (proxy.name.clone(), id)).collect();
        let word = |text: &str| Word { text: text.to_owned(), span: Span::default() };
        let handshake_failure = config
            .proxies
            .ids()
            .next()
            .and_then(|any| compiler.format(&word(HANDSHAKE_FAILURE), Purpose::Log, any, Places::ERROR));
        let mut bypassed = Vec::new();
        let (mut checks, mut scripts) = (Vec::new(), check::compile::Scripts::default());
        for (id, proxy) in config.proxies.entries() {
            let of_servers = proxy.servers.iter();
            let compiled = of_servers.map(|server| Some(Expressions::compile(&server.settings, id, &mut compiler)));
            servers.push(compiled.collect());
            default_backend.push(match &proxy.default_backend {
                Some(name) => backends.get(&name.text).copied(),
                None => proxy.kind.has_backend().then_some(id),
            });
            balance.push(balance_expression(proxy).and_then(|line| compiler.expression(line, id, Places::REQUEST)));
            let cookie = proxy.persist_rdp_cookie.as_ref();
            rdp_cookie.push(cookie.and_then(|line| compiler.expression(line, id, Places::REQUEST)));
            // A server that is added later may be checked even if no server is now.
            checks.push(proxy.kind.has_backend().then(|| scripts.of(proxy, id, &mut compiler)));
            let is_predefined = proxy.log_format.is_none() && !proxy.tcp_request_client_hello.is_empty();
            let format = is_predefined.then(|| format!("{} {BYPASSED_BY}", log::TCP));
            bypassed.push(format.and_then(|text| compiler.format(&word(&text), Purpose::Log, id, Places::LOG)));
        }
        let spoe_groups = compiler.spoe_groups();
        let spoe = compiler.spoe();
        let variables = Variables::default();
        compiler.tell_variables(&variables);
        let inspects = |(proxy, rules): (&Proxy, &ProxyRules)| proxy.kind.has_backend() && rules.http_request.inspect();
        let backends_inspect = config.proxies.iter().zip(&rules).any(inspects);
        Program {
            backends_inspect,
            rules,
            chains,
            spoe,
            spoe_groups,
            variables,
            tables: compiler.tables(),
            references: compiler.references(),
            named_servers: compiler.named_servers(),
            reads_responses: compiler.reads_responses(),
            reads_requests: compiler.reads_requests(),
            handshake_failure: handshake_failure.unwrap_or_default(),
            bypassed: bypassed.into(),
            servers: servers.into(),
            default_backend: default_backend.into(),
            backends,
            balance: balance.into(),
            rdp_cookie: rdp_cookie.into(),
            checks: checks.into(),
        }
    }

    /// Sets a variable of the process, as `set-var` of a `global` section does: `line` has its keyword, the name and an expression, or
    /// a format.
    ///
    /// # Errors
    /// Why it cannot be understood.
    pub fn set_variable(&self, line: Line) -> Result<(), String> {
        let mut diagnostics = Diagnostics::default();
        {
            // The tables and lists of the process are the rules' own: what is set here reads none of them.
            let bare = Config::default();
            let mut compiler = Compiler::new(&bare, &Disk, &mut diagnostics);
            compiler.share_variables(&self.variables);
            compiler.set_variables(&[line], now(), &Starting(hostname()));
            compiler.tell_variables(&self.variables);
        }
        match diagnostics.list.first() {
            Some(found) => Err(found.message.clone()),
            None => Ok(()),
        }
    }

    /// The rules of a proxy.
    pub fn of(&self, proxy: ProxyId) -> &ProxyRules {
        &self.rules[proxy]
    }

    /// The backend of that name.
    pub(crate) fn backend_named(&self, name: &[u8]) -> Option<ProxyId> {
        self.backends.get(std::str::from_utf8(name).ok()?).copied()
    }
}

fn now() -> Now {
    let unix_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Now { mono: 0, unix_us }
}

/// What follows HAProxy's format for TCP in the line of a connection that is not decrypted: the line of the rule.
const BYPASSED_BY: &str = "client-hello:%[hello_rule_line]";

/// HAProxy's format for a connection that never became a session; the listener's name and the reason follow.
const HANDSHAKE_FAILURE: &str = "%ci:%cp [%t] %f";

/// The words of the expression that the balance algorithm hashes, if it hashes one.
fn balance_expression(proxy: &Proxy) -> Option<&Line> {
    match proxy.balance.as_ref()?.key.as_ref()? {
        BalanceKey::Sample(line) => Some(line),
        _ => None,
    }
}
