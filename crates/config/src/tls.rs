//! TLS settings that `bind` and `server` share.

use crate::{
    args::{Args, Parsed},
    model::{TlsConf, TlsVersion, Verify},
    proxy::based,
};

pub(crate) const VERSIONS: &[(&str, TlsVersion)] = &[
    ("SSLv3", TlsVersion::Ssl3),
    ("TLSv1.0", TlsVersion::Tls10),
    ("TLSv1.1", TlsVersion::Tls11),
    ("TLSv1.2", TlsVersion::Tls12),
    ("TLSv1.3", TlsVersion::Tls13),
];

/// What is said of lists of names that mean as much as is there.
pub(crate) const CIPHERS: &str =
    "TLS 1.2 ciphers; of OpenSSL's names, those of ECDHE with AES-GCM or CHACHA20-POLY1305 mean something here";
pub(crate) const CIPHERSUITES: &str =
    "TLS 1.3 cipher suites; TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 and TLS_CHACHA20_POLY1305_SHA256 exist here";
pub(crate) const CURVES: &str = "Groups for the key exchange; X25519MLKEM768, X25519, P-256 and P-384 exist here";

pub(crate) fn ciphers(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.ciphers = Some(args.spanned("a list of ciphers")?);
    Ok(())
}

pub(crate) fn ciphersuites(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.ciphersuites = Some(args.spanned("a list of TLS 1.3 cipher suites")?);
    Ok(())
}

pub(crate) fn curves(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.curves = Some(args.spanned("a list of curves")?);
    Ok(())
}

pub(crate) fn ca_file(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    let path = args.path("a file of certificates")?;
    let system = path.value.as_os_str() == "@system-ca";
    conf.ca_file = Some(if system { path } else { based(args.around.ca_base.as_ref(), path) });
    Ok(())
}

pub(crate) fn ca_verify_file(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    let path = args.path("a file of certificates")?;
    conf.ca_verify_file = Some(based(args.around.ca_base.as_ref(), path));
    Ok(())
}

pub(crate) fn crl_file(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    let path = args.path("a file of revoked certificates")?;
    conf.crl_file = Some(based(args.around.ca_base.as_ref(), path));
    Ok(())
}

pub(crate) fn alpn(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.alpn = Some(protocols(args)?);
    Ok(())
}

/// Parses `h2,http/1.1`: each protocol has 1 to 255 bytes (RFC 7301, section 3.1).
pub(crate) fn protocols(args: &mut Args<'_>) -> Parsed<Vec<String>> {
    let word = args.word("a list of protocols")?;
    let names: Vec<String> = word.text.split(',').map(str::to_owned).collect();
    if names.iter().any(|n| n.is_empty() || n.len() > 255) {
        return args.wrong(
            word,
            format!("'{}' is not a list of protocols", word.text),
            "expected names between commas, for instance h2,http/1.1",
        );
    }
    Ok(names)
}

pub(crate) fn verify(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    let mut choices = vec![("none", Verify::None), ("required", Verify::Required)];
    if args.keyword == "verify" && args.around.on_bind {
        choices.push(("optional", Verify::Optional));
    }
    conf.verify = Some(args.choice("a way to verify", &choices)?);
    Ok(())
}

pub(crate) fn min_version(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.min_ver = Some(args.choice("a version of TLS", VERSIONS)?);
    Ok(())
}

pub(crate) fn max_version(conf: &mut TlsConf, args: &mut Args<'_>) -> Parsed {
    conf.max_ver = Some(args.choice("a version of TLS", VERSIONS)?);
    Ok(())
}

/// Why versions that are not supported cannot be forced.
pub(crate) const OLD_TLS: &str = "the TLS library speaks TLS 1.2 and 1.3 alone";
pub(crate) const NEWER_TLS: &str = "write 'force-tlsv12' or 'force-tlsv13', or leave both open";

/// `force-tlsv12` sets both bounds.
pub(crate) fn force(conf: &mut TlsConf, version: TlsVersion) -> Parsed {
    conf.min_ver = Some(version);
    conf.max_ver = Some(version);
    Ok(())
}

/// `no-tlsv12` and similar settings: HAProxy computes one contiguous range, from the lowest version that is left.
pub(crate) fn without(conf: &mut TlsConf, version: TlsVersion) -> Parsed {
    narrow(&mut conf.min_ver, &mut conf.max_ver, version);
    Ok(())
}

/// Removes a version from the range, if it is at one end of it.
pub(crate) fn narrow(min: &mut Option<TlsVersion>, max: &mut Option<TlsVersion>, without: TlsVersion) {
    use TlsVersion::{Ssl3, Tls10, Tls11, Tls12, Tls13};
    let order = [Ssl3, Tls10, Tls11, Tls12, Tls13];
    let position = order.iter().position(|v| *v == without).unwrap_or(0);
    let lowest = min.unwrap_or(Ssl3);
    if without == Tls13 {
        *max = Some(max.map_or(Tls12, |m| m.min(Tls12)));
    } else if max.is_some_and(|m| m == without) && position > 0 {
        *max = Some(order[position - 1]);
    } else if without >= lowest {
        *min = Some(order[position + 1]);
    }
}
