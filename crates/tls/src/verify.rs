//! Verification of peers: a certificate against authorities, revocation lists and the errors that a configuration
//! ignores.
//!
//! Results are OpenSSL's numbers (`X509_V_ERR_*`), because `ssl_c_verify`, `crt-ignore-err` and logs use them.

use crate::{certificate, chain, version1};
use penstock_rules::x509;
use rustls::{
    CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, WebPkiSupportedAlgorithms},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use std::{cell::Cell, fmt, net::Ipv4Addr, sync::Arc};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a chain was refused.
pub(crate) struct Rejected {
    /// All that is wrong with it if errors are ignored, else the first; at least one.
    pub faults: Vec<Refusal>,
    /// rustls's word for it.
    pub error: Error,
}

/// A refusal: OpenSSL's number, and how far above the leaf it occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: u32,
    pub depth: u32,
}

/// The code of a leaf with X.509 version 1 that webpki would have to judge, and refuses: one below an intermediate authority, or with
/// revocation lists. OpenSSL has none, since it accepts such certificates.
pub(crate) const VERSION_1: u32 = u32::MAX;

const UNSPECIFIED: u32 = 1;
const NO_LIST: u32 = 3;
const OUTDATED_LIST: u32 = 12;
const REVOKED: u32 = 23;

thread_local! {
    /// Why the last client was refused. rustls returns its own error, which has no room for OpenSSL's number; nothing
    /// parks between the refusal and the end of the pass, where this is taken.
    static REFUSED: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// The refusal that made the last pass fail, if that was the reason.
pub(crate) fn take_refusal() -> Option<Refusal> {
    REFUSED.take()
}

/// `crt-ignore-err` and `ca-ignore-err`: errors ignored at the leaf, and above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored {
    leaf: Codes,
    authorities: Codes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Codes {
    #[default]
    None,
    All,
    These(Vec<u32>),
}

impl Ignored {
    /// Parses the lists of ignored errors.
    ///
    /// # Errors
    ///
    /// The word that is neither `all` nor a number.
    pub fn parse(leaf: Option<&str>, authorities: Option<&str>) -> Result<Ignored, String> {
        Ok(Ignored { leaf: Codes::parse(leaf)?, authorities: Codes::parse(authorities)? })
    }

    fn covers(&self, refusal: Refusal) -> bool {
        if chain::is_final(refusal) {
            return false;
        }
        if refusal.code == VERSION_1 {
            // Nothing is known of such a chain.
            return self.leaf == Codes::All && self.authorities == Codes::All;
        }
        let codes = if refusal.depth == 0 { &self.leaf } else { &self.authorities };
        match codes {
            Codes::None => false,
            Codes::All => true,
            Codes::These(list) => list.contains(&refusal.code),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Ignored::default()
    }
}

impl Codes {
    fn parse(text: Option<&str>) -> Result<Codes, String> {
        let Some(text) = text else { return Ok(Codes::None) };
        if text.split(',').any(|word| word == "all") {
            return Ok(Codes::All);
        }
        let numbers: Result<Vec<u32>, _> = text
            .split(',')
            .map(|word| {
                word.parse().or_else(|_| {
                    x509::result_number(word.strip_prefix("X509_V_ERR_").unwrap_or(word)).ok_or(word.to_owned())
                })
            })
            .collect();
        numbers.map(Codes::These)
    }
}

/// Translates rustls' error to OpenSSL's number.
pub(crate) fn refusal(error: &Error, leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> Refusal {
    use CertificateError as E;
    let at_leaf = |code| Refusal { code, depth: 0 };
    match error {
        Error::InvalidCertificate(error) => match error {
            E::Expired | E::ExpiredContext { .. } => Refusal { code: 10, depth: outdated(leaf, above, true) },
            E::NotValidYet | E::NotValidYetContext { .. } => Refusal { code: 9, depth: outdated(leaf, above, false) },
            E::Revoked => at_leaf(REVOKED),
            E::UnknownRevocationStatus => at_leaf(NO_LIST),
            E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => at_leaf(OUTDATED_LIST),
            E::BadSignature => at_leaf(7),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => at_leaf(26),
            E::UnhandledCriticalExtension => at_leaf(34),
            E::UnknownIssuer => unknown_issuer(leaf, above),
            E::Other(_) | E::BadEncoding if version1::is(leaf) => at_leaf(VERSION_1),
            _ => at_leaf(UNSPECIFIED),
        },
        Error::InvalidCertRevocationList(CertRevocationListError::BadSignature) => at_leaf(8),
        _ => at_leaf(UNSPECIFIED),
    }
}

/// Finds which certificate of the chain is outside its validity.
fn outdated(leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>], expired: bool) -> u32 {
    let now = x509_parser::time::ASN1Time::now();
    let bad = |der: &CertificateDer<'_>| {
        X509Certificate::from_der(der).is_ok_and(|(_, c)| match expired {
            true => c.validity().not_after < now,
            false => c.validity().not_before > now,
        })
    };
    if bad(leaf) {
        return 0;
    }
    above.iter().position(bad).map_or(0, |index| index as u32 + 1)
}

/// OpenSSL has different numbers depending on where a chain without a trusted end breaks off.
fn unknown_issuer(leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> Refusal {
    let parse = |der| X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed);
    let Some(mut last) = parse(leaf) else { return Refusal { code: 20, depth: 0 } };
    if last.issuer() == last.subject() {
        return Refusal { code: 18, depth: 0 };
    }
    let mut depth = 0;
    let parsed: Vec<_> = above.iter().filter_map(|der| parse(der)).collect();
    while let Some(next) = parsed.iter().find(|c| c.subject() == last.issuer()) {
        depth += 1;
        last = next.clone();
        if last.issuer() == last.subject() {
            return Refusal { code: 19, depth };
        }
        if depth as usize > above.len() {
            break;
        }
    }
    Refusal { code: 20, depth }
}

/// Whether a certificate is itself trusted. OpenSSL accepts a leaf that is one of the authorities (a self-signed
/// certificate as its own `ca-file`); webpki does not if it is marked as a CA.
fn is_anchor(leaf: &CertificateDer<'_>, anchors: &[CertificateDer<'static>]) -> bool {
    anchors.iter().any(|anchor| anchor.as_ref() == leaf.as_ref())
        && X509Certificate::from_der(leaf).is_ok_and(|(_, parsed)| parsed.validity().is_valid())
}

