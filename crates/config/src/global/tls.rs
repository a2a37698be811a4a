//! TLS for the whole process, and which engine computes its handshakes.

use crate::{
    args::{Args, Parsed},
    keyword::{Keyword, NONE, ONE, SOME, between},
    model::{Global, TlsDefaults, TlsVersion, Verify},
    tls::{VERSIONS, narrow},
};
use std::{path::PathBuf, time::Duration};

type Entry = Keyword<Global>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("crt-base", ONE, "Directory of certificates given by relative paths", |g, a| {
        a.only_once(g.crt_base.is_some())?;
        let base = PathBuf::from(a.text("a directory")?);
        g.crt_base = Some(base.clone());
        a.around.crt_base = Some(base);
        Ok(())
    }),
    Entry::new("ca-base", ONE, "Directory of authorities' files given by relative paths", |g, a| {
        a.only_once(g.ca_base.is_some())?;
        let base = PathBuf::from(a.text("a directory")?);
        g.ca_base = Some(base.clone());
        a.around.ca_base = Some(base);
        Ok(())
    }),
    Entry::accepted(
        "key-base",
        ONE,
        "Directory of private keys given by relative paths",
        "keys stand beside certificates",
    ),
    Entry::new("ssl-default-bind-ciphers", ONE, "TLS 1.2 ciphers of 'bind' lines, as their 'ciphers'", |g, a| {
        g.tls_bind.ciphers = Some(a.spanned("a list of ciphers")?);
        Ok(())
    }),
    Entry::new(
        "ssl-default-bind-ciphersuites",
        ONE,
        "TLS 1.3 cipher suites of 'bind' lines, as their 'ciphersuites'",
        |g, a| {
            g.tls_bind.ciphersuites = Some(a.spanned("a list of cipher suites")?);
            Ok(())
        },
    ),
    Entry::new(
        "ssl-default-bind-curves",
        ONE,
        "Groups for the key exchange of 'bind' lines, as their 'curves'",
        |g, a| {
            g.tls_bind.curves = Some(a.spanned("a list of curves")?);
            Ok(())
        },
    ),
    Entry::new("ssl-default-bind-options", SOME, "Other TLS settings of 'bind' lines", |g, a| {
        const ALONE: &[&str] = &["prefer-client-ciphers", "strict-sni"];
        options(&mut g.tls_bind, ALONE, a)
    }),
    Entry::accepted("ssl-default-bind-sigalgs", ONE, "Signature algorithms", "the TLS library's own order is used"),
    Entry::accepted(
        "ssl-default-bind-client-sigalgs",
        ONE,
        "Signature algorithms accepted in clients' certificates",
        "the TLS library's own set is used",
    ),
    Entry::new("ssl-default-server-ciphers", ONE, "TLS 1.2 ciphers of servers, as their 'ciphers'", |g, a| {
        g.tls_server.ciphers = Some(a.spanned("a list of ciphers")?);
        Ok(())
    }),
    Entry::new(
        "ssl-default-server-ciphersuites",
        ONE,
        "TLS 1.3 cipher suites of servers, as their 'ciphersuites'",
        |g, a| {
            g.tls_server.ciphersuites = Some(a.spanned("a list of cipher suites")?);
            Ok(())
        },
    ),
    Entry::new(
        "ssl-default-server-curves",
        ONE,
        "Groups for the key exchange of servers, as their 'curves'",
        |g, a| {
            g.tls_server.curves = Some(a.spanned("a list of curves")?);
            Ok(())
        },
    ),
    Entry::new("ssl-default-server-options", SOME, "Other TLS settings of servers", |g, a| {
        options(&mut g.tls_server, &[], a)
    }),
    Entry::accepted("ssl-default-server-sigalgs", ONE, "Signature algorithms", "the TLS library's own set is used"),
    Entry::accepted(
        "ssl-default-server-client-sigalgs",
        ONE,
        "Signature algorithms of client certificates sent to servers",
        "the TLS library's own set is used",
    ),
    Entry::new("ssl-server-verify", ONE, "Whether servers' certificates are verified", |g, a| {
        let choices = [("none", Verify::None), ("required", Verify::Required)];
        g.ssl_server_verify = Some(a.choice("a way to verify", &choices)?);
        Ok(())
    }),
    Entry::new("ssl-load-extra-files", SOME, "Kinds of files beside a certificate that are read as well", |g, a| {
        const KINDS: &[(&str, &str)] = &[
            ("none", "none"),
            ("all", "all"),
            ("bundle", "bundle"),
            ("sctl", "sctl"),
            ("ocsp", "ocsp"),
            ("issuer", "issuer"),
            ("key", "key"),
        ];
        let mut kinds = Vec::new();
        while let Some(word) = a.peek() {
            kinds.push(a.choice("a kind of file", KINDS)?.to_owned());
            if kinds.len() > 1 && kinds.iter().any(|kind| matches!(kind.as_str(), "none" | "all")) {
                return a.wrong(word, "'none' and 'all' stand alone".to_owned(), "name the kinds one by one");
            }
        }
        g.ssl_load_extra_files = Some(kinds);
        Ok(())
    }),
    Entry::new(
        "ssl-load-extra-del-ext",
        NONE,
        "The extension of an extra file replaces the certificate's instead of following it",
        |g, _| {
            g.ssl_load_extra_del_ext = true;
            Ok(())
        },
    )
    .spare(),
    Entry::new("ssl-engine", between(1, 255), "The engine that computes handshakes", |g, a| {
        g.crypto.ssl_engine = Some(a.spanned("an engine's name")?);
        if a.peek().is_some() {
            a.choice("the word 'algo'", &[("algo", ())])?;
            let mut list = a.spanned("a list of algorithms")?;
            // HAProxy takes one word; packages' examples write several.
            while let Some(more) = a.take() {
                list.value.push(',');
                list.value.push_str(&more.text);
                list.span = list.span.to(more.span);
            }
            g.crypto.ssl_engine_algo = Some(list);
        }
        Ok(())
    }),
    Entry::new("ssl-mode-async", NONE, "Handshakes do not wait for their engine", |g, _| {
        g.crypto.ssl_mode_async = true;
        Ok(())
    })
    .spare(),
    Entry::new("ssl-provider", ONE, "Newer name of 'ssl-engine'", |g, a| {
        g.crypto.ssl_provider = Some(a.spanned("a provider's name")?);
        Ok(())
    }),
    Entry::accepted("ssl-provider-path", ONE, "Directory of OpenSSL's providers", "engines are part of this program")
        .spare(),
    Entry::accepted("ssl-propquery", ONE, "Property query for OpenSSL's providers", "engines are part of this program")
        .spare(),
    Entry::new("tune.crypto.engine", ONE, "The engine, by this program's own names", |g, a| {
        let names = ["native", "sw", "hw", "hw+sw", "auto"].map(|n| (n, ()));
        let word = a.peek().map(|w| w.span);
        let text = a.peek().map(|w| w.text.clone()).unwrap_or_default();
        a.choice("an engine", &names)?;
        g.crypto.engine = Some(crate::span::Spanned { value: text, span: word.unwrap_or(a.span) });
        Ok(())
    }),
    Entry::new(
        "tune.crypto.batch-delay",
        ONE,
        "Longest time an operation waits for others once nothing else can run",
        |g, a| {
            g.crypto.batch_delay = Some(micros(a, 0, MAX_DELAY_US)?);
            Ok(())
        },
    ),
    Entry::new(
        "tune.crypto.batch-close",
        ONE,
        "A batch closes when nothing else runs (idle), or in its first turn",
        |g, a| {
            g.crypto.batch_eager = a.choice("when batches close", &[("idle", false), ("ready", true)])?;
            Ok(())
        },
    ),
    Entry::new(
        "tune.crypto.max-wait",
        ONE,
        "Longest expected wait for a handshake; beyond it new ones are refused",
        |g, a| {
            g.crypto.max_wait = Some(micros(a, 1000, MAX_WAIT_US)?);
            Ok(())
        },
    ),
    Entry::accepted("ssl-dh-param-file", ONE, "File of parameters for finite-field Diffie-Hellman", NO_DHE),
    Entry::new(
        "tune.ssl.default-dh-param",
        ONE,
        "Size of the parameters for finite-field Diffie-Hellman, in bits",
        |_, a| a.number("a number", 1024..=i64::from(i32::MAX)).map(drop),
    )
    .notice(NO_DHE),
    Entry::accepted(
        "issuers-chain-path",
        ONE,
        "Directory of issuers that complete certificate chains",
        "put whole chains into the files",
    ),
    Entry::accepted(
        "ssl-skip-self-issued-ca",
        NONE,
        "Leaves self-issued authorities out of the chain that is sent",
        "chains are sent as the files have them",
    )
    .spare(),
    Entry::new("ssl-security-level", ONE, "OpenSSL's security level", |_, a| a.number("a number", 0..=5).map(drop))
        .notice("weak algorithms do not exist here"),
    Entry::accepted(
        "ssl-passphrase-cmd",
        SOME,
        "Program that supplies the passphrases of private keys",
        "keys are read unencrypted",
    ),
    Entry::accepted(
        "ssl-f-use",
        SOME,
        "A certificate of a crt-store for all 'bind' lines that use it",
        "name them on 'bind' lines",
    ),
    Entry::accepted("ocsp-update.disable", ONE, "Disables the fetching of OCSP responses", NO_OCSP),
    Entry::accepted("ocsp-update.httpproxy", ONE, "HTTP proxy through which OCSP responses are fetched", NO_OCSP),
    Entry::accepted("ocsp-update.maxdelay", ONE, "Longest time between updates of OCSP responses", NO_OCSP),
    Entry::accepted("ocsp-update.mindelay", ONE, "Shortest time between updates of OCSP responses", NO_OCSP),
    Entry::accepted("ocsp-update.mode", ONE, "Certificates whose OCSP responses are fetched", NO_OCSP),
    Entry::new("tune.ssl.ocsp-update.maxdelay", ONE, "Longest time between updates of OCSP responses", |_, a| {
        a.number("a number", 0..=i64::from(i32::MAX)).map(drop)
    })
    .notice(NO_OCSP),
    Entry::new("tune.ssl.ocsp-update.mindelay", ONE, "Shortest time between updates of OCSP responses", |_, a| {
        a.number("a number", 0..=i64::from(i32::MAX)).map(drop)
    })
    .notice(NO_OCSP),
    Entry::accepted("acme.scheduler", ONE, "When the ACME client runs", "use an ACME client"),
    Entry::accepted(
        "jwt.decrypt_alg_list",
        ONE,
        "Algorithms accepted in encrypted JSON Web Tokens",
        "tokens are not decrypted",
    ),
];

