//! A chain of certificates as OpenSSL walks it when it goes on after errors (`crt-ignore-err`, `ca-ignore-err`).
//!
//! webpki stops at the first error, and looks at a leaf's own times and usages before at who issued it. Whoever ignores that error has
//! not learned whether the chain leads to an authority, so that is found out here: by names, signatures and times.

use crate::{
    verify::Refusal,
    version1::{lets_sign, may_sign, parse, signature},
};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use std::borrow::Cow;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{ExtendedKeyUsage, GeneralName, GeneralSubtree, KeyUsage, ParsedExtension, X509Extension},
    prelude::FromDer,
    revocation_list::CertificateRevocationList,
    time::ASN1Time,
};

/// Most signatures that are checked for one chain.
const SIGNATURES_MAX: u32 = 16;

/// What is wrong with a chain, in the order in which OpenSSL finds it: where it breaks off, who may not issue, and what is not valid now,
/// from the top down. Empty if it leads to one of the `anchors`.
pub(crate) fn faults(
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    anchors: &[CertificateDer<'static>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Vec<Refusal> {
    let at = |depth: usize| move |code| Refusal { code, depth: depth as u32 };
    let Some(first) = parse(leaf) else { return vec![at(0)(1)] };
    let trusted: Vec<X509Certificate<'_>> = anchors.iter().filter_map(parse).collect();
    let others: Vec<(&CertificateDer<'_>, X509Certificate<'_>)> =
        above.iter().filter_map(|der| Some((der, parse(der)?))).collect();
    let mut chain = vec![&first];
    let mut faults = Vec::new();
    let (mut der, mut left) = (leaf, SIGNATURES_MAX);
    while anchors.iter().all(|anchor| anchor.as_ref() != der.as_ref()) {
        let (here, current) = (at(chain.len() - 1), chain[chain.len() - 1]);
        let signed = signature(der, current);
        let is_named = |issuer: &X509Certificate<'_>| issuer.subject().as_raw() == current.issuer().as_raw();
        let mut issues = |issuer: &X509Certificate<'_>| {
            let is_asked = is_named(issuer) && left > 0;
            left -= u32::from(is_asked);
            is_asked && signed.as_ref().is_some_and(|signed| signed.is_by(issuer.public_key(), algorithms))
        };
        if let Some(anchor) = trusted.iter().find(|issuer| issues(issuer)) {
            chain.push(anchor);
            break;
        }
        if is_named(current) {
            faults.push(here(if chain.len() == 1 { SELF_SIGNED } else { SELF_SIGNED_ABOVE }));
            break;
        }
        let next = others.iter().find(|(_, issuer)| issues(issuer));
        if let Some((above, issuer)) = next.filter(|_| chain.len() <= others.len()) {
            der = above;
            chain.push(issuer);
            continue;
        }
        if trusted.iter().chain(others.iter().map(|(_, issuer)| issuer)).any(is_named) {
            faults.push(here(BAD_SIGNATURE));
        } else {
            faults.push(here(NO_ISSUER));
            // Without an issuer the signature of a single certificate cannot be checked either.
            faults.extend((chain.len() == 1).then(|| here(UNVERIFIED_LEAF)));
        }
        break;
    }
    faults.extend(unfit(&first).map(at(0)));
    for (depth, issuer) in chain.iter().enumerate().skip(1) {
        faults.extend(unfit(issuer).map(at(depth)));
        if !may_sign(issuer) {
            faults.push(at(depth)(INVALID_CA));
        } else if !matches!(issuer.name_constraints(), Ok(None)) {
            // They are webpki's to check, which may not have come to that.
            faults.push(at(0)(NOT_PERMITTED));
        }
        // How many authorities stand below it (RFC 5280, 4.2.1.9).
        let most = issuer.basic_constraints().ok().flatten().and_then(|limits| limits.value.path_len_constraint);
        if most.is_some_and(|most| depth as u32 - 1 > most) {
            faults.push(at(depth)(PATH_TOO_LONG));
        }
    }
    let now = i64::try_from(now.as_secs()).ok().and_then(|secs| ASN1Time::from_timestamp(secs).ok());
    for (depth, certificate) in chain.iter().enumerate().rev() {
        let validity = certificate.validity();
        match now {
            Some(now) if now < validity.not_before => faults.push(at(depth)(NOT_YET_VALID)),
            Some(now) if now <= validity.not_after => {}
            _ => faults.push(at(depth)(EXPIRED)),
        }
    }
    faults
}

