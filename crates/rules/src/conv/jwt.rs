//! `jwt_verify`: whether a JSON web token (RFC 7519) in its compact form (RFC 7515, 7.1) is signed with a key, by an algorithm of RFC 7518,
//! 3.1. Nothing is verified but the signature: what the token claims is for other rules.

use super::spec::{ConvSpec, bytes_arg, bytes_of, conv};
use crate::{
    context::Context,
    keyword::{
        Arg,
        ArgKind::{TokenAlgorithm, TokenKey},
        Args as _, arg,
    },
    turn,
    value::{
        Type::{Bin, Int},
        Value,
    },
    vars::VarRef,
};
use aws_lc_rs::{
    hmac,
    signature::{self, ParsedPublicKey, UnparsedPublicKey, VerificationAlgorithm},
};
use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// The algorithms: those with a secret, those with a public key, and none at all.
pub(crate) const ALGORITHMS: [&str; 13] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "none",
];
/// How many of them have a secret.
const WITH_SECRET: usize = 3;
const NONE: usize = 12;

/// Those with a public key, in the order of [`ALGORITHMS`]. RFC 7518, 3.3 and 3.5: RSA keys have 2048 bits at least; 3.4: each size of hash has
/// its curve.
const WITH_KEY: [&(dyn VerificationAlgorithm + Sync); 9] = [
    &signature::RSA_PKCS1_2048_8192_SHA256,
    &signature::RSA_PKCS1_2048_8192_SHA384,
    &signature::RSA_PKCS1_2048_8192_SHA512,
    &signature::RSA_PSS_2048_8192_SHA256,
    &signature::RSA_PSS_2048_8192_SHA384,
    &signature::RSA_PSS_2048_8192_SHA512,
    &signature::ECDSA_P256_SHA256_FIXED,
    &signature::ECDSA_P384_SHA384_FIXED,
    &signature::ECDSA_P521_SHA512_FIXED,
];

/// What verifying costs, in units of a turn's budget: 30 µs for RSA, and 300 for the slowest curve.
const COST_RSA: u32 = 300;
const COST_CURVE: u32 = 3_000;

/// What the manual lets rules compare with.
const VERIFIED: i64 = 1;
const FAILED: i64 = 0;
const UNKNOWN_ALGORITHM: i64 = -1;
const INVALID_TOKEN: i64 = -3;
const UNKNOWN_KEY: i64 = -5;

pub(super) const TABLE: &[ConvSpec] = &[conv(
    "jwt_verify",
    &[arg("algorithm", TokenAlgorithm), arg("key", TokenKey)],
    Bin,
    Int,
    "1 if a JSON web token is signed with a secret, or with the key of a file of a public key; 0 or less if not.",
    |ctx, value, args| Some(Value::Int(verify(ctx, value.bytes()?, args)?)),
)];

/// The place of an algorithm in [`ALGORITHMS`].
pub(crate) fn algorithm_named(name: &[u8]) -> Option<usize> {
    ALGORITHMS.iter().position(|known| known.as_bytes() == name)
}

/// Whether the algorithm at this place needs a public key.
pub(crate) fn needs_public_key(algorithm: usize) -> bool {
    (WITH_SECRET..NONE).contains(&algorithm)
}

/// The public keys that the rules of a configuration name, by the names of their files.
#[derive(Clone, Debug, Default)]
pub struct PublicKeys(Arc<RwLock<ByFile>>);

type ByFile = HashMap<Box<[u8]>, Arc<PublicKey>>;

impl PublicKeys {
    /// Adds the key of a file.
    pub(crate) fn add(&self, file: &[u8], key: PublicKey) -> KeyOfFile {
        let key = Arc::new(key);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(file.into(), key.clone());
        KeyOfFile(key)
    }
    /// The key of a file that was read.
    pub(crate) fn find(&self, file: &[u8]) -> Option<Arc<PublicKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(file).cloned()
    }
}

/// A public key, ready for each algorithm that can use it.
pub(crate) struct PublicKey([Option<ParsedPublicKey>; 9]);

impl PublicKey {
    /// The first public key of a file in PEM (RFC 7468, 13).
    pub fn read(file: &[u8]) -> Option<PublicKey> {
        let text = String::from_utf8_lossy(file);
        let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
        let (inner, _) = rest.split_once("-----END PUBLIC KEY-----")?;
        let base64: String = inner.split_ascii_whitespace().collect();
        let der = STANDARD.decode(base64).ok()?;
        let parsed = WITH_KEY.map(|algorithm| UnparsedPublicKey::new(algorithm, &der).parse().ok());
        // One that no algorithm can use is still a key, of which nothing is signed.
        let is_key = parsed.iter().any(Option::is_some) || crate::x509::is_public_key(&der);
        is_key.then_some(PublicKey(parsed))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey")
    }
}

