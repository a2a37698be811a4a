//! Checks beyond a single line: references between sections, and lines that do not fit together.

use crate::{
    cache,
    diagnostic::Diagnostics,
    mailers,
    model::{
        Balance, BalanceKey, Bind, CheckKind, Config, LogFormat, Mode, Proxy, Server, ServerHost, ServerPort, Verify,
    },
    proxy::Draft,
    ring,
    span::{Line, Span, Spanned, Word},
    surroundings::Surroundings,
    units::suggestion,
};
use std::collections::HashMap;

/// Checks one proxy by itself when its section ends, and applies the fallbacks that HAProxy would apply.
pub(crate) fn proxy(draft: &mut Draft, around: &mut Surroundings) {
    if draft.proxy.disabled {
        return;
    }
    let kind = draft.section();
    let proxy = &mut draft.proxy;
    let name = proxy.name.clone();
    let diagnostics = &mut around.diagnostics;
    if proxy.kind.has_frontend() && proxy.binds.is_empty() && !draft.seen.contains_key("bind") {
        diagnostics
            .warning(proxy.span, format!("{kind} '{name}' has no 'bind' line: nothing can reach it"))
            .hint("add for instance 'bind :80', or declare it as a backend");
    }
    let only = proxy.servers.iter().find(|server| server.name == Server::DISPATCH);
    if let Some(only) = only.filter(|_| proxy.servers.len() > 1) {
        diagnostics
            .error(only.span, format!("{kind} '{name}' has servers beside the address of 'dispatch'"))
            .hint("make it a 'server' line as well, with 'backup' if it is to be used last");
    }
    missing_timeouts(proxy, kind, diagnostics);
    cache::order(draft, diagnostics);
    let proxy = &mut draft.proxy;
    // As in HAProxy, which places compression by itself only where the cache has the other filters.
    let others = ["filter bwlim-in", "filter bwlim-out", "filter spoe", "filter trace"];
    if proxy.compression.is_some()
        && draft.compression_filters.is_empty()
        && let Some(filter) = others.iter().find_map(|filter| draft.seen.get(*filter))
    {
        diagnostics
            .error(*filter, format!("{kind} '{name}' compresses, but does not say whether before or after this filter"))
            .hint("add 'filter compression' before or after it");
    }
    let is_switch = |line: &&Line| line.words.first().is_some_and(|word| word.text == "switch-mode");
    let switch = proxy.tcp_request_content.iter().find(is_switch).map(|line| line.span);
    if let Some(span) = switch.filter(|_| !proxy.kind.has_frontend()) {
        diagnostics
            .error(span, format!("{kind} '{name}' takes no connections, so it cannot switch their mode"))
            .hint("write it in the frontend");
    }
    if proxy.mode == Mode::Http {
        return;
    }
    if let Some(bind) = proxy.binds.iter().find(|bind| bind.ssl_on_connect) {
        diagnostics
            .error(
                bind.span,
                format!("'ssl-on-connect' in {kind} '{name}', which is in 'mode tcp': no CONNECT is read there"),
            )
            .hint("put this 'bind' into a frontend in 'mode http'");
    }
    if let Some(span) = switch.filter(|_| proxy.kind.has_backend() && !proxy.servers.is_empty()) {
        diagnostics
            .warning(
                span,
                format!("connections that become HTTP here reach servers of {kind} '{name}', which is in 'mode tcp'"),
            )
            .hint("send them to a backend in 'mode http'");
    }
    let at = |keyword: &str| draft.seen.get(keyword).copied().or(Some(proxy.span));
    if matches!(proxy.options.log, LogFormat::Http | LogFormat::HttpClf | LogFormat::Https) && proxy.kind.has_frontend()
    {
        let keyword = if proxy.options.log == LogFormat::Https { "option httpslog" } else { "option httplog" };
        diagnostics
            .warning(at(keyword), format!("'{keyword}' needs 'mode http', but {kind} '{name}' is in 'mode tcp'"))
            .hint("'option tcplog' is used instead");
        proxy.options.log = LogFormat::Tcp;
    }
    if proxy.balance.as_ref().and_then(|balance| balance.key.as_ref()).is_some_and(BalanceKey::needs_http)
        && proxy.kind.has_backend()
    {
        diagnostics
            .warning(at("balance"), format!("this algorithm needs 'mode http', but {kind} '{name}' is in 'mode tcp'"))
            .hint("'balance roundrobin' is used instead");
        proxy.balance = Some(Balance::default());
    }
    let http_only = [
        ("cookie", proxy.cookie.is_some() && proxy.kind.has_backend()),
        ("option forwardfor", proxy.options.forwardfor.is_some()),
        ("option originalto", proxy.options.originalto.is_some()),
        ("http-request", !proxy.http_request.is_empty()),
        ("http-response", !proxy.http_response.is_empty()),
        ("http-after-response", !proxy.http_after_response.is_empty()),
        ("redirect", !proxy.redirects.is_empty()),
        ("monitor-uri", proxy.monitor_uri.is_some() && proxy.kind.has_frontend()),
    ];
    for (keyword, present) in http_only {
        let is_used = switch.is_some() && !matches!(keyword, "cookie" | "monitor-uri");
        if present && !is_used {
            diagnostics
                .warning(at(keyword), format!("'{keyword}' is ignored: {kind} '{name}' is not in 'mode http'"))
                .hint("add 'mode http' to the section or its defaults");
        }
    }
}

