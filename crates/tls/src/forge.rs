//! Certificates made while a client waits: `generate-certificates`.
//!
//! An authority of the configuration signs them, through the engine's queue, like any signature of a handshake. Their key is made
//! once a process, so that a certificate costs one signature and no key; they are kept, the least recently used are dropped.

mod certificate;
mod kept;
mod mirror;

pub(crate) use kept::Kept;
pub(crate) use mirror::Mirrored;

use crate::{
    certificate::{Certificate, Material},
    context::{Context, Shape},
    provider,
};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use certificate::{Contents, Signature};
use kept::{Key, Look};
use penstock_engine::{Share, SigningKey};
use rustls_pki_types::{CertificateDer, DnsName};
use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

/// Seconds for which certificates are valid, before and after they are made, unless the authority's own end comes first: those of
/// HAProxy. Clocks of clients may be slow.
const BEFORE: i64 = 24 * 3600;
const AFTER: i64 = 365 * 24 * 3600;

/// How often certificates were asked for, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgeries {
    /// Certificates made and signed.
    pub made: u64,
    /// Handshakes that used one made before.
    pub kept: u64,
    /// Names for which none is made, and signatures that failed.
    pub refused: u64,
}

/// An authority that can sign, checked when it was read.
pub(crate) struct Authority {
    certificate: Arc<Certificate>,
    signature: Signature,
    /// The authority's subject in DER, which becomes the issuer of what it signs.
    subject: Vec<u8>,
    /// Its key, as its certificate has it (SubjectPublicKeyInfo in DER).
    public_key: Vec<u8>,
    /// The authority's subject key identifier; `None` if it has none.
    key_identifier: Option<Vec<u8>>,
    /// Seconds since 1970 between which it is valid.
    not_before: i64,
    not_after: i64,
}

impl Authority {
    /// Whether those who trust the other's certificate trust what this one signs.
    pub fn signs_as(&self, other: &Authority) -> bool {
        self.public_key == other.public_key
    }

    /// Checks that certificates signed with this key will be accepted by those who trust the certificate.
    ///
    /// # Errors
    ///
    /// What is wrong, as the end of a sentence about its file.
    pub fn new(certificate: Arc<Certificate>) -> Result<Authority, &'static str> {
        let (_, parsed) = X509Certificate::from_der(certificate.leaf()).map_err(|_| "cannot be decoded")?;
        // RFC 5280, 4.2.1.9 and 4.2.1.3: without them, no client accepts what it signs.
        if !parsed.is_ca() {
            return Err("is not that of an authority: it has no basic constraint CA:TRUE");
        }
        if parsed.key_usage().is_ok_and(|usage| usage.is_some_and(|usage| !usage.value.key_cert_sign())) {
            return Err("may not sign certificates: its key usage does not include keyCertSign");
        }
        let key_identifier = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        let (subject, validity) = (parsed.subject().as_raw().to_vec(), parsed.validity());
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let public_key = parsed.public_key().raw.to_vec();
        let signature = Signature::of(certificate.kind());
        Ok(Authority { certificate, signature, subject, public_key, key_identifier, not_before, not_after })
    }

    /// Makes a certificate; returns it with the time until which it is kept. The signature may wait for others.
    async fn certify(&self, subject: &Subject, now: i64, with_chain: bool, share: Share) -> Option<(Certificate, i64)> {
        if now >= self.not_after {
            return None;
        }
        let key = leaf_key()?;
        let (names, from, until) = match subject {
            Subject::Name(name) => (std::slice::from_ref(name), now - BEFORE, now + AFTER),
            Subject::Mirror(server) => (&*server.names, server.not_before, server.not_after),
        };
        let until = self.not_after.min(until);
        let keep = match subject {
            // Clients never see it expire.
            Subject::Name(_) => now.midpoint(until),
            // Another would say the same.
            Subject::Mirror(_) => self.not_after,
        };
        let to_sign = certificate::to_sign(&Contents {
            signature: self.signature,
            issuer: &self.subject,
            issuer_key: self.key_identifier.as_deref(),
            names,
            not_before: self.not_before.max(from),
            not_after: until,
            public_key: &key.spki(),
        })?;
        let signed = provider::sign(&self.certificate.key, self.signature.scheme, to_sign.clone(), share).await.ok()?;
        let mut chain = vec![CertificateDer::from(certificate::signed(&to_sign, self.signature, &signed))];
        if with_chain {
            chain.extend(self.certificate.certified.cert.iter().cloned());
        }
        let certificate = Certificate::new(Material { chain, key: Some(key), ..Material::default() }).ok()?;
        Some((certificate, keep))
    }
}

