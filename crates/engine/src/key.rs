//! Signing keys.

use crate::{Algorithm, Class, Secret, Work, der};
use aws_lc_rs::{
    encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, Pkcs8V1Der, PublicKeyX509Der},
    rand::SystemRandom,
    signature::{self as sig, EcdsaKeyPair, Ed25519KeyPair, KeyPair, ParsedPublicKey, RsaKeyPair},
};
use std::{
    any::Any,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Signature schemes. The numbers are those of TLS's SignatureScheme registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Scheme {
    RsaPkcs1Sha256 = 0x0401,
    RsaPkcs1Sha384 = 0x0501,
    RsaPkcs1Sha512 = 0x0601,
    RsaPssSha256 = 0x0804,
    RsaPssSha384 = 0x0805,
    RsaPssSha512 = 0x0806,
    EcdsaP256Sha256 = 0x0403,
    EcdsaP384Sha384 = 0x0503,
    EcdsaP521Sha512 = 0x0603,
    Ed25519 = 0x0807,
}

/// A key's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum KeyKind {
    Rsa { bits: u32 },
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A private key, shared by all workers, with what engines have derived from it.
pub struct SigningKey {
    id: u64,
    kind: KeyKind,
    pair: Pair,
    der: Secret,
    forms: Forms,
    /// The public key, ready to verify with, for each of [`SigningKey::schemes`]: every answer of an engine is verified.
    verifiers: [OnceLock<Option<ParsedPublicKey>>; 6],
}

