//! RSA keys, prepared for use: limbs, and the constants of Montgomery multiplication.

use crate::limbs;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The only supported public exponent: the check of results and [`super::verify_raw`] use it.
const EXPONENT: u32 = 65537;

/// The supported key sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RsaSize {
    /// A modulus of 2048 bits.
    Bits2048,
    /// A modulus of 3072 bits.
    Bits3072,
    /// A modulus of 4096 bits.
    Bits4096,
}

impl RsaSize {
    /// The size of a modulus of `len` bytes.
    pub const fn from_bytes(bytes: usize) -> Option<RsaSize> {
        match bytes {
            256 => Some(RsaSize::Bits2048),
            384 => Some(RsaSize::Bits3072),
            512 => Some(RsaSize::Bits4096),
            _ => None,
        }
    }

    /// The bits of the modulus.
    pub const fn bits(self) -> usize {
        match self {
            RsaSize::Bits2048 => 2048,
            RsaSize::Bits3072 => 3072,
            RsaSize::Bits4096 => 4096,
        }
    }

    /// The bytes of the modulus, of an input and of a result.
    pub const fn bytes(self) -> usize {
        self.bits() / 8
    }

    /// Limbs of a prime, in a radix of 2^52 with at least 16 bits to spare.
    pub(crate) const fn half_limbs(self) -> usize {
        match self {
            RsaSize::Bits2048 => 20,
            RsaSize::Bits3072 => 30,
            RsaSize::Bits4096 => 40,
        }
    }

    /// Limbs of a modulus: as many as two primes have.
    pub(crate) const fn limbs(self) -> usize {
        2 * self.half_limbs()
    }

    fn of_bits(bits: usize) -> Option<RsaSize> {
        [RsaSize::Bits2048, RsaSize::Bits3072, RsaSize::Bits4096].into_iter().find(|size| size.bits() == bits)
    }
}

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The modulus does not have exactly 2048, 3072 or 4096 bits.
    Size,
    /// The public exponent is not 65537.
    Exponent,
    /// The modulus or a prime is even.
    Even,
    /// The two primes are equal.
    EqualPrimes,
    /// The modulus is not the product of the primes.
    Product,
    /// A private part is out of range: a prime longer than half the modulus, or an exponent or coefficient not below
    /// its prime.
    Range,
}

impl core::fmt::Display for KeyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            KeyError::Size => "the modulus must have 2048, 3072 or 4096 bits",
            KeyError::Exponent => "the public exponent must be 65537",
            KeyError::Even => "the modulus or a prime is even",
            KeyError::EqualPrimes => "the two primes are equal",
            KeyError::Product => "the modulus is not the product of the primes",
            KeyError::Range => "a private part is out of range",
        })
    }
}

impl core::error::Error for KeyError {}

/// An odd modulus and the constants derived from it, as limbs.
#[derive(Zeroize)]
pub(crate) struct Prepared {
    pub(crate) m: Vec<u64>,
    pub(crate) fold: Vec<u64>,
    pub(crate) k0: u64,
}

impl Prepared {
    fn new(m: Vec<u64>) -> Prepared {
        let k0 = limbs::neg_inverse(m[0]);
        let mut fold = vec![0; m.len()];
        limbs::fold_into(&m, k0, &mut fold);
        Prepared { m, fold, k0 }
    }

    /// `x 2^(52 N times) mod m`, for `x < m`.
    fn times_r(&self, x: &[u64], times: usize) -> Vec<u64> {
        let mut x = x.to_vec();
        limbs::shift_mod(&mut x, &self.m, 52 * self.m.len() * times);
        x
    }

    fn one(&self) -> Vec<u64> {
        let mut one = vec![0; self.m.len()];
        one[0] = 1;
        one
    }
}

/// A public key with the exponent 65537, prepared.
pub struct RsaPublicKey {
    pub(crate) size: RsaSize,
    pub(crate) n: Prepared,
    /// `R^2 mod n`.
    pub(crate) r2: Vec<u64>,
}

impl RsaPublicKey {
    /// Prepares a key from its big-endian modulus and exponent. Takes about a millisecond.
    ///
    /// # Errors
    /// The size of the modulus is not supported, the modulus is even, or the exponent is not 65537.
    pub fn new(n: &[u8], e: &[u8]) -> Result<RsaPublicKey, KeyError> {
        let start = n.iter().position(|byte| *byte != 0).ok_or(KeyError::Size)?;
        let bits = (n.len() - start) * 8 - n[start].leading_zeros() as usize;
        let size = RsaSize::of_bits(bits).ok_or(KeyError::Size)?;
        if e.iter().try_fold(0u32, |e, byte| e.checked_mul(256).map(|e| e | u32::from(*byte))) != Some(EXPONENT) {
            return Err(KeyError::Exponent);
        }
        let mut limbs = vec![0; 2 * size.half_limbs()];
        limbs::from_be(n, &mut limbs);
        if limbs[0] & 1 == 0 {
            return Err(KeyError::Even);
        }
        let n = Prepared::new(limbs);
        let r2 = n.times_r(&n.one(), 2);
        Ok(RsaPublicKey { size, n, r2 })
    }

