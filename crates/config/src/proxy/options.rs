//! `option *`.

use super::draft::{Draft, Steps};
use crate::{
    args::{Args, Parsed, Reported},
    keyword::{ALL, ANYTHING, Arity, BACK, FRONT, Keyword, NONE, Places, between},
    model::{CheckKind, ConnectionMode, ForwardFor, Forwarded, LogFormat, MysqlUser, Options, RestrictedNames},
};
use std::net::IpAddr;

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    flag("option abortonclose", BACK, "A client that closes while it waits is dropped", |d, a| {
        set(d, a, |o| &mut o.abortonclose)
    }),
    flag("option allbackups", BACK, "All backup servers are used, not only the first", |d, a| {
        set(d, a, |o| &mut o.allbackups)
    }),
    flag("option checkcache", BACK, "Blocks responses whose cookie a shared cache could store", |d, a| {
        set(d, a, |o| &mut o.checkcache)
    }),
    flag("option clitcpka", FRONT, "TCP keep-alive towards clients", |d, a| set(d, a, |o| &mut o.clitcpka)),
    flag("option srvtcpka", BACK, "TCP keep-alive towards servers", |d, a| set(d, a, |o| &mut o.srvtcpka)),
    Entry::new("option tcpka", NONE, "TCP keep-alive on both sides", |d, _| {
        d.proxy.options.clitcpka = true;
        d.proxy.options.srvtcpka = true;
        Ok(())
    }),
    flag("option contstats", FRONT, "Updates counters during a transfer, not only at its end", |d, a| {
        set(d, a, |o| &mut o.contstats)
    })
    .notice("counters follow each message"),
    flag("option dontlog-normal", FRONT, "Only what failed is logged", |d, a| set(d, a, |o| &mut o.dontlog_normal)),
    flag("option dontlognull", FRONT, "Connections without a byte are not logged", |d, a| {
        set(d, a, |o| &mut o.dontlognull)
    }),
    flag(
        "option http-buffer-request",
        ALL,
        "Rules run only once the request's body, or a buffer full of it, has arrived",
        |d, a| set(d, a, |o| &mut o.http_buffer_request),
    ),
    flag(
        "option http-ignore-probes",
        FRONT,
        "Connections that close without a request are neither answered nor logged",
        |d, a| set(d, a, |o| &mut o.http_ignore_probes),
    ),
    flag("option http-no-delay", ALL, "Sends data at once instead of filling packets", |d, a| {
        set(d, a, |o| &mut o.http_no_delay)
    })
    .notice("nothing is ever held back"),
    flag(
        "option http-pretend-keepalive",
        BACK,
        "The server's connection is closed without announcing it in the request",
        |d, a| set(d, a, |o| &mut o.http_pretend_keepalive),
    ),
    flag("option http-use-proxy-header", FRONT, "Reads Proxy-Connection instead of Connection", |d, a| {
        set(d, a, |o| &mut o.http_use_proxy_header)
    })
    .notice("the Connection header is used"),
    flag(
        "option idle-close-on-response",
        FRONT,
        "In a soft stop, an idle connection is closed after its next response",
        |d, a| set(d, a, |o| &mut o.idle_close_on_response),
    ),
    flag(
        "option independent-streams",
        ALL,
        "Lets activity in one direction not refresh the other's timeout",
        |d, a| set(d, a, |o| &mut o.independent_streams),
    )
    .notice("data in either direction keeps a stream alive"),
    flag("option log-health-checks", BACK, "Each change of a check's result is logged", |d, a| {
        set(d, a, |o| &mut o.log_health_checks)
    }),
    flag("option log-separate-errors", FRONT, "Errors are logged at level err", |d, a| {
        set(d, a, |o| &mut o.log_separate_errors)
    }),
    flag("option logasap", FRONT, "The log line is written as soon as the response's head is known", |d, a| {
        set(d, a, |o| &mut o.logasap)
    }),
    flag("option nolinger", ALL, "Closes connections with a reset", |d, a| set(d, a, |o| &mut o.nolinger)),
    flag("option persist", BACK, "A cookie's server is used even when it is down", |d, a| {
        set(d, a, |o| &mut o.persist)
    }),
    flag(
        "option prefer-last-server",
        BACK,
        "Requests of one client connection go to the same server if possible",
        |d, a| set(d, a, |o| &mut o.prefer_last_server),
    ),
    flag("option socket-stats", FRONT, "Counters for each listening address", |d, a| {
        set(d, a, |o| &mut o.socket_stats)
    }),
    flag("option splice-auto", ALL, "Splices data between sockets in both directions", |d, a| {
        set(d, a, |o| &mut o.splice_auto)
    })
    .notice("data passes through the worker's own buffers"),
    flag("option splice-request", ALL, "Splices the data of requests between sockets", |d, a| {
        set(d, a, |o| &mut o.splice_auto)
    })
    .notice("data passes through the worker's own buffers"),
    flag("option splice-response", ALL, "Splices the data of responses between sockets", |d, a| {
        set(d, a, |o| &mut o.splice_auto)
    })
    .notice("data passes through the worker's own buffers"),
    flag("option tcp-smart-accept", FRONT, "Delays the first acknowledgement until there is data", |d, a| {
        set(d, a, |o| &mut o.tcp_smart_accept)
    })
    .notice("acknowledgements are left to the system"),
    flag("option tcp-smart-connect", BACK, "Sends the request with the handshake's last acknowledgement", |d, a| {
        set(d, a, |o| &mut o.tcp_smart_connect)
    })
    .notice("acknowledgements are left to the system"),
    flag(
        "option transparent",
        BACK,
        "Forwards connections to their original destination where there is no server",
        |d, a| set(d, a, |o| &mut o.transparent),
    )
    .notice(NO_TRANSPARENT),
    Entry::new("transparent", NONE, "Old form of 'option transparent'", |d, a| set(d, a, |o| &mut o.transparent))
        .at(BACK)
        .notice(NO_TRANSPARENT),
    flag("option accept-invalid-http-request", FRONT, "Accepts some malformed requests", |d, a| {
        set(d, a, |o| &mut o.accept_invalid_http_request)
    })
    .notice("malformed requests are always refused, since they can be used for request smuggling"),
    flag("option accept-invalid-http-response", BACK, "Accepts some malformed responses", |d, a| {
        set(d, a, |o| &mut o.accept_invalid_http_response)
    })
    .notice("malformed responses are always refused, since they can be used for response splitting"),
    flag("option accept-unsafe-violations-in-http-request", FRONT, "Accepts some malformed requests", |d, a| {
        set(d, a, |o| &mut o.accept_invalid_http_request)
    })
    .notice("malformed requests are always refused, since they can be used for request smuggling"),
    flag("option accept-unsafe-violations-in-http-response", BACK, "Accepts some malformed responses", |d, a| {
        set(d, a, |o| &mut o.accept_invalid_http_response)
    })
    .notice("malformed responses are always refused, since they can be used for response splitting"),
    flag(
        "option disable-h2-upgrade",
        FRONT,
        "Does not recognise HTTP/2 by its preface on clear-text connections",
        |d, a| set(d, a, |o| &mut o.disable_h2_upgrade),
    )
    .notice("HTTP/2 is known by its preface in any case"),
    flag(
        "option h1-case-adjust-bogus-client",
        FRONT,
        "Sends header field names in the letter case of 'h1-case-adjust'",
        |d, a| set(d, a, |o| &mut o.h1_case_adjust_client),
    ),
    flag(
        "option h1-case-adjust-bogus-server",
        BACK,
        "Sends header field names in the letter case of 'h1-case-adjust'",
        |d, a| set(d, a, |o| &mut o.h1_case_adjust_server),
    ),
    Entry::new("option forwarded", ANYTHING, "Adds a Forwarded header (RFC 7239)", |d, a| {
        d.proxy.options.forwarded = if a.on() { Some(forwarded(a)?) } else { None };
        Ok(())
    })
    .at(BACK)
    .no(),
    Entry::new("option forwardfor", between(0, 5), "Adds X-Forwarded-For with the client's address", |d, a| {
        d.proxy.options.forwardfor = Some(forward(a, &["except", "header", "if-none"])?);
        Ok(())
    }),
    Entry::new("option originalto", between(0, 4), "Adds X-Original-To with the address the client chose", |d, a| {
        d.proxy.options.originalto = Some(forward(a, &["except", "header"])?);
        Ok(())
    }),
    connection("option http-keep-alive", "Keeps the connections of both sides after a response", |d, a| {
        mode(d, a, ConnectionMode::KeepAlive)
    }),
    connection("option http-server-close", "The server's side is closed after a response", |d, a| {
        mode(d, a, ConnectionMode::ServerClose)
    }),
    connection("option httpclose", "Closes the connections of both sides after a response", |d, a| {
        mode(d, a, ConnectionMode::Close)
    }),
    Entry::refused(
        "option forceclose",
        "Old name of 'option httpclose'",
        "HAProxy 2.0 made it another name of 'option httpclose'",
        "write 'option httpclose'",
    ),
    Entry::refused(
        "option http-tunnel",
        "Stops looking at a connection after its first request",
        "HAProxy 2.1 removed it: later requests went by unseen",
        "remove it; 'mode tcp' passes a stream through as it is",
    ),
    Entry::refused(
        "option http-use-htx",
        "HAProxy's internal representation of messages",
        "HAProxy 2.6 does not know it either: it chose between two internals, of which one is left",
        "remove it",
    ),
    Entry::new(
        "option http-restrict-req-hdr-names",
        between(1, 1),
        "What is done with unusual header field names",
        |d, a| {
            let choices = [
                ("preserve", RestrictedNames::Preserve),
                ("delete", RestrictedNames::Delete),
                ("reject", RestrictedNames::Reject),
            ];
            d.proxy.options.restricted_names = a.choice("a policy", &choices)?;
            Ok(())
        },
    ),
    Entry::accepted(
        "option http-drop-request-trailers",
        NONE,
        "Drops the trailers of requests",
        "trailers are forwarded as received",
    )
    .no(),
    Entry::accepted(
        "option http-drop-response-trailers",
        NONE,
        "Drops the trailers of responses",
        "trailers are forwarded as received",
    )
    .no(),
    Entry::new("option redispatch", between(0, 1), "A failed connection is tried on another server", |d, a| {
        d.proxy.options.redispatch = match a.peek() {
            _ if a.negated => None,
            Some(_) => Some(a.number("an interval of tries", i32::MIN..=i32::MAX)?),
            None => Some(-1),
        };
        Ok(())
    })
    .spare()
    .at(BACK)
    .no(),
    Entry::refused(
        "redispatch",
        "Old form of 'option redispatch'",
        "HAProxy 2.1 removed it",
        "write 'option redispatch'",
    )
    .at(BACK),
    Entry::new("option httplog", between(0, 1), "One log line for each request", |d, a| {
        let clf = a.peek().is_some();
        if let Some(word) = a.take().filter(|w| w.text != "clf") {
            return a.wrong(
                word,
                format!("'option httplog' does not take '{}'", word.text),
                "expected 'clf' or nothing",
            );
        }
        log(d, if clf { LogFormat::HttpClf } else { LogFormat::Http })
    })
    .at(FRONT),
    Entry::new("option httpslog", NONE, "One log line for each request, with TLS facts", |d, _| {
        log(d, LogFormat::Https)
    })
    .spare()
    .at(FRONT),
    Entry::new("option tcplog", NONE, "One log line for each connection", |d, _| log(d, LogFormat::Tcp)).at(FRONT),
    check("option httpchk", between(0, 3), "Health checks by an HTTP request", httpchk),
    check("option tcp-check", NONE, "Health checks by the 'tcp-check' lines", |d, a| {
        a.rest();
        kind(d, CheckKind::Tcp)
    }),
    check("option ssl-hello-chk", NONE, "Health checks by a ClientHello", |d, _| kind(d, CheckKind::SslHello)),
    check("option smtpchk", between(0, 2), "Health checks by an SMTP greeting", |d, a| {
        let hello = match (a.take(), a.take()) {
            (Some(hello), Some(domain)) => Some((hello.text.clone(), domain.text.clone())),
            _ => None,
        };
        kind(d, CheckKind::Smtp(hello))
    }),
    check("option mysql-check", between(0, 3), "Health checks by a MySQL handshake", |d, a| {
        let user = mysql_user(a)?;
        kind(d, CheckKind::Mysql(user))
    }),
    check("option pgsql-check", between(2, 2), "Health checks by a PostgreSQL start packet", |d, a| {
        let user = user(a)?.unwrap_or_default();
        kind(d, CheckKind::Pgsql(user))
    }),
    check("option redis-check", NONE, "Health checks by a Redis PING", |d, _| kind(d, CheckKind::Redis)),
    check("option ldap-check", NONE, "Health checks by an anonymous LDAP bind", |d, _| kind(d, CheckKind::Ldap)),
    check("option external-check", NONE, "Health checks by a program", |d, _| kind(d, CheckKind::External)),
    check("option spop-check", NONE, "Health checks by the hello of SPOP", |d, _| kind(d, CheckKind::Spop)),
];

