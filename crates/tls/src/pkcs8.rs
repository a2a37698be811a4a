//! Private keys encrypted under a passphrase: PKCS#8 with PBES2 (RFC 8018, 6.2), which OpenSSL has written since 1.0.

use crate::der::{SEQUENCE, element};
use aws_lc_rs::{
    cipher::{AES_128, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey},
    iv::FixedLength,
    pbkdf2,
};
use base64::Engine as _;
use std::num::NonZeroU32;
use zeroize::Zeroizing;

/// Most rounds of PBKDF2, so that a damaged number does not delay the start by minutes. OpenSSL 3 writes 2,048 of its own accord.
const ROUNDS_MAX: u32 = 10_000_000;

const INTEGER: u8 = 2;
const OCTETS: u8 = 4;
const OBJECT: u8 = 6;

const PBES2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d";
const PBKDF2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c";
const HMAC_SHA1: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02\x07";
const HMAC_SHA256: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02\x09";
const HMAC_SHA384: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02\x0a";
const HMAC_SHA512: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02\x0b";
const AES_128_CBC: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x01\x02";
const AES_256_CBC: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x01\x2a";

/// Why a key cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The key is encrypted in a way that is not supported.
    Scheme,
    /// The passphrase is another.
    Passphrase,
}

/// The first encrypted key of a PEM file, as PKCS#8.
///
/// # Errors
///
/// Why it stays encrypted.
pub(crate) fn decrypt(pem: &[u8], passphrase: &str) -> Result<Zeroizing<Vec<u8>>, Locked> {
    let text = std::str::from_utf8(pem).map_err(|_| Locked::Scheme)?;
    let (_, after) = text.split_once("-----BEGIN ENCRYPTED PRIVATE KEY-----").ok_or(Locked::Scheme)?;
    let (body, _) = after.split_once("-----END").ok_or(Locked::Scheme)?;
    let body: String = body.split_whitespace().collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body).map_err(|_| Locked::Scheme)?;
    let parts = Parts::read(&der).ok_or(Locked::Scheme)?;
    parts.open(passphrase).ok_or(Locked::Passphrase)
}

/// What an EncryptedPrivateKeyInfo consists of.
struct Parts<'a> {
    salt: &'a [u8],
    rounds: NonZeroU32,
    hash: pbkdf2::Algorithm,
    aes_256: bool,
    iv: [u8; 16],
    secret: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Option<Parts<'a>> {
        let (whole, _) = tagged(SEQUENCE, der)?;
        let (scheme, whole) = tagged(SEQUENCE, whole)?;
        let (secret, _) = tagged(OCTETS, whole)?;
        let (parameters, _) = tagged(SEQUENCE, named(PBES2, scheme)?)?;
        let (derivation, parameters) = tagged(SEQUENCE, parameters)?;
        let (cipher, _) = tagged(SEQUENCE, parameters)?;
        let (derivation, _) = tagged(SEQUENCE, named(PBKDF2, derivation)?)?;
        let (salt, derivation) = tagged(OCTETS, derivation)?;
        let (rounds, derivation) = tagged(INTEGER, derivation)?;
        if rounds.len() > 4 {
            return None;
        }
        let rounds = rounds.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte));
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= ROUNDS_MAX)?;
        // The length of the key may be written, and follows from the cipher.
        let derivation = tagged(INTEGER, derivation).map_or(derivation, |(_, rest)| rest);
        let (hash, _) = match derivation {
            [] => (HMAC_SHA1, derivation),
            _ => tagged(OBJECT, tagged(SEQUENCE, derivation)?.0)?,
        };
        let hash = match hash {
            HMAC_SHA1 => pbkdf2::PBKDF2_HMAC_SHA1,
            HMAC_SHA256 => pbkdf2::PBKDF2_HMAC_SHA256,
            HMAC_SHA384 => pbkdf2::PBKDF2_HMAC_SHA384,
            HMAC_SHA512 => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return None,
        };
        let (name, iv) = tagged(OBJECT, cipher)?;
        let aes_256 = match name {
            AES_128_CBC => false,
            AES_256_CBC => true,
            _ => return None,
        };
        let (iv, _) = tagged(OCTETS, iv)?;
        Some(Parts { salt, rounds, hash, aes_256, iv: iv.try_into().ok()?, secret })
    }

    fn open(&self, passphrase: &str) -> Option<Zeroizing<Vec<u8>>> {
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..if self.aes_256 { 32 } else { 16 }];
        pbkdf2::derive(self.hash, self.rounds, self.salt, passphrase.as_bytes(), key);
        let key = UnboundCipherKey::new(if self.aes_256 { &AES_256 } else { &AES_128 }, key).ok()?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
        let mut bytes = Zeroizing::new(self.secret.to_vec());
        let length = key.decrypt(&mut bytes, DecryptionContext::Iv128(FixedLength::from(self.iv))).ok()?.len();
        bytes.truncate(length);
        // One wrong passphrase in 256 leaves a valid padding.
        tagged(SEQUENCE, &bytes)?;
        Some(bytes)
    }
}

/// The content of an element with this tag, and what follows it.
fn tagged(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// What follows the object identifier `id`.
fn named<'a>(id: &[u8], der: &'a [u8]) -> Option<&'a [u8]> {
    let (found, rest) = tagged(OBJECT, der)?;
    (found == id).then_some(rest)
}