/// Why a certificate is not for the chain of a client: other uses are named, or it has an extension that has to be understood, and is not.
fn unfit(certificate: &X509Certificate<'_>) -> Option<u32> {
    let permits = |uses: &ExtendedKeyUsage<'_>| uses.any || uses.client_auth;
    if !certificate.extended_key_usage().is_ok_and(|uses| uses.is_none_or(|uses| permits(uses.value))) {
        return Some(INVALID_PURPOSE);
    }
    let is_odd = |extension: &X509Extension<'_>| {
        extension.critical
            && matches!(
                extension.parsed_extension(),
                ParsedExtension::UnsupportedExtension { .. } | ParsedExtension::ParseError { .. }
            )
    };
    certificate.extensions().iter().any(is_odd).then_some(UNKNOWN_EXTENSION)
}

/// Most certificates that are looked at for the issuers of a leaf, and most of them with one name: webpki tries all ways through them, and takes
/// seconds for two hundred of one name.
const ISSUERS_MAX: usize = 12;
const NAMESAKES_MAX: usize = 3;

/// The certificates that may have issued others: their key usage lets them (RFC 5280, 6.1.4 (n)), for which webpki does not ask.
pub(crate) fn issuers<'a>(above: &'a [CertificateDer<'a>]) -> Cow<'a, [CertificateDer<'a>]> {
    let mut kept: Vec<(&CertificateDer<'_>, Vec<u8>)> = Vec::new();
    for der in above {
        let parsed = parse(der);
        if !parsed.as_ref().is_none_or(lets_sign) {
            continue;
        }
        let name = parsed.map_or_else(Vec::new, |parsed| parsed.subject().as_raw().to_vec());
        let namesakes = kept.iter().filter(|(_, other)| *other == name).count();
        if kept.len() < ISSUERS_MAX && namesakes < NAMESAKES_MAX && kept.iter().all(|(other, _)| *other != der) {
            kept.push((der, name));
        }
    }
    match kept.len() == above.len() {
        true => Cow::Borrowed(above),
        false => Cow::Owned(kept.into_iter().map(|(der, _)| der.clone()).collect()),
    }
}

/// The anchors that may not issue for all names.
pub(crate) fn limited(anchors: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
    let is_limited =
        |der: &&CertificateDer<'_>| parse(der).is_some_and(|parsed| !matches!(parsed.name_constraints(), Ok(None)));
    anchors.iter().filter(is_limited).cloned().collect()
}

/// What OpenSSL looks at besides, in a leaf whose chain is valid: its common name, if it has no other and the authorities, or the
/// [`limited`] anchors, may not issue for all names; and for clients whether its key may sign.
pub(crate) fn of_leaf(
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    limited: &[CertificateDer<'static>],
    is_client: bool,
) -> Option<Refusal> {
    let parsed = parse(leaf)?;
    let refused = |code| Some(Refusal { code, depth: 0 });
    let signs = |usage: &KeyUsage| usage.digital_signature() || usage.key_agreement();
    match parsed.key_usage() {
        Ok(Some(usage)) if is_client && !signs(usage.value) => return refused(INVALID_PURPOSE),
        _ => {}
    }
    let others = parsed.subject_alternative_name().ok().flatten();
    if others.is_some_and(|names| names.value.general_names.iter().any(|name| matches!(name, GeneralName::DNSName(_))))
    {
        return None;
    }
    let hosts: Vec<&str> =
        parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).filter(is_host).collect();
    if hosts.is_empty() {
        return None;
    }
    for authority in above.iter().chain(limited).filter_map(parse) {
        let Ok(Some(constraints)) = authority.name_constraints() else { continue };
        let bases = |list: &Option<Vec<GeneralSubtree<'_>>>| -> Vec<String> {
            let names = list.iter().flatten().filter_map(|subtree| match subtree.base {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            });
            names.collect()
        };
        let (permitted, excluded) =
            (bases(&constraints.value.permitted_subtrees), bases(&constraints.value.excluded_subtrees));
        for host in &hosts {
            if !permitted.is_empty() && !permitted.iter().any(|base| is_within(host, base)) {
                return refused(NOT_PERMITTED);
            }
            if excluded.iter().any(|base| is_within(host, base)) {
                return refused(EXCLUDED);
            }
        }
    }
    None
}

/// Whether a common name is taken for the name of a host.
fn is_host(name: &&str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'*');
    name.contains('.') && name.bytes().all(letters)
}

/// Whether a host is in a subtree of names (RFC 5280, 4.2.1.10).
fn is_within(host: &str, base: &str) -> bool {
    let host = host.to_ascii_lowercase();
    match host.strip_suffix(base) {
        Some(rest) => rest.is_empty() || base.is_empty() || base.starts_with('.') || rest.ends_with('.'),
        None => false,
    }
}