fn missing_timeouts(proxy: &Proxy, kind: &str, diagnostics: &mut Diagnostics) {
    if diagnostics.has_errors() {
        // Perhaps they are what is wrong.
        return;
    }
    let timeouts = &proxy.timeouts;
    let mut missing = Vec::new();
    if proxy.kind.has_frontend() && timeouts.client.is_none() {
        missing.push("timeout client");
    }
    if proxy.kind.has_backend() && !proxy.servers.is_empty() {
        if timeouts.connect.is_none() {
            missing.push("timeout connect");
        }
        if timeouts.server.is_none() && (proxy.mode == Mode::Http || timeouts.tunnel.is_none()) {
            missing.push("timeout server");
        }
    }
    if !missing.is_empty() {
        diagnostics.warning(proxy.span, format!("{kind} '{}' has no '{}'", proxy.name, missing.join("' or '"))).hint(
            format!(
                "without a limit, peers that vanish hold their connections for ever; for instance '{} 30s'",
                missing[0]
            ),
        );
    }
}

/// Warns of a log format in a proxy without log targets.
fn unlogged(config: &Config, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    let has_address = !proxy.logs.is_empty() || (proxy.log_global && !config.global.logs.is_empty());
    let format = [&proxy.log_format, &proxy.log_format_sd].into_iter().flatten().next();
    let has_format = format.is_some() || proxy.options.log != LogFormat::default();
    if proxy.kind.has_frontend() && proxy.service.is_none() && has_format && !has_address {
        let at = format.map_or(proxy.span, |word| word.span);
        let (kind, name) = (proxy.kind.name(), &proxy.name);
        diagnostics
            .warning(at, format!("the log format of {kind} '{name}' has no effect: there is no log address"))
            .hint("add 'log ADDRESS FACILITY' to the section, or to 'global' with 'log global' here");
    }
}

/// Checks all sections together.
pub(crate) fn references(config: &Config, diagnostics: &mut Diagnostics) {
    let names = Names::new(config);
    proxy_numbers(config, diagnostics);
    guids(config, diagnostics);
    listeners(config, diagnostics);
    chains(config, diagnostics);
    ring::references(config, diagnostics);
    for proxy in config.proxies.iter().filter(|p| !p.disabled) {
        unlogged(config, proxy, diagnostics);
        cache::references(config, proxy, diagnostics);
        mailers::references(config, proxy, diagnostics);
        if let Some(target) = &proxy.default_backend
            && proxy.kind.has_frontend()
        {
            names.backend(proxy, target, diagnostics);
        }
        for target in proxy.use_backend.iter().filter_map(|rule| rule.words.first()) {
            names.backend(proxy, target, diagnostics);
        }
        client_hello(config, &names, proxy, diagnostics);
        if let Some(table) = &proxy.stick_table {
            let peers = table.words.iter().skip_while(|w| w.text != "peers").nth(1);
            if let Some(peers) = peers {
                let known = config.peers.iter().map(|p| p.name.as_str());
                named("peers section", peers, known, diagnostics);
            }
        }
        if proxy.kind.has_backend() {
            external_check(config, proxy, diagnostics);
            servers(config, &names, proxy, diagnostics);
        }
    }
}

