//! ML-KEM-768 encapsulation (FIPS 203), one to eight clients at a time.
//!
//! Each lane is a client: the hashes, samples and polynomials of eight clients go through the same instructions.
//! Sampling the public matrix takes a time that depends on the public key; no time depends on secrets.

mod code;
mod keccak;
mod ntt;
mod sample;

use crate::cpu::Task;
use crate::vector::Lane8;
use crate::{LANES, LaneError, Lanes, Secret};
use ntt::{Multiplier, Poly, VECTORS};
use sample::Sampler;
use zeroize::Zeroize;

/// Bytes of an encapsulation key.
pub const KEY: usize = 1184;
/// Bytes of a ciphertext.
pub const CIPHERTEXT: usize = 1088;
/// Bytes of the shared secret, and of the randomness that it is derived from.
pub const BYTES: usize = 32;

/// One encapsulation.
#[derive(Clone, Copy)]
pub struct EncapsulateJob<'a> {
    /// The client's encapsulation key.
    pub key: &'a [u8],
    /// Fresh random bytes, used for nothing else, and zeroed by the caller: the secret follows from them.
    pub random: &'a [u8; BYTES],
}

/// The result of an encapsulation.
pub struct Encapsulated {
    /// The ciphertext, to be sent to the client.
    pub ciphertext: [u8; CIPHERTEXT],
    /// The secret shared with the client.
    pub secret: Secret<BYTES>,
}

/// Encapsulates a fresh secret for each of one to eight clients (FIPS 203, algorithms 17 and 20). Panics unless there
/// are 1 to 8 jobs.
///
/// A key of the wrong length, or with a coefficient that is not reduced (the modulus check of section 7.2), fails its
/// lane alone.
pub fn encapsulate(lanes: Lanes, jobs: &[EncapsulateJob<'_>]) -> Vec<Result<Encapsulated, LaneError>> {
    assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
    lanes.run(Encapsulate { jobs })
}

/// Words of a polynomial encoded with twelve bits per coefficient.
const ENCODED: usize = 48;
/// Words of a compressed polynomial in the first part of the ciphertext.
const COMPRESSED: usize = 40;

struct Encapsulate<'a> {
    jobs: &'a [EncapsulateJob<'a>],
}

/// All large data, on the heap: some 60 KiB, zeroed when dropped.
struct Work<V: Lane8> {
    key: [V; KEY / 8],
    /// The message, then the hash of the key; secret and coins are derived from their hash.
    seed: [V; 8],
    /// The secret, then the coins.
    derived: [V; 8],
    /// The public vector, transformed.
    public: [Poly<V>; 3],
    /// A column of the public matrix, transformed.
    column: [Poly<V>; 3],
    blinding: [Multiplier<V>; 3],
    noise: Poly<V>,
    product: Poly<V>,
    ciphertext: [V; CIPHERTEXT / 8],
    sampler: Sampler<V>,
}

impl<V: Lane8> Drop for Work<V> {
    fn drop(&mut self) {
        self.seed.zeroize();
        self.derived.zeroize();
        self.blinding.iter_mut().for_each(Zeroize::zeroize);
        self.noise.zeroize();
        self.product.zeroize();
    }
}

impl<V: Lane8> Work<V> {
    fn new() -> Box<Self> {
        let zero = V::splat(0);
        Box::new(Work {
            key: [zero; _],
            seed: [zero; _],
            derived: [zero; _],
            public: [[zero; VECTORS]; 3],
            column: [[zero; VECTORS]; 3],
            blinding: [Multiplier::default(); 3],
            noise: [zero; VECTORS],
            product: [zero; VECTORS],
            ciphertext: [zero; _],
            sampler: Sampler::new(),
        })
    }

    /// Decodes the keys. Returns the lanes whose key is not reduced.
    fn open(&mut self, keys: [&[u8]; 8]) -> u8 {
        code::words(keys, &mut self.key);
        let (encoded, _) = self.key.as_chunks::<ENCODED>();
        encoded.iter().zip(&mut self.public).fold(0, |bad, (words, out)| bad | code::decode12(words, out))
    }

    /// `(K, r) = G(m || H(key))`.
    fn derive(&mut self, messages: [&[u8]; 8]) {
        code::words(messages, &mut self.seed[..4]);
        self.seed[4..].copy_from_slice(&keccak::sha3_256(&self.key));
        self.derived = keccak::sha3_512(&self.seed);
    }

    /// K-PKE's encryption of the message with the coins (FIPS 203, algorithm 14).
    fn encrypt(&mut self) {
        let [message, _] = halves(&self.seed);
        let [_, coins] = halves(&self.derived);
        let [_, matrix_seed] = halves(self.key.last_chunk::<8>().expect("a key is longer than its seed"));
        for (number, blinding) in (0..).zip(&mut self.blinding) {
            sample::small(coins, number, &mut self.noise);
            ntt::prepare(&mut self.noise, blinding);
        }
        for row in 0..3 {
            // Row i of the transposed matrix: elements (j, i).
            for (j, element) in (0..).zip(&mut self.column) {
                self.sampler.uniform_vartime(matrix_seed, j, row, element);
            }
            ntt::multiply(self.column.each_ref(), &self.blinding, &mut self.product);
            sample::small(coins, 3 + row, &mut self.noise);
            let at = COMPRESSED * usize::from(row);
            code::compress10(&self.product, &self.noise, &mut self.ciphertext[at..][..COMPRESSED]);
        }
        ntt::multiply(self.public.each_ref(), &self.blinding, &mut self.product);
        code::add_message(message, &mut self.product);
        sample::small(coins, 6, &mut self.noise);
        code::compress4(&self.product, &self.noise, &mut self.ciphertext[3 * COMPRESSED..]);
    }
}

fn halves<V>(eight: &[V; 8]) -> [&[V; 4]; 2] {
    let (fours, _) = eight.as_chunks::<4>();
    [&fours[0], &fours[1]]
}

impl Task for Encapsulate<'_> {
    type Out = Vec<Result<Encapsulated, LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        const NO_KEY: &[u8] = &[0; KEY];
        let mut bad = 0u8;
        // A lane without a job, or with a key of another length, works on zeros.
        let mut keys = [NO_KEY; 8];
        let mut messages: [&[u8]; 8] = [&[0; BYTES]; 8];
        for (lane, job) in self.jobs.iter().enumerate() {
            messages[lane] = job.random;
            if job.key.len() == KEY {
                keys[lane] = job.key;
            } else {
                bad |= 1 << lane;
            }
        }
        let mut work = Work::<V>::new();
        bad |= work.open(keys);
        work.derive(messages);
        work.encrypt();
        let mut ciphertexts = [[0; CIPHERTEXT]; 8];
        code::bytes(&mut work.ciphertext, &mut ciphertexts);
        let mut secrets = [[0; 64]; 8];
        code::bytes(&mut work.derived, &mut secrets);
        let out = (0..self.jobs.len())
            .map(|lane| {
                if bad >> lane & 1 == 1 {
                    return Err(LaneError::EncapsulationKey);
                }
                let secret = secrets[lane].first_chunk().expect("the secret is the first half of what is derived");
                Ok(Encapsulated { ciphertext: ciphertexts[lane], secret: Secret::new(*secret) })
            })
            .collect();
        secrets.zeroize();
        out
    }
}