/// Why a private key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(&'static str);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for KeyError {}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl SigningKey {
    /// Reads a key in DER: PKCS#8 of any algorithm, PKCS#1 for RSA, SEC1 for elliptic curves.
    ///
    /// # Errors
    /// The bytes are none of these, the key is inconsistent, or its algorithm is not supported.
    pub fn from_der(der: Vec<u8>) -> Result<SigningKey, KeyError> {
        let der = Secret::from(der);
        let (kind, pair) = Self::parse(der.expose()).ok_or(KeyError(
            "not a usable private key (RSA of 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519)",
        ))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(SigningKey { id, kind, pair, der, forms: Forms::default(), verifiers: Default::default() })
    }

    fn parse(der: &[u8]) -> Option<(KeyKind, Pair)> {
        let rsa = |pair: RsaKeyPair| {
            let bits = pair.public_modulus_len() as u32 * 8;
            (KeyKind::Rsa { bits }, Pair::Rsa(pair))
        };
        // AWS-LC checks a key whole, which is what loading it costs, before it refuses it for another algorithm than the one asked for: so
        // none is asked for that the key itself rules out.
        let curve_of = match der::algorithm(der) {
            Some((der::RSA, _)) => return RsaKeyPair::from_pkcs8(der).ok().map(rsa),
            Some((der::EC, curve)) => curve,
            Some(_) => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
                return Some((KeyKind::Ed25519, Pair::Ed25519(pair)));
            }
            None => match RsaKeyPair::from_der(der) {
                Ok(pair) => return Some(rsa(pair)),
                Err(_) => None,
            },
        };
        let curves = [
            (KeyKind::EcdsaP256, der::P256, &sig::ECDSA_P256_SHA256_ASN1_SIGNING),
            (KeyKind::EcdsaP384, der::P384, &sig::ECDSA_P384_SHA384_ASN1_SIGNING),
            (KeyKind::EcdsaP521, der::P521, &sig::ECDSA_P521_SHA512_ASN1_SIGNING),
        ];
        let mut possible = curves.into_iter().filter(|(_, curve, _)| curve_of.is_none_or(|named| named == *curve));
        possible.find_map(|(kind, _, algorithm)| {
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, der)
                .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
                .ok()?;
            Some((kind, Pair::Ecdsa(pair)))
        })
    }

    /// A number that no other key of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The key's algorithm.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The private key as it was read, for an engine that computes with its numbers.
    pub fn der(&self) -> &Secret {
        &self.der
    }

    /// What an engine keeps beside the key, in the engine's own type: made empty when it is first asked for, it lives as long as
    /// the key.
    pub(crate) fn form<F: Any + Default + Send + Sync>(&self) -> &F {
        self.forms.get()
    }

    /// The private scalar, for the elliptic curves that lanes serve.
    pub(crate) fn scalar(&self) -> Option<Secret> {
        match (&self.pair, self.kind) {
            (Pair::Ecdsa(pair), KeyKind::EcdsaP256 | KeyKind::EcdsaP384) => {
                let scalar: EcPrivateKeyBin<'static> = pair.private_key().as_be_bytes().ok()?;
                Some(Secret::from(scalar.as_ref().to_vec()))
            }
            _ => None,
        }
    }

    /// Makes something of an RSA key's numbers, big-endian: n, e, d, p, q, dp, dq, qinv. `None` for another key, or where `make`
    /// gives none.
    pub fn with_rsa_numbers<T>(&self, make: impl FnOnce([&[u8]; 8]) -> Option<T>) -> Option<T> {
        let Pair::Rsa(pair) = &self.pair else { return None };
        // As PKCS#8, whichever form it was read in.
        let der: Pkcs8V1Der<'static> = pair.as_der().ok()?;
        let pkcs8 = Secret::from(der.as_ref().to_vec());
        make(der::rsa_numbers(pkcs8.expose())?)
    }

    /// The public key as a SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        // The pair of a curve keeps its point encoded; AWS-LC would compute that anew, at the price of an inversion.
        let of_curve = |curve, pair: &EcdsaKeyPair| der::ec_public_key(curve, pair.public_key().as_ref());
        let der: Result<PublicKeyX509Der<'static>, _> = match (&self.pair, self.kind) {
            (Pair::Ecdsa(pair), KeyKind::EcdsaP384) => return of_curve(der::P384, pair),
            (Pair::Ecdsa(pair), KeyKind::EcdsaP521) => return of_curve(der::P521, pair),
            (Pair::Ecdsa(pair), _) => return of_curve(der::P256, pair),
            (Pair::Rsa(pair), _) => pair.public_key().as_der(),
            (Pair::Ed25519(pair), _) => pair.public_key().as_der(),
        };
        der.map(|der| der.as_ref().to_vec()).unwrap_or_default()
    }

    /// The schemes this key can sign with, best first.
    pub fn schemes(&self) -> &'static [Scheme] {
        match self.kind {
            // SHA-256 first: on these sizes the others add cost and no strength.
            KeyKind::Rsa { .. } => &[
                Scheme::RsaPssSha256,
                Scheme::RsaPssSha384,
                Scheme::RsaPssSha512,
                Scheme::RsaPkcs1Sha256,
                Scheme::RsaPkcs1Sha384,
                Scheme::RsaPkcs1Sha512,
            ],
            KeyKind::EcdsaP256 => &[Scheme::EcdsaP256Sha256],
            KeyKind::EcdsaP384 => &[Scheme::EcdsaP384Sha384],
            KeyKind::EcdsaP521 => &[Scheme::EcdsaP521Sha512],
            KeyKind::Ed25519 => &[Scheme::Ed25519],
        }
    }

    /// The key's algorithm, as far as engines tell them apart.
    pub fn algorithm(&self) -> Algorithm {
        match self.kind {
            KeyKind::Rsa { bits: 2048 } => Algorithm::Rsa2048,
            KeyKind::Rsa { bits: 3072 } => Algorithm::Rsa3072,
            KeyKind::Rsa { bits: 4096 } => Algorithm::Rsa4096,
            KeyKind::Rsa { .. } => Algorithm::RsaOther,
            KeyKind::EcdsaP256 => Algorithm::EcdsaP256,
            KeyKind::EcdsaP384 => Algorithm::EcdsaP384,
            KeyKind::EcdsaP521 | KeyKind::Ed25519 => Algorithm::Other,
        }
    }

    /// The class to which signing with this key belongs.
    pub fn class(&self) -> Class {
        Class::of(Work::Sign(self.algorithm()))
    }

    /// Signs at once, on this thread.
    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &'static dyn sig::RsaEncoding = match scheme {
                    Scheme::RsaPkcs1Sha256 => &sig::RSA_PKCS1_SHA256,
                    Scheme::RsaPkcs1Sha384 => &sig::RSA_PKCS1_SHA384,
                    Scheme::RsaPkcs1Sha512 => &sig::RSA_PKCS1_SHA512,
                    Scheme::RsaPssSha256 => &sig::RSA_PSS_SHA256,
                    Scheme::RsaPssSha384 => &sig::RSA_PSS_SHA384,
                    Scheme::RsaPssSha512 => &sig::RSA_PSS_SHA512,
                    _ => return None,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Pair::Ecdsa(pair) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }

    /// Whether `signature` is a valid signature of `message` by this key.
    pub fn verify(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn sig::VerificationAlgorithm = match scheme {
            Scheme::RsaPkcs1Sha256 => &sig::RSA_PKCS1_2048_8192_SHA256,
            Scheme::RsaPkcs1Sha384 => &sig::RSA_PKCS1_2048_8192_SHA384,
            Scheme::RsaPkcs1Sha512 => &sig::RSA_PKCS1_2048_8192_SHA512,
            Scheme::RsaPssSha256 => &sig::RSA_PSS_2048_8192_SHA256,
            Scheme::RsaPssSha384 => &sig::RSA_PSS_2048_8192_SHA384,
            Scheme::RsaPssSha512 => &sig::RSA_PSS_2048_8192_SHA512,
            Scheme::EcdsaP256Sha256 => &sig::ECDSA_P256_SHA256_ASN1,
            Scheme::EcdsaP384Sha384 => &sig::ECDSA_P384_SHA384_ASN1,
            Scheme::EcdsaP521Sha512 => &sig::ECDSA_P521_SHA512_ASN1,
            Scheme::Ed25519 => &sig::ED25519,
        };
        let Some(place) = self.schemes().iter().position(|own| *own == scheme) else { return false };
        let parse = || {
            let public = match &self.pair {
                Pair::Rsa(pair) => pair.public_key().as_ref(),
                Pair::Ecdsa(pair) => pair.public_key().as_ref(),
                Pair::Ed25519(pair) => pair.public_key().as_ref(),
            };
            ParsedPublicKey::new(algorithm, public).ok()
        };
        let verifier = self.verifiers[place].get_or_init(parse);
        verifier.as_ref().is_some_and(|public| public.verify_sig(message, signature).is_ok())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.kind)
    }
}

