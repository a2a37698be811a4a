//! HKDF (RFC 5869) and HMAC (RFC 2104) for TLS 1.3's key schedule (RFC 8446, 7.1): some forty short messages per
//! handshake, under a dozen keys.
//!
//! A key is hashed once, to the two states that every HMAC under it starts with; values that depend on no secret are
//! computed once per process. The library's own implementation hashes each key anew for each output, and sets up and
//! clears a context of several hundred bytes for it, which with SHA-384 was a seventh of a handshake's CPU time
//! (2026-11-22).
//!
//! Time depends only on lengths. Tests: `its_outputs_are_the_published_ones`,
//! `it_agrees_with_the_library_at_every_length`.

use rustls::crypto::{
    hmac::Tag,
    tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError},
};
use sha2::block_api::{compress256, compress512};
use std::sync::OnceLock;
use zeroize::{Zeroize, optimization_barrier};

/// HKDF with SHA-256.
pub(crate) static SHA256: Schedule<Sha256> = Schedule(OnceLock::new());
/// HKDF with SHA-384.
pub(crate) static SHA384: Schedule<Sha384> = Schedule(OnceLock::new());

/// A hash of FIPS 180-4, by its block function.
pub(crate) trait Hash: Send + Sync + 'static {
    /// Bytes of a digest.
    const OUTPUT: usize;
    type State: Clone + Zeroize + Send + Sync;
    type Block: AsRef<[u8]> + AsMut<[u8]>;
    const INITIAL: Self::State;
    const ZEROS: Self::Block;

    fn compress(state: &mut Self::State, block: &Self::Block);
    /// Writes the words of the state, of which the digest is a prefix.
    fn write(state: &Self::State, to: &mut [u8; Tag::MAX_LEN]);
}

pub(crate) struct Sha256;
pub(crate) struct Sha384;

impl Hash for Sha256 {
    const OUTPUT: usize = 32;
    type State = [u32; 8];
    type Block = [u8; 64];
    const INITIAL: [u32; 8] =
        [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
    const ZEROS: [u8; 64] = [0; 64];

    fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
        compress256(state, std::slice::from_ref(block));
    }
    fn write(state: &[u32; 8], to: &mut [u8; Tag::MAX_LEN]) {
        to.chunks_exact_mut(4).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    }
}

impl Hash for Sha384 {
    const OUTPUT: usize = 48;
    type State = [u64; 8];
    type Block = [u8; 128];
    const INITIAL: [u64; 8] = [
        0xcbbb_9d5d_c105_9ed8,
        0x629a_292a_367c_d507,
        0x9159_015a_3070_dd17,
        0x152f_ecd8_f70e_5939,
        0x6733_2667_ffc0_0b31,
        0x8eb4_4a87_6858_1511,
        0xdb0c_2e0d_64f9_8fa7,
        0x47b5_481d_befa_4fa4,
    ];
    const ZEROS: [u8; 128] = [0; 128];

    fn compress(state: &mut [u64; 8], block: &[u8; 128]) {
        compress512(state, std::slice::from_ref(block));
    }
    fn write(state: &[u64; 8], to: &mut [u8; Tag::MAX_LEN]) {
        to.chunks_exact_mut(8).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    }
}

/// A hash computation in progress.
struct Hashing<H: Hash> {
    state: H::State,
    block: H::Block,
    /// Total bytes so far; those that do not fill a block are buffered.
    length: usize,
}

impl<H: Hash> Hashing<H> {
    /// Continues from a state that has taken `length` bytes, a whole number of blocks.
    fn from(state: &H::State, length: usize) -> Self {
        Hashing { state: state.clone(), block: H::ZEROS, length }
    }

    fn update(mut self, mut bytes: &[u8]) -> Self {
        while !bytes.is_empty() {
            let block = self.block.as_mut();
            let (at, size) = (self.length % block.len(), block.len());
            let taken = bytes.len().min(size - at);
            block[at..at + taken].copy_from_slice(&bytes[..taken]);
            self.length += taken;
            bytes = &bytes[taken..];
            if at + taken == size {
                H::compress(&mut self.state, &self.block);
            }
        }
        self
    }