type Parse = fn(&mut Draft, &mut Args<'_>) -> Parsed;

const fn flag(name: &'static str, places: Places, doc: &'static str, parse: Parse) -> Entry {
    Entry::new(name, NONE, doc, parse).at(places).no()
}

const fn connection(name: &'static str, doc: &'static str, parse: Parse) -> Entry {
    Entry::new(name, NONE, doc, parse).no()
}

const fn check(name: &'static str, arity: Arity, doc: &'static str, parse: Parse) -> Entry {
    Entry::new(name, arity, doc, parse).at(BACK)
}

fn set(draft: &mut Draft, args: &mut Args<'_>, field: fn(&mut Options) -> &mut bool) -> Parsed {
    *field(&mut draft.proxy.options) = args.on();
    Ok(())
}

/// The last mode written applies; `no` only undoes the one that is set.
fn mode(draft: &mut Draft, args: &mut Args<'_>, mode: ConnectionMode) -> Parsed {
    let connection = &mut draft.proxy.options.connection;
    if args.on() {
        *connection = mode;
    } else if *connection == mode {
        *connection = ConnectionMode::KeepAlive;
    }
    Ok(())
}

fn log(draft: &mut Draft, format: LogFormat) -> Parsed {
    draft.proxy.options.log = format;
    // An earlier format is replaced, since the last one written applies.
    draft.proxy.log_format = None;
    Ok(())
}

fn kind(draft: &mut Draft, kind: CheckKind) -> Parsed {
    draft.proxy.check = kind;
    Ok(())
}

/// Parses `[except NET] [header NAME] [if-none]`, as far as those words are `known` to the option.
fn forward(args: &mut Args<'_>, known: &[&str]) -> Parsed<ForwardFor> {
    let mut value = ForwardFor::default();
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "except" => value.except = Some(network(args)?),
            "header" => value.header = Some(args.text("the name of a header")?),
            "if-none" if known.contains(&"if-none") => value.if_none = true,
            _ => {
                args.next -= 1;
                args.unexpected(known)?;
            }
        }
    }
    Ok(value)
}

