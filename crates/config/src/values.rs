//! Values of words that have no effect here, or of several tables: what could never be meant is refused, as HAProxy does.

use crate::{
    args::{Args, Parsed, expected},
    cpu_map::THREADS_MAX,
    proxy::network_of,
    span::Word,
};
use std::net::IpAddr;

pub(crate) fn switch<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.choice("a switch", &[("on", ()), ("off", ())])
}

pub(crate) fn switch_or_auto<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.choice("a switch", &[("on", ()), ("off", ()), ("auto", ())])
}

/// What a socket of QUIC belongs to.
pub(crate) fn socket_owner<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.choice("what a socket belongs to", &[("connection", ()), ("listener", ())])
}

pub(crate) fn number<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.number("a number", 0..=i64::from(i32::MAX)).map(drop)
}

pub(crate) fn number_above_zero<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.number("a number", 1..=i64::from(i32::MAX)).map(drop)
}

pub(crate) fn percentage<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.number("a number", 0..=100).map(drop)
}

pub(crate) fn size<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.size("a size", 0..=u64::from(u32::MAX)).map(drop)
}

pub(crate) fn time<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    args.time("a time").map(drop)
}

/// Parses `[GROUP/]SET[,...]`, the threads of a `bind` line (manual section 5.1, `thread`).
pub(crate) fn threads<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    let word = args.word("a set of threads")?;
    for set in word.text.split(',') {
        let set = match set.split_once('/') {
            Some((group, set)) => {
                args.number_in(word, group, "a group of threads", 1..=GROUPS_MAX)?;
                set
            }
            None => set,
        };
        if !set.is_empty() {
            members(args, word, set, "a thread's number", THREADS_MAX)?;
        }
    }
    Ok(())
}

/// Parses `PROCESS[/SET]`, as in HAProxy 2.6, of which there is one process.
pub(crate) fn process<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    let word = args.word("a process")?;
    let (process, set) = word.text.split_once('/').unwrap_or((&word.text, "all"));
    members(args, word, process, "the number of a process", 1)?;
    members(args, word, set, "a thread's number", THREADS_MAX)
}

/// `thread-groups` has at most this many (HAProxy 3.0).
const GROUPS_MAX: u32 = 16;

/// `all`, `odd`, `even`, `3`, `2-5` or `2-`.
fn members(args: &mut Args<'_>, word: &Word, set: &str, what: &str, most: u32) -> Parsed {
    if matches!(set, "all" | "odd" | "even") {
        return Ok(());
    }
    let (low, high) = set.split_once('-').unwrap_or((set, set));
    args.number_in(word, low, what, 1..=most)?;
    if !high.is_empty() {
        args.number_in(word, high, what, 1..=most)?;
    }
    Ok(())
}

/// Parses a comma-separated list of `choices`; nothing between two commas is no mistake.
pub(crate) fn list<'a>(args: &mut Args<'a>, what: &str, choices: &[&str]) -> Parsed<Vec<&'a str>> {
    let word = args.word(what)?;
    let given: Vec<&str> = word.text.split(',').filter(|name| !name.is_empty()).collect();
    match given.iter().find(|name| !choices.contains(name)) {
        None => Ok(given),
        Some(other) => {
            let hint = expected(other, choices.iter().copied());
            args.wrong(word, format!("'{other}' is not {what}"), hint)
        }
    }
}

/// Parses a comma-separated list of networks; nothing between two commas is no mistake.
pub(crate) fn networks(args: &mut Args<'_>) -> Parsed<Vec<(IpAddr, u8)>> {
    let word = args.word("a list of networks")?;
    let mut networks = Vec::new();
    for text in word.text.split(',').filter(|text| !text.is_empty()) {
        match network_of(text) {
            Some(network) => networks.push(network),
            None => {
                let hint = "expected for instance 10.0.0.0/8";
                return args.wrong(word, format!("'{text}' is not a network"), hint);
            }
        }
    }
    Ok(networks)
}

/// Parses OpenSSL's list of signature algorithms. As in HAProxy, nobody looks at the names on a line without `ssl`.
pub(crate) fn signature_algorithms<T>(_: &mut T, args: &mut Args<'_>) -> Parsed {
    let tls = args.words.iter().any(|word| word.text == "ssl");
    let word = args.word("a list of signature algorithms")?;
    let (optional, needed): (Vec<&str>, Vec<&str>) =
        word.text.split(':').map(str::trim).partition(|name| name.starts_with('?'));
    let is_known = |name: &str| is_signature_algorithm(name.trim_start_matches('?'));
    if let Some(other) = needed.iter().find(|name| !is_known(name)).filter(|_| tls) {
        let hint = "expected names between colons, such as RSA+SHA256:ECDSA+SHA256";
        return args.wrong(word, format!("'{other}' is not a signature algorithm"), hint);
    }
    if tls && needed.is_empty() && !optional.iter().any(|name| is_known(name)) {
        return args.wrong(word, "none of these signature algorithms is known", "write one without '?'");
    }
    Ok(())
}

/// Whether it is a key's type and a hash, as in `RSA+SHA256`, or a name of TLS, as in `rsa_pss_rsae_sha256`.
fn is_signature_algorithm(name: &str) -> bool {
    /// Names that do not end in a hash, or only with some.
    const OTHERS: [&str; 14] = [
        "ed25519",
        "ed448",
        "mldsa44",
        "mldsa65",
        "mldsa87",
        "ecdsa_secp256r1_sha256",
        "ecdsa_secp384r1_sha384",
        "ecdsa_secp521r1_sha512",
        "ecdsa_brainpoolp256r1_sha256",
        "ecdsa_brainpoolp384r1_sha384",
        "ecdsa_brainpoolp512r1_sha512",
        "ecdsa_brainpoolp256r1tls13_sha256",
        "ecdsa_brainpoolp384r1tls13_sha384",
        "ecdsa_brainpoolp512r1tls13_sha512",
    ];
    let name = name.to_ascii_lowercase();
    let old = ["sha1", "sha224"];
    let current = ["sha256", "sha384", "sha512"];
    match name.rsplit_once('+').or_else(|| name.rsplit_once('_')) {
        Some(("rsa" | "ecdsa" | "dsa" | "rsa_pkcs1", hash)) => old.contains(&hash) || current.contains(&hash),
        Some(("rsa-pss" | "pss" | "rsa_pss_rsae" | "rsa_pss_pss", hash)) => current.contains(&hash),
        _ => OTHERS.contains(&name.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_signature_algorithm;

    #[test]
    fn signature_algorithms_have_the_names_of_openssl() {
        for known in ["RSA+SHA256", "ecdsa+sha1", "PSS+SHA384", "rsa_pss_rsae_sha256", "ed25519", "DSA_sha256"] {
            assert!(is_signature_algorithm(known), "{known}");
        }
        for unknown in ["", "zz", "RSA", "RSA+MD5", "RSA+SHA3-256", "PSS+SHA1", "+SHA256", "rsa_pkcs1_md5_sha1"] {
            assert!(!is_signature_algorithm(unknown), "{unknown}");
        }
    }
}
