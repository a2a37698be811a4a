//! SHA-256, SHA-384 and SHA-512 (FIPS 180-4) of eight messages of one length, and HMAC (RFC 2104), for deterministic
//! nonces and the masks of PSS. A 32-bit word takes the low half of a lane; the high half stays zero.
//!
//! Time depends on the length alone. Tests: `digests_are_the_published_ones`, and the RFC 6979 vectors in
//! `tests/ec.rs`.

use crate::vector::{Kernel, Lane8};
use core::marker::PhantomData;
use zeroize::Zeroize;

/// What distinguishes the hash functions.
pub(crate) trait Hash: 'static {
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bytes of a digest.
    const DIGEST: usize;
    const WORD: usize = Self::BLOCK / 16;
    const DIGEST_WORDS: usize = Self::DIGEST / Self::WORD;
    const INITIAL: [u64; 8];
    const ROUNDS: &'static [u64];

    fn add<V: Lane8>(a: V, b: V) -> V;
    fn big_sigma0<V: Lane8>(x: V) -> V;
    fn big_sigma1<V: Lane8>(x: V) -> V;
    fn small_sigma0<V: Lane8>(x: V) -> V;
    fn small_sigma1<V: Lane8>(x: V) -> V;
}

pub(crate) enum Sha256 {}
pub(crate) enum Sha384 {}
pub(crate) enum Sha512 {}

impl Hash for Sha256 {
    const BLOCK: usize = 64;
    const DIGEST: usize = 32;
    const INITIAL: [u64; 8] =
        [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    const ROUNDS: &'static [u64] = &K256;

    #[inline(always)]
    fn add<V: Lane8>(a: V, b: V) -> V {
        a.add32(b)
    }
    #[inline(always)]
    fn big_sigma0<V: Lane8>(x: V) -> V {
        V::xor3(x.rotr32::<2>(), x.rotr32::<13>(), x.rotr32::<22>())
    }
    #[inline(always)]
    fn big_sigma1<V: Lane8>(x: V) -> V {
        V::xor3(x.rotr32::<6>(), x.rotr32::<11>(), x.rotr32::<25>())
    }
    #[inline(always)]
    fn small_sigma0<V: Lane8>(x: V) -> V {
        V::xor3(x.rotr32::<7>(), x.rotr32::<18>(), x.shr32::<3>())
    }
    #[inline(always)]
    fn small_sigma1<V: Lane8>(x: V) -> V {
        V::xor3(x.rotr32::<17>(), x.rotr32::<19>(), x.shr32::<10>())
    }
}

/// The hashes of 64-bit words differ in the digest's length and in the initial state.
macro_rules! wide_hash {
    ($name:ident, $digest:literal, [$($initial:literal),* $(,)?]) => {
        impl Hash for $name {
            const BLOCK: usize = 128;
            const DIGEST: usize = $digest;
            const INITIAL: [u64; 8] = [$($initial),*];
            const ROUNDS: &'static [u64] = &K512;

            #[inline(always)]
            fn add<V: Lane8>(a: V, b: V) -> V {
                a.add(b)
            }
            #[inline(always)]
            fn big_sigma0<V: Lane8>(x: V) -> V {
                V::xor3(x.rotl64::<36>(), x.rotl64::<30>(), x.rotl64::<25>())
            }
            #[inline(always)]
            fn big_sigma1<V: Lane8>(x: V) -> V {
                V::xor3(x.rotl64::<50>(), x.rotl64::<46>(), x.rotl64::<23>())
            }
            #[inline(always)]
            fn small_sigma0<V: Lane8>(x: V) -> V {
                V::xor3(x.rotl64::<63>(), x.rotl64::<56>(), x.shr::<7>())
            }
            #[inline(always)]
            fn small_sigma1<V: Lane8>(x: V) -> V {
                V::xor3(x.rotl64::<45>(), x.rotl64::<3>(), x.shr::<6>())
            }
        }
    };
}

wide_hash!(
    Sha384,
    48,
    [
        0xcbbb9d5dc1059ed8,
        0x629a292a367cd507,
        0x9159015a3070dd17,
        0x152fecd8f70e5939,
        0x67332667ffc00b31,
        0x8eb44a8768581511,
        0xdb0c2e0d64f98fa7,
        0x47b5481dbefa4fa4,
    ]
);

wide_hash!(
    Sha512,
    64,
    [
        0x6a09e667f3bcc908,
        0xbb67ae8584caa73b,
        0x3c6ef372fe94f82b,
        0xa54ff53a5f1d36f1,
        0x510e527fade682d1,
        0x9b05688c2b3e6c1f,
        0x1f83d9abfb41bd6b,
        0x5be0cd19137e2179,
    ]
);

/// Updates the state with a block.
struct Compress<'a, V: Lane8, H>(&'a mut [V; 8], &'a [V; 16], PhantomData<H>);

impl<V: Lane8, H: Hash> Kernel<V> for Compress<'_, V, H> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Compress(state, block, _) = self;
        let mut w = *block;
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
        for round in 0..H::ROUNDS.len() {
            let at = round % 16;
            if round >= 16 {
                let (s0, s1) = (H::small_sigma0(w[(at + 1) % 16]), H::small_sigma1(w[(at + 14) % 16]));
                w[at] = H::add(H::add(w[at], s0), H::add(w[(at + 9) % 16], s1));
            }
            let t = H::add(H::add(h, H::add(w[at], V::splat(H::ROUNDS[round]))), V::choose(e, f, g));
            let t = H::add(t, H::big_sigma1(e));
            let u = H::add(H::big_sigma0(a), V::majority(a, b, c));
            (h, g, f, e, d, c, b, a) = (g, f, e, H::add(d, t), c, b, a, H::add(t, u));
        }
        for (state, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *state = H::add(*state, word);
        }
    }
}

