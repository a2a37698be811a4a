//! `bind` lines (manual section 5.1).

use crate::{
    address,
    args::{Args, Parsed, Reported},
    cpu_map::THREADS_MAX,
    keyword::{Keyword, NONE, ONE, Support, Table},
    model::{Account, Bind, BindTls, Generate, ListenAddress, TlsVersion},
    proxy::based,
    span::{Span, Spanned},
    tls,
    values::{number_above_zero, process, signature_algorithms, socket_owner, threads},
};
use std::path::PathBuf;

type Entry = Keyword<BindDraft>;

/// A `bind` line being read: whether the TLS settings count is known only at its end, by `ssl`.
#[derive(Clone)]
pub(crate) struct BindDraft {
    bind: Bind,
    tls: BindTls,
    ssl: bool,
    signing: Signing,
}

/// What the line says about generated certificates.
#[derive(Clone, Default)]
struct Signing {
    generate: bool,
    file: Option<Spanned<PathBuf>>,
    pass: Option<String>,
    use_chain: bool,
    untrusted: Option<Spanned<PathBuf>>,
}

impl BindDraft {
    pub(crate) fn new(addresses: Vec<Spanned<ListenAddress>>, span: Span) -> BindDraft {
        BindDraft { bind: Bind::new(addresses, span), tls: BindTls::default(), ssl: false, signing: Signing::default() }
    }

    /// Makes it listen on one address.
    pub(crate) fn listen(&mut self, address: ListenAddress, span: Span) {
        self.bind.addresses = vec![Spanned { value: address, span }];
        self.bind.span = span;
    }

    /// Completes it: the TLS settings count with `ssl`.
    pub(crate) fn finish(self, args: &mut Args<'_>) -> Parsed<Bind> {
        let BindDraft { mut bind, mut tls, ssl, signing } = self;
        if ssl && bind.ssl_on_connect {
            args.error("'ssl' and 'ssl-on-connect' exclude each other: TLS begins at once, or inside a CONNECT")
                .hint("write two 'bind' lines");
            return Err(Reported);
        }
        if ssl || bind.ssl_on_connect {
            if !has_certificates(&tls) {
                let word = if ssl { "ssl" } else { "ssl-on-connect" };
                args.error(format!("'bind' with '{word}' has no certificate"))
                    .hint("add 'crt FILE' or 'crt-list FILE'");
                return Err(Reported);
            }
            tls.generate = signing.finish(args)?;
            bind.tls = Some(tls);
        } else {
            if has_certificates(&tls) {
                let span = args.span;
                args.diagnostics()
                    .warning(span, "this 'bind' line has certificates but not 'ssl': it is served in clear text")
                    .hint("add 'ssl' to serve TLS");
            }
            bind.idle_tls = Some(tls);
        }
        Ok(bind)
    }
}

impl Signing {
    fn finish(self, args: &mut Args<'_>) -> Parsed<Option<Generate>> {
        match (self.generate, self.file) {
            (true, Some(ca_sign_file)) => Ok(Some(Generate {
                ca_sign_file,
                ca_sign_pass: self.pass,
                ca_sign_use_chain: self.use_chain,
                ca_sign_untrusted: self.untrusted,
            })),
            (true, None) => {
                args.error("'generate-certificates' has no authority to sign them")
                    .hint("add 'ca-sign-file FILE', with the authority's certificate and its key");
                Err(Reported)
            }
            (false, Some(file)) => {
                let message = "'ca-sign-file' has no effect without 'generate-certificates'";
                args.diagnostics().notice(file.span, message);
                Ok(None)
            }
            (false, None) => Ok(None),
        }
    }
}

/// The settings that matter where peers listen; the TLS settings, and those of the socket.
pub(crate) static MEANT_FOR_PEERS: [&str; 42] = [
    "backlog",
    "interface",
    "mss",
    "tcp-ut",
    "tfo",
    "transparent",
    "v4v6",
    "v6only",
    "name",
    "id",
    "ssl",
    "crt",
    "default-crt",
    "crt-list",
    "ca-file",
    "ca-verify-file",
    "crl-file",
    "ca-ignore-err",
    "crt-ignore-err",
    "ciphers",
    "ciphersuites",
    "curves",
    "ecdhe",
    "force-tlsv12",
    "force-tlsv13",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "ssl-min-ver",
    "ssl-max-ver",
    "no-tls-tickets",
    "tls-tickets",
    "prefer-client-ciphers",
    "strict-sni",
    "no-strict-sni",
    "tls-ticket-keys",
    "verify",
    "guid-prefix",
    "defer-accept",
    "no-alpn",
];