/// Checks that the services of chains exist, and that those which listen share their names with no frontend.
fn chains(config: &Config, diagnostics: &mut Diagnostics) {
    let services = || config.proxies.iter().filter(|proxy| proxy.service.is_some()).map(|proxy| proxy.name.as_str());
    for step in config.service_chains.iter().flat_map(|chain| &chain.steps) {
        named("service", &step.service, services(), diagnostics);
    }
    for service in config.proxies.iter().filter(|proxy| proxy.service.is_some() && proxy.kind.has_frontend()) {
        let is_other = |proxy: &&Proxy| proxy.kind.has_frontend() && proxy.service.is_none();
        if let Some(other) = config.proxies.iter().filter(is_other).find(|proxy| proxy.name == service.name) {
            diagnostics.error(service.span, format!("the name '{}' is already used by a frontend", service.name)).hint(
                format!(
                    "that is at line {}; this service has 'bind' lines, and is a frontend as well",
                    other.span.line
                ),
            );
        }
    }
}

/// Checks `tcp-request client-hello` rules: there must be connections that they apply to, `bypass` needs a backend in mode tcp, and
/// `intercept` one whose servers are verified.
fn client_hello(config: &Config, names: &Names<'_>, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    let intercepts = |line: &Line| line.words.first().is_some_and(|action| action.text == "intercept");
    let second = |bind: &Bind| bind.tls.as_ref()?.generate.as_ref()?.ca_sign_untrusted.as_ref().map(|file| file.span);
    if let Some(span) = proxy.binds.iter().find_map(second)
        && !proxy.tcp_request_client_hello.iter().any(intercepts)
    {
        diagnostics
            .warning(span, "'ca-sign-untrusted' has no effect without a 'tcp-request client-hello intercept' rule")
            .hint("only that connects to a server, and sees its certificate, before the client is answered");
    }
    let Some(first) = proxy.tcp_request_client_hello.first() else { return };
    if proxy.kind.has_frontend() && proxy.binds.iter().all(|bind| bind.tls.is_none()) {
        diagnostics
            .warning(first.span, "'tcp-request client-hello' has no effect: no 'bind' line here has 'ssl'")
            .hint("on a connection that is not decrypted, use 'tcp-request content' with an 'inspect-delay'");
    }
    for line in &proxy.tcp_request_client_hello {
        let [action, target, ..] = line.words.as_slice() else { continue };
        if !matches!(action.text.as_str(), "bypass" | "intercept") {
            continue;
        }
        // One that does not exist is reported where the rule is compiled.
        let Some(found) = names.backends.get(target.text.as_str()) else { continue };
        if found.service.is_some() {
            is_service(target, diagnostics);
        } else if action.text == "intercept" {
            intercept(config, proxy, found, target, diagnostics);
        } else if found.mode != Mode::Tcp {
            let line = found.span.line;
            diagnostics
                .error(
                    target.span,
                    format!("'{}' is not in mode tcp: it would have to decrypt the connection", target.text),
                )
                .hint(format!("give the backend at line {line} 'mode tcp'"));
        } else if std::ptr::eq(*found, proxy) {
            diagnostics.error(target.span, format!("'{}' would send its traffic to itself", target.text));
        }
    }
}

