//! Why one lane failed.

/// Why one job of a call has no result. The other jobs of the call are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LaneError {
    /// An input has the wrong length or is an integer outside its range (an RSA input not below the modulus, a scalar
    /// of zero or not below the group order), or the RSA key's size differs from the first one of its call.
    InputRange,
    /// A public point is not on the curve or is not encoded as an uncompressed point.
    NotOnCurve,
    /// An X25519 exchange resulted in zero: the peer sent a point of small order.
    SmallOrder,
    /// An encapsulation key has the wrong length or a coefficient that is not reduced.
    EncapsulationKey,
    /// A signature does not verify.
    Signature,
    /// The result failed its own check and was destroyed: the parts of the key do not match, or the machine made an
    /// error. Redo the operation elsewhere; do not send anything derived from it.
    Fault,
    /// The nonce's first candidate was out of range (once in 2^32 signatures with P-256, never in practice with P-384),
    /// or a part of the signature was zero. Sign again with other random bytes, or elsewhere.
    Exceptional,
}

impl core::fmt::Display for LaneError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LaneError::InputRange => "an input is out of range",
            LaneError::NotOnCurve => "the public key is not a point of the curve",
            LaneError::SmallOrder => "the peer's point has small order",
            LaneError::EncapsulationKey => "the encapsulation key has the wrong length or is not reduced",
            LaneError::Signature => "the signature does not verify",
            LaneError::Fault => "the result failed its own check",
            LaneError::Exceptional => "no signature from this nonce: sign again",
        })
    }
}

impl core::error::Error for LaneError {}