const BAD_SIGNATURE: u32 = 7;
const NOT_YET_VALID: u32 = 9;
const EXPIRED: u32 = 10;
const SELF_SIGNED: u32 = 18;
const SELF_SIGNED_ABOVE: u32 = 19;
const NO_ISSUER: u32 = 20;
const UNVERIFIED_LEAF: u32 = 21;
const PATH_TOO_LONG: u32 = 25;
const INVALID_PURPOSE: u32 = 26;
const NO_CERT_SIGN: u32 = 32;
const UNKNOWN_EXTENSION: u32 = 34;
const NOT_PERMITTED: u32 = 47;
const EXCLUDED: u32 = 48;
/// The last of the errors about constraints of names.
const NAMES_UNKNOWN: u32 = 53;
const INVALID_CA: u32 = 79;

/// Whether an error cannot be ignored: OpenSSL goes on after none of these.
pub(crate) fn is_final(refusal: Refusal) -> bool {
    matches!(refusal.code, NO_CERT_SIGN | UNKNOWN_EXTENSION | NOT_PERMITTED..=NAMES_UNKNOWN)
}

/// The fault of a chain with certificates that may not issue others.
pub(crate) const MAY_NOT_SIGN: Refusal = Refusal { code: NO_CERT_SIGN, depth: 1 };

/// Whether an error says that the chain leads to no authority.
pub(crate) fn breaks_off(refusal: Refusal) -> bool {
    matches!(refusal.code, BAD_SIGNATURE | SELF_SIGNED..=UNVERIFIED_LEAF)
}

/// Whether an error is about the times of a certificate.
pub(crate) fn is_of_time(refusal: Refusal) -> bool {
    matches!(refusal.code, NOT_YET_VALID | EXPIRED)
}

/// A time at which a certificate and those above it are valid, if there is one.
pub(crate) fn common_time(leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> Option<UnixTime> {
    let all: Vec<X509Certificate<'_>> = std::iter::once(leaf).chain(above).filter_map(parse).collect();
    let end = all.iter().map(|certificate| certificate.validity().not_after.timestamp()).min()?;
    let begin = all.iter().map(|certificate| certificate.validity().not_before.timestamp()).max()?;
    let end = u64::try_from(end).ok().filter(|_| begin <= end)?;
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(end)))
}

/// Whether one of the lists revokes this certificate.
pub(crate) fn is_listed(leaf: &CertificateDer<'_>, lists: &[CertificateRevocationListDer<'static>]) -> bool {
    let Some(leaf) = parse(leaf) else { return false };
    lists.iter().filter_map(|list| CertificateRevocationList::from_der(list).ok()).any(|(_, list)| {
        list.issuer().as_raw() == leaf.issuer().as_raw()
            && list.iter_revoked_certificates().any(|entry| entry.raw_serial() == leaf.raw_serial())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};

    fn authority(name: &str, usage: KeyUsagePurpose) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![usage];
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn few_issuers_are_looked_at_and_fewer_of_one_name() {
        let sign = || KeyUsagePurpose::KeyCertSign;
        let usual: Vec<_> = ["a", "b", "c"].map(|name| authority(name, sign())).into();
        assert_eq!(issuers(&usual), usual);
        let namesakes: Vec<_> = (0..50).map(|_| authority("same", sign())).collect();
        assert_eq!(issuers(&namesakes), &namesakes[..NAMESAKES_MAX]);
        let many: Vec<_> = (0..50).map(|number| authority(&number.to_string(), sign())).collect();
        assert_eq!(issuers(&many), &many[..ISSUERS_MAX]);
        let twice = [usual[0].clone(), usual[0].clone()];
        assert_eq!(issuers(&twice), &twice[..1]);
        let of_lists = [authority("d", KeyUsagePurpose::CrlSign), usual[0].clone()];
        assert_eq!(issuers(&of_lists), &of_lists[1..], "one that may sign lists alone is no issuer");
    }

    #[test]
    fn hosts_are_within_subtrees_of_whole_labels() {
        for (host, base, is) in [
            ("a.good.example", "good.example", true),
            ("good.example", "good.example", true),
            ("A.Good.Example", "good.example", true),
            ("bad-good.example", "good.example", false),
            ("a.good.example", ".good.example", true),
            ("good.example", ".good.example", false),
            ("a.bad.example", "good.example", false),
            ("anything.example", "", true),
        ] {
            assert_eq!(is_within(host, base), is, "{host} in {base}");
        }
    }
}
