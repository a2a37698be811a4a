//! Hashes, from those for load balancing to cryptographic ones.

use super::spec::{ConvSpec, bytes_arg, conv};
use crate::{
    hash,
    keyword::{
        Arg,
        ArgKind::{Base64OrVar, Int as Number, OneOf},
        ArgSpec, Args, arg, opt,
    },
    value::{
        Type::{Bin, Int},
        Value,
    },
};
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use md5::Digest as _;
use std::borrow::Cow;
use xxhash_rust::{xxh3, xxh32, xxh64};

const AVALANCHE: &[ArgSpec] = &[opt("avalanche", Number)];
const SEED: &[ArgSpec] = &[opt("seed", Number)];
/// Each in both spellings that OpenSSL has.
const ALGORITHMS: &[&str] =
    &["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"];

pub(super) const TABLE: &[ConvSpec] = &[
    conv("crc32", AVALANCHE, Bin, Int, "CRC-32 of Ethernet and zlib.", |_, v, a| balancing(&v, a, hash::crc32)),
    conv("crc32c", AVALANCHE, Bin, Int, "CRC-32 with Castagnoli's polynomial.", |_, v, a| {
        balancing(&v, a, hash::crc32c)
    }),
    conv("digest", &[arg("algorithm", OneOf(ALGORITHMS))], Bin, Bin, "A message digest.", |_, value, args| {
        let bytes = value.bytes()?;
        Some(bin(match args.word(0)? % 6 {
            0 => md5::Md5::digest(bytes).to_vec(),
            1 => sha(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes),
            2 => sha(&digest::SHA224, bytes),
            3 => sha(&digest::SHA256, bytes),
            4 => sha(&digest::SHA384, bytes),
            _ => sha(&digest::SHA512, bytes),
        }))
    }),
    conv("djb2", AVALANCHE, Bin, Int, "The djb2 hash.", |_, v, a| balancing(&v, a, hash::djb2)),
    conv(
        "hmac",
        &[arg("algorithm", OneOf(ALGORITHMS)), arg("key", Base64OrVar)],
        Bin,
        Bin,
        "A keyed digest; the key is base64, or a variable.",
        |ctx, value, args| {
            let key = base64::engine::general_purpose::STANDARD.decode(bytes_arg(ctx, args, 1)?).ok()?;
            let algorithm = match args.word(0)? % 6 {
                0 => return Some(bin(hmac_md5(&key, value.bytes()?))),
                1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                2 => hmac::HMAC_SHA224,
                3 => hmac::HMAC_SHA256,
                4 => hmac::HMAC_SHA384,
                _ => hmac::HMAC_SHA512,
            };
            Some(bin(hmac::sign(&hmac::Key::new(algorithm, &key), value.bytes()?).as_ref().to_vec()))
        },
    ),
    conv("sdbm", AVALANCHE, Bin, Int, "The sdbm hash.", |_, v, a| balancing(&v, a, hash::sdbm)),
    conv("sha1", &[], Bin, Bin, "SHA-1.", |_, value, _| {
        Some(bin(sha(&digest::SHA1_FOR_LEGACY_USE_ONLY, value.bytes()?)))
    }),
    conv(
        "sha2",
        &[opt("bits", OneOf(&["224", "256", "384", "512"]))],
        Bin,
        Bin,
        "SHA-2 of 224, 256, 384 or 512 bits.",
        |_, value, args| {
            let algorithm = match args.word(0).unwrap_or(1) {
                0 => &digest::SHA224,
                1 => &digest::SHA256,
                2 => &digest::SHA384,
                _ => &digest::SHA512,
            };
            Some(bin(sha(algorithm, value.bytes()?)))
        },
    ),
    conv("wt6", AVALANCHE, Bin, Int, "The wt6 hash.", |_, v, a| balancing(&v, a, hash::wt6)),
    conv("xxh3", SEED, Bin, Int, "XXH3 of 64 bits.", |_, v, a| {
        Some(Value::Int(xxh3::xxh3_64_with_seed(v.bytes()?, a.int(0).unwrap_or(0) as u64) as i64))
    }),
    conv("xxh32", SEED, Bin, Int, "XXH32.", |_, v, a| {
        Some(Value::Int(xxh32::xxh32(v.bytes()?, a.int(0).unwrap_or(0) as u32).into()))
    }),
    conv("xxh64", SEED, Bin, Int, "XXH64.", |_, v, a| {
        Some(Value::Int(xxh64::xxh64(v.bytes()?, a.int(0).unwrap_or(0) as u64) as i64))
    }),
];

fn balancing<'c>(value: &Value<'_>, args: &[Arg], hash: fn(&[u8]) -> u32) -> Option<Value<'c>> {
    let plain = hash(value.bytes()?);
    Some(Value::Int(if args.int(0).unwrap_or(0) != 0 { hash::avalanche(plain) } else { plain }.into()))
}

fn sha(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> Vec<u8> {
    digest::digest(algorithm, bytes).as_ref().to_vec()
}

/// RFC 2104, with blocks of 64 bytes.
fn hmac_md5(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    match key.len() {
        0..=64 => block[..key.len()].copy_from_slice(key),
        _ => block[..16].copy_from_slice(&md5::Md5::digest(key)),
    }
    let with = |pad: u8, text: &[u8]| {
        let mut hash = md5::Md5::new();
        hash.update(block.map(|byte| byte ^ pad));
        hash.update(text);
        hash.finalize().to_vec()
    };
    with(0x5c, &with(0x36, text))
}

fn bin<'c>(bytes: Vec<u8>) -> Value<'c> {
    Value::Bin(Cow::Owned(bytes))
}