/// The key of all certificates that this process makes; `None` if there is no randomness.
fn leaf_key() -> Option<Arc<SigningKey>> {
    static KEY: OnceLock<Option<Arc<SigningKey>>> = OnceLock::new();
    KEY.get_or_init(|| {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).ok()?;
        SigningKey::from_der(pair.to_pkcs8v1().ok()?.as_ref().to_vec()).ok().map(Arc::new)
    })
    .clone()
}

/// What a certificate is made for.
pub(crate) enum Subject {
    /// A name that a client asked for, whatever the server behind it has.
    Name(Name),
    /// A server whose certificate has been seen.
    Mirror(Mirrored),
}

impl Subject {
    fn key(&self) -> Key {
        match self {
            Subject::Name(name) => Key::Name(name.clone()),
            Subject::Mirror(server) => Key::Server(server.digest),
        }
    }
}

/// What a certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// A host's name, in lower case; those of servers may begin with a star.
    Dns(Arc<str>),
    Ip(IpAddr),
}

impl Name {
    /// The name in a ClientHello, if it is one: letters, digits, hyphens and underscores, no wildcard, no address.
    pub fn of(sni: &str) -> Option<Name> {
        // RFC 6066, 3: without a dot at the end.
        let valid = !sni.ends_with('.') && DnsName::try_from(sni).is_ok();
        valid.then(|| Name::Dns(sni.to_ascii_lowercase().into()))
    }

    /// Whether a certificate with it is valid for the host `asked`, which is in lower case.
    fn is_for(&self, asked: &str) -> bool {
        matches!(self, Name::Dns(name) if crate::certificate::covers(name, asked))
    }

    /// Its length, as far as it matters for what a certificate takes.
    fn len(&self) -> usize {
        match self {
            Name::Dns(name) => name.len(),
            Name::Ip(_) => 16,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Dns(name) => f.write_str(name),
            Name::Ip(address) => address.fmt(f),
        }
    }
}

/// What makes certificates for one `bind` line.
#[derive(Clone)]
pub(crate) struct Forge {
    /// Distinguishes its certificates from those of other lines, and from those made under settings that have changed since.
    id: u64,
    authority: Arc<Authority>,
    /// The settings that the certificates are presented under: the line's.
    shape: Arc<Shape>,
    /// `ca-sign-use-chain`.
    with_chain: bool,
    kept: Arc<Kept>,
}

impl Forge {
    pub fn new(authority: Arc<Authority>, shape: Arc<Shape>, with_chain: bool, kept: Arc<Kept>) -> Forge {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Forge { id: IDS.fetch_add(1, Relaxed), authority, shape, with_chain, kept }
    }

    /// A forge with the same authority and memory but other settings, under which nothing has been made yet.
    pub fn with_shape(&self, shape: Arc<Shape>) -> Forge {
        Forge::new(self.authority.clone(), shape, self.with_chain, self.kept.clone())
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The certificate made before for this subject.
    pub fn known(&self, subject: &Subject, now: i64) -> Option<Arc<Context>> {
        self.kept.find(&(self.id, subject.key()), now)
    }

    /// The certificate for this subject: the one made before, or a new one. While it is being signed, others who ask for it wait for that
    /// signature. `None` if the authority has expired or the signature failed.
    pub async fn make(&self, subject: &Subject, now: i64, share: Share) -> Option<Arc<Context>> {
        let signing = match self.kept.look((self.id, subject.key()), now) {
            Look::Known(context) => return Some(context),
            Look::New(signing) => signing,
        };
        signing.result(|| self.sign(subject, now, share)).await
    }

    /// Has a certificate signed; with the time until which it is kept.
    async fn sign(&self, subject: &Subject, now: i64, share: Share) -> Option<(Arc<Context>, i64)> {
        let Some((certificate, keep)) = self.authority.certify(subject, now, self.with_chain, share).await else {
            self.refuse();
            return None;
        };
        let context = Arc::new(Context::new(0, Arc::new(certificate), self.shape.clone(), Vec::new()));
        Some((context, keep))
    }

    /// Counts a name for which no certificate is made.
    pub fn refuse(&self) {
        self.kept.refuse();
    }
}

#[cfg(test)]
mod tests;