    /// The size of the modulus.
    pub fn size(&self) -> RsaSize {
        self.size
    }
}

/// The parts of a private key, big-endian, as RFC 8017 names them.
#[derive(Clone, Copy)]
pub struct RsaParts<'a> {
    /// The modulus.
    pub n: &'a [u8],
    /// The public exponent; must be 65537.
    pub e: &'a [u8],
    /// The first prime.
    pub p: &'a [u8],
    /// The second prime.
    pub q: &'a [u8],
    /// The private exponent modulo p - 1.
    pub dp: &'a [u8],
    /// The private exponent modulo q - 1.
    pub dq: &'a [u8],
    /// The inverse of q modulo p.
    pub qinv: &'a [u8],
}

/// One prime's half of a private key.
#[derive(Zeroize)]
pub(crate) struct Half {
    pub(crate) prime: Prepared,
    pub(crate) exponent: Vec<u64>,
    /// `R mod prime`: one, in Montgomery's form.
    pub(crate) one: Vec<u64>,
    /// `R^3 mod prime`: takes a reduced input into Montgomery's form.
    pub(crate) r3: Vec<u64>,
}

impl Half {
    fn new(prime: Vec<u64>, exponent: Vec<u64>) -> Half {
        let prime = Prepared::new(prime);
        let one = prime.times_r(&prime.one(), 1);
        let r3 = prime.times_r(&one, 2);
        Half { prime, exponent, one, r3 }
    }
}

/// A private key, prepared: zeroed when dropped, never printed, never copied.
pub struct RsaKey {
    pub(crate) public: RsaPublicKey,
    /// Modulo p, then modulo q.
    pub(crate) halves: [Half; 2],
    /// `q^-1 R mod p`.
    pub(crate) qinv: Vec<u64>,
}

impl RsaKey {
    /// Prepares a key and refuses one that cannot be right. Takes a few milliseconds, and a time that depends only on
    /// the lengths of the parts unless the key is refused.
    ///
    /// Does not verify that `dp`, `dq` and `qinv` match the rest; the check of every result does: with a wrong one,
    /// every operation returns [`crate::LaneError::Fault`].
    ///
    /// # Errors
    /// The size of the modulus is not supported, the exponent is not 65537, or the parts cannot belong to one key.
    pub fn new(parts: &RsaParts<'_>) -> Result<RsaKey, KeyError> {
        let public = RsaPublicKey::new(parts.n, parts.e)?;
        let limbs_of = |bytes: &[u8]| {
            let mut limbs = vec![0; public.size.half_limbs()];
            limbs::from_be(bytes, &mut limbs).then_some(limbs).ok_or(KeyError::Range)
        };
        let (p, q) = (limbs_of(parts.p)?, limbs_of(parts.q)?);
        if p[0] & q[0] & 1 == 0 {
            return Err(KeyError::Even);
        }
        if p == q {
            return Err(KeyError::EqualPrimes);
        }
        // A prime's length is public. Unequal ones are allowed as long as each fits half of the modulus.
        if limbs::bits_vartime(&p).max(limbs::bits_vartime(&q)) > public.size.bits() / 2 {
            return Err(KeyError::Range);
        }
        let mut product = zeroize::Zeroizing::new(vec![0; public.n.m.len()]);
        limbs::mul(&p, &q, &mut product);
        if *product != public.n.m {
            return Err(KeyError::Product);
        }
        let (dp, dq, mut qinv) = (limbs_of(parts.dp)?, limbs_of(parts.dq)?, limbs_of(parts.qinv)?);
        if limbs::less(&dp, &p) & limbs::less(&dq, &q) & limbs::less(&qinv, &p) == 0 {
            return Err(KeyError::Range);
        }
        limbs::shift_mod(&mut qinv, &p, 52 * p.len());
        Ok(RsaKey { public, halves: [Half::new(p, dp), Half::new(q, dq)], qinv })
    }

    /// The size of the modulus.
    pub fn size(&self) -> RsaSize {
        self.public.size
    }

    /// The public half.
    pub fn public(&self) -> &RsaPublicKey {
        &self.public
    }
}

impl Drop for RsaKey {
    fn drop(&mut self) {
        self.halves.zeroize();
        self.qinv.zeroize();
    }
}

impl ZeroizeOnDrop for RsaKey {}