/// Every setting of a `bind` line.
pub(crate) static TABLE: Table<BindDraft> = Table::new("bind", &[SOCKET, TLS]);

const SOCKET: &[Entry] = &[
    Entry::new("accept-proxy", NONE, "Connections begin with a PROXY header", |d, _| {
        d.bind.accept_proxy = true;
        Ok(())
    }),
    Entry::refused(
        "accept-netscaler-cip",
        "Connections begin with a NetScaler header",
        "that protocol is not read",
        "use 'accept-proxy' and have the balancer before send PROXY headers",
    ),
    Entry::new("backlog", ONE, "Number of connections that the system may queue", |d, a| {
        // As in HAProxy, 0 leaves it to the default.
        d.bind.backlog = Some(a.number("a number of connections", 0..=i32::MAX as u32)?).filter(|backlog| *backlog > 0);
        Ok(())
    }),
    Entry::new("defer-accept", NONE, "The system waits for data before it accepts", |d, _| {
        d.bind.defer_accept = true;
        Ok(())
    }),
    Entry::new("expose-fd", ONE, "Hands listening sockets over to the next process", |_, a| {
        a.choice("what to expose", &[("listeners", ())])
    })
    .notice("this is not a stats socket"),
    Entry::new("gid", ONE, "Group of the unix socket, by number", |d, a| {
        d.bind.group = Some(Account::Id(a.number("a group's number", 0..=u32::MAX)?));
        Ok(())
    }),
    Entry::new("group", ONE, "Group of the unix socket", |d, a| {
        d.bind.group = Some(Account::Name(a.text("a group")?));
        Ok(())
    }),
    Entry::new(
        "guid-prefix",
        ONE,
        "Prefix of the unique names under which the sockets' counters outlive the process",
        |d, a| {
            d.bind.guid_prefix = Some(a.guid()?);
            Ok(())
        },
    ),
    Entry::new("id", ONE, "Number of the socket in statistics", |d, a| {
        a.only_once(d.bind.id.is_some())?;
        d.bind.id = Some(a.number("a socket's number", 1..=i32::MAX as u32)?);
        Ok(())
    }),
    Entry::accepted("idle-ping", ONE, "Pings idle HTTP/2 clients", "idle clients are closed by their timeout"),
    Entry::new("interface", ONE, "Accepts only connections that arrive on this network interface", |d, a| {
        d.bind.interface = Some(a.text("an interface")?);
        Ok(())
    }),
    Entry::accepted("label", ONE, "Label by which other lines refer to this one", "nothing refers to it yet"),
    Entry::new("level", ONE, "Privilege level of a stats socket", |_, a| {
        a.choice("a level", &[("user", ()), ("operator", ()), ("admin", ())])
    })
    .notice("this is not a stats socket"),
    Entry::new("severity-output", ONE, "How a stats socket shows the severity of its answers", |_, a| {
        a.choice("how to write severities", &[("none", ()), ("number", ()), ("string", ())])
    })
    .notice("this is not a stats socket"),
    Entry::new("maxconn", ONE, "Largest number of concurrent connections", |d, a| {
        d.bind.maxconn = Some(a.number("a number of connections", 1..=i32::MAX as u32)?);
        Ok(())
    }),
    Entry::new("mode", ONE, "Permissions of the unix socket, octal", |d, a| {
        d.bind.mode = Some(octal(a)?);
        Ok(())
    }),
    Entry::new("mss", ONE, "Largest TCP segment to announce", |d, a| {
        let word = a.word("a segment size")?;
        // A negative value means this much less than the system's own.
        let mss: i32 = a.number_in(word, &word.text, "a segment size", -65535..=65535)?;
        if mss == 0 {
            return a.wrong(word, "a segment has at least one byte", "from 1 to 65535, or less than 0 to subtract");
        }
        d.bind.mss = u32::try_from(mss).ok().filter(|m| *m > 0);
        Ok(())
    }),
    Entry::new("name", ONE, "Name of the socket in statistics", |d, a| {
        d.bind.name = Some(a.text("a name")?);
        Ok(())
    }),
    Entry::new("namespace", ONE, "Listens in this network namespace", |d, a| {
        d.bind.namespace = Some(a.spanned("a namespace")?);
        Ok(())
    }),
    Entry::new("nbconn", ONE, "Number of connections of a reverse HTTP listener", number_above_zero)
        .notice("reverse HTTP is not served"),
    Entry::new("nice", ONE, "Priority of the socket's connections", |_, a| {
        a.number("a priority", -1024..=1024).map(drop)
    })
    .notice("connections of a worker take turns"),
    Entry::new("process", ONE, "Which processes serve it", process)
        .notice("there is one process, and all its threads serve"),
    Entry::new("thread", ONE, "Threads that serve the address", threads).notice("all threads serve every address"),
    Entry::new("shards", ONE, "Number of listening sockets for the address", |_, a| match a.peek() {
        Some(word) if matches!(word.text.as_str(), "by-thread" | "by-group") => a.word("a number").map(drop),
        _ => a.number("a number of sockets", 1..=THREADS_MAX).map(drop),
    })
    .notice("each thread has a socket of its own"),
    Entry::new("proto", ONE, "The protocol, without negotiation", |d, a| {
        d.bind.proto = Some(a.choice("a protocol", &[("h1", "h1"), ("h2", "h2")])?.to_owned());
        Ok(())
    }),
    Entry::accepted("quic-cc-algo", ONE, "Congestion control of QUIC", "QUIC is not served"),
    Entry::accepted("quic-force-retry", NONE, "Makes QUIC clients prove their address", "QUIC is not served"),
    Entry::new("quic-socket", ONE, "How sockets are assigned to QUIC connections", socket_owner)
        .notice("QUIC is not served"),
    Entry::new("tcp-ut", ONE, "How long data may stay unacknowledged", |d, a| {
        d.bind.tcp_ut = Some(a.time("a time")?);
        Ok(())
    }),
    Entry::accepted("tcp-ss", ONE, "Saves the headers of SYN packets", "no fetch reads them"),
    Entry::accepted("tcp-md5sig", ONE, "Signs TCP segments", "segments are not signed"),
    Entry::accepted("cc", ONE, "Congestion control of TCP", "the system's own is used"),
    Entry::new("tfo", NONE, "TCP Fast Open", |d, _| {
        d.bind.tfo = true;
        Ok(())
    }),
    Entry::new("transparent", NONE, "Foreign addresses may be listened on", |d, _| {
        d.bind.transparent = true;
        Ok(())
    }),
    Entry::new("uid", ONE, "Owner of the unix socket, by number", |d, a| {
        d.bind.user = Some(Account::Id(a.number("a user's number", 0..=u32::MAX)?));
        Ok(())
    }),
    Entry::new("user", ONE, "Owner of the unix socket", |d, a| {
        d.bind.user = Some(Account::Name(a.text("a user")?));
        Ok(())
    }),
    Entry::new("v4v6", NONE, "An IPv6 socket serves IPv4 as well", |d, _| {
        d.bind.v4v6 = true;
        Ok(())
    }),
    Entry::new("v6only", NONE, "An IPv6 socket serves IPv6 only", |d, _| {
        d.bind.v6only = true;
        Ok(())
    }),
];

