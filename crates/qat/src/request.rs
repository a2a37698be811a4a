//! What a device can be asked, and how each question is laid out in a slot.

use crate::{
    abi::{
        Bool, CURVE25519, EcdsaSign, FAIL, FlatBuffer, GenericPointMultiply, Handle, MontgomeryMultiply, PRIME,
        PointMultiply, RSA_CRT, RSA_TWO_PRIME, RsaDecrypt, RsaPrivateKey, SUCCESS, Status, WeierstrassCurve,
        WeierstrassParameters,
    },
    curve::Curve,
    instance::Capabilities,
    library::Library,
    memory::{Numbers, SlotRef, answered},
};
use std::ffi::c_void;
use zeroize::Zeroizing;

/// An RSA key in the form of the Chinese remainder theorem. Big-endian, without leading zeroes.
pub struct RsaNumbers {
    /// Bytes of the modulus: 256, 384 or 512.
    pub len: usize,
    /// p, q, d mod (p-1), d mod (q-1), 1/q mod p.
    pub numbers: [Zeroizing<Vec<u8>>; 5],
}

impl RsaNumbers {
    /// The numbers of a key; `None` where the device cannot use it: another size, or primes of different lengths.
    pub fn new(modulus_len: usize, numbers: [&[u8]; 5]) -> Option<RsaNumbers> {
        let numbers = numbers.map(|n| &n[n.iter().take_while(|byte| **byte == 0).count()..]);
        let [p, q, ..] = numbers;
        let half = modulus_len / 2;
        let fits = matches!(modulus_len, 256 | 384 | 512)
            && (p.len(), q.len()) == (half, half)
            && numbers.iter().all(|number| number.len() <= half);
        fits.then(|| RsaNumbers { len: modulus_len, numbers: numbers.map(|n| Zeroizing::new(n.to_vec())) })
    }
}

/// One question.
pub enum Request<'a> {
    /// The RSA private operation on an encoded message.
    Rsa {
        /// The key to use.
        key: &'a RsaNumbers,
        /// The input: as long as the modulus, and below it.
        input: &'a [u8],
    },
    /// An ECDSA signature of a digest.
    Ecdsa {
        /// The curve to use.
        curve: Curve,
        /// The private key.
        key: &'a [u8],
        /// A fresh random [scalar](crate::is_scalar).
        nonce: &'a [u8],
        /// The digest, as long as the hash.
        digest: &'a [u8],
    },
    /// A multiple of a point, or of the curve's base point.
    Multiply {
        /// The curve to use.
        curve: Curve,
        /// The multiplier of the point.
        scalar: &'a [u8],
        /// Both coordinates, one after the other, of a point that is known to lie on the curve.
        point: Option<&'a [u8]>,
    },
    /// RFC 7748's X25519; with the base point where there is no other.
    X25519 {
        /// The scalar, little-endian, as everywhere but in the library.
        scalar: &'a [u8; 32],
        /// The peer's public key.
        point: Option<&'a [u8; 32]>,
    },
}

/// What came out: an RSA result; r and s; x and y; or X25519's x, little-endian, and nothing.
pub type Answer = [Zeroizing<Vec<u8>>; 2];