/// Parses `[proto] [host] [by] [by_port] [for] [for_port]`.
fn forwarded(args: &mut Args<'_>) -> Parsed<Forwarded> {
    const KNOWN: &[&str] = &["proto", "host", "by", "by_port", "for", "for_port"];
    let mut value = Forwarded::default();
    if args.peek().is_none() {
        return Ok(Forwarded { proto: true, client: true, ..value });
    }
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "proto" => value.proto = true,
            "host" => value.host = true,
            "by" => value.by = true,
            "by_port" => value.by_port = true,
            "for" => value.client = true,
            "for_port" => value.client_port = true,
            expression if expression.ends_with("-expr") => {
                return args.wrong(
                    word,
                    format!("'{expression}' is not supported"),
                    "write the header with 'http-request set-header Forwarded'",
                );
            }
            _ => {
                args.next -= 1;
                args.unexpected(KNOWN)?;
            }
        }
    }
    if (value.by_port && !value.by) || (value.client_port && !value.client) {
        args.error("a port of 'option forwarded' needs its address")
            .hint("add 'by' to 'by_port' and 'for' to 'for_port'");
        return Err(Reported);
    }
    Ok(value)
}

/// Parses `ADDRESS[/LENGTH]`.
pub(super) fn network(args: &mut Args<'_>) -> Parsed<(IpAddr, u8)> {
    let word = args.word("a network")?;
    match network_of(&word.text) {
        Some(network) => Ok(network),
        None => args.wrong(word, format!("'{}' is not a network", word.text), "expected for instance 127.0.0.0/8"),
    }
}

