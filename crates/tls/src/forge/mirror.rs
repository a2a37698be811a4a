//! What a certificate made in a server's place takes over from the server's own. Pure.

use super::Name;
use aws_lc_rs::digest::{Context, SHA256};
use rustls_pki_types::DnsName;
use std::net::IpAddr;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Most bytes of names that are taken over, so that whoever controls a server does not decide how much the cache holds. The
/// certificates of the largest shared hosts have some 5 kB of them.
const NAMES_MAX: usize = 16 * 1024;

/// The names and dates of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirrored {
    /// The digest of the server's certificate and of the names taken over: what is made for it is kept by that.
    pub digest: [u8; 32],
    pub names: Vec<Name>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
}

impl Mirrored {
    /// Reads a certificate. If it has more names than are taken over, those that `asked` matches come first. `None` if it
    /// cannot be read, or names no host.
    pub fn of(leaf: &[u8], asked: Option<&str>) -> Option<Mirrored> {
        let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
        let mut names = alternative(&parsed);
        if names.is_empty() {
            // HAProxy's servers, and ours, may have only a common name.
            names.extend(parsed.subject().iter_common_name().filter_map(|name| dns(name.as_str().ok()?)));
        }
        names.sort_by_key(|name| !asked.is_some_and(|asked| name.is_for(asked)));
        let mut left = NAMES_MAX;
        names.retain(|name| match left.checked_sub(name.len()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        if names.is_empty() {
            return None;
        }
        let mut digest = Context::new(&SHA256);
        digest.update(leaf);
        for name in &names {
            digest.update(&[0]);
            digest.update(name.to_string().as_bytes());
        }
        let digest = digest.finish().as_ref().try_into().ok()?;
        let validity = parsed.validity();
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Mirrored { digest, names, not_before, not_after })
    }
}

/// Its alternative names that a client compares with.
fn alternative(parsed: &X509Certificate<'_>) -> Vec<Name> {
    let Ok(Some(extension)) = parsed.subject_alternative_name() else { return Vec::new() };
    let address = |bytes: &[u8]| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => dns(name),
        GeneralName::IPAddress(bytes) => address(bytes).map(Name::Ip),
        _ => None,
    });
    names.collect()
}

/// A host's name, whose first label may be a star.
fn dns(name: &str) -> Option<Name> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    DnsName::try_from(host).ok()?;
    Some(Name::Dns(name.to_ascii_lowercase().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn certificate(names: &[&str], common: Option<&str>) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = |name: &&str| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        };
        params.subject_alt_names = names.iter().map(name).collect();
        if let Some(common) = common {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn names(leaf: &[u8], asked: Option<&str>) -> Vec<String> {
        Mirrored::of(leaf, asked)
            .map(|mirrored| mirrored.names.iter().map(Name::to_string).collect())
            .unwrap_or_default()
    }

    #[test]
    fn names_are_those_that_clients_compare_with() {
        let leaf = certificate(&["WWW.a.test", "*.b.test", "192.0.2.1", "2001:db8::1", "not a name", "*.*.test"], None);
        assert_eq!(names(&leaf, None), ["www.a.test", "*.b.test", "192.0.2.1", "2001:db8::1"]);
        assert_eq!(names(&certificate(&[], Some("only.test")), None), ["only.test"]);
        assert_eq!(Mirrored::of(&certificate(&[], Some("Somebody Else")), None), None);
        assert_eq!(Mirrored::of(b"no certificate", None), None);
    }

    #[test]
    fn of_too_many_names_those_asked_for_are_kept() {
        let many: Vec<String> = (0..2000).map(|number| format!("host{number}.example.test")).collect();
        let leaf = certificate(&many.iter().map(String::as_str).collect::<Vec<_>>(), None);
        let kept = names(&leaf, Some("host1999.example.test"));
        assert_eq!(kept[0], "host1999.example.test");
        assert!(kept.iter().map(String::len).sum::<usize>() <= NAMES_MAX && kept.len() > 500, "{}", kept.len());
        // What is kept differs, so it is another certificate.
        let digest = |asked| Mirrored::of(&leaf, asked).unwrap().digest;
        assert_ne!(digest(Some("host1999.example.test")), digest(None));
        assert_eq!(digest(Some("host0.example.test")), digest(None));
    }
}
