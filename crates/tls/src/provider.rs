//! Implements rustls' hooks with the engine: key exchange and signatures become operations.

use crate::{
    hkdf,
    suspend::{self, Wait},
};
use penstock_engine::{
    Answer, Curve, Failure, KemPrivate, Op, Private, Scheme, Secret, Share, SigningKey, Ticket, worker,
};
use rustls::{
    CipherSuiteCommon, Error, NamedGroup, PeerMisbehaved, ProtocolVersion, SignatureAlgorithm, SignatureScheme,
    SupportedCipherSuite, Tls13CipherSuite,
    crypto::{
        ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, KeyProvider, SharedSecret, SupportedKxGroup,
        aws_lc_rs::{self, cipher_suite as suite},
        tls13::Hkdf,
    },
    ffdhe_groups::FfdheGroup,
    sign,
};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use std::{future::poll_fn, sync::Arc};

/// All groups in order of preference: the hybrid first, as in browsers, then the cheapest.
pub(crate) static GROUPS: [&dyn SupportedKxGroup; 4] = [X25519MLKEM768, X25519, SECP256R1, SECP384R1];
pub(crate) static X25519: &dyn SupportedKxGroup = &Ecdhe(Curve::X25519);
pub(crate) static SECP256R1: &dyn SupportedKxGroup = &Ecdhe(Curve::P256);
pub(crate) static SECP384R1: &dyn SupportedKxGroup = &Ecdhe(Curve::P384);
pub(crate) static X25519MLKEM768: &dyn SupportedKxGroup = &Hybrid;

/// A provider with these suites and groups; records, transcripts and verification are those of aws-lc.
pub(crate) fn provider(
    cipher_suites: Vec<SupportedCipherSuite>,
    kx_groups: Vec<&'static dyn SupportedKxGroup>,
) -> CryptoProvider {
    CryptoProvider { cipher_suites, kx_groups, key_provider: &Keys, ..aws_lc_rs::default_provider() }
}

/// The suites to use if the configuration does not select any: AES-128-GCM with SHA-256 first, as in BoringSSL. It is
/// as strong as the rest of the handshake, and its hash is cheaper: most processors have instructions for SHA-256.
pub(crate) static SUITES: [SupportedCipherSuite; 9] = [
    SupportedCipherSuite::Tls13(&TLS13_AES_128),
    SupportedCipherSuite::Tls13(&TLS13_AES_256),
    SupportedCipherSuite::Tls13(&TLS13_CHACHA20),
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

static TLS13_AES_128: Tls13CipherSuite = scheduled(&suite::TLS13_AES_128_GCM_SHA256, &hkdf::SHA256);
static TLS13_AES_256: Tls13CipherSuite = scheduled(&suite::TLS13_AES_256_GCM_SHA384, &hkdf::SHA384);
static TLS13_CHACHA20: Tls13CipherSuite = scheduled(&suite::TLS13_CHACHA20_POLY1305_SHA256, &hkdf::SHA256);

/// The library's suite with our key schedule.
const fn scheduled(suite: &SupportedCipherSuite, hkdf: &'static dyn Hkdf) -> Tls13CipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else { panic!("a suite of TLS 1.3") };
    let CipherSuiteCommon { suite: id, hash_provider, confidentiality_limit } = suite.common;
    Tls13CipherSuite {
        common: CipherSuiteCommon { suite: id, hash_provider, confidentiality_limit },
        hkdf_provider: hkdf,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }
}

/// The provider to use if the configuration does not select anything.
pub(crate) fn default_provider() -> CryptoProvider {
    provider(SUITES.to_vec(), GROUPS.to_vec())
}

/// Computes one operation: parked if the engine serves it and the caller can wait, otherwise inline.
fn perform(op: Op) -> Result<Answer, Failure> {
    match submit(op) {
        Ok(ticket) => {
            if !ticket.is_ready() {
                suspend::park(Wait([Some(ticket.watch()), None])).map_err(|_| Failure::Cancelled)?;
            }
            ticket.take()
        }
        Err(op) => worker::perform(&op),
    }
}

/// Computes two operations while waiting only once: both are submitted before the caller is parked.
fn perform_both(first: Op, second: Op) -> Result<(Answer, Answer), Failure> {
    let (first, second) = (submit(first), submit(second));
    let waits = |ticket: &Ticket| (!ticket.is_ready()).then(|| ticket.watch());
    let watches = [&first, &second].map(|op| op.as_ref().ok().and_then(waits));
    if watches.iter().any(Option::is_some) {
        suspend::park(Wait(watches)).map_err(|_| Failure::Cancelled)?;
    }
    let answer = |submitted: Result<Ticket, Op>| match submitted {
        Ok(ticket) => ticket.take(),
        Err(op) => worker::perform(&op),
    };
    Ok((answer(first)?, answer(second)?))
}

fn submit(op: Op) -> Result<Ticket, Op> {
    if suspend::can_park() { worker::submit(op) } else { Err(op) }
}

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::PeerKey => PeerMisbehaved::InvalidKeyShare.into(),
        Failure::Internal | Failure::Wrong | Failure::Device => Error::General("public-key operation failed".into()),
        Failure::Cancelled => Error::General("handshake cancelled".into()),
    }
}