impl Request<'_> {
    /// Whether an instance can be asked this.
    pub(crate) fn is_within(&self, capabilities: Capabilities) -> bool {
        match self {
            Request::Rsa { .. } => capabilities.rsa,
            Request::Ecdsa { .. } => capabilities.ecdsa,
            Request::Multiply { .. } => capabilities.ecdh,
            Request::X25519 { .. } => capabilities.x25519,
        }
    }

    /// Writes the request into a free slot. Returns the call that submits it, which is made once for each instance
    /// that is tried.
    pub(crate) fn write(&self, slot: SlotRef) -> Call {
        let mut numbers = Numbers::new(slot);
        let at = slot.as_ptr();
        match *self {
            Request::Rsa { key, input } => {
                let half = key.len / 2;
                let crt = key.numbers.each_ref().map(|number| numbers.put(number, half));
                let key_data =
                    RsaPrivateKey { version: RSA_TWO_PRIME, form: RSA_CRT, plain: [FlatBuffer::NONE; 2], crt };
                let input = numbers.put(input, key.len);
                let output = numbers.output(key.len);
                // SAFETY: the slot is free, so all of it is ours.
                unsafe {
                    (*at).rsa_key = key_data;
                    (*at).rsa = RsaDecrypt { key: &raw const (*at).rsa_key, input };
                    (*at).outputs = [output, FlatBuffer::NONE];
                }
                Call::Rsa
            }
            Request::Ecdsa { curve, key, nonce, digest } => {
                let (parameters, len) = (curve.parameters(), curve.bytes());
                let operation = EcdsaSign {
                    base_x: numbers.put(parameters.base_x, len),
                    base_y: numbers.put(parameters.base_y, len),
                    order: numbers.put(parameters.order, len),
                    prime: numbers.put(parameters.prime, len),
                    a: numbers.put(parameters.a, len),
                    b: numbers.put(parameters.b, len),
                    nonce: numbers.put(nonce, len),
                    digest: numbers.put(digest, len),
                    private: numbers.put(key, len),
                    field: PRIME,
                };
                let outputs = [numbers.output(len), numbers.output(len)];
                // SAFETY: the slot is free, so all of it is ours.
                unsafe {
                    (*at).ecdsa = operation;
                    (*at).outputs = outputs;
                }
                Call::Ecdsa
            }
            Request::Multiply { curve, scalar, point } => {
                let (parameters, len) = (curve.parameters(), curve.bytes());
                let (x, y) =
                    point.map_or((parameters.base_x, parameters.base_y), |point| point.split_at(len.min(point.len())));
                let (scalar, x, y) = (numbers.put(scalar, len), numbers.put(x, len), numbers.put(y, len));
                let prime = numbers.put(parameters.prime, len);
                let (a, b) = (numbers.put(parameters.a, len), numbers.put(parameters.b, len));
                let cofactor = numbers.put(&[1], 1);
                let outputs = [numbers.output(len), numbers.output(len)];
                // SAFETY: the slot is free, so all of it is ours.
                unsafe {
                    let parameters = WeierstrassParameters { field: PRIME, prime, a, b, cofactor };
                    (*at).curve = WeierstrassCurve { kind: PRIME, parameters };
                    (*at).generic = GenericPointMultiply { scalar, x, y, curve: &raw const (*at).curve, generator: 0 };
                    (*at).point = PointMultiply { scalar, x, y, a, b, prime, cofactor, field: PRIME };
                    (*at).outputs = outputs;
                }
                Call::Multiply
            }
            Request::X25519 { scalar, point } => {
                let scalar = numbers.put_reversed(scalar);
                let x = point.map_or(FlatBuffer::NONE, |point| {
                    let mut point = *point;
                    // RFC 7748, 5: the top bit of a public key is ignored, so the device is not given it.
                    point[31] &= 0x7F;
                    numbers.put_reversed(&point)
                });
                let generator = Bool::from(point.is_none());
                let output = numbers.output(32);
                // SAFETY: the slot is free, so all of it is ours.
                unsafe {
                    (*at).montgomery =
                        MontgomeryMultiply { curve: CURVE25519, generator, scalar, x, y: FlatBuffer::NONE };
                    (*at).outputs = [output, FlatBuffer::NONE];
                }
                Call::X25519
            }
        }
    }
}

/// The function that a laid-out slot is for.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Rsa,
    Ecdsa,
    Multiply,
    X25519,
}

impl Call {
    /// Gives the slot to an instance.
    pub fn submit(self, library: &Library, instance: Handle, slot: SlotRef) -> Status {
        let (at, tag) = (slot.as_ptr(), slot.as_ptr().cast::<c_void>());
        // SAFETY: the slot has been laid out for this call and handed over; everything in it stays where it is until the
        // callback. The callbacks have the types the functions declare, and the instance has been started.
        unsafe {
            let (valid, first, second) =
                (&raw mut (*at).valid, (&raw mut (*at).outputs).cast::<FlatBuffer>(), &raw mut (*at).outputs[1]);
            match self {
                Call::Rsa => (library.rsa_decrypt)(instance, one, tag, &raw const (*at).rsa, first),
                Call::Ecdsa => (library.ecdsa_sign)(instance, two, tag, &raw const (*at).ecdsa, valid, first, second),
                Call::Multiply => match (library.generic_multiply, library.point_multiply) {
                    (Some(call), _) => call(instance, two, tag, &raw const (*at).generic, valid, first, second),
                    (None, Some(call)) => call(instance, two, tag, &raw const (*at).point, valid, first, second),
                    (None, None) => FAIL,
                },
                Call::X25519 => match library.montgomery_multiply {
                    // It has no second number, and the library wants none.
                    Some(call) => {
                        call(instance, two, tag, &raw const (*at).montgomery, valid, first, std::ptr::null_mut())
                    }
                    None => FAIL,
                },
            }
        }
    }

    /// Puts what the library wrote into the order the rest of the world has it in.
    pub fn answer(self, outputs: [Vec<u8>; 2]) -> Answer {
        let [mut first, second] = outputs.map(Zeroizing::new);
        if matches!(self, Call::X25519) {
            first.reverse();
        }
        [first, second]
    }
}

unsafe extern "C" fn one(tag: *mut c_void, status: Status, _: *mut c_void, _: *mut FlatBuffer) {
    // SAFETY: the tag is the slot that was submitted; the library answers a request once.
    unsafe { answered(tag, status) };
}

unsafe extern "C" fn two(
    tag: *mut c_void,
    status: Status,
    _: *mut c_void,
    valid: Bool,
    _: *mut FlatBuffer,
    _: *mut FlatBuffer,
) {
    // A result that is not valid, as of a point at infinity, is none.
    let status = if status == SUCCESS && valid == 0 { FAIL } else { status };
    // SAFETY: as above.
    unsafe { answered(tag, status) };
}
