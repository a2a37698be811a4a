//! The curves of the device's Weierstrass calls, whose parameters go with every request (SEC 2, 2.4.2 and 2.5.1).

/// A curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Curve {
    P256,
    P384,
}

/// Big-endian, all of the curve's length.
pub(crate) struct Parameters {
    pub prime: &'static [u8],
    pub a: &'static [u8],
    pub b: &'static [u8],
    pub order: &'static [u8],
    pub base_x: &'static [u8],
    pub base_y: &'static [u8],
}

impl Curve {
    /// Bytes of a coordinate, and of a scalar.
    pub const fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }

    pub(crate) const fn parameters(self) -> &'static Parameters {
        match self {
            Curve::P256 => &P256,
            Curve::P384 => &P384,
        }
    }
}

/// Whether `number` is a private key of the curve: between 1 and its order, which a random number is but for one in 2^32
/// (P-256). The comparison ends at the first byte that differs from the order's, whose leading ones are all ones: what its
/// time tells of a number that is accepted is how many leading bytes are 0xFF, which is hardly ever one.
pub fn is_scalar(curve: Curve, number: &[u8]) -> bool {
    number.len() == curve.bytes() && number.iter().any(|byte| *byte != 0) && number < curve.parameters().order
}

macro_rules! hex {
    ($text:literal) => {{
        const BYTES: [u8; $text.len() / 2] = {
            const fn digit(c: u8) -> u8 {
                if c <= b'9' { c - b'0' } else { c - b'a' + 10 }
            }
            let (text, mut bytes, mut at) = ($text.as_bytes(), [0; $text.len() / 2], 0);
            while at < bytes.len() {
                bytes[at] = digit(text[2 * at]) << 4 | digit(text[2 * at + 1]);
                at += 1;
            }
            bytes
        };
        &BYTES
    }};
}

static P256: Parameters = Parameters {
    prime: hex!("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"),
    a: hex!("ffffffff00000001000000000000000000000000fffffffffffffffffffffffc"),
    b: hex!("5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b"),
    order: hex!("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
    base_x: hex!("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
    base_y: hex!("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
};

static P384: Parameters = Parameters {
    prime: hex!("fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff"),
    a: hex!("fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000fffffffc"),
    b: hex!("b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef"),
    order: hex!("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"),
    base_x: hex!("aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7"),
    base_y: hex!("3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_lies_between_nothing_and_the_order() {
        for curve in [Curve::P256, Curve::P384] {
            let order = curve.parameters().order;
            let mut below = order.to_vec();
            *below.last_mut().unwrap() -= 1;
            assert!(is_scalar(curve, &below) && !is_scalar(curve, order));
            assert!(!is_scalar(curve, &vec![0; curve.bytes()]) && !is_scalar(curve, &[1]));
        }
    }
}
