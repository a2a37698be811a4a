//! The constants of P-256 and P-384 (FIPS 186-4, appendix D.1.2), as limbs.

use super::field::{Cols, Prime, shifted};
use crate::vector::Vector;

/// y^2 = x^3 - 3 x + b over a prime field, with a prime number of points.
pub(crate) trait Curve<const N: usize>: Copy + Send + Sync + 'static {
    type Field: Prime<N>;
    type Order: Prime<N>;
    const B: [u64; N];
    const X: [u64; N];
    const Y: [u64; N];
    /// 3, b and the generator in Montgomery's form.
    const THREE_FORM: [u64; N] = shifted(&three(), 52 * N, &Self::Field::M);
    const B_FORM: [u64; N] = shifted(&Self::B, 52 * N, &Self::Field::M);
    const X_FORM: [u64; N] = shifted(&Self::X, 52 * N, &Self::Field::M);
    const Y_FORM: [u64; N] = shifted(&Self::Y, 52 * N, &Self::Field::M);
    /// Bytes of a coordinate and of a scalar.
    const BYTES: usize;
    /// Bits per digit when the generator is multiplied: the table has `2^(width - 1)` points per digit.
    const BASE_WIDTH: usize;
}

const fn three<const N: usize>() -> [u64; N] {
    let mut three = [0; N];
    three[0] = 3;
    three
}

/// The field of P-256.
#[derive(Clone, Copy)]
pub(crate) struct P256Field;
/// The order of P-256.
#[derive(Clone, Copy)]
pub(crate) struct P256Order;
/// The field of P-384.
#[derive(Clone, Copy)]
pub(crate) struct P384Field;
/// The order of P-384.
#[derive(Clone, Copy)]
pub(crate) struct P384Order;
/// NIST's curve of 256 bits, secp256r1.
#[derive(Clone, Copy)]
pub(crate) struct P256;
/// NIST's curve of 384 bits, secp384r1.
#[derive(Clone, Copy)]
pub(crate) struct P384;

impl Prime<5> for P256Field {
    const M: [u64; 5] = [0xfffffffffffff, 0xfffffffffff, 0x0, 0x1000000000, 0xffffffff0000];

    /// Subtracts `t = c4 / 2^48 - FROM` multiples of `p = 2^256 - 2^224 + 2^192 + 2^96 - 1`. The top column then lies
    /// in `FROM 2^48..(FROM + 1) 2^48`; for `FROM = 0` it is at least 2^16, so that no carry from below makes the sum
    /// negative.
    #[inline(always)]
    fn settle<V: Vector, const FROM: u64>(Cols(mut c): Cols<V, 5>) -> Cols<V, 5> {
        let mut t = c[4].sar::<48>();
        c[4] = c[4].and(V::splat((1 << 48) - 1));
        if FROM > 0 {
            t = t.sub(V::splat(FROM));
            c[4] = c[4].add(V::splat(FROM << 48));
        }
        c[0] = c[0].add(t);
        c[1] = c[1].sub(t.shl::<44>());
        c[3] = c[3].sub(t.shl::<36>());
        c[4] = c[4].add(t.shl::<16>());
        Cols(c)
    }
}

impl Prime<5> for P256Order {
    const M: [u64; 5] = [0x9cac2fc632551, 0xada7179e84f3b, 0xfffffffbce6fa, 0xfffffffff, 0xffffffff0000];
}

impl Prime<8> for P384Field {
    const M: [u64; 8] = [
        0xffffffff,
        0xff00000000000,
        0xffffffeffffff,
        0xfffffffffffff,
        0xfffffffffffff,
        0xfffffffffffff,
        0xfffffffffffff,
        0xfffff,
    ];

    const SMALL: u64 = 4;

    /// Subtracts `t = c7 / 2^20 - FROM` multiples of `p = 2^384 - 2^128 - 2^96 + 2^32 - 1`. The top column then lies in
    /// `FROM 2^20..(FROM + 1) 2^20`; for `FROM = 0`, t is at least one, so that no carry from below makes the sum
    /// negative.
    #[inline(always)]
    fn settle<V: Vector, const FROM: u64>(Cols(mut c): Cols<V, 8>) -> Cols<V, 8> {
        let mut t = c[7].sar::<20>();
        c[7] = c[7].and(V::splat((1 << 20) - 1));
        if FROM > 0 {
            t = t.sub(V::splat(FROM));
            c[7] = c[7].add(V::splat(FROM << 20));
        }
        c[0] = c[0].add(t).sub(t.shl::<32>());
        c[1] = c[1].add(t.shl::<44>());
        c[2] = c[2].add(t.shl::<24>());
        Cols(c)
    }
}

impl Prime<8> for P384Order {
    const M: [u64; 8] = [
        0xc196accc52973,
        0xb248b0a77aece,
        0x4372ddf581a0d,
        0xffffc7634d81f,
        0xfffffffffffff,
        0xfffffffffffff,
        0xfffffffffffff,
        0xfffff,
    ];
}

impl Curve<5> for P256 {
    type Field = P256Field;
    type Order = P256Order;
    const B: [u64; 5] = [0xe3c3e27d2604b, 0xb0cc53b0f63bc, 0x69886bc651d06, 0x93e7b3ebbd557, 0x5ac635d8aa3a];
    const X: [u64; 5] = [0x13945d898c296, 0x812deb33a0f4a, 0x3a440f277037d, 0x4247f8bce6e56, 0x6b17d1f2e12c];
    const Y: [u64; 5] = [0x6406837bf51f5, 0x576b315ececbb, 0xc0f9e162bce33, 0x7f9b8ee7eb4a7, 0x4fe342e2fe1a];
    const BYTES: usize = 32;
    const BASE_WIDTH: usize = 6;
}

impl Curve<8> for P384 {
    type Field = P384Field;
    type Order = P384Order;
    const B: [u64; 8] = [
        0x5c8edd3ec2aef,
        0x8d8a2ed19d2a8,
        0x13875ac65639,
        0x41120314088f5,
        0x9181d9c6efe81,
        0x8e056be3f82d1,
        0xfa7e23ee7e498,
        0xb3312,
    ];
    const X: [u64; 8] = [
        0x45e3872760ab7,
        0x5dbf55296c3a5,
        0x2542a385502f2,
        0x9b9859f741e08,
        0x46e1d3b628ba7,
        0xb1c71ef320ad7,
        0xa22be8b05378e,
        0xaa87c,
    ];
    const Y: [u64; 8] = [
        0x31d7c90ea0e5f,
        0xce1d7e819d7a4,
        0x5f0b8c00a60b1,
        0x147ce9da3113b,
        0x9f8f41dbd289a,
        0x9e98bf9292dc2,
        0xe4a96262c6f5d,
        0x3617d,
    ];
    const BYTES: usize = 48;
    const BASE_WIDTH: usize = 5;
}