/// The network that `ADDRESS[/LENGTH]` means.
pub(crate) fn network_of(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let ip: IpAddr = address.parse().ok()?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let length = match (length, length.parse::<std::net::Ipv4Addr>()) {
        ("", _) => most,
        // A netmask, as in 127.0.0.0/255.0.0.0.
        (_, Ok(mask)) if ip.is_ipv4() && u32::from(mask).leading_ones() + u32::from(mask).trailing_zeros() == 32 => {
            u32::from(mask).leading_ones() as u8
        }
        (length, _) => length.parse().ok()?,
    };
    (length <= most).then_some((ip, length))
}

/// Parses `[METHOD] URI [VERSION]`.
fn httpchk(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let words: Vec<String> = args.rest().words.into_iter().map(|w| w.text).collect();
    let (method, uri, version) = match words.as_slice() {
        [] => (None, None, None),
        [uri] => (None, Some(uri.clone()), None),
        [method, uri] => (Some(method.clone()), Some(uri.clone()), None),
        // Before 2.2, this was the way to add headers: after the version, as in "HTTP/1.1\r\nHost:\ www".
        [method, uri, version, ..] => (Some(method.clone()), Some(uri.clone()), Some(version.clone())),
    };
    draft.own_steps(Steps::Http);
    kind(draft, CheckKind::Http { method, uri, version })
}

/// Parses `[user NAME [post-41|pre-41]]`.
fn mysql_user(args: &mut Args<'_>) -> Parsed<Option<MysqlUser>> {
    let Some(name) = user(args)? else { return Ok(None) };
    let pre_41 = match args.peek().map(|word| word.text.as_str()) {
        Some(version @ ("post-41" | "pre-41")) => {
            let pre_41 = version == "pre-41";
            args.take();
            pre_41
        }
        _ => false,
    };
    args.unexpected(&["post-41", "pre-41"])?;
    Ok(Some(MysqlUser { name, pre_41 }))
}

/// Parses `[user NAME]`.
fn user(args: &mut Args<'_>) -> Parsed<Option<String>> {
    let Some(word) = args.take() else { return Ok(None) };
    if word.text != "user" {
        return args.wrong(word, format!("'{}' is not expected here", word.text), "expected 'user' and a name");
    }
    let name = args.text("the name of a user")?;
    if name.is_empty() {
        return Err(Reported);
    }
    Ok(Some(name))
}

/// Why `transparent` has no effect.
const NO_TRANSPARENT: &str = "a proxy without a server answers 503; write 'server NAME 0.0.0.0'";