const NO_DHE: &str = "only elliptic curves and ML-KEM exchange keys here";
const NO_OCSP: &str = "OCSP responses are read from files";

/// `no-tlsv10 ssl-min-ver TLSv1.2 no-tls-tickets...`.
/// Options that `bind` lines and servers have, and those that only `bind` lines have, in `own`.
fn options(defaults: &mut TlsDefaults, own: &[&str], args: &mut Args<'_>) -> Parsed {
    let known = [
        "no-sslv3",
        "no-tlsv10",
        "no-tlsv11",
        "no-tlsv12",
        "no-tlsv13",
        "no-tls-tickets",
        "force-sslv3",
        "force-tlsv10",
        "force-tlsv11",
        "force-tlsv12",
        "force-tlsv13",
        "ssl-min-ver",
        "ssl-max-ver",
    ];
    let version = |name: &str, prefix: &str| {
        Some(match name.strip_prefix(prefix)? {
            "sslv3" => TlsVersion::Ssl3,
            "tlsv10" => TlsVersion::Tls10,
            "tlsv11" => TlsVersion::Tls11,
            "tlsv12" => TlsVersion::Tls12,
            "tlsv13" => TlsVersion::Tls13,
            _ => return None,
        })
    };
    while let Some(word) = args.take() {
        let text = word.text.as_str();
        if let Some(version) = version(text, "no-") {
            narrow(&mut defaults.min_ver, &mut defaults.max_ver, version);
        } else if let Some(version) = version(text, "force-") {
            (defaults.min_ver, defaults.max_ver) = (Some(version), Some(version));
        } else {
            match text {
                "no-tls-tickets" => defaults.no_tls_tickets = true,
                "prefer-client-ciphers" if own.contains(&text) => defaults.prefer_client_ciphers = true,
                "strict-sni" if own.contains(&text) => defaults.strict_sni = true,
                "ssl-min-ver" => defaults.min_ver = Some(args.choice("a version of TLS", VERSIONS)?),
                "ssl-max-ver" => defaults.max_ver = Some(args.choice("a version of TLS", VERSIONS)?),
                _ => {
                    args.next -= 1;
                    args.unexpected(&[&known, own].concat())?;
                }
            }
        }
    }
    Ok(())
}

/// The longest batch delay: the age cap of an operation, beyond which a delay would have no effect.
const MAX_DELAY_US: u64 = 1000;
/// The longest wait: a minute, since no client waits longer for a handshake.
const MAX_WAIT_US: u64 = 60_000_000;

/// A time of our own settings, some of which are shorter than HAProxy's shortest.
fn micros(args: &mut Args<'_>, min: u64, max: u64) -> Parsed<Duration> {
    let word = args.word("a time")?;
    let time = match word.text.strip_suffix("us").and_then(|n| n.parse().ok()) {
        Some(us) => Duration::from_micros(us),
        None => {
            args.next -= 1;
            args.time("a time")?
        }
    };
    if !(u128::from(min)..=u128::from(max)).contains(&time.as_micros()) {
        let hint = format!("write a time from {min}us to {max}us");
        return args.wrong(word, format!("'{}' is out of range", word.text), hint);
    }
    Ok(time)
}