/// Values of different types, one of each, made when they are first asked for: a list that only grows, read without a lock.
#[derive(Default)]
struct Forms(OnceLock<Box<Node>>);

struct Node {
    form: Box<dyn Any + Send + Sync>,
    next: Forms,
}

impl Forms {
    fn get<F: Any + Default + Send + Sync>(&self) -> &F {
        let new = || Box::new(Node { form: Box::new(F::default()), next: Forms::default() });
        let node = self.0.get_or_init(new);
        node.form.downcast_ref().unwrap_or_else(|| node.next.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::{encoding::EcPrivateKeyRfc5915Der, rsa::KeySize};

    /// The kind and the public key of what a key is read as.
    fn read(der: &[u8]) -> Option<(KeyKind, Vec<u8>)> {
        SigningKey::from_der(der.to_vec()).ok().map(|key| (key.kind(), key.spki()))
    }

    #[test]
    fn a_key_of_each_algorithm_is_read_from_each_of_its_forms() {
        for (kind, algorithm) in [
            (KeyKind::EcdsaP256, &sig::ECDSA_P256_SHA256_ASN1_SIGNING),
            (KeyKind::EcdsaP384, &sig::ECDSA_P384_SHA384_ASN1_SIGNING),
            (KeyKind::EcdsaP521, &sig::ECDSA_P521_SHA512_ASN1_SIGNING),
        ] {
            let pair = EcdsaKeyPair::generate(algorithm).expect("a key");
            let public: PublicKeyX509Der<'static> = pair.public_key().as_der().expect("its public key");
            let sec1: EcPrivateKeyRfc5915Der<'static> = pair.private_key().as_der().expect("SEC1");
            for der in [pair.to_pkcs8v1().expect("PKCS#8").as_ref(), sec1.as_ref()] {
                assert_eq!(read(der), Some((kind, public.as_ref().to_vec())));
            }
        }
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let public: PublicKeyX509Der<'static> = pair.public_key().as_der().expect("its public key");
        let pkcs8: Pkcs8V1Der<'static> = pair.as_der().expect("PKCS#8");
        // PKCS#1 is what PKCS#8 of 2,048 bits has after 26 bytes.
        for der in [pkcs8.as_ref(), &pkcs8.as_ref()[26..]] {
            assert_eq!(read(der), Some((KeyKind::Rsa { bits: 2048 }, public.as_ref().to_vec())));
        }
        let pair = Ed25519KeyPair::generate().expect("a key");
        let public: PublicKeyX509Der<'static> = pair.public_key().as_der().expect("its public key");
        assert_eq!(
            read(pair.to_pkcs8v1().expect("PKCS#8").as_ref()),
            Some((KeyKind::Ed25519, public.as_ref().to_vec()))
        );
    }

    #[test]
    fn a_key_that_names_another_algorithm_than_its_own_or_is_cut_is_refused() {
        let pair = EcdsaKeyPair::generate(&sig::ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        let document = pair.to_pkcs8v1().expect("PKCS#8");
        let good = document.as_ref();
        for (named, other) in
            [(der::P256, &b"\x2a\x86\x48\xce\x3d\x03\x01\x01"[..]), (der::EC, b"\x2a\x86\x48\xce\x3d\x02\x02")]
        {
            let at = good.windows(named.len()).position(|bytes| bytes == named).expect("it is named");
            let mut bad = good.to_vec();
            bad[at..at + other.len()].copy_from_slice(other);
            assert_eq!(read(&bad), None);
        }
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_key_keeps_one_form_of_each_type() {
        let forms = Forms::default();
        let (first, second): (&AtomicU64, &OnceLock<u8>) = (forms.get(), forms.get());
        first.store(7, Ordering::Relaxed);
        second.set(3).expect("it is new");
        assert_eq!(forms.get::<AtomicU64>().load(Ordering::Relaxed), 7);
        assert_eq!(forms.get::<OnceLock<u8>>().get(), Some(&3));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_form() {
        let forms = Forms::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| forms.get::<AtomicU64>().fetch_add(1, Ordering::Relaxed));
                scope.spawn(|| forms.get::<OnceLock<u8>>().get_or_init(|| 1));
            }
        });
        assert_eq!(forms.get::<AtomicU64>().load(Ordering::Relaxed), 8);
    }
}