/// The error for an engine's answer of the wrong kind. The queue never passes one on.
fn mismatched() -> Error {
    failed(Failure::Internal)
}

fn shared(secret: &Secret) -> SharedSecret {
    SharedSecret::from(secret.expose())
}

/// Key exchange on one curve.
#[derive(Debug)]
struct Ecdhe(Curve);

impl SupportedKxGroup for Ecdhe {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        match perform(Op::KeyGen { curve: self.0 }).map_err(failed)? {
            Answer::Pair { public, private } => Ok(Box::new(ActiveEcdhe { name: self.name(), public, private })),
            _ => Err(mismatched()),
        }
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        match perform(Op::Agree { curve: self.0, peer: peer.to_vec() }).map_err(failed)? {
            Answer::Agreed { public, secret } => {
                Ok(CompletedKeyExchange { group: self.name(), pub_key: public, secret: shared(&secret) })
            }
            _ => Err(mismatched()),
        }
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        match self.0 {
            Curve::X25519 => NamedGroup::X25519,
            Curve::P256 => NamedGroup::secp256r1,
            Curve::P384 => NamedGroup::secp384r1,
        }
    }
}

struct ActiveEcdhe {
    name: NamedGroup,
    public: Vec<u8>,
    private: Private,
}

impl ActiveKeyExchange for ActiveEcdhe {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        match perform(Op::Derive { private: self.private, peer: peer.to_vec() }).map_err(failed)? {
            Answer::Shared(secret) => Ok(shared(&secret)),
            _ => Err(mismatched()),
        }
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}

/// X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): ML-KEM's part comes first in shares and in the secret.
#[derive(Debug)]
struct Hybrid;

const KEM_PUBLIC: usize = 1184;
const KEM_CIPHERTEXT: usize = 1088;
const X25519_LEN: usize = 32;

/// The two parts of a share; the first has length `kem`.
fn halves(share: &[u8], kem: usize) -> Result<(&[u8], &[u8]), Error> {
    if share.len() != kem + X25519_LEN {
        return Err(PeerMisbehaved::InvalidKeyShare.into());
    }
    Ok(share.split_at(kem))
}

