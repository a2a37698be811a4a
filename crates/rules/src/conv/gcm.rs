//! AES-GCM for nonces of any length, which `aes_gcm_enc` and `aes_gcm_dec` take. The library's own has nonces of 12 bytes, and is used for
//! those: here only what other lengths need, by NIST SP 800-38D.

use aws_lc_rs::{
    aead,
    cipher::{self, EncryptingKey, EncryptionContext, UnboundCipherKey},
    constant_time::verify_slices_are_equal,
    iv::FixedLength,
};

/// How many bytes a tag has.
const TAG: usize = 16;

/// Encrypts `text` in place and gives its tag. `bits` is the place of the key's size among 128, 192 and 256. As in HAProxy, what a key has
/// beyond its size is not used; one that is shorter is none.
pub(super) fn seal(bits: usize, key: &[u8], nonce: &[u8], text: &mut [u8]) -> Option<[u8; TAG]> {
    match <[u8; aead::NONCE_LEN]>::try_from(nonce) {
        Ok(nonce) => {
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            let tag = library(bits, key)?.seal_in_place_separate_tag(nonce, aead::Aad::empty(), text).ok()?;
            tag.as_ref().try_into().ok()
        }
        Err(_) => {
            let own = Own::new(bits, key, nonce)?;
            own.crypt(text)?;
            own.tag(text)
        }
    }
}

/// Decrypts `text` in place, if `tag` is its tag.
pub(super) fn open(bits: usize, key: &[u8], nonce: &[u8], tag: &[u8], text: &mut Vec<u8>) -> Option<()> {
    match <[u8; aead::NONCE_LEN]>::try_from(nonce) {
        Ok(nonce) => {
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            text.extend_from_slice(tag);
            let len = library(bits, key)?.open_in_place(nonce, aead::Aad::empty(), text).ok()?.len();
            text.truncate(len);
        }
        Err(_) => {
            let own = Own::new(bits, key, nonce)?;
            verify_slices_are_equal(&own.tag(text)?, tag).ok()?;
            own.crypt(text)?;
        }
    }
    Some(())
}

fn library(bits: usize, key: &[u8]) -> Option<aead::LessSafeKey> {
    let algorithm = [&aead::AES_128_GCM, &aead::AES_192_GCM, &aead::AES_256_GCM][bits];
    Some(aead::LessSafeKey::new(aead::UnboundKey::new(algorithm, key.get(..algorithm.key_len())?).ok()?))
}

struct Own {
    aes: EncryptingKey,
    /// The key of GHASH: a block of zeros, encrypted.
    hash: u128,
    /// The counter block from which the tag is made; those of the text follow it.
    first: u128,
}

impl Own {
    fn new(bits: usize, key: &[u8], nonce: &[u8]) -> Option<Own> {
        let (algorithm, len) = [(&cipher::AES_128, 16), (&cipher::AES_192, 24), (&cipher::AES_256, 32)][bits];
        if nonce.is_empty() {
            return None;
        }
        let aes = EncryptingKey::ctr(UnboundCipherKey::new(algorithm, key.get(..len)?).ok()?).ok()?;
        let mut own = Own { aes, hash: 0, first: 0 };
        own.hash = own.block(0)?;
        // Section 7.1, step 2, for a nonce of other than 96 bits.
        own.first = own.ghash(nonce, 8 * nonce.len() as u128);
        Some(own)
    }

    /// A counter block, encrypted.
    fn block(&self, counter: u128) -> Option<u128> {
        let mut block = [0; TAG];
        self.stream(counter, &mut block)?;
        Some(u128::from_be_bytes(block))
    }

    /// Adds the stream of keys from that counter on, which the library counts in 128 bits.
    fn stream(&self, counter: u128, text: &mut [u8]) -> Option<()> {
        let context = EncryptionContext::Iv128(FixedLength::from(counter.to_be_bytes()));
        self.aes.less_safe_encrypt(text, context).ok().map(drop)
    }

    /// Encrypts or decrypts (section 6.5). Counters have 32 bits, in the lowest ones of a block (6.2): where they begin anew, so does the stream.
    fn crypt(&self, text: &mut [u8]) -> Option<()> {
        let (fixed, mut counter) = (self.first >> 32 << 32, (self.first as u32).wrapping_add(1));
        let mut rest = text;
        while !rest.is_empty() {
            let until_zero = (u64::from(u32::MAX - counter) + 1) * TAG as u64;
            let (now, later) = rest.split_at_mut(rest.len().min(usize::try_from(until_zero).unwrap_or(usize::MAX)));
            self.stream(fixed | u128::from(counter), now)?;
            (counter, rest) = (0, later);
        }
        Some(())
    }