/// The key that a rule names.
#[derive(Clone, Debug)]
pub enum TokenKeyArg {
    /// Text: a secret, or the name of a file and its key.
    Given(Box<[u8]>, Option<KeyOfFile>),
    /// A variable with a secret, or with the name of a file that another rule names.
    Variable(VarRef, PublicKeys),
}

/// The key of a file.
#[derive(Clone, Debug)]
pub struct KeyOfFile(pub(crate) Arc<PublicKey>);

fn verify(ctx: &Context<'_>, token: &[u8], args: &[Arg]) -> Option<i64> {
    let algorithm = match args.word(0) {
        Some(algorithm) => algorithm,
        None => match algorithm_named(&bytes_arg(ctx, args, 0)?) {
            Some(algorithm) => algorithm,
            None => return Some(UNKNOWN_ALGORITHM),
        },
    };
    let Some(Arg::TokenKey(key)) = args.get(1) else { return None };
    let text = match key {
        TokenKeyArg::Given(text, _) => text.as_ref().into(),
        TokenKeyArg::Variable(var, _) => bytes_of(ctx, var)?,
    };
    let Some((signed, signature)) = parts(token, algorithm) else { return Some(INVALID_TOKEN) };
    if algorithm == NONE {
        return Some(if signature.is_empty() { VERIFIED } else { FAILED });
    }
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::RequireNone)
            .with_decode_allow_trailing_bits(true),
    );
    let signature = match ENGINE.decode(signature) {
        Ok(signature) if !signature.is_empty() => signature,
        _ => return Some(INVALID_TOKEN),
    };
    if !needs_public_key(algorithm) {
        let hash = [hmac::HMAC_SHA256, hmac::HMAC_SHA384, hmac::HMAC_SHA512][algorithm];
        return Some(i64::from(hmac::verify(&hmac::Key::new(hash, &text), signed, &signature).is_ok()));
    }
    let public = match key {
        TokenKeyArg::Given(_, public) => public.as_ref().map(|key| key.0.clone()),
        TokenKeyArg::Variable(_, known) => known.find(&text),
    };
    let Some(public) = public else { return Some(UNKNOWN_KEY) };
    let is_curve = ALGORITHMS[algorithm].starts_with("ES");
    // RFC 7518, 3.4: two numbers of the same length.
    if is_curve && signature.len() % 2 == 1 {
        return Some(INVALID_TOKEN);
    }
    turn::spend(if is_curve { COST_CURVE } else { COST_RSA });
    let verified = public.0[algorithm - WITH_SECRET].as_ref().map(|key| key.verify_sig(signed, &signature));
    Some(i64::from(verified.is_some_and(|result| result.is_ok())))
}

/// What is signed of a token, and its signature, which may only be missing where nothing is signed.
fn parts(token: &[u8], algorithm: usize) -> Option<(&[u8], &[u8])> {
    let dots: Vec<usize> = memchr::memchr_iter(b'.', token).take(3).collect();
    match dots[..] {
        [_] if algorithm == NONE => Some((token, &[])),
        [_, last] => Some((&token[..last], &token[last + 1..])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts() {
        assert_eq!(parts(b"a.b.c", 0), Some((&b"a.b"[..], &b"c"[..])));
        assert_eq!(parts(b"a.b.", 3), Some((&b"a.b"[..], &b""[..])));
        assert_eq!((parts(b"a.b", 0), parts(b"a.b.c.d", 0), parts(b"", 0)), (None, None, None));
        assert_eq!((parts(b"a.b", NONE), parts(b"a", NONE)), (Some((&b"a.b"[..], &b""[..])), None));
    }

    #[test]
    fn every_algorithm_has_its_place() {
        assert_eq!(WITH_KEY.len(), NONE - WITH_SECRET);
        assert_eq!(ALGORITHMS.iter().filter(|name| name.starts_with("HS")).count(), WITH_SECRET);
        assert_eq!(
            (algorithm_named(b"none"), algorithm_named(b"hs256"), algorithm_named(b"")),
            (Some(NONE), None, None)
        );
    }

    #[test]
    fn what_is_no_key_is_not_read() {
        for text in
            ["", "x", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
        {
            assert!(PublicKey::read(text.as_bytes()).is_none(), "{text}");
        }
    }
}