/// Absorbs whole blocks.
fn absorb<V: Lane8, H: Hash>(state: &mut [V; 8], blocks: &[[V; 16]]) {
    for block in blocks {
        V::enter(Compress::<V, H>(state, block, PhantomData));
    }
}

/// Eight messages of one length as words, with the padding of a hash that has absorbed `before` bytes already. The
/// first `spare` bytes (a whole number of words) of the first block are left as zeros for the caller to fill; they
/// count as part of the message.
pub(crate) fn padded<V: Lane8, H: Hash>(messages: &[Vec<u8>; 8], before: usize, spare: usize) -> Vec<[V; 16]> {
    let length = messages[0].len();
    assert!(messages.iter().all(|message| message.len() == length), "the messages of a call have one length");
    let bytes = (spare + length + 1 + 2 * H::WORD).next_multiple_of(H::BLOCK);
    let mut words = vec![[0u64; 8]; bytes / H::WORD];
    let mut padded = zeroize::Zeroizing::new(vec![0; bytes - spare]);
    for (lane, message) in messages.iter().enumerate() {
        padded[..length].copy_from_slice(message);
        padded[length] = 0x80;
        for (word, bytes) in words[spare / H::WORD..].iter_mut().zip(padded.chunks_exact(H::WORD)) {
            word[lane] = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
    }
    words[bytes / H::WORD - 1] = [8 * (before + spare + length) as u64; 8];
    let mut blocks = vec![[V::splat(0); 16]; bytes / H::BLOCK];
    blocks.as_flattened_mut().iter_mut().zip(&words).for_each(|(word, lanes)| *word = V::from_lanes(lanes));
    words.as_flattened_mut().zeroize();
    blocks
}

/// The block that ends a hash of one block and a digest.
fn last_block<V: Lane8, H: Hash>(digest: &[V; 8]) -> [V; 16] {
    let mut block = [V::splat(0); 16];
    block[..H::DIGEST_WORDS].copy_from_slice(&digest[..H::DIGEST_WORDS]);
    block[H::DIGEST_WORDS] = V::splat(0x80 << (8 * (H::WORD - 1)));
    block[15] = V::splat(8 * (H::BLOCK + H::DIGEST) as u64);
    block
}

/// The first `out[lane].len()` bytes of each lane's words.
pub(crate) fn to_bytes<V: Lane8, H: Hash, const BYTES: usize>(words: &[V; 8], out: &mut [[u8; BYTES]; 8]) {
    for (i, word) in words.iter().enumerate().take(BYTES / H::WORD) {
        for (out, word) in out.iter_mut().zip(word.to_lanes()) {
            out[i * H::WORD..(i + 1) * H::WORD].copy_from_slice(&word.to_be_bytes()[8 - H::WORD..]);
        }
    }
}

/// The digests of eight messages of one length.
pub(crate) fn digests<V: Lane8, H: Hash>(messages: &[Vec<u8>; 8]) -> [Vec<u8>; 8] {
    let mut state = H::INITIAL.map(V::splat);
    absorb::<V, H>(&mut state, &padded::<V, H>(messages, 0, 0));
    let mut out = [[0; 64]; 8];
    to_bytes::<V, H, 64>(&state, &mut out);
    out.map(|bytes| bytes[..H::DIGEST].to_vec())
}

/// HMAC keys of eight lanes: the states after the padded keys.
pub(crate) struct Hmac<V: Lane8, H> {
    inner: [V; 8],
    outer: [V; 8],
    hash: PhantomData<H>,
}

impl<V: Lane8, H: Hash> Hmac<V, H> {
    /// Prepares keys as long as a digest, given as words.
    pub(crate) fn new(keys: &[V; 8]) -> Self {
        let [inner, outer] = [0x36, 0x5c].map(|pad: u64| {
            let pad = V::splat(pad * ((u64::MAX / 255) >> (64 - 8 * H::WORD)));
            let mut block = [pad; 16];
            for (word, key) in block.iter_mut().zip(&keys[..H::DIGEST_WORDS]) {
                *word = pad.xor(*key);
            }
            let mut state = H::INITIAL.map(V::splat);
            absorb::<V, H>(&mut state, &[block]);
            block.zeroize();
            state
        });
        Hmac { inner, outer, hash: PhantomData }
    }

    /// The codes, as words, of eight messages that [`padded`] prepared with one block before them.
    pub(crate) fn code(&self, message: &[[V; 16]]) -> [V; 8] {
        let (mut inner, mut outer) = (self.inner, self.outer);
        absorb::<V, H>(&mut inner, message);
        absorb::<V, H>(&mut outer, &[last_block::<V, H>(&inner)]);
        outer
    }

    /// The codes of messages that are digests.
    pub(crate) fn code_of_digest(&self, digest: &[V; 8]) -> [V; 8] {
        self.code(&[last_block::<V, H>(digest)])
    }
}

impl<V: Lane8, H> Drop for Hmac<V, H> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

const K256: [u64; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
];

const K512: [u64; 80] = [
    0x428a2f98d728ae22,
    0x7137449123ef65cd,
    0xb5c0fbcfec4d3b2f,
    0xe9b5dba58189dbbc,
    0x3956c25bf348b538,
    0x59f111f1b605d019,
    0x923f82a4af194f9b,
    0xab1c5ed5da6d8118,
    0xd807aa98a3030242,
    0x12835b0145706fbe,
    0x243185be4ee4b28c,
    0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f,
    0x80deb1fe3b1696b1,
    0x9bdc06a725c71235,
    0xc19bf174cf692694,
    0xe49b69c19ef14ad2,
    0xefbe4786384f25e3,
    0x0fc19dc68b8cd5b5,
    0x240ca1cc77ac9c65,
    0x2de92c6f592b0275,
    0x4a7484aa6ea6e483,
    0x5cb0a9dcbd41fbd4,
    0x76f988da831153b5,
    0x983e5152ee66dfab,
    0xa831c66d2db43210,
    0xb00327c898fb213f,
    0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2,
    0xd5a79147930aa725,
    0x06ca6351e003826f,
    0x142929670a0e6e70,
    0x27b70a8546d22ffc,
    0x2e1b21385c26c926,
    0x4d2c6dfc5ac42aed,
    0x53380d139d95b3df,
    0x650a73548baf63de,
    0x766a0abb3c77b2a8,
    0x81c2c92e47edaee6,
    0x92722c851482353b,
    0xa2bfe8a14cf10364,
    0xa81a664bbc423001,
    0xc24b8b70d0f89791,
    0xc76c51a30654be30,
    0xd192e819d6ef5218,
    0xd69906245565a910,
    0xf40e35855771202a,
    0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8,
    0x1e376c085141ab53,
    0x2748774cdf8eeb99,
    0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63,
    0x4ed8aa4ae3418acb,
    0x5b9cca4f7763e373,
    0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc,
    0x78a5636f43172f60,
    0x84c87814a1f0ab72,
    0x8cc702081a6439ec,
    0x90befffa23631e28,
    0xa4506cebde82bde9,
    0xbef9a3f7b2c67915,
    0xc67178f2e372532b,
    0xca273eceea26619c,
    0xd186b8c721c0c207,
    0xeada7dd6cde0eb1e,
    0xf57d4f7fee6ed178,
    0x06f067aa72176fba,
    0x0a637dc5a2c898a6,
    0x113f9804bef90dae,
    0x1b710b35131c471b,
    0x28db77f523047d84,
    0x32caab7b40c72493,
    0x3c9ebe0a15c9bebc,
    0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6,
    0x597f299cfc657e2a,
    0x5fcb6fab3ad6faec,
    0x6c44198c4a475817,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Portable;

    #[test]
    fn digests_are_the_published_ones() {
        let message: [Vec<u8>; 8] = core::array::from_fn(|_| b"abc".to_vec());
        let hex = |digest: &[u8]| digest.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let digest = digests::<Portable, Sha256>(&message);
        assert_eq!(hex(&digest[5]), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let digest = digests::<Portable, Sha384>(&message);
        let wanted = "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7";
        assert_eq!(hex(&digest[2]), wanted);
        let digest = digests::<Portable, Sha512>(&message);
        let wanted = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                      2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        assert_eq!(hex(&digest[7]), wanted);
    }
}
