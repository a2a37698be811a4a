//! Certificates made while a client waits: `generate-certificates`.
//!
//! An authority of the configuration signs them, through the engine's queue, like any signature of a handshake. Their key is made
//! once a process, so that a certificate costs one signature and no key; they are kept, the least recently used are dropped.

mod certificate;

use crate::{
    certificate::{Certificate, Material},
    context::{Context, Shape},
    provider,
};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use certificate::{Contents, Signature};
use penstock_engine::{Share, SigningKey};
use rustls_pki_types::{CertificateDer, DnsName};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
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
    /// The authority's subject key identifier; `None` if it has none.
    key_identifier: Option<Vec<u8>>,
    /// Seconds since 1970 between which it is valid.
    not_before: i64,
    not_after: i64,
}

impl Authority {
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
        let signature = Signature::of(certificate.kind());
        Ok(Authority { certificate, signature, subject, key_identifier, not_before, not_after })
    }

    /// Makes a certificate for a name. The signature may wait for others.
    async fn certify(&self, name: &Name, now: i64, with_chain: bool, share: Share) -> Option<(Certificate, i64)> {
        if now >= self.not_after {
            return None;
        }
        let key = leaf_key()?;
        let until = self.not_after.min(now + AFTER);
        let to_sign = certificate::to_sign(&Contents {
            signature: self.signature,
            issuer: &self.subject,
            issuer_key: self.key_identifier.as_deref(),
            name,
            not_before: self.not_before.max(now - BEFORE),
            not_after: until,
            public_key: &key.spki(),
        })?;
        let signed = provider::sign(&self.certificate.key, self.signature.scheme, to_sign.clone(), share).await.ok()?;
        let mut chain = vec![CertificateDer::from(certificate::signed(&to_sign, self.signature, &signed))];
        if with_chain {
            chain.extend(self.certificate.certified.cert.iter().cloned());
        }
        let certificate = Certificate::new(Material { chain, key: Some(key), ..Material::default() }).ok()?;
        Some((certificate, until))
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// A host's name, in lower case.
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

    /// The certificate made before for this name.
    pub fn known(&self, name: &Name, now: i64) -> Option<Arc<Context>> {
        self.kept.find(&(self.id, name.clone()), now)
    }

    /// Makes the certificate. `None` if the authority has expired or the signature failed.
    pub async fn make(&self, name: &Name, now: i64, share: Share) -> Option<Arc<Context>> {
        let Some((certificate, until)) = self.authority.certify(name, now, self.with_chain, share).await else {
            self.refuse();
            return None;
        };
        let context = Arc::new(Context::new(0, Arc::new(certificate), self.shape.clone(), Vec::new()));
        self.kept.keep((self.id, name.clone()), context.clone(), now.midpoint(until));
        Some(context)
    }

    /// Counts a name for which no certificate is made.
    pub fn refuse(&self) {
        self.kept.refused.fetch_add(1, Relaxed);
    }
}

/// The certificates made by this process: `tune.ssl.ssl-ctx-cache-size`.
pub(crate) struct Kept {
    state: Mutex<Recent>,
    size: usize,
    made: AtomicU64,
    found: AtomicU64,
    refused: AtomicU64,
}

type Key = (u64, Name);

/// The most recently used certificates.
#[derive(Default)]
struct Recent {
    entries: HashMap<Key, Entry>,
    /// The keys by their last use.
    order: BTreeMap<u64, Key>,
    uses: u64,
}

struct Entry {
    context: Arc<Context>,
    /// The entry's key in `Recent::order`: greater is more recent.
    used: u64,
    /// When another is made: half-way to its end, so that clients never see it expire.
    until: i64,
}

impl Kept {
    pub fn new(size: usize) -> Arc<Kept> {
        let (made, found, refused) = Default::default();
        Arc::new(Kept { state: Mutex::default(), size, made, found, refused })
    }

    pub fn counts(&self) -> Forgeries {
        Forgeries { made: self.made.load(Relaxed), kept: self.found.load(Relaxed), refused: self.refused.load(Relaxed) }
    }

    fn find(&self, key: &Key, now: i64) -> Option<Arc<Context>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Recent { entries, order, uses } = &mut *state;
        let entry = entries.get_mut(key).filter(|entry| now < entry.until)?;
        *uses += 1;
        if let Some(key) = order.remove(&entry.used) {
            order.insert(*uses, key);
        }
        entry.used = *uses;
        self.found.fetch_add(1, Relaxed);
        Some(entry.context.clone())
    }

    fn keep(&self, key: Key, context: Arc<Context>, until: i64) {
        self.made.fetch_add(1, Relaxed);
        if self.size == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.uses += 1;
        let used = state.uses;
        if let Some(old) = state.entries.insert(key.clone(), Entry { context, used, until }) {
            state.order.remove(&old.used);
        }
        state.order.insert(used, key);
        while state.entries.len() > self.size {
            let Some((_, oldest)) = state.order.pop_first() else { return };
            state.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
