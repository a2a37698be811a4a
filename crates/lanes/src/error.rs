//! Why one lane failed.

/// Why one job of a call has no result. The other jobs of the call are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LaneError {
    /// An input has the wrong length, or is an integer outside its range (an RSA input not below the modulus, a
    /// scalar of zero or not below the group order).
    InputRange,
    /// A public point is not on the curve or is not encoded as an uncompressed point.
    NotOnCurve,
    /// An X25519 exchange came out as zero: the peer sent a point of small order.
    SmallOrder,
    /// An encapsulation key has the wrong length or a coefficient that is not reduced.
    EncapsulationKey,
    /// A signature does not verify.
    Signature,
    /// The result failed its own check, and was destroyed: the key's parts do not belong together, or the machine
    /// made a mistake. Redo the operation elsewhere; do not send anything derived from it.
    Fault,
    /// A case of probability below 2^-200 for honest inputs that the formulas leave out. Redo the operation elsewhere.
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
            LaneError::Exceptional => "a case the formulas leave out",
        })
    }
}

impl core::error::Error for LaneError {}