fn verify_tls12(
    message: &[u8],
    cert: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    match crypto::verify_tls12_signature(message, cert, dss, algorithms) {
        Err(_) if version1::is(cert) => version1::verify_tls12(message, cert, dss, algorithms),
        verdict => verdict,
    }
}

fn verify_tls13(
    message: &[u8],
    cert: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    match crypto::verify_tls13_signature(message, cert, dss, algorithms) {
        Err(_) if version1::is(cert) => version1::verify_tls13(message, cert, dss, algorithms),
        verdict => verdict,
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Verifies clients, for `verify optional` and `verify required`.
pub(crate) struct Clients {
    chain: Arc<dyn ClientCertVerifier>,
    anchors: Vec<CertificateDer<'static>>,
    limited: Vec<CertificateDer<'static>>,
    hints: Vec<DistinguishedName>,
    mandatory: bool,
    /// The same, which takes revocation lists for valid that have expired.
    lenient: Arc<dyn ClientCertVerifier>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// Whether there are revocation lists.
    revokes: bool,
    ignored: Ignored,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    /// `anchors` are those of `ca-file` and `ca-verify-file` together; `hints` are the subjects sent to the client.
    ///
    /// # Errors
    ///
    /// What is wrong with the authorities or the lists.
    pub fn new(
        anchors: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        hints: Vec<DistinguishedName>,
        crls: Vec<CertificateRevocationListDer<'static>>,
        mandatory: bool,
        ignored: Ignored,
    ) -> Result<Clients, String> {
        let (provider, revokes) = (Arc::new(crate::provider::default_provider()), !crls.is_empty());
        let roots = Arc::new(roots);
        let builder = || {
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).with_crls(crls.iter().cloned())
        };
        let chain = builder().enforce_revocation_expiration().build().map_err(|e| e.to_string())?;
        // Only where errors are ignored is it asked.
        let lenient = match ignored.is_empty() || !revokes {
            true => chain.clone(),
            false => builder().build().map_err(|e| e.to_string())?,
        };
        let lists = if ignored.is_empty() { Vec::new() } else { crls };
        let (limited, algorithms) = (chain::limited(&anchors), algorithms());
        Ok(Clients { chain, lenient, lists, anchors, limited, hints, mandatory, revokes, ignored, algorithms })
    }

    /// The result of verification before ignored errors are applied.
    ///
    /// # Errors
    /// If the chain leads to no authority, or a certificate in it does not hold.
    pub fn verdict(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejected> {
        if is_anchor(leaf, &self.anchors) {
            return Ok(());
        }
        let may_not_sign = |der| version1::parse(der).is_some_and(|parsed| !version1::lets_sign(&parsed));
        let is_odd = self.ignores() && above.iter().any(may_not_sign);
        let above = &*chain::issuers(above);
        let verdict = match self.chain.verify_client_cert(leaf, above, now) {
            Ok(_) => Ok(()),
            Err(error) if self.revokes => Err(error),
            // webpki refuses every leaf of version 1.
            Err(error) => version1::verify(leaf, above, &self.anchors, now, &self.algorithms).unwrap_or(Err(error)),
        };
        if let (Ok(()), Some(fault)) = (&verdict, chain::of_leaf(leaf, above, &self.limited, true)) {
            return Err(Rejected { faults: vec![fault], error: CertificateError::InvalidPurpose.into() });
        }
        verdict.map_err(|error| {
            let found = refusal(&error, leaf, above);
            let faults = match found.code {
                VERSION_1 | UNSPECIFIED => self.faults(found, leaf, above, now),
                _ if self.ignores() => self.faults(found, leaf, above, now),
                _ => vec![found],
            };
            let more = is_odd.then_some(chain::MAY_NOT_SIGN);
            Rejected { faults: faults.into_iter().chain(more).collect(), error }
        })
    }

    /// All that is wrong with a chain of which webpki said `found`, before it looked at the rest.
    fn faults(
        &self,
        found: Refusal,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Vec<Refusal> {
        let mut faults = chain::faults(leaf, above, &self.anchors, now, &self.algorithms);
        let is_broken = faults.iter().any(|fault| chain::breaks_off(*fault));
        // OpenSSL knows neither of the two, and has said already what is wrong.
        let is_explained = matches!(found.code, VERSION_1 | UNSPECIFIED) && !faults.is_empty();
        let mut more = if is_explained { Vec::new() } else { self.placed(found, leaf) };
        more.extend(chain::of_leaf(leaf, above, &self.limited, true));
        if !is_broken {
            self.look_behind(found, leaf, above, now, &mut more);
        } else if self.revokes {
            more.extend(self.placed(Refusal { code: NO_LIST, depth: 0 }, leaf));
        }
        more.retain(|fault| faults.iter().all(|known| known.code != fault.code));
        let times = faults.iter().position(|fault| chain::is_of_time(*fault)).unwrap_or(faults.len());
        faults.splice(times..times, more);
        faults
    }

    /// Whether a session can be open despite a refusal, so that its number has to be found again.
    pub fn ignores(&self) -> bool {
        !self.ignored.is_empty()
    }

    /// Has webpki go on as if what it found were not so, as far as that can be done, and adds what it finds then.
    fn look_behind(
        &self,
        found: Refusal,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
        more: &mut Vec<Refusal>,
    ) {
        let (mut found, mut chain, mut then) = (found, &self.chain, now);
        for _ in 0..3 {
            match found.code {
                _ if chain::is_of_time(found) && then == now => match chain::common_time(leaf, above) {
                    Some(time) => then = time,
                    None => break,
                },
                OUTDATED_LIST if !Arc::ptr_eq(chain, &self.lenient) => chain = &self.lenient,
                REVOKED | NO_LIST => return,
                _ => break,
            }
            let Err(error) = chain.verify_client_cert(leaf, above, then) else { return };
            found = refusal(&error, leaf, above);
            more.extend(self.placed(found, leaf));
        }
        if self.revokes {
            // The lists have not been looked at.
            more.extend(self.placed(Refusal { code: NO_LIST, depth: 0 }, leaf));
        }
    }

    /// Where in the chain an error is that webpki gives no place: it may be the leaf's, and it may be that of an authority.
    fn placed(&self, found: Refusal, leaf: &CertificateDer<'_>) -> Vec<Refusal> {
        let at = |depth| Refusal { code: found.code, depth };
        match found.code {
            REVOKED if chain::is_listed(leaf, &self.lists) => vec![at(0)],
            REVOKED => vec![at(1)],
            _ if found.depth > 0 || chain::is_of_time(found) || chain::breaks_off(found) => vec![found],
            _ => vec![at(0), at(1)],
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("mandatory", &self.mandatory).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.verdict(leaf, above, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(Rejected { faults, error }) => match faults.iter().find(|fault| !self.ignored.covers(**fault)) {
                None => Ok(ClientCertVerified::assertion()),
                Some(fault) => {
                    REFUSED.set(Some(*fault));
                    Err(error)
                }
            },
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies servers: the chain, then the name. The name is the one sent as SNI, else that of `verifyhost`; without
/// either, any name is accepted, as with HAProxy.
pub(crate) struct Servers {
    verifyhost: Option<String>,
    /// `None` for `verify none`.
    chain: Option<(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>)>,
    /// Those of its anchors that may not issue for all names.
    limited: Vec<CertificateDer<'static>>,
    /// Whether there are revocation lists.
    revokes: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Servers {
    /// A verifier for `verify none`.
    pub fn unverified() -> Servers {
        Servers { verifyhost: None, chain: None, limited: Vec::new(), revokes: false, algorithms: algorithms() }
    }

    /// Whether a certificate must be issued by an authority, and for the right name.
    pub fn verifies(&self) -> bool {
        self.chain.is_some()
    }

    /// A verifier with these authorities, lists and names.
    ///
    /// # Errors
    ///
    /// What is wrong with the authorities or the lists.
    pub fn new(
        anchors: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        crls: Vec<CertificateRevocationListDer<'static>>,
        verifyhost: Option<String>,
    ) -> Result<Servers, String> {
        let (provider, revokes) = (Arc::new(crate::provider::default_provider()), !crls.is_empty());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(crls)
            .enforce_revocation_expiration()
            .build()
            .map_err(|e| e.to_string())?;
        let limited = chain::limited(&anchors);
        Ok(Servers { verifyhost, chain: Some((chain, anchors)), limited, revokes, algorithms: algorithms() })
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("verified", &self.chain.is_some()).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some((chain, anchors)) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if !is_anchor(leaf, anchors) {
            // webpki checks the chain first and the name last. No certificate is for this address, so an error about
            // the name means that everything else is valid.
            let nobody = ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
            let above = &*chain::issuers(above);
            match chain.verify_server_cert(leaf, above, &nobody, &[], now) {
                Ok(_) => {}
                Err(error) if is_about_the_name(&error) => {}
                Err(error) if self.revokes => return Err(error),
                // webpki refuses every leaf of version 1.
                Err(error) => version1::verify(leaf, above, anchors, now, &self.algorithms).unwrap_or(Err(error))?,
            }
            if chain::of_leaf(leaf, above, &self.limited, false).is_some() {
                return Err(CertificateError::NotValidForName.into());
            }
        }
        let expected = match name {
            ServerName::DnsName(name) => Some(name.as_ref()),
            _ => self.verifyhost.as_deref(),
        };
        match expected {
            Some(name) if !is_for_name(leaf, name) => Err(CertificateError::NotValidForName.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether a certificate is refused for nothing but its names.
pub(crate) fn is_about_the_name(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

/// Whether a server's certificate is for `name`, by one of its DNS names or its common name.
fn is_for_name(leaf: &[u8], name: &str) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return false };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    certificate::names(&parsed).iter().any(|pattern| certificate::covers(pattern, &name))
}
