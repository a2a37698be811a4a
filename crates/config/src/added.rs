//! A server that is added while the process runs (`add server` of the runtime API): the words of a `server` line.

use crate::{
    address,
    args::Args,
    bind::settings,
    model::{Config, ProxyId, Server, ServerSettings},
    name::valid_name,
    server::{TABLE, complete},
    span::{Span, Word},
    surroundings::Surroundings,
};
use std::sync::Arc;

/// The settings that such a server may have: HAProxy's, and those that have a name resolved.
const SETTINGS: &[&str] = &[
    "addr",
    "agent-addr",
    "agent-check",
    "agent-inter",
    "agent-port",
    "agent-send",
    "allow-0rtt",
    "alpn",
    "backup",
    "ca-file",
    "check",
    "check-alpn",
    "check-proto",
    "check-send-proxy",
    "check-sni",
    "check-ssl",
    "check-via-socks4",
    "ciphers",
    "ciphersuites",
    "cookie",
    "crl-file",
    "crt",
    "disabled",
    "downinter",
    "enabled",
    "error-limit",
    "fall",
    "fastinter",
    "force-sslv3",
    "force-tlsv10",
    "force-tlsv11",
    "force-tlsv12",
    "force-tlsv13",
    "hash-key",
    "id",
    "init-addr",
    "inter",
    "maxconn",
    "maxqueue",
    "minconn",
    "no-ssl-reuse",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "no-tls-tickets",
    "npn",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "proto",
    "proxy-v2-options",
    "resolve-net",
    "resolve-opts",
    "resolve-prefer",
    "resolvers",
    "rise",
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2-ssl",
    "send-proxy-v2-ssl-cn",
    "slowstart",
    "sni",
    "source",
    "ssl",
    "ssl-max-ver",
    "ssl-min-ver",
    "tfo",
    "tls-tickets",
    "track",
    "usesrc",
    "verify",
    "verifyhost",
    "weight",
    "ws",
];

/// The longest name of an added server. It is part of every row of statistics and of `server-state-file`, of which HAProxy reads
/// lines of 2,000 bytes.
const NAME_MAX: usize = 1024;

impl Config {
    /// Reads what follows the name in `add server`: an address, then settings, on top of the `default-server` of that proxy.
    /// Such a server is `disabled` unless its words say `enabled`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the words.
    pub fn added_server(&self, proxy: ProxyId, name: &str, words: &[String]) -> Result<Server, String> {
        if name.len() > NAME_MAX {
            return Err(format!("A server's name may have {NAME_MAX} bytes."));
        }
        let word = |text: &String| Word { text: text.clone(), span: Span::default() };
        let words: Vec<Word> = words.iter().map(word).collect();
        let Some((address, options)) = words.split_first() else {
            return Err("'server' expects <name> and <addr>[:<port>] as arguments.".into());
        };
        for option in options.iter().filter(|option| !SETTINGS.contains(&option.text.as_str())) {
            // A word that is no setting is the value of one, or is reported below.
            if TABLE.find(std::slice::from_ref(option)).is_some() {
                return Err(format!("'{}' option is not accepted for dynamic server", option.text));
            }
        }
        let mut around = Surroundings::of_command(self);
        let named = Word { text: name.to_owned(), span: Span::default() };
        let mut read = || {
            valid_name(&named, &mut around)?;
            let mut args = Args {
                keyword: "server",
                keyword_span: Span::default(),
                verb: "server",
                span: Span::default(),
                negated: false,
                words: options,
                around: &mut around,
                next: 0,
            };
            let (host, port) = address::server(&mut args, address)?;
            let mut options = ServerSettings::clone(&self.proxies[proxy].default_server);
            options.disabled = true;
            settings(&TABLE, &mut options, &mut args)?;
            let settings = Arc::new(complete(options));
            Ok(Server { name: name.to_owned(), span: Span::default(), host, port, settings, template: None })
        };
        let read: crate::args::Parsed<Server> = read();
        match read {
            Ok(Server { settings, .. })
                if settings.agent_check && settings.agent.as_ref().is_none_or(|agent| agent.port == 0) =>
            {
                Err(format!("server {name} does not have agent port. Agent check has been disabled."))
            }
            Ok(server) if !around.diagnostics.has_errors() => {
                let asked = server.settings.resolvers.as_ref();
                match asked.filter(|asked| self.resolvers.iter().all(|section| section.name != asked.text)) {
                    Some(unknown) => Err(format!("there is no section 'resolvers {}'.", unknown.text)),
                    None => Ok(server),
                }
            }
            _ => {
                let first = around.diagnostics.list.iter().find(|found| found.severity == crate::Severity::Error);
                let text = first.map_or("it cannot be read", |found| found.message.as_str());
                Err(match text.strip_prefix("'server' has no setting ") {
                    Some(setting) => format!("unknown keyword {setting}."),
                    None => format!("{text}."),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, Source, load, model::ServerHost};

    fn config() -> Config {
        let text = "backend b\n default-server weight 7 maxconn 9\n server a 192.0.2.1:1\n".to_owned();
        load([Source { name: "test.cfg".into(), text }], &Env::default()).0
    }

    fn added(line: &str) -> Result<Server, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        config().added_server(ProxyId(0), "x", &words)
    }

    #[test]
    fn an_added_server_starts_from_default_server() {
        let server = added("192.0.2.2:8080 weight 3 check inter 5s").expect("it is well");
        assert_eq!((server.settings.weight, server.settings.maxconn), (3, 9));
        assert!(server.settings.check.enabled);
        let named = added("app.example:80").expect("it is well");
        assert_eq!(named.host, ServerHost::Name("app.example".into()));
    }

    #[test]
    fn what_is_wrong_is_said_as_haproxy_says_it() {
        let refused = |line| added(line).expect_err("it is refused");
        assert_eq!(refused(""), "'server' expects <name> and <addr>[:<port>] as arguments.");
        assert_eq!(refused("192.0.2.2:1 bogus"), "unknown keyword 'bogus'.");
        assert_eq!(refused("192.0.2.2:1 redir /"), "'redir' option is not accepted for dynamic server");
        assert!(refused("192.0.2.2:1 weight 999").contains("999"), "{}", refused("192.0.2.2:1 weight 999"));
        let named = |length| config().added_server(ProxyId(0), &"n".repeat(length), &["192.0.2.2:1".into()]);
        assert!(named(NAME_MAX).is_ok());
        assert_eq!(named(NAME_MAX + 1).expect_err("it is refused"), "A server's name may have 1024 bytes.");
    }
}
