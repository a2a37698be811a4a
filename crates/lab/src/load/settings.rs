//! A [`TlsPlan`] as rustls' configuration.

use super::failure::WRONG_SIGNATURE;
use super::{Error, Http, Mode, Scheme, TlsPlan, TlsVersion, names};
use crate::load::{LoadPlan, exchange};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The algorithm of the signature that this thread's last full handshake carried: rustls does not say.
    static LAST_SIGNATURE: Cell<Option<SignatureScheme>> = const { Cell::new(None) };
}

/// See [`LAST_SIGNATURE`]; it is asked for in the turn in which the signature came.
pub(crate) fn take_signature() -> Option<SignatureScheme> {
    LAST_SIGNATURE.take()
}

/// How a connection is made secure.
#[derive(Clone)]
pub(crate) struct Tls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// What is verified about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// The checks that the plan asks for.
    AsPlanned,
    /// Signatures in any case, as for the run's first handshake.
    Signatures,
}

impl Tls {
    /// The TLS settings of a plan; `None` where the target is in clear text.
    pub(crate) fn new(plan: &LoadPlan, checks: Checks) -> Result<Option<Tls>, Error> {
        if plan.target.scheme == Scheme::Http {
            return Ok(None);
        }
        let name = server_name(plan)?;
        let provider = Arc::new(provider(&plan.tls)?);
        let versions: &[_] = match plan.tls.versions[..] {
            [] => rustls::ALL_VERSIONS,
            [TlsVersion::V12] => &[&rustls::version::TLS12],
            [TlsVersion::V13] => &[&rustls::version::TLS13],
            _ => rustls::ALL_VERSIONS,
        };
        let verifier = verifier(&plan.tls, &provider, checks)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|_| Error::Plan("none of the cipher suites asked for belongs to the version asked for".into()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = match (plan.http, plan.mode) {
            (Http::Two, _) => vec![b"h2".to_vec()],
            (Http::One, Mode::Handshake) => Vec::new(),
            (Http::One, _) => vec![b"http/1.1".to_vec()],
        };
        Ok(Some(Tls { config: Arc::new(config), name }))
    }

    /// A copy of the settings that resumes sessions, with a session memory of its own.
    pub(crate) fn resuming(&self) -> Tls {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Tls { config: Arc::new(config), name: self.name.clone() }
    }
}

/// The name that the plan's connections ask for.
pub(crate) fn server_name(plan: &LoadPlan) -> Result<ServerName<'static>, Error> {
    let name = plan.tls.server_name.as_ref().unwrap_or(&plan.target.host);
    ServerName::try_from(name.clone())
        .map_err(|_| Error::Plan(format!("'{name}' is neither a host's name nor an address")))
}

/// rustls keeps these for the one server there is; servers send two tickets or four.
const SESSIONS: usize = 4;

fn provider(tls: &TlsPlan) -> Result<CryptoProvider, Error> {
    let mut provider = aws_lc_rs::default_provider();
    // The cheaper of both for either side; a server with a preference of its own chooses by that.
    provider.cipher_suites.sort_by_key(|suite| !names::of_suite(suite.suite()).contains("AES_128"));
    if !tls.suites.is_empty() {
        let wanted: Vec<_> = tls
            .suites
            .iter()
            .map(|name| names::suite(name).ok_or_else(|| unknown("suites", name)))
            .collect::<Result<_, _>>()?;
        let all = std::mem::take(&mut provider.cipher_suites);
        provider.cipher_suites =
            wanted.iter().filter_map(|suite| all.iter().find(|one| one.suite() == *suite).copied()).collect();
    }
    let groups = match tls.groups.is_empty() {
        true => vec![NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1],
        false => tls
            .groups
            .iter()
            .map(|name| names::group(name).ok_or_else(|| unknown("groups", name)))
            .collect::<Result<_, _>>()?,
    };
    provider.kx_groups = groups.into_iter().filter_map(exchange::group).collect();
    Ok(provider)
}

fn unknown(kind: &str, name: &str) -> Error {
    let known = names::known().into_iter().find(|(one, _)| *one == kind).map(|(_, names)| names).unwrap_or_default();
    Error::Plan(format!("'{name}' is not among the {kind} that can be asked for: {known}"))
}

fn verifier(
    tls: &TlsPlan,
    provider: &Arc<CryptoProvider>,
    checks: Checks,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut schemes = provider.signature_verification_algorithms.supported_schemes();
    // As browsers order them: SHA-256 first.
    schemes.sort_by_key(|scheme| !names::of_signature(*scheme).ends_with("sha256"));
    if !tls.signatures.is_empty() {
        schemes = tls
            .signatures
            .iter()
            .map(|name| names::signature(name).ok_or_else(|| unknown("signatures", name)))
            .collect::<Result<_, _>>()?;
    }
    let chain = match &tls.verify {
        None => None,
        Some(file) => {
            let bad = |why: String| Error::Plan(format!("the roots in {} cannot be used: {why}", file.display()));
            let mut roots = RootCertStore::empty();
            for root in CertificateDer::pem_file_iter(file).map_err(|e| bad(e.to_string()))? {
                roots.add(root.map_err(|e| bad(e.to_string()))?).map_err(|e| bad(e.to_string()))?;
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
            Some(verifier.map_err(|e| bad(e.to_string()))?)
        }
    };
    let signatures = chain.is_some() || tls.check_signatures || checks == Checks::Signatures;
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(Verifier { chain, signatures, schemes, algorithms }))
}

fn wrong(error: rustls::Error) -> rustls::Error {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            rustls::Error::General(WRONG_SIGNATURE.into())
        }
        other => other,
    }
}

/// Notes which signature came, and checks what is to be checked.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    signatures: bool,
    schemes: Vec<SignatureScheme>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.chain {
            Some(verifier) => verifier.verify_server_cert(certificate, chain, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        LAST_SIGNATURE.set(Some(signed.scheme));
        match self.signatures {
            true => verify_tls12_signature(message, certificate, signed, &self.algorithms).map_err(wrong),
            false => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        LAST_SIGNATURE.set(Some(signed.scheme));
        match self.signatures {
            true => verify_tls13_signature(message, certificate, signed, &self.algorithms).map_err(wrong),
            false => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
