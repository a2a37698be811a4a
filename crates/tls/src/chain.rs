//! A chain of certificates as OpenSSL walks it when it goes on after errors (`crt-ignore-err`, `ca-ignore-err`).
//!
//! webpki stops at the first error, and looks at a leaf's own times and usages before at who issued it. Whoever ignores that error has
//! not learned whether the chain leads to an authority, so that is found out here: by names, signatures and times.

use crate::{
    verify::Refusal,
    version1::{may_sign, parse, signature},
};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::{certificate::X509Certificate, time::ASN1Time};

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
    let others: Vec<X509Certificate<'_>> = above.iter().filter_map(parse).collect();
    let mut chain: Vec<(Option<&CertificateDer<'_>>, X509Certificate<'_>)> = vec![(Some(leaf), first)];
    let mut faults = Vec::new();
    let mut left = SIGNATURES_MAX;
    loop {
        let here = at(chain.len() - 1);
        let Some((Some(der), current)) = chain.last() else { break };
        if anchors.iter().any(|anchor| anchor.as_ref() == der.as_ref()) {
            break;
        }
        let signed = signature(der, current);
        let issues = |issuer: &&X509Certificate<'_>, left: &mut u32| {
            let is_named = issuer.subject().as_raw() == current.issuer().as_raw() && *left > 0;
            *left -= u32::from(is_named);
            is_named && signed.as_ref().is_some_and(|signed| signed.is_by(issuer.public_key(), algorithms))
        };
        if let Some(anchor) = trusted.iter().find(|issuer| issues(issuer, &mut left)) {
            chain.push((None, anchor.clone()));
            break;
        }
        if current.issuer().as_raw() == current.subject().as_raw() {
            faults.push(here(if chain.len() == 1 { SELF_SIGNED } else { SELF_SIGNED_ABOVE }));
            break;
        }
        let next = others.iter().position(|issuer| issues(&issuer, &mut left)).filter(|_| chain.len() <= above.len());
        if let Some(next) = next {
            // Unreadable ones were left out, so that places differ.
            let der = above.iter().filter(|der| parse(der).is_some()).nth(next);
            chain.push((der, others[next].clone()));
            continue;
        }
        let is_named = |issuer: &X509Certificate<'_>| issuer.subject().as_raw() == current.issuer().as_raw();
        if trusted.iter().chain(&others).any(is_named) {
            faults.push(here(BAD_SIGNATURE));
        } else {
            faults.push(here(NO_ISSUER));
            // Without an issuer the signature of a single certificate cannot be checked either.
            faults.extend((chain.len() == 1).then(|| here(UNVERIFIED_LEAF)));
        }
        break;
    }
    let issuers = chain.iter().enumerate().skip(1);
    faults.extend(issuers.filter(|(_, (_, issuer))| !may_sign(issuer)).map(|(depth, _)| at(depth)(INVALID_CA)));
    let now = i64::try_from(now.as_secs()).ok().and_then(|secs| ASN1Time::from_timestamp(secs).ok());
    for (depth, (_, certificate)) in chain.iter().enumerate().rev() {
        let validity = certificate.validity();
        match now {
            Some(now) if now < validity.not_before => faults.push(at(depth)(NOT_YET_VALID)),
            Some(now) if now <= validity.not_after => {}
            _ => faults.push(at(depth)(EXPIRED)),
        }
    }
    faults
}

const BAD_SIGNATURE: u32 = 7;
const NOT_YET_VALID: u32 = 9;
const EXPIRED: u32 = 10;
const SELF_SIGNED: u32 = 18;
const SELF_SIGNED_ABOVE: u32 = 19;
const NO_ISSUER: u32 = 20;
const UNVERIFIED_LEAF: u32 = 21;
const INVALID_CA: u32 = 24;

/// Whether an error says that the chain leads to no authority.
pub(crate) fn breaks_off(refusal: Refusal) -> bool {
    matches!(refusal.code, BAD_SIGNATURE | SELF_SIGNED..=UNVERIFIED_LEAF)
}

/// Whether an error is about the times of a certificate.
pub(crate) fn is_of_time(refusal: Refusal) -> bool {
    matches!(refusal.code, NOT_YET_VALID | EXPIRED)
}

/// A time at which a certificate is valid.
pub(crate) fn time_within(leaf: &CertificateDer<'_>) -> Option<UnixTime> {
    let end = parse(leaf)?.validity().not_after.timestamp();
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::try_from(end).ok()?)))
}
