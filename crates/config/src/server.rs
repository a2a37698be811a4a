//! `server`, `default-server` and `server-template` (manual section 5.2).

mod later;
mod source;

pub(crate) use source::source;

use crate::{
    address,
    args::{Args, Parsed, Reported},
    bind::settings,
    keyword::{ANYTHING, Keyword, NONE, ONE, Table},
    model::{AgentCheck, InitAddr, Server, ServerPort, ServerSettings, TlsVersion, WebSockets},
    name::valid_name,
    proxy::{Draft, based},
    span::{Line, Span},
    tls,
};
use std::{sync::Arc, time::Duration};

type Entry = Keyword<ServerSettings>;

/// Every setting of a server.
pub(crate) static TABLE: Table<ServerSettings> = Table::new("server", &[LOAD, CHECK, TLS, REACH, later::KEYWORDS]);

const LOAD: &[Entry] = &[
    Entry::new("weight", ONE, "The server's share of the load, 0 to 256", |s, a| {
        s.weight = a.number("a weight", 0..=256)?;
        Ok(())
    }),
    Entry::new("backup", NONE, "Used when no other server is left", |s, _| {
        s.backup = true;
        Ok(())
    }),
    Entry::new("no-backup", NONE, "Undoes 'backup'", |s, _| {
        s.backup = false;
        Ok(())
    }),
    Entry::new("disabled", NONE, "Starts in maintenance", |s, _| {
        s.disabled = true;
        Ok(())
    }),
    Entry::new("enabled", NONE, "Undoes 'disabled'", |s, _| {
        s.disabled = false;
        Ok(())
    }),
    Entry::new("maxconn", ONE, "Largest number of concurrent connections; others wait", |s, a| {
        s.maxconn = a.number("a number of connections", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("minconn", ONE, "Largest number of concurrent connections while the load is low", |s, a| {
        s.minconn = a.number("a number of connections", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("maxqueue", ONE, "Largest number of requests that may wait for the server", |s, a| {
        s.maxqueue = a.number("a number of connections", 0..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("slowstart", ONE, "Time in which a server that has come up reaches its full weight", |s, a| {
        s.slowstart = Some(a.time("a time")?);
        Ok(())
    }),
    Entry::new("cookie", ONE, "The value of the persistence cookie that identifies the server", |s, a| {
        s.cookie = Some(a.text("a value")?);
        Ok(())
    }),
    Entry::new("id", ONE, "Number of the server in statistics", |s, a| {
        s.id = Some(a.number("a server's number", 1..=i32::MAX as u32)?);
        Ok(())
    }),
    Entry::new("redir", ONE, "Redirects requests to this prefix", |s, a| {
        s.redir = Some(a.text("a prefix")?);
        Ok(())
    }),
    Entry::new("non-stick", NONE, "Stick tables do not store this server", |s, _| {
        s.non_stick = true;
        Ok(())
    }),
    Entry::new("stick", NONE, "Undoes 'non-stick'", |s, _| {
        s.non_stick = false;
        Ok(())
    }),
    Entry::new("max-reuse", ONE, "Largest number of requests on one connection", |s, a| {
        s.max_reuse = a.number("a number of requests", -1..=i64::from(i32::MAX))?;
        Ok(())
    }),
    Entry::new("pool-max-conn", ONE, "Largest number of idle connections that are kept", |s, a| {
        s.pool_max_conn = a.number("a number of connections", -1..=i64::from(i32::MAX))?;
        Ok(())
    }),
    Entry::new("pool-low-conn", ONE, "Number of idle connections that each thread keeps", |s, a| {
        s.pool_low_conn = a.number("a number of connections", 0..=i32::MAX as u32)?;
        Ok(())
    })
    .notice("threads take no idle connections from one another in any case"),
    Entry::new("pool-purge-delay", ONE, "How often half the idle connections are closed", |s, a| {
        s.pool_purge_delay = a.time("a time")?;
        Ok(())
    }),
    Entry::new("guid", ONE, "A unique name under which the server's counters outlive the process", |s, a| {
        s.guid = Some(a.guid()?);
        Ok(())
    }),
];

const CHECK: &[Entry] = &[
    Entry::new("check", NONE, "The server's health is checked", |s, _| {
        s.check.enabled = true;
        Ok(())
    }),
    Entry::new("no-check", NONE, "Undoes 'check'", |s, _| {
        s.check.enabled = false;
        Ok(())
    }),
    Entry::new("inter", ONE, "Time between checks", |s, a| {
        s.check.inter = interval(a)?;
        Ok(())
    }),
    Entry::new("fastinter", ONE, "Time between checks while the server's state is changing", |s, a| {
        s.check.fastinter = Some(interval(a)?);
        Ok(())
    }),
    Entry::new("downinter", ONE, "Time between checks while the server is down", |s, a| {
        s.check.downinter = Some(interval(a)?);
        Ok(())
    }),
    Entry::new("rise", ONE, "Number of successful checks after which the server is up", |s, a| {
        s.check.rise = a.number("a number of checks", 1..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("fall", ONE, "Number of failed checks after which the server is down", |s, a| {
        s.check.fall = a.number("a number of checks", 1..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("port", ONE, "Port of the checks", |s, a| {
        // HAProxy reads 0 like no port at all.
        s.check.port = Some(a.number("a port", 0..=65535)?).filter(|port| *port > 0);
        Ok(())
    }),
    Entry::new("addr", ONE, "Address of the checks", |s, a| {
        let word = a.word("an address")?;
        let (host, port) = address::server(a, word)?;
        s.check.addr = Some(host);
        s.check.addr_port = match port {
            ServerPort::Fixed(port) => Some(port),
            ServerPort::Offset(0) => None,
            ServerPort::Offset(_) => {
                let text = format!("'{}' has an offset in place of a port", word.text);
                return a.wrong(word, text, "write the port, as in 192.0.2.1:8080");
            }
        };
        Ok(())
    }),
    Entry::new("check-ssl", NONE, "Checks speak TLS", |s, _| {
        s.check.ssl = Some(true);
        Ok(())
    }),
    Entry::new("no-check-ssl", NONE, "Checks do not speak TLS", |s, _| {
        s.check.ssl = Some(false);
        Ok(())
    }),
    Entry::new("check-sni", ONE, "Name the checks ask for", |s, a| {
        s.check.sni = Some(a.text("a host name")?);
        Ok(())
    }),
    Entry::new("check-alpn", ONE, "Protocols that health checks offer by ALPN", |s, a| {
        s.check.alpn = Some(tls::protocols(a)?);
        Ok(())
    })
    .notice("checks speak HTTP/1 and offer what the server's own connections do"),
    Entry::new("check-proto", ONE, "Protocol of health checks", |s, a| {
        s.check.proto = Some(a.choice("a protocol", &[("h1", "h1"), ("h2", "h2"), ("none", "none")])?.to_owned());
        Ok(())
    })
    .notice("checks speak HTTP/1"),
    Entry::new("check-send-proxy", NONE, "Checks begin with a PROXY header", |s, _| {
        s.check.send_proxy = true;
        Ok(())
    }),
    Entry::new("no-check-send-proxy", NONE, "Checks do not begin with a PROXY header", |s, _| {
        s.check.send_proxy = false;
        Ok(())
    }),
    Entry::new("agent-check", NONE, "An agent on the server reports its load and state", |s, _| {
        s.agent_check = true;
        Ok(())
    }),
    Entry::new("no-agent-check", NONE, "Undoes 'agent-check'", |s, _| {
        s.agent_check = false;
        Ok(())
    }),
    Entry::new("agent-port", ONE, "Port of the agent", |s, a| {
        agent(s).port = a.number("a port", 1..=65535)?;
        Ok(())
    }),
    Entry::new("agent-inter", ONE, "Time between questions to the agent", |s, a| {
        agent(s).inter = interval(a)?;
        Ok(())
    }),
    Entry::new("agent-addr", ONE, "Address of the agent, if it is not the server's", |s, a| {
        let word = a.word("an address")?;
        agent(s).addr = Some(address::agent(a, word)?);
        Ok(())
    }),
    Entry::new("agent-send", ONE, "What the agent is sent when it is asked", |s, a| {
        agent(s).send = Some(a.text("a string")?);
        Ok(())
    }),
    Entry::new("track", ONE, "Follows another server's state", |s, a| {
        s.track = Some(a.word("[BACKEND/]SERVER")?.clone());
        Ok(())
    }),
    Entry::new("observe", ONE, "The server's health is also judged by its traffic", |s, a| {
        let layers = [("layer4", Some("layer4")), ("layer7", Some("layer7")), ("none", None)];
        s.observe = a.choice("a layer", &layers)?.map(str::to_owned);
        Ok(())
    }),
    Entry::new("error-limit", ONE, "Number of consecutive errors after which 'on-error' acts", |s, a| {
        s.error_limit = a.number("a number of errors", 1..=i32::MAX as u32)?;
        Ok(())
    }),
    Entry::new("on-error", ONE, "What to do when 'error-limit' is reached", |s, a| {
        let actions = ["fastinter", "fail-check", "sudden-death", "mark-down"].map(|n| (n, n));
        s.on_error = Some(a.choice("an action", &actions)?.to_owned());
        Ok(())
    }),
    Entry::new("on-marked-down", ONE, "What to do with the server's sessions when it goes down", |s, a| {
        a.choice("an action", &[("shutdown-sessions", ())])?;
        s.on_marked_down_shutdown = true;
        Ok(())
    }),
    Entry::new(
        "on-marked-up",
        ONE,
        "What to do with the backup servers' sessions when this server comes up",
        |s, a| {
            a.choice("an action", &[("shutdown-backup-sessions", ())])?;
            s.on_marked_up_shutdown_backup = true;
            Ok(())
        },
    ),
];

pub(crate) const TLS: &[Entry] = &[
    Entry::new("ssl", NONE, "Connections to the server use TLS", |s, _| {
        s.tls.get_or_insert_default();
        s.no_ssl = false;
        Ok(())
    }),
    Entry::new("no-ssl", NONE, "Connections to the server are in clear text", |s, _| {
        s.tls_on_demand |= s.tls.take().is_some();
        s.no_ssl = true;
        Ok(())
    }),
    Entry::new("verify", ONE, "Whether the server's certificate is verified", |s, a| {
        tls::verify(&mut s.tls_settings.conf, a)
    }),
    Entry::new("verifyhost", ONE, "The name that the server's certificate must have", |s, a| {
        s.tls_settings.verifyhost = Some(a.text("a host name")?);
        Ok(())
    }),
    Entry::new("ca-file", ONE, "Certificate authorities of the server", |s, a| {
        tls::ca_file(&mut s.tls_settings.conf, a)
    }),
    Entry::new("crl-file", ONE, "Revoked certificates", |s, a| tls::crl_file(&mut s.tls_settings.conf, a)),
    Entry::new("crt", ONE, "The certificate presented to the server", |s, a| {
        let path = a.path("a certificate")?;
        s.tls_settings.crt = Some(based(a.around.crt_base.as_ref(), path));
        Ok(())
    }),
    Entry::new("sni", ONE, "The server name sent in the TLS handshake, as an expression", |s, a| {
        let word = a.word("a sample expression")?.clone();
        s.tls_settings.sni = Some(Line { words: vec![word], span: a.span });
        Ok(())
    }),
    Entry::new("alpn", ONE, "Protocols offered to the server", |s, a| tls::alpn(&mut s.tls_settings.conf, a)),
    Entry::new("ciphers", ONE, tls::CIPHERS, |s, a| tls::ciphers(&mut s.tls_settings.conf, a)),
    Entry::new("ciphersuites", ONE, tls::CIPHERSUITES, |s, a| tls::ciphersuites(&mut s.tls_settings.conf, a)),
    Entry::new("curves", ONE, tls::CURVES, |s, a| tls::curves(&mut s.tls_settings.conf, a)),
    Entry::new("force-tlsv12", NONE, "TLS 1.2 only", |s, _| tls::force(&mut s.tls_settings.conf, TlsVersion::Tls12)),
    Entry::new("force-tlsv13", NONE, "TLS 1.3 only", |s, _| tls::force(&mut s.tls_settings.conf, TlsVersion::Tls13)),
    Entry::new("no-sslv3", NONE, "Not SSL 3.0", |s, _| tls::without(&mut s.tls_settings.conf, TlsVersion::Ssl3)),
    Entry::new("no-tlsv10", NONE, "Not TLS 1.0", |s, _| tls::without(&mut s.tls_settings.conf, TlsVersion::Tls10)),
    Entry::new("no-tlsv11", NONE, "Not TLS 1.1", |s, _| tls::without(&mut s.tls_settings.conf, TlsVersion::Tls11)),
    Entry::new("no-tlsv12", NONE, "Not TLS 1.2", |s, _| tls::without(&mut s.tls_settings.conf, TlsVersion::Tls12)),
    Entry::new("no-tlsv13", NONE, "Not TLS 1.3", |s, _| tls::without(&mut s.tls_settings.conf, TlsVersion::Tls13)),
    Entry::new("ssl-min-ver", ONE, "Oldest version of TLS", |s, a| tls::min_version(&mut s.tls_settings.conf, a)),
    Entry::new("ssl-max-ver", ONE, "Newest version of TLS", |s, a| tls::max_version(&mut s.tls_settings.conf, a)),
    Entry::new("ssl-reuse", NONE, "Sessions are resumed", |s, _| {
        s.tls_settings.no_ssl_reuse = false;
        Ok(())
    }),
    Entry::new("no-ssl-reuse", NONE, "Sessions are not resumed", |s, _| {
        s.tls_settings.no_ssl_reuse = true;
        Ok(())
    }),
    Entry::new("tls-tickets", NONE, "Undoes 'no-tls-tickets'", |s, _| {
        s.tls_settings.conf.no_tls_tickets = false;
        Ok(())
    }),
    Entry::new("no-tls-tickets", NONE, "Tickets are not requested from the server", |s, _| {
        s.tls_settings.conf.no_tls_tickets = true;
        Ok(())
    }),
];

const REACH: &[Entry] = &[
    Entry::new("send-proxy", NONE, "Connections begin with a PROXY header, version 1", |s, _| {
        s.send_proxy_v1 = true;
        Ok(())
    }),
    Entry::new("no-send-proxy", NONE, "Undoes 'send-proxy'", |s, _| {
        s.send_proxy_v1 = false;
        Ok(())
    }),
    Entry::new("send-proxy-v2", NONE, "Connections begin with a PROXY header, version 2", |s, _| {
        s.send_proxy_v2 = true;
        Ok(())
    }),
    Entry::new("no-send-proxy-v2", NONE, "Undoes 'send-proxy-v2'", |s, _| unsend(s, &[])),
    Entry::new(
        "send-proxy-v2-ssl",
        NONE,
        "Connections begin with a PROXY header, version 2, with TLS information",
        |s, _| send(s, &["ssl"]),
    ),
    Entry::new("no-send-proxy-v2-ssl", NONE, "Undoes 'send-proxy-v2-ssl'", |s, _| unsend(s, &["ssl"])),
    Entry::new(
        "send-proxy-v2-ssl-cn",
        NONE,
        "Connections begin with a PROXY header, version 2, with TLS information and the client certificate's common name",
        |s, _| send(s, &["ssl", "cert-cn"]),
    ),
    Entry::new("no-send-proxy-v2-ssl-cn", NONE, "Undoes 'send-proxy-v2-ssl-cn'", |s, _| unsend(s, &["ssl", "cert-cn"])),
    Entry::new("set-proxy-v2-tlv-fmt", ONE, "A further field of the PROXY header, version 2, and its value", |s, a| {
        let kind = a.verb.split_once('(').and_then(|(_, kind)| tlv_type(kind.strip_suffix(')')?));
        let Some(kind) = kind else {
            let verb = a.verb;
            a.error(format!("'{verb}' has no type of field"))
                .hint("expected set-proxy-v2-tlv-fmt(TYPE), 0 to 255 or 0xff");
            return Err(Reported);
        };
        match a.take() {
            Some(format) => s.proxy_v2_tlvs.push((kind, format.clone())),
            None => return a.word("a format").map(drop),
        }
        Ok(())
    })
    .valued(),
    Entry::new(
        "pool-conn-name",
        ONE,
        "Name that idle connections must have been opened for, as an expression",
        |s, a| {
            let word = a.word("a sample expression")?.clone();
            s.pool_conn_name = Some(Line { words: vec![word], span: a.span });
            Ok(())
        },
    ),
    Entry::new("no-pool-conn-name", NONE, "Undoes 'pool-conn-name'", |s, _| {
        s.pool_conn_name = None;
        Ok(())
    }),
    Entry::new("proxy-v2-options", ONE, "What else the PROXY header tells; alone it asks for version 1", |s, a| {
        const OPTIONS: &[&str] =
            &["ssl", "cert-cn", "ssl-cipher", "cert-sig", "cert-key", "authority", "crc32c", "unique-id"];
        let word = a.word("a list of options")?;
        for option in word.text.split(',') {
            if !OPTIONS.contains(&option) {
                let hint = crate::args::expected(option, OPTIONS.iter().copied());
                return a.wrong(word, format!("'{option}' is not an option of the PROXY header"), hint);
            }
            s.proxy_v2_options.push(option.to_owned());
        }
        Ok(())
    }),
    Entry::new("proto", ONE, "The protocol, without negotiation", |s, a| {
        s.proto = Some(a.choice("a protocol", &[("h1", "h1"), ("h2", "h2"), ("none", "none")])?.to_owned());
        Ok(())
    }),
    Entry::new("ws", ONE, "The protocol that WebSockets use", |s, a| {
        let known = &[("auto", WebSockets::Auto), ("h1", WebSockets::Http1), ("h2", WebSockets::Http2)];
        s.ws = a.choice("auto, h1 or h2", known)?;
        Ok(())
    }),
    Entry::new("source", ANYTHING, "The address that connections come from", |s, a| {
        s.source = Some(source(a, true)?);
        Ok(())
    }),
    Entry::new("resolvers", ONE, "The 'resolvers' section that resolves the server's name at run time", |s, a| {
        s.resolvers = Some(a.word("the name of a resolvers section")?.clone());
        Ok(())
    }),
    Entry::new("resolve-prefer", ONE, "Preferred family of addresses", |s, a| {
        s.resolve_prefer_ipv4 = Some(a.choice("a family", &[("ipv4", true), ("ipv6", false)])?);
        Ok(())
    }),
    Entry::new("init-addr", ONE, "Where the server's address comes from at start", |s, a| {
        let word = a.word("a list of methods")?;
        s.init_addr.clear();
        for method in word.text.split(',') {
            s.init_addr.push(match (method, method.parse()) {
                ("last", _) => InitAddr::Last,
                ("libc", _) => InitAddr::Libc,
                ("none", _) => InitAddr::None,
                (_, Ok(ip)) => InitAddr::Ip(ip),
                _ => {
                    let hint = crate::args::expected(method, ["last", "libc", "none", "an address"].into_iter());
                    return a.wrong(word, format!("'{method}' is not a method of resolving an address"), hint);
                }
            });
        }
        Ok(())
    }),
    Entry::new("tcp-ut", ONE, "How long data may stay unacknowledged", |s, a| {
        s.tcp_ut = Some(a.time("a time")?);
        Ok(())
    }),
    Entry::new("tfo", NONE, "TCP Fast Open", |s, _| {
        s.tfo = true;
        Ok(())
    })
    .notice("connections to servers are opened without it"),
    Entry::new("no-tfo", NONE, "Undoes 'tfo'", |s, _| {
        s.tfo = false;
        Ok(())
    }),
];

/// Reads the type of a field of the PROXY header, in decimal or in hexadecimal.
fn tlv_type(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn interval(args: &mut Args<'_>) -> Parsed<Duration> {
    args.time_above_zero("an interval of zero is not allowed")
}

fn agent(settings: &mut ServerSettings) -> &mut AgentCheck {
    settings.agent.get_or_insert_default()
}

fn send(settings: &mut ServerSettings, options: &[&str]) -> Parsed {
    settings.send_proxy_v2 = true;
    settings.proxy_v2_options.extend(options.iter().map(|o| (*o).to_owned()));
    Ok(())
}

fn unsend(settings: &mut ServerSettings, options: &[&str]) -> Parsed {
    settings.send_proxy_v2 = false;
    settings.proxy_v2_options.retain(|option| !options.contains(&option.as_str()));
    Ok(())
}

/// Parses `server NAME ADDRESS SETTINGS...`.
pub(crate) fn server(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let name = args.word("the server's name")?;
    valid_name(name, args.around)?;
    let word = args.word("the server's address")?;
    let (host, port) = address::server(args, word)?;
    let (settings, read) = settings_of(&draft.default_server, args);
    let server = Server { name: name.text.clone(), span: args.span, host, port, settings, template: None };
    // A server with an invalid setting keeps its name, so that 'use-server' and 'track' do not report errors as well.
    draft.push_server(server, name.span, args.around);
    read
}

/// Parses `dispatch ADDRESS:PORT`: the only server of its section, which has no name and is not checked.
pub(crate) fn dispatch(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let word = args.word("an address with its port")?;
    let (host, port) = address::server(args, word)?;
    if !matches!(port, ServerPort::Fixed(_)) {
        let message = format!("'{}' names no port: all connections go to one", word.text);
        return args.wrong(word, message, "for instance 192.0.2.1:80");
    }
    let settings = Arc::default();
    let server = Server { name: Server::DISPATCH.into(), span: args.span, host, port, settings, template: None };
    draft.push_server(server, word.span, args.around);
    Ok(())
}

/// Parses `server-template PREFIX N|N-M ADDRESS SETTINGS...`.
pub(crate) fn template(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let prefix = args.word("the beginning of the servers' names")?;
    valid_name(prefix, args.around)?;
    let range = args.word("how many servers")?;
    let (low, high) = match range.text.split_once('-') {
        Some((low, high)) => {
            (args.number_in(range, low, "a number", 0..=65535)?, args.number_in(range, high, "a number", 0..=65535)?)
        }
        None => (1, args.number_in(range, &range.text, "a number of servers", 1..=65535)?),
    };
    if high < low {
        return args.wrong(range, format!("'{}' counts backwards", range.text), "for instance 5 or 1-5");
    }
    let word = args.word("the servers' address")?;
    let (host, port) = address::server(args, word)?;
    let (settings, read) = settings_of(&draft.default_server, args);
    read?;
    let first: u32 = low;
    for number in first..=high {
        let mut settings = Arc::clone(&settings);
        if let Some(id) = settings.id {
            Arc::make_mut(&mut settings).id = Some(id + (number - first));
        }
        let server = Server {
            name: format!("{}{number}", prefix.text),
            span: args.span,
            host: host.clone(),
            port,
            settings,
            template: Some(number),
        };
        draft.push_server(server, prefix.span, args.around);
    }
    Ok(())
}

/// Parses `default-server SETTINGS...`.
pub(crate) fn default_server(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let given = |name: &str| args.words.iter().find(|w| w.text == name).map(|w| w.span);
    let own: Option<(&str, Span)> = ["id", "guid"].into_iter().find_map(|name| given(name).map(|span| (name, span)));
    if let Some((name, span)) = own {
        args.diagnostics()
            .error(span, format!("'{name}' cannot be a default: each server has its own"))
            .hint("write it on the 'server' lines");
        return Err(Reported);
    }
    settings(&TABLE, Arc::make_mut(&mut draft.default_server), args)
}

/// The settings of a server: those of `default-server`, and what is left of its line. Servers with the same ones share
/// them where that is simple: in generated configurations there are thousands without any of their own.
fn settings_of(defaults: &Arc<ServerSettings>, args: &mut Args<'_>) -> (Arc<ServerSettings>, Parsed) {
    let is_complete = defaults.tls.is_none() && defaults.agent.is_some() == defaults.agent_check;
    if args.peek().is_none() && is_complete {
        return (Arc::clone(defaults), Ok(()));
    }
    let mut own = ServerSettings::clone(defaults);
    let read = settings(&TABLE, &mut own, args);
    (Arc::new(complete(own)), read)
}

/// Completes the settings: with `ssl`, the TLS settings apply to the server.
pub(crate) fn complete(mut settings: ServerSettings) -> ServerSettings {
    if settings.tls.is_some() {
        settings.tls = Some(settings.tls_settings.clone());
    }
    settings.agent = settings.agent_check.then(|| settings.agent.unwrap_or_default());
    settings
}