    fn finish(mut self) -> Digest {
        let block = self.block.as_mut();
        let size = block.len();
        let at = self.length % size;
        block[at] = 0x80;
        block[at + 1..].fill(0);
        // The length field has two words, of which only the last is ever needed here.
        if at + 1 + size / 8 > size {
            H::compress(&mut self.state, &self.block);
            self.block.as_mut().fill(0);
        }
        self.block.as_mut()[size - 8..].copy_from_slice(&(self.length as u64 * 8).to_be_bytes());
        H::compress(&mut self.state, &self.block);
        let mut digest = Digest([0; Tag::MAX_LEN]);
        H::write(&self.state, &mut digest.0);
        digest
    }
}

impl<H: Hash> Drop for Hashing<H> {
    fn drop(&mut self) {
        self.state.zeroize();
        wipe(self.block.as_mut());
    }
}

/// A digest, followed by the remaining words of its state.
struct Digest([u8; Tag::MAX_LEN]);

impl Drop for Digest {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Wipes memory like `zeroize`, but not byte by byte.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    optimization_barrier(bytes);
}

/// An HMAC key: the states after its inner and its outer block.
pub(crate) struct Key<H: Hash> {
    inner: H::State,
    outer: H::State,
}

impl<H: Hash> Key<H> {
    fn new(key: &[u8]) -> Self {
        let hashed;
        let mut block = Hashing::<H> { state: H::INITIAL, block: H::ZEROS, length: 0 };
        let size = block.block.as_ref().len();
        let key = if key.len() > size {
            hashed = Hashing::<H>::from(&H::INITIAL, 0).update(key).finish();
            &hashed.0[..H::OUTPUT]
        } else {
            key
        };
        let bytes = block.block.as_mut();
        bytes[..key.len()].copy_from_slice(key);
        bytes.iter_mut().for_each(|byte| *byte ^= 0x36);
        let mut made = Key { inner: H::INITIAL, outer: H::INITIAL };
        H::compress(&mut made.inner, &block.block);
        block.block.as_mut().iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        H::compress(&mut made.outer, &block.block);
        made
    }

    /// The HMAC of the concatenated parts.
    fn sign<'a>(&self, message: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let size = H::ZEROS.as_ref().len();
        let inner = message.into_iter().fold(Hashing::<H>::from(&self.inner, size), Hashing::update).finish();
        Hashing::<H>::from(&self.outer, size).update(&inner.0[..H::OUTPUT]).finish()
    }
}

impl<H: Hash> Clone for Key<H> {
    fn clone(&self) -> Self {
        Key { inner: self.inner.clone(), outer: self.outer.clone() }
    }
}

impl<H: Hash> Drop for Key<H> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

/// HKDF-Expand under one key.
impl<H: Hash> HkdfExpander for Key<H> {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        if output.len() > 255 * H::OUTPUT {
            return Err(OutputLengthError);
        }
        let mut before: Option<Digest> = None;
        for (chunk, number) in output.chunks_mut(H::OUTPUT).zip(1..=255) {
            let term = before.as_ref().map_or(&[][..], |digest| &digest.0[..H::OUTPUT]);
            let digest = self.sign([term].into_iter().chain(info.iter().copied()).chain([&[number][..]]));
            chunk.copy_from_slice(&digest.0[..chunk.len()]);
            before = Some(digest);
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        OkmBlock::new(&self.sign(info.iter().copied().chain([&[1][..]])).0[..H::OUTPUT])
    }

    fn hash_len(&self) -> usize {
        H::OUTPUT
    }
}

/// HKDF with one hash. It caches the first key of every schedule without a pre-shared key, which is extracted from
/// zeros under zeros.
pub(crate) struct Schedule<H: Hash>(OnceLock<Key<H>>);

