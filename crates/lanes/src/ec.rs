//! The curves P-256 and P-384: key exchange and ECDSA, one to eight at a time. Both share one source, generic over the
//! number of limbs, and are offered as [`crate::p256`] and [`crate::p384`].

mod api;
pub(crate) mod curves;
pub(crate) mod ecdh;
pub(crate) mod ecdsa;
pub(crate) mod field;
pub(crate) mod multiply;
pub(crate) mod nonce;
pub(crate) mod point;

pub(crate) use api::api;

use crate::vector::{Digit, Kernel, Lane8, kernel};
use crate::{declassify, limbs};
use core::marker::PhantomData;
use curves::{Curve, P256, P384};
use field::{Fe, Marker, Prime, columns, constant, invert, mul, reduced, sqr, times};
use point::{Entries, Point};
use std::sync::OnceLock;

/// Converts big-endian bytes to limbs; `None` if the length is not the curve's. The value may be secret.
fn number<C: Curve<N>, const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut out = [0; N];
    (bytes.len() == C::BYTES && limbs::from_be(bytes, &mut out)).then_some(out)
}

/// A scalar from 1 to n - 1. Whether it is in this range is public.
fn scalar<C: Curve<N>, const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let scalar = number::<C, N>(bytes)?;
    let in_range = limbs::less(&scalar, &C::Order::M) & u64::from(!limbs::is_zero(&scalar));
    (declassify::public(in_range) == 1).then_some(scalar)
}

/// Packs eight numbers into one vector element, one per lane.
fn pack<V: Lane8, const N: usize>(numbers: &[[u64; N]; 8]) -> Fe<V, N> {
    let mut out = [Digit::whole(V::splat(0)); N];
    pack_into(numbers, &mut out);
    out
}

kernel! {
    fn pack_into as Pack<'a, V: Lane8, const N: usize>(numbers: &'a [[u64; N]; 8], out: &'a mut Fe<V, N>) {
        for limb in 0..N {
            let mut lanes = [0; 8];
            for lane in 0..8 {
                lanes[lane] = numbers[lane][limb];
            }
            out[limb] = Digit::whole(V::from_lanes(&lanes));
        }
    }
}

/// Unpacks one number per lane, from digits without junk.
fn unpack<V: Lane8, const N: usize>(digits: &Fe<V, N>) -> [[u64; N]; 8] {
    let mut numbers = [[0; N]; 8];
    unpack_into(digits, &mut numbers);
    numbers
}

kernel! {
    fn unpack_into as Unpack<'a, V: Lane8, const N: usize>(digits: &'a Fe<V, N>, numbers: &'a mut [[u64; N]; 8]) {
        for limb in 0..N {
            let lanes = digits[limb].value().to_lanes();
            for lane in 0..8 {
                numbers[lane][limb] = lanes[lane];
            }
        }
    }
}

/// The affine coordinates, reduced, and the lanes that have none (z = 0).
fn to_affine<V: Lane8, C: Curve<N>, const N: usize>(p: &Point<V, N>) -> (Fe<V, N>, Fe<V, N>, u8) {
    let (inverse, exceptional) = invert::<V, C::Field, N>(&p.z);
    let square = times::<V, C::Field, N>(&inverse, &inverse);
    let cube = times::<V, C::Field, N>(&square, &inverse);
    let x = times::<V, C::Field, N>(&p.x, &square);
    let y = times::<V, C::Field, N>(&p.y, &cube);
    (reduced::<V, C::Field, N>(&x), reduced::<V, C::Field, N>(&y), exceptional)
}

/// The lanes in which digits without junk are zero. As a verdict on a result this is public.
fn zero_lanes<V: Lane8, const N: usize>(a: &Fe<V, N>) -> u8 {
    declassify::public(zeros(a))
}

kernel! {
    fn zeros as Zeros<'a, V: Lane8, const N: usize>(a: &'a Fe<V, N>) -> u8 {
        let mut any = V::splat(0);
        for i in 0..N {
            any = any.or(a[i].value());
        }
        V::mask_to_bits(any.eq(V::splat(0)))
    }
}

/// The lanes where y^2 = x^3 - 3 x + b, in Montgomery's form.
fn on_curve<V: Lane8, C: Curve<N>, const N: usize>(x: &Fe<V, N>, y: &Fe<V, N>) -> u8 {
    let difference = V::enter(Equation::<V, C, N>(x, y, Marker(PhantomData)));
    zero_lanes(&reduced::<V, C::Field, N>(&difference))
}

/// `y^2 - (x^2 - 3) x - b`.
struct Equation<'a, V: Lane8, C, const N: usize>(&'a Fe<V, N>, &'a Fe<V, N>, Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for Equation<'_, V, C, N> {
    type Out = Fe<V, N>;

    #[inline(always)]
    fn run(self) -> Fe<V, N> {
        let Equation(x, y, _) = self;
        let three = columns(&constant::<V, N>(&C::THREE_FORM));
        let slope = sqr::<V, C::Field, N>(x).sub::<C::Field, 4>(three).settled::<C::Field>();
        let right = mul::<V, C::Field, N>(&slope, x).add(columns(&constant(&C::B_FORM)));
        sqr::<V, C::Field, N>(y).sub::<C::Field, 8>(right).settled::<C::Field>()
    }
}

fn small<const N: usize>(value: u64) -> [u64; N] {
    core::array::from_fn(|i| if i == 0 { value } else { 0 })
}

/// The generator's tables, computed when first used.
pub(crate) trait Table {
    fn table<V: Lane8>() -> &'static [Entries];
}

impl Table for P256 {
    fn table<V: Lane8>() -> &'static [Entries] {
        static TABLE: OnceLock<Vec<Entries>> = OnceLock::new();
        TABLE.get_or_init(point::base_table::<V, P256, 5>)
    }
}

impl Table for P384 {
    fn table<V: Lane8>() -> &'static [Entries] {
        static TABLE: OnceLock<Vec<Entries>> = OnceLock::new();
        TABLE.get_or_init(point::base_table::<V, P384, 8>)
    }
}
