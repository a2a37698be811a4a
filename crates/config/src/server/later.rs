//! Words of `server` lines that matter in other sections, are read without effect, or are refused: some will be implemented later,
//! others never.

use super::Entry;
use crate::{
    keyword::{NONE, ONE},
    model::{HashKey, LogProto, ServerNamespace},
    span::Spanned,
    tls,
    values::{list, networks, number_above_zero, signature_algorithms},
};

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("hash-key", ONE, "What places the server on the ring of 'hash-type consistent'", |s, a| {
        let known = [("id", HashKey::Id), ("addr", HashKey::Address), ("addr-port", HashKey::AddressAndPort)];
        s.hash_key = a.choice("a property", &known)?;
        Ok(())
    }),
    Entry::accepted(
        "strict-maxconn",
        NONE,
        "Makes 'maxconn' count connections, not requests",
        "connections are counted",
    ),
    Entry::new("log-proto", ONE, "Framing of the lines that a ring sends: 'legacy' or 'octet-count'", |s, a| {
        let known = &[("legacy", LogProto::Legacy), ("octet-count", LogProto::OctetCount)];
        s.log_proto = Some(a.choice("a framing", known)?);
        Ok(())
    }),
    Entry::new("log-bufsize", ONE, "Buffer for lines to a log server", number_above_zero)
        .notice("a ring keeps its lines"),
    Entry::accepted("shard", ONE, "Share of the keys that a peer receives", "every peer gets every key"),
    Entry::accepted("check-reuse-pool", NONE, "Lets health checks use idle connections", "each check opens its own"),
    Entry::accepted(
        "no-check-reuse-pool",
        NONE,
        "Makes health checks open connections of their own",
        "health checks always open connections of their own",
    ),
    Entry::accepted(
        "check-pool-conn-name",
        ONE,
        "Idle connections that health checks may use",
        "each check opens its own",
    ),
    Entry::accepted(
        "healthcheck",
        ONE,
        "A 'healthcheck' section that describes the server's checks",
        "those sections are not read",
    ),
    Entry::refused("check-via-socks4", "Checks go through a SOCKS4 proxy", NO_SOCKS, "remove it"),
    Entry::new("init-state", ONE, "State of the server before its first check", |_, a| {
        a.choice("a state", &[("fully-up", ()), ("up", ()), ("down", ()), ("fully-down", ())])
    })
    .notice("a server starts up until a check fails"),
    Entry::refused(
        "no-verifyhost",
        "Undoes 'verifyhost'",
        "HAProxy's manual has it, HAProxy does not",
        "leave 'verifyhost' out of the default-server",
    ),
    Entry::accepted("sni-auto", NONE, "Takes the server name for TLS from the request", "write 'sni req.hdr(host)'"),
    Entry::accepted("no-sni-auto", NONE, "Undoes 'sni-auto'", "names are only sent by 'sni'"),
    Entry::accepted("npn", ONE, "Protocols offered by NPN", "NPN is gone from TLS; write 'alpn'"),
    Entry::new("sigalgs", ONE, "Signature algorithms", signature_algorithms)
        .notice("the TLS library's own set is used"),
    Entry::new("client-sigalgs", ONE, "Signature algorithms of ours", signature_algorithms)
        .notice("the TLS library's own set is used"),
    Entry::accepted("allow-0rtt", NONE, "TLS 1.3 early data", "early data is not sent to servers"),
    Entry::refused("force-sslv3", "SSL 3.0 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::refused("force-tlsv10", "TLS 1.0 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::refused("force-tlsv11", "TLS 1.1 only", tls::OLD_TLS, tls::NEWER_TLS),
    Entry::accepted(
        "renegotiate",
        NONE,
        "Allows the server to renegotiate TLS",
        "TLS renegotiation does not exist here",
    ),
    Entry::accepted(
        "no-renegotiate",
        NONE,
        "Forbids the server to renegotiate TLS",
        "TLS renegotiation does not exist here",
    ),
    Entry::accepted("ktls", ONE, "Encrypts records in the kernel", "records are encrypted in the process"),
    Entry::refused(
        "usesrc",
        "Address or kind of address used as the source",
        "it belongs to 'source'",
        "write it after 'source ADDR'",
    ),
    Entry::new("resolve-opts", ONE, "Whether servers of one name may have the same address", |s, a| {
        const KNOWN: [&str; 3] = ["allow-dup-ip", "ignore-weight", "prevent-dup-ip"];
        for option in list(a, "an option of resolving names", &KNOWN)? {
            match option {
                "allow-dup-ip" => s.resolve_allow_dup_ip = true,
                "prevent-dup-ip" => s.resolve_allow_dup_ip = false,
                _ => s.resolve_ignore_weight = true,
            }
        }
        Ok(())
    }),
    Entry::new("resolve-net", ONE, "Networks of whose addresses one is taken before any other", |s, a| {
        s.resolve_net = networks(a)?;
        Ok(())
    }),
    Entry::new("namespace", ONE, "Connects from this network namespace, or with '*' from the client's", |s, a| {
        let Spanned { value, span } = a.spanned("a namespace, or '*'")?;
        s.namespace = Some(match value.as_str() {
            "*" => ServerNamespace::OfClient(span),
            _ => ServerNamespace::Named(Spanned { value, span }),
        });
        Ok(())
    }),
    Entry::refused("socks4", "Connections go through a SOCKS4 proxy", NO_SOCKS, "remove it"),
    Entry::accepted("pp2-tlv", ONE, "Adds a field to the PROXY header", "no field is added"),
    Entry::accepted("idle-ping", ONE, "Pings idle HTTP/2 servers", "idle connections are closed by their timeout"),
    Entry::accepted("tcp-md5sig", ONE, "Signs TCP segments", "segments are not signed"),
    Entry::accepted("cc", ONE, "Congestion control of TCP", "the system's own is used"),
];

const NO_SOCKS: &str = "SOCKS proxies are not spoken to";