const ZEROS: [u8; OkmBlock::MAX_LEN] = [0; OkmBlock::MAX_LEN];

impl<H: Hash> Schedule<H> {
    fn extract(salt: &[u8], secret: &[u8]) -> Key<H> {
        Key::new(&Key::<H>::new(salt).sign([secret]).0[..H::OUTPUT])
    }
}

impl<H: Hash> Hkdf for Schedule<H> {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        let zeros = &ZEROS[..H::OUTPUT];
        Box::new(match salt {
            Some(salt) => Self::extract(salt, zeros),
            None => self.0.get_or_init(|| Self::extract(zeros, zeros)).clone(),
        })
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(Self::extract(salt.unwrap_or(&ZEROS[..H::OUTPUT]), secret))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Key::<H>::new(okm.as_ref()))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        Tag::new(&Key::<H>::new(key.as_ref()).sign([message]).0[..H::OUTPUT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::hmac;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 5869, appendices A.1 to A.3.
    #[test]
    fn its_outputs_are_the_published_ones() {
        let (ikm, counting) = ("0b".repeat(22), |from: u8, to: u8| (from..=to).collect::<Vec<u8>>());
        let table = [
            (
                bytes(&ikm),
                Some(counting(0, 12)),
                counting(0xf0, 0xf9),
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
            ),
            (
                counting(0, 0x4f),
                Some(counting(0x60, 0xaf)),
                counting(0xb0, 0xff),
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8\
                 367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
            ),
            (
                bytes(&ikm),
                None,
                Vec::new(),
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
            ),
        ];
        for (ikm, salt, info, expected) in table {
            let expected = bytes(expected);
            let mut output = vec![0; expected.len()];
            let expander = SHA256.extract_from_secret(salt.as_deref(), &ikm);
            let (first, second) = info.split_at(info.len() / 2);
            assert!(expander.expand_slice(&[first, second], &mut output).is_ok());
            assert_eq!(output, expected);
        }
    }

    /// Every length of key and message up to three blocks: all block boundaries, and keys that are themselves hashed.
    #[test]
    fn it_agrees_with_the_library_at_every_length() {
        fn agrees<H: Hash>(algorithm: hmac::Algorithm) {
            let text: Vec<u8> = (0..400u32).map(|i| (i * 7 + i / 256) as u8).collect();
            for length in 0..=3 * H::ZEROS.as_ref().len() {
                for (key, message) in [(length, 3 * length % 257), (48, length), (H::OUTPUT, length)] {
                    let (key, message) = (&text[..key], &text[..message]);
                    let (begin, end) = message.split_at(message.len() / 3);
                    let expected = hmac::sign(&hmac::Key::new(algorithm, key), message);
                    let found = Key::<H>::new(key).sign([begin, end]);
                    assert_eq!(&found.0[..H::OUTPUT], expected.as_ref(), "{} under {}", message.len(), key.len());
                }
            }
        }
        agrees::<Sha256>(hmac::HMAC_SHA256);
        agrees::<Sha384>(hmac::HMAC_SHA384);
    }

    #[test]
    fn what_is_extracted_from_nothing_is_the_same_each_time() {
        let hkdfs: [(&dyn Hkdf, usize); 2] = [(&SHA256, 32), (&SHA384, 48)];
        for (hkdf, length) in hkdfs {
            let [first, again] = [(); 2].map(|()| hkdf.extract_from_zero_ikm(None).expand_block(&[b"derived"]));
            let other = hkdf.extract_from_secret(None, &ZEROS[..length]).expand_block(&[b"derived"]);
            assert_eq!(first.as_ref(), again.as_ref());
            assert_eq!(first.as_ref(), other.as_ref());
        }
    }

    #[test]
    fn more_than_hkdf_can_give_is_refused() {
        let expander = SHA256.extract_from_zero_ikm(None);
        assert!(expander.expand_slice(&[], &mut [0; 255 * 32]).is_ok());
        assert!(expander.expand_slice(&[], &mut [0; 255 * 32 + 1]).is_err());
    }
}