/// Checks an `intercept` rule: certificates can be made, and the servers of the backend are such that they can be validated first.
fn intercept(config: &Config, proxy: &Proxy, backend: &Proxy, target: &Word, diagnostics: &mut Diagnostics) {
    let generates = |bind: &crate::model::Bind| bind.tls.as_ref().is_some_and(|tls| tls.generate.is_some());
    if let Some(bind) = proxy.binds.iter().find(|bind| bind.tls.is_some() && !generates(bind)) {
        diagnostics
            .error(target.span, "'intercept' has no authority that signs certificates")
            .hint(format!("add 'generate-certificates ca-sign-file FILE' to the 'bind' at line {}", bind.span.line));
    }
    if backend.mode != proxy.mode {
        diagnostics.error(target.span, format!("'{}' is not in the mode of '{}'", target.text, proxy.name));
    }
    for server in &backend.servers {
        let verifies = server.settings.tls.as_ref().map(|tls| {
            let verify = tls.conf.verify.or(config.global.ssl_server_verify).unwrap_or(Verify::Required);
            verify != Verify::None
        });
        let line = server.span.line;
        match verifies {
            Some(true) => {}
            Some(false) => {
                let message =
                    format!("the server at line {line} is not verified, so any certificate would be mirrored");
                diagnostics.error(target.span, message).hint("give it 'verify required ca-file @system-ca'");
            }
            None => {
                let message = format!("the server at line {line} has no 'ssl', so it has no certificate to mirror");
                diagnostics
                    .error(target.span, message)
                    .hint("give it 'ssl verify required ca-file @system-ca sni ssl_fc_sni'");
            }
        }
    }
}

/// Checks that the numbers given by `id` are unique.
fn proxy_numbers(config: &Config, diagnostics: &mut Diagnostics) {
    let mut numbers: HashMap<u32, &Proxy> = HashMap::new();
    for proxy in &config.proxies {
        if let Some(first) = proxy.id.and_then(|id| numbers.insert(id, proxy)) {
            diagnostics
                .error(proxy.span, format!("'{}' has the same 'id' as '{}'", proxy.name, first.name))
                .hint(format!("the first one is at line {}", first.span.line));
        }
    }
}

/// Checks that a guid names one thing only, of whatever kind.
fn guids(config: &Config, diagnostics: &mut Diagnostics) {
    let mut seen: HashMap<String, Span> = HashMap::new();
    let mut unique = |guid: &Spanned<String>, name: String| {
        if let Some(first) = seen.insert(name, guid.span) {
            diagnostics
                .error(guid.span, format!("the guid '{}' is already used", guid.value))
                .hint(format!("the first one is at line {}", first.line));
        }
    };
    for proxy in &config.proxies {
        let servers = proxy.servers.iter().filter_map(|server| server.settings.guid.as_ref());
        proxy.guid.iter().chain(servers).for_each(|guid| unique(guid, guid.value.clone()));
        // The names that its sockets get.
        let prefixes = proxy.binds.iter().filter_map(|bind| bind.guid_prefix.as_ref());
        prefixes.for_each(|prefix| unique(prefix, format!("{}-0", prefix.value)));
    }
}

/// Checks that no two listeners share a port: the kernel allows it within one process and deals connections out between them, which
/// is never meant.
fn listeners(config: &Config, diagnostics: &mut Diagnostics) {
    let mut ports: HashMap<(std::net::IpAddr, u16, Option<&str>), Span> = HashMap::new();
    let binds = config.proxies.iter().filter(|p| !p.disabled).flat_map(|p| &p.binds);
    for (bind, address) in binds.flat_map(|bind| bind.addresses.iter().map(move |address| (bind, address))) {
        let crate::model::ListenAddress::Ip { ip, first, last } = address.value else { continue };
        let taken = (first..=last).find_map(|port| {
            let old = ports.insert((ip, port, bind.interface.as_deref()), address.span)?;
            Some((port, old.line))
        });
        if let Some((port, line)) = taken {
            diagnostics
                .warning(address.span, format!("port {port} of this address is already in use in this configuration"))
                .hint(format!("the system would divide its connections between this line and line {line}"));
        }
    }
}

/// `option external-check` needs a program, and permission to run it.
fn external_check(config: &Config, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    if !matches!(proxy.check, CheckKind::External) {
        return;
    }
    let name = &proxy.name;
    if config.global.external_check.is_none() {
        diagnostics
            .error(
                proxy.span,
                format!("'{name}' has 'option external-check', but the global section does not allow it"),
            )
            .hint("add 'external-check' to the global section");
    }
    if proxy.external_command.is_none() {
        diagnostics
            .error(proxy.span, format!("'{name}' has 'option external-check', but no program"))
            .hint("add 'external-check command PROGRAM'");
    }
}