const TLS: &[Entry] = &[
    Entry::new("ssl", NONE, "Clients speak TLS", |d, _| {
        d.ssl = true;
        Ok(())
    }),
    Entry::new("ssl-on-connect", NONE, "Clients speak TLS inside the tunnel that they open by CONNECT", |d, _| {
        d.bind.ssl_on_connect = true;
        Ok(())
    }),
    Entry::new("crt", ONE, "A certificate with its key, or a directory of them", |d, a| {
        d.tls.crt.push(certificate(a)?);
        Ok(())
    }),
    Entry::new("crt-list", ONE, "A file of certificates, each with settings and names", |d, a| {
        let path = a.path("a crt-list")?;
        d.tls.crt_list.push(path);
        Ok(())
    }),
    Entry::new(
        "default-crt",
        ONE,
        "As 'crt', and presented where no certificate has the client's server name",
        |d, a| {
            d.tls.default_crt.push(certificate(a)?);
            Ok(())
        },
    ),
    Entry::accepted("allow-0rtt", NONE, "TLS 1.3 early data", "early data is not accepted, clients send it again"),
    Entry::new("alpn", ONE, "Protocols offered to the client, best first", |d, a| tls::alpn(&mut d.tls.conf, a)),
    Entry::new("no-alpn", NONE, "No protocol is offered", |d, _| {
        d.tls.conf.alpn = Some(Vec::new());
        Ok(())
    }),
    Entry::new("npn", ONE, "Protocols offered by NPN, which TLS no longer has: none, without 'alpn'", |d, a| {
        tls::protocols(a)?;
        d.tls.conf.alpn.get_or_insert_default();
        Ok(())
    }),
    Entry::new("ca-file", ONE, "Certificate authorities of clients", |d, a| tls::ca_file(&mut d.tls.conf, a)),
    Entry::new(
        "ca-verify-file",
        ONE,
        "Further certificate authorities of clients, whose names are not sent",
        |d, a| tls::ca_verify_file(&mut d.tls.conf, a),
    ),
    Entry::new("crl-file", ONE, "Revoked certificates of clients", |d, a| tls::crl_file(&mut d.tls.conf, a)),
    Entry::new("ca-ignore-err", ONE, "Errors in a client's certificate chain that are ignored", |d, a| {
        d.tls.ca_ignore_err = Some(errors(a)?);
        Ok(())
    }),
    Entry::new("crt-ignore-err", ONE, "Errors in a client's certificate that are ignored", |d, a| {
        d.tls.crt_ignore_err = Some(errors(a)?);
        Ok(())
    }),
    Entry::new("ca-sign-file", ONE, "Authority that signs generated certificates, with its key", |d, a| {
        let path = a.path("a certificate")?;
        d.signing.file = Some(based(a.around.ca_base.as_ref(), path));
        Ok(())
    }),
    Entry::new("ca-sign-pass", ONE, "Passphrase of the authority's key for generated certificates", |d, a| {
        d.signing.pass = Some(a.text("a passphrase")?);
        Ok(())
    }),
    Entry::new("ca-sign-untrusted", ONE, "Authority that signs in place of servers that do not validate", |d, a| {
        let path = a.path("a certificate")?;
        d.signing.untrusted = Some(based(a.around.ca_base.as_ref(), path));
        Ok(())
    }),
    Entry::new("ca-sign-use-chain", NONE, "Sends the authority's chain with generated certificates", |d, _| {
        d.signing.use_chain = true;
        Ok(())
    }),
    Entry::new("generate-certificates", NONE, "Generates a certificate for each server name without one", |d, _| {
        d.signing.generate = true;
        Ok(())
    }),
    Entry::new("ciphers", ONE, tls::CIPHERS, |d, a| tls::ciphers(&mut d.tls.conf, a)),
    Entry::new("ciphersuites", ONE, tls::CIPHERSUITES, |d, a| tls::ciphersuites(&mut d.tls.conf, a)),
    Entry::new("curves", ONE, tls::CURVES, |d, a| tls::curves(&mut d.tls.conf, a)),
    Entry::new("ecdhe", ONE, "Groups for the key exchange where no 'curves' are set", |d, a| {
        d.tls.conf.ecdhe = Some(a.spanned("a list of curves")?);
        Ok(())
    }),
    Entry::new("sigalgs", ONE, "Signature algorithms", signature_algorithms)
        .notice("the TLS library's own order is used"),
    Entry::new("client-sigalgs", ONE, "Signature algorithms of clients", signature_algorithms)
        .notice("the TLS library's own set is used"),
    Entry::refused("force-sslv3", "SSL 3.0 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::refused("force-tlsv10", "TLS 1.0 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::refused("force-tlsv11", "TLS 1.1 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::new("force-tlsv12", NONE, "TLS 1.2 only", |d, _| tls::force(&mut d.tls.conf, TlsVersion::Tls12)),
    Entry::new("force-tlsv13", NONE, "TLS 1.3 only", |d, _| tls::force(&mut d.tls.conf, TlsVersion::Tls13)),
    Entry::new("no-sslv3", NONE, "Not SSL 3.0", |d, _| tls::without(&mut d.tls.conf, TlsVersion::Ssl3)),
    Entry::new("no-tlsv10", NONE, "Not TLS 1.0", |d, _| tls::without(&mut d.tls.conf, TlsVersion::Tls10)),
    Entry::new("no-tlsv11", NONE, "Not TLS 1.1", |d, _| tls::without(&mut d.tls.conf, TlsVersion::Tls11)),
    Entry::new("no-tlsv12", NONE, "Not TLS 1.2", |d, _| tls::without(&mut d.tls.conf, TlsVersion::Tls12)),
    Entry::new("no-tlsv13", NONE, "Not TLS 1.3", |d, _| tls::without(&mut d.tls.conf, TlsVersion::Tls13)),
    Entry::new("ssl-min-ver", ONE, "Oldest version of TLS", |d, a| tls::min_version(&mut d.tls.conf, a)),
    Entry::new("ssl-max-ver", ONE, "Newest version of TLS", |d, a| tls::max_version(&mut d.tls.conf, a)),
    Entry::accepted(
        "no-ca-names",
        NONE,
        "Does not send the names of the certificate authorities",
        "the names are always sent",
    ),
    Entry::new("no-tls-tickets", NONE, "Sessions are kept here, not in tickets", |d, _| {
        d.tls.conf.no_tls_tickets = true;
        Ok(())
    }),
    Entry::new("tls-tickets", NONE, "Sessions are kept in tickets", |d, _| {
        d.tls.conf.no_tls_tickets = false;
        Ok(())
    }),
    Entry::new("prefer-client-ciphers", NONE, "The client's order of ciphers decides, not the server's", |d, _| {
        d.tls.prefer_client_ciphers = true;
        Ok(())
    }),
    Entry::new("strict-sni", NONE, "Unknown names get no certificate", |d, _| {
        d.tls.strict_sni = true;
        Ok(())
    }),
    Entry::new("no-strict-sni", NONE, "Unknown names get the first certificate", |d, _| {
        d.tls.strict_sni = false;
        Ok(())
    }),
    Entry::new("tls-ticket-keys", ONE, "A file of ticket keys, shared with other machines", |d, a| {
        d.tls.tls_ticket_keys = Some(a.path("a file of keys")?);
        Ok(())
    }),
    Entry::new("verify", ONE, "Whether clients must present a certificate", |d, a| tls::verify(&mut d.tls.conf, a)),
    Entry::refused(
        "ocsp-update",
        "Fetches OCSP responses",
        "it is a setting of certificates in a 'crt-list' or 'crt-store'",
        "write it there; it has no effect here, since OCSP responses are read from files",
    ),
    Entry::accepted("ktls", ONE, "Encrypts records in the kernel", "records are encrypted in the process"),
    Entry::accepted("ech", ONE, "Encrypted ClientHello", "names are sent in clear"),
    Entry::accepted("renegotiate", NONE, "Clients may renegotiate", "TLS renegotiation does not exist here"),
    Entry::accepted("no-renegotiate", NONE, "Clients may not renegotiate", "TLS renegotiation does not exist here"),
];

/// `ADDRESS[,ADDRESS...] SETTINGS...`.
pub(crate) fn parse(args: &mut Args<'_>) -> Parsed<Bind> {
    let mut draft = BindDraft::new(Vec::new(), args.span);
    let usual = &args.around.unix_bind;
    (draft.bind.mode, draft.bind.user, draft.bind.group) = (usual.mode, usual.user.clone(), usual.group.clone());
    parse_from(draft, args)
}

/// As [`parse`], on top of other settings.
pub(crate) fn parse_from(mut draft: BindDraft, args: &mut Args<'_>) -> Parsed<Bind> {
    let word = args.word("an address")?;
    let mut addresses = Vec::new();
    // As in HAProxy, a comma behind the last address is no mistake.
    for part in word.text.strip_suffix(',').unwrap_or(&word.text).split(',') {
        let value = address::bound(args, word, part)?;
        addresses.push(Spanned { value, span: word.span });
    }
    draft.bind.addresses = addresses;
    draft.bind.span = args.span;
    args.around.on_bind = true;
    let settings = settings(&TABLE, &mut draft, args);
    args.around.on_bind = false;
    settings?;
    draft.finish(args)
}

/// Reads `NAME [VALUE...]` pairs until the line ends, reporting every one that is wrong.
pub(crate) fn settings<T>(table: &'static Table<T>, target: &mut T, args: &mut Args<'_>) -> Parsed {
    let (keyword, keyword_span) = (args.keyword, args.keyword_span);
    let mut result = Ok(());
    let mut after_unknown = false;
    while let Some(word) = args.take() {
        let Some((setting, _)) = table.find(std::slice::from_ref(word)) else {
            let known = table.keywords().map(|k| k.name);
            let hint = crate::units::nearest(&word.text, known).map(|near| format!("did you mean '{near}'?"));
            // Probably the value of the unknown setting before this word.
            if std::mem::replace(&mut after_unknown, true) && hint.is_none() {
                continue;
            }
            let finding = args.diagnostics().error(word.span, format!("'{keyword}' has no setting '{}'", word.text));
            finding.hint = hint;
            result = Err(Reported);
            continue;
        };
        after_unknown = false;
        (args.keyword, args.keyword_span, args.verb) = (setting.name, word.span, &word.text);
        let done = match setting.support {
            Support::Refused { why, instead } => {
                args.error(format!("'{}' is refused: {why}", setting.name)).hint(instead);
                after_unknown = true;
                Err(Reported)
            }
            support => {
                let from = args.next;
                let parsed = (setting.parse)(target, args);
                match (support, parsed) {
                    (Support::Accepted(why), Ok(())) => {
                        // The setting's words are consumed all the same.
                        let missing = usize::from(setting.arity.min).saturating_sub(args.next - from);
                        let filled = (0..missing).try_for_each(|_| args.word("a value").map(drop));
                        if filled.is_ok() {
                            let message = format!("'{}' has no effect: {why}", setting.name);
                            args.diagnostics().notice(word.span, message);
                        }
                        filled
                    }
                    (_, parsed) => parsed,
                }
            }
        };
        result = result.and(done);
        (args.keyword, args.keyword_span) = (keyword, keyword_span);
    }
    result
}

fn has_certificates(tls: &BindTls) -> bool {
    !(tls.default_crt.is_empty() && tls.crt.is_empty() && tls.crt_list.is_empty())
}

/// The path of a certificate; one of a `crt-store` begins with `@`.
fn certificate(args: &mut Args<'_>) -> Parsed<Spanned<PathBuf>> {
    let path = args.path("a certificate")?;
    let stored = path.value.to_string_lossy().starts_with('@');
    Ok(if stored { path } else { based(args.around.crt_base.as_ref(), path) })
}

/// `all`, or a comma-separated list of numbers or names of OpenSSL's verification errors.
fn errors(args: &mut Args<'_>) -> Parsed<String> {
    let word = args.word("'all' or errors")?;
    let known = |error: &str| error.starts_with("X509_V_ERR_") || error.parse().is_ok_and(|n: u32| n > 0 && n < 100);
    match word.text.split(',').find(|error| *error != "all" && !known(error)) {
        None => Ok(word.text.clone()),
        Some(error) => args.wrong(
            word,
            format!("'{error}' is not a verification error"),
            "expected 'all', or numbers between commas as openssl-verify(1) lists them",
        ),
    }
}

/// Permissions as chmod(1) writes them.
pub(crate) fn octal(args: &mut Args<'_>) -> Parsed<u32> {
    let word = args.word("permissions")?;
    match u32::from_str_radix(&word.text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => args.wrong(word, format!("'{}' is not a set of permissions", word.text), "expected octal, as in 660"),
    }
}
