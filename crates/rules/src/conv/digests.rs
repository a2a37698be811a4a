//! Hashes, from those for load balancing to cryptographic ones.

use super::spec::{ConvSpec, bytes_arg, conv};
use crate::{
    hash,
    keyword::{
        Arg,
        ArgKind::{Base64OrVar, Digest, Int as Number, OneOf},
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
/// The digests of `digest` and `hmac`.
pub(crate) const DIGESTS: [&str; 10] =
    ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha512-256", "sha3-256", "sha3-384", "sha3-512"];

/// The place in [`DIGESTS`] of the digest that OpenSSL knows by this name, in whatever case.
pub(crate) fn digest_named(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    let plain = name.strip_suffix("withrsaencryption").or_else(|| name.strip_prefix("rsa-")).unwrap_or(&name);
    let plain = match plain {
        "ssl3-md5" => "md5",
        "ssl3-sha1" | "sha-1" | "sha1-2" => "sha1",
        "sha-224" | "sha2-224" => "sha224",
        "sha-256" | "sha2-256" => "sha256",
        "sha-384" | "sha2-384" => "sha384",
        "sha-512" | "sha2-512" => "sha512",
        // With a slash it has a hyphen, too.
        "sha-512/256" | "sha2-512/256" => "sha512-256",
        "sha512/256" if name != plain => "sha512-256",
        plain => plain,
    };
    DIGESTS.iter().position(|known| *known == plain)
}

fn digest_of(digest: usize, bytes: &[u8]) -> Vec<u8> {
    match digest {
        0 => md5::Md5::digest(bytes).to_vec(),
        1 => sha(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes),
        2 => sha(&digest::SHA224, bytes),
        3 => sha(&digest::SHA256, bytes),
        4 => sha(&digest::SHA384, bytes),
        5 => sha(&digest::SHA512, bytes),
        6 => sha(&digest::SHA512_256, bytes),
        7 => sha(&digest::SHA3_256, bytes),
        8 => sha(&digest::SHA3_384, bytes),
        _ => sha(&digest::SHA3_512, bytes),
    }
}

/// The size of the blocks that the digest works on, by which HMAC pads its key.
fn block_of(digest: usize) -> usize {
    match digest {
        0..=3 => 64,
        4..=6 => 128,
        // FIPS 202, table 3.
        7 => 136,
        8 => 104,
        _ => 72,
    }
}

pub(super) const TABLE: &[ConvSpec] = &[
    conv("crc32", AVALANCHE, Bin, Int, "CRC-32 of Ethernet and zlib.", |_, v, a| balancing(&v, a, hash::crc32)),
    conv("crc32c", AVALANCHE, Bin, Int, "CRC-32 with Castagnoli's polynomial.", |_, v, a| {
        balancing(&v, a, hash::crc32c)
    }),
    conv("digest", &[arg("algorithm", Digest)], Bin, Bin, "A message digest.", |_, value, args| {
        Some(bin(digest_of(args.word(0)?, value.bytes()?)))
    }),
    conv("djb2", AVALANCHE, Bin, Int, "The djb2 hash.", |_, v, a| balancing(&v, a, hash::djb2)),
    conv(
        "hmac",
        &[arg("algorithm", Digest), arg("key", Base64OrVar)],
        Bin,
        Bin,
        "A keyed digest; the key is base64, or a variable.",
        |ctx, value, args| {
            let key = base64::engine::general_purpose::STANDARD.decode(bytes_arg(ctx, args, 1)?).ok()?;
            let algorithm = match args.word(0)? {
                1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                2 => hmac::HMAC_SHA224,
                3 => hmac::HMAC_SHA256,
                4 => hmac::HMAC_SHA384,
                5 => hmac::HMAC_SHA512,
                other => return Some(bin(hmac_of(other, &key, value.bytes()?))),
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

/// RFC 2104, for digests that the library has no HMAC of.
fn hmac_of(digest: usize, key: &[u8], text: &[u8]) -> Vec<u8> {
    let size = block_of(digest);
    let mut block = if key.len() > size { digest_of(digest, key) } else { key.to_vec() };
    block.resize(size, 0);
    let with = |pad: u8, text: &[u8]| {
        let padded: Vec<u8> = block.iter().map(|byte| byte ^ pad).chain(text.iter().copied()).collect();
        digest_of(digest, &padded)
    };
    with(0x5c, &with(0x36, text))
}

fn bin<'c>(bytes: Vec<u8>) -> Value<'c> {
    Value::Bin(Cow::Owned(bytes))
}