fn servers(config: &Config, names: &Names<'_>, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    let mut numbers: HashMap<u32, &Server> = HashMap::new();
    let mut reported = None;
    for server in &proxy.servers {
        let settings = &server.settings;
        if let Some(first) = settings.id.and_then(|id| numbers.insert(id, server)) {
            diagnostics
                .error(server.span, format!("server '{}' has the same 'id' as '{}'", server.name, first.name))
                .hint(format!("the first one is at line {}", first.span.line));
        }
        if settings.log_proto.is_some() {
            diagnostics
                .notice(server.span, "'log-proto' has no effect here: only the servers of a 'ring' receive logs");
        }
        // The servers of one template share their errors.
        if server.template.is_some() && reported == Some(server.span) {
            continue;
        }
        reported = Some(server.span);
        if let Some(resolvers) = &settings.resolvers {
            let known = config.resolvers.iter().map(|r| r.name.as_str());
            named("resolvers section", resolvers, known, diagnostics);
        }
        if let Some(target) = &settings.track {
            track(names, proxy, server, target, diagnostics);
        }
        if settings.agent.as_ref().is_some_and(|agent| agent.port == 0) {
            diagnostics
                .error(server.span, format!("server '{}' has 'agent-check', but no port of the agent", server.name))
                .hint("add 'agent-port N'");
        }
        if settings.check.enabled && settings.check.port.or(settings.check.addr_port).is_none() {
            check_port(proxy, server, diagnostics);
        }
    }
    for rule in &proxy.use_server {
        if let Some(target) = rule.words.first()
            && !target.text.contains("%[")
        {
            named("server of this section", target, proxy.servers.iter().map(|s| s.name.as_str()), diagnostics);
        }
    }
}

/// A check needs a port: its own, the server's, or that of a `connect` step.
fn check_port(proxy: &Proxy, server: &Server, diagnostics: &mut Diagnostics) {
    let connects = match proxy.check {
        CheckKind::Tcp => &proxy.tcp_check,
        CheckKind::Http { .. } => &proxy.http_check,
        _ => &Vec::new(),
    };
    let step = connects.iter().any(|line| {
        line.words.first().is_some_and(|w| w.text == "connect")
            && line.words.iter().any(|w| w.text == "port" || w.text.parse::<std::net::SocketAddr>().is_ok())
    });
    let network = match &server.host {
        // As in HAProxy: a server whose address is a placeholder gets one, and a port, at run time.
        ServerHost::Ip(ip) => !ip.is_unspecified(),
        // Whoever resolves a name may learn the port with the address, from an SRV record.
        ServerHost::Name(_) => false,
        ServerHost::Unix(_) | ServerHost::Abstract(_) => false,
    };
    if network && !step && matches!(server.port, ServerPort::Offset(_)) {
        diagnostics
            .error(server.span, format!("server '{}' is checked, but no port says where", server.name))
            .hint("add a port to its address, or 'port N'");
    }
}

/// Checks `track [BACKEND/]SERVER`, which makes this server follow the checks of another one.
fn track(names: &Names<'_>, proxy: &Proxy, server: &Server, target: &Word, diagnostics: &mut Diagnostics) {
    let (backend, name) = target.text.split_once('/').unwrap_or((&proxy.name, &target.text));
    let Some(other) = names.backends.get(backend) else {
        diagnostics.error(target.span, format!("no backend is called '{backend}'")).hint = names.near(backend);
        return;
    };
    let Some(tracked) = names.servers.get(&(backend, name)) else {
        let others = other.servers.iter().map(|s| s.name.as_str()).filter(|n| *n != server.name);
        diagnostics.error(target.span, format!("'{backend}' has no server called '{name}' to track")).hint =
            suggestion(name, others, "other servers");
        return;
    };
    if server.settings.check.enabled {
        diagnostics
            .error(target.span, format!("server '{}' cannot have 'check' and 'track' at once", server.name))
            .hint("remove one of them");
    } else if !tracked.settings.check.enabled && tracked.settings.track.is_none() && !tracked.settings.agent_check {
        diagnostics
            .error(target.span, format!("'{backend}/{name}' is not checked, so there is nothing to track"))
            .hint("add 'check' to that server");
    } else if chain_returns(names, proxy, server) {
        diagnostics.error(target.span, format!("server '{}' would track itself", server.name));
    }
}