fn joined(kem: &Secret, classical: &Secret) -> SharedSecret {
    // One allocation of the final size, which SharedSecret wipes.
    let mut both = Vec::with_capacity(kem.expose().len() + classical.expose().len());
    both.extend_from_slice(kem.expose());
    both.extend_from_slice(classical.expose());
    SharedSecret::from(both)
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        match perform_both(Op::KeyGen { curve: Curve::X25519 }, Op::KemKeyGen).map_err(failed)? {
            (Answer::Pair { public, private }, Answer::KemPair { public: kem_public, private: kem_private }) => {
                Ok(Box::new(ActiveHybrid { share: [kem_public, public].concat(), private, kem_private }))
            }
            _ => Err(mismatched()),
        }
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (kem, classical) = halves(peer, KEM_PUBLIC)?;
        let agree = Op::Agree { curve: Curve::X25519, peer: classical.to_vec() };
        match perform_both(agree, Op::KemEncapsulate { peer: kem.to_vec() }).map_err(failed)? {
            (Answer::Agreed { public, secret }, Answer::Agreed { public: ciphertext, secret: kem_secret }) => {
                Ok(CompletedKeyExchange {
                    group: self.name(),
                    pub_key: [ciphertext, public].concat(),
                    secret: joined(&kem_secret, &secret),
                })
            }
            _ => Err(mismatched()),
        }
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

struct ActiveHybrid {
    share: Vec<u8>,
    private: Private,
    kem_private: KemPrivate,
}

impl ActiveKeyExchange for ActiveHybrid {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, classical) = halves(peer, KEM_CIPHERTEXT)?;
        let derive = Op::Derive { private: self.private, peer: classical.to_vec() };
        let decapsulate = Op::KemDecapsulate { private: self.kem_private, ciphertext: ciphertext.to_vec() };
        match perform_both(derive, decapsulate).map_err(failed)? {
            (Answer::Shared(secret), Answer::Shared(kem_secret)) => Ok(joined(&kem_secret, &secret)),
            _ => Err(mismatched()),
        }
    }

    /// X25519 is offered beside the hybrid, with the same key pair.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.share[KEM_PUBLIC..]))
    }

    fn complete_hybrid_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        match perform(Op::Derive { private: self.private, peer: peer.to_vec() }).map_err(failed)? {
            Answer::Shared(secret) => Ok(shared(&secret)),
            _ => Err(mismatched()),
        }
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// Loads private keys for the engine.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn sign::SigningKey>, Error> {
        let key = SigningKey::from_der(der.secret_der().to_vec()).map_err(|e| Error::General(e.to_string()))?;
        Ok(Arc::new(Key::new(Arc::new(key))))
    }
}

/// A private key as rustls expects it.
#[derive(Debug)]
pub(crate) struct Key {
    key: Arc<SigningKey>,
    spki: Vec<u8>,
}

impl Key {
    pub fn new(key: Arc<SigningKey>) -> Key {
        Key { spki: key.spki(), key }
    }

    /// The public key, encoded as in certificates.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }
}

impl sign::SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn sign::Signer>> {
        let scheme = self.key.schemes().iter().find(|scheme| offered.contains(&rustls_scheme(**scheme)))?;
        Some(Box::new(Signer { key: self.key.clone(), scheme: *scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.spki.as_slice()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        use penstock_engine::KeyKind;
        match self.key.kind() {
            KeyKind::Rsa { .. } => SignatureAlgorithm::RSA,
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521 => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

/// Signs for a task that waits, rather than for a handshake on a stack of its own.
pub(crate) async fn sign(
    key: &Arc<SigningKey>,
    scheme: Scheme,
    message: Vec<u8>,
    share: Share,
) -> Result<Vec<u8>, Failure> {
    worker::set_share(share);
    let answer = match worker::submit(Op::Sign { key: key.clone(), scheme, message }) {
        Ok(ticket) => {
            poll_fn(|cx| ticket.poll_ready(cx)).await;
            ticket.take()?
        }
        Err(op) => worker::perform(&op)?,
    };
    match answer {
        Answer::Signature(signature) => Ok(signature),
        _ => Err(Failure::Internal),
    }
}

#[derive(Debug)]
struct Signer {
    key: Arc<SigningKey>,
    scheme: Scheme,
}

impl sign::Signer for Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let op = Op::Sign { key: self.key.clone(), scheme: self.scheme, message: message.to_vec() };
        match perform(op).map_err(failed)? {
            Answer::Signature(signature) => Ok(signature),
            _ => Err(mismatched()),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        rustls_scheme(self.scheme)
    }
}

fn rustls_scheme(scheme: Scheme) -> SignatureScheme {
    SignatureScheme::from(scheme as u16)
}