    fn tag(&self, text: &[u8]) -> Option<[u8; TAG]> {
        // No data is authenticated besides: its length, in the upper half, is 0.
        let hash = self.ghash(text, 8 * text.len() as u128);
        Some((hash ^ self.block(self.first)?).to_be_bytes())
    }

    /// GHASH of the bytes, filled up with zeros, and of a block with their length (6.4).
    fn ghash(&self, bytes: &[u8], bits: u128) -> u128 {
        let blocks = bytes.chunks(TAG).map(|chunk| {
            let mut block = [0; TAG];
            block[..chunk.len()].copy_from_slice(chunk);
            u128::from_be_bytes(block)
        });
        blocks.chain([bits]).fold(0, |hash, block| multiply(hash ^ block, self.hash))
    }
}

/// The product of two blocks (6.3). Its time does not depend on them.
fn multiply(x: u128, y: u128) -> u128 {
    let (mut product, mut shifted) = (0, y);
    for bit in (0..128).rev() {
        product ^= shifted & (x >> bit & 1).wrapping_neg();
        shifted = shifted >> 1 ^ (0xe1 << 120) & (shifted & 1).wrapping_neg();
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the library's own nonces both give the same, so that what it has been tested for holds here.
    #[test]
    fn the_own_parts_agree_with_the_library() {
        let (key, nonce): (Vec<u8>, Vec<u8>) = ((0..32).collect(), (100..112).collect());
        for (bits, len) in (0..3).flat_map(|bits| [0, 1, 15, 16, 17, 300].map(|len| (bits, len))) {
            let text: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut theirs = text.clone();
            let tag = seal(bits, &key, &nonce, &mut theirs).unwrap();
            let mut own = Own::new(bits, &key, &nonce).unwrap();
            // Section 7.1, step 2, for a nonce of 96 bits.
            own.first = nonce.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)) << 32 | 1;
            let mut ours = text.clone();
            own.crypt(&mut ours).unwrap();
            assert_eq!((&ours, own.tag(&ours)), (&theirs, Some(tag)), "{bits} {len}");
        }
    }

    /// Cases 5 and 6 of the test vectors in "The Galois/Counter Mode of Operation" by McGrew and Viega have data that is authenticated besides;
    /// HAProxy's results for such nonces are in the scenario `rules/nonces-of-aes-gcm`.
    #[test]
    fn opens_what_it_has_sealed_and_nothing_else() {
        for nonce in [&b"n"[..], b"eleven bytes", b"sixteen bytes!!!", b"a nonce that is longer than a block"] {
            let mut text = b"some text that is longer than a block".to_vec();
            let tag = seal(1, &[7; 24], nonce, &mut text).unwrap();
            for bit in 0..8 * TAG {
                let mut wrong = tag;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(1, &[7; 24], nonce, &wrong, &mut text.clone()), None);
            }
            assert_eq!(open(1, &[7; 24], nonce, &tag[..4], &mut text.clone()), None);
            assert_eq!(open(1, &[7; 24], nonce, &tag, &mut text), Some(()));
            assert_eq!(text, b"some text that is longer than a block");
        }
    }

    #[test]
    fn counters_begin_anew_after_32_bits() {
        let mut own = Own::new(0, &[1; 16], b"n").unwrap();
        own.first = own.first >> 32 << 32 | 0xffff_fffe;
        let mut text = [0; 3 * TAG];
        own.crypt(&mut text).unwrap();
        let fixed = own.first >> 32 << 32;
        let expected = [fixed | 0xffff_ffff, fixed, fixed | 1].map(|counter| own.block(counter).unwrap().to_be_bytes());
        assert_eq!(text[..], expected.concat());
    }

    #[test]
    fn keys_that_are_too_short_are_none() {
        assert_eq!(seal(0, &[1; 15], b"n", &mut []), None);
        assert_eq!(seal(0, &[1; 15], b"twelve bytes", &mut []), None);
        assert_eq!(seal(0, &[1; 16], b"", &mut []), None);
        assert_eq!(seal(0, &[1; 17], b"n", &mut []), seal(0, &[1; 16], b"n", &mut []));
        assert_eq!(seal(0, &[1; 17], b"twelve bytes", &mut []), seal(0, &[1; 16], b"twelve bytes", &mut []));
    }
}