/// Whether following `track` from server to server comes back; a chain longer than this counts as a circle.
fn chain_returns(names: &Names<'_>, proxy: &Proxy, server: &Server) -> bool {
    const LONGEST: usize = 1000;
    let (mut at, mut current) = (proxy, server);
    for _ in 0..LONGEST {
        let Some(target) = &current.settings.track else { return false };
        let (backend, name) = target.text.split_once('/').unwrap_or((&at.name, &target.text));
        let Some(next) = names.backends.get(backend) else { return false };
        let Some(found) = names.servers.get(&(backend, name)) else { return false };
        (at, current) = (next, found);
        if std::ptr::eq(current, server) {
            return true;
        }
    }
    true
}

/// Reports that traffic is to be sent to a service as if it were a backend.
fn is_service(target: &Word, diagnostics: &mut Diagnostics) {
    diagnostics
        .error(target.span, format!("'{}' is a service, not a backend", target.text))
        .hint("name it in a 'service-chain', and that in 'http-request service-chain'");
}

/// Checks that a name is one of `known`.
pub(crate) fn named<'k>(
    what: &str,
    word: &Word,
    known: impl Iterator<Item = &'k str> + Clone,
    diagnostics: &mut Diagnostics,
) {
    if known.clone().any(|name| name == word.text) {
        return;
    }
    diagnostics.error(word.span, format!("no {what} is called '{}'", word.text)).hint =
        suggestion(&word.text, known, &format!("{what}s"));
}

/// Backends by name, and their servers by both names.
struct Names<'c> {
    backends: HashMap<&'c str, &'c Proxy>,
    servers: HashMap<(&'c str, &'c str), &'c Server>,
}

impl<'c> Names<'c> {
    fn new(config: &'c Config) -> Self {
        let backends = || config.proxies.iter().filter(|p| p.kind.has_backend());
        let servers = backends().flat_map(|p| p.servers.iter().map(|s| ((p.name.as_str(), s.name.as_str()), &**s)));
        Names { backends: backends().map(|p| (p.name.as_str(), p)).collect(), servers: servers.collect() }
    }

    fn near(&self, name: &str) -> Option<String> {
        suggestion(
            name,
            self.backends.iter().filter(|(_, proxy)| proxy.service.is_none()).map(|(name, _)| *name),
            "backends",
        )
    }

    /// Checks a name that `use_backend` or `default_backend` gives.
    fn backend(&self, frontend: &Proxy, target: &Word, diagnostics: &mut Diagnostics) {
        // A log format: its value is known only with the request.
        if target.text.contains("%[") {
            return;
        }
        match self.backends.get(target.text.as_str()) {
            Some(found) if found.service.is_some() => is_service(target, diagnostics),
            // A connection in mode tcp goes on as HTTP when it reaches a backend in that mode.
            Some(found) if found.mode == Mode::Tcp && frontend.mode == Mode::Http => {
                let (front, back) = (mode(frontend.mode), mode(found.mode));
                let line = found.span.line;
                diagnostics
                    .error(
                        target.span,
                        format!("'{}' is in mode {back}, but '{}' is in mode {front}", target.text, frontend.name),
                    )
                    .hint(format!("give both the same 'mode'; the backend is at line {line}"));
            }
            Some(found) if std::ptr::eq(*found, frontend) => {
                diagnostics
                    .error(target.span, format!("'{}' would send its traffic to itself", target.text))
                    .hint("remove the line: the servers of a 'listen' section are used where no rule applies");
            }
            Some(_) => {}
            None => {
                diagnostics.error(target.span, format!("no backend is called '{}'", target.text)).hint =
                    self.near(&target.text);
            }
        }
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tcp => "tcp",
        Mode::Http => "http",
    }
}
