//! Key exchange: public keys of scalars, and shared secrets (the x-coordinate, as TLS uses it).

use super::curves::Curve;
use super::field::{Prime, constant, invert, reduced, replace, times};
use super::multiply::multiply;
use super::point::{Digits, multiply_base};
use super::{Table, number, on_curve, pack, scalar, small, to_affine, unpack};
use crate::cpu::Task;
use crate::vector::Lane8;
use crate::{LANES, LaneError, Secret, limbs};
use core::marker::PhantomData;
use zeroize::Zeroize;

pub(crate) struct Derive<'a, C, const N: usize, const BYTES: usize> {
    /// For each job, our scalar and the peer's point.
    pub(crate) jobs: &'a [(&'a [u8; BYTES], &'a [u8])],
    pub(crate) curve: PhantomData<C>,
}

impl<C: Curve<N>, const N: usize, const BYTES: usize> Task for Derive<'_, C, N, BYTES> {
    type Out = Vec<Result<Secret<BYTES>, LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let mut errors = [None; LANES];
        let mut scalars = [small::<N>(1); LANES];
        // Lanes without a job, or with an invalid one, multiply the generator.
        let (mut xs, mut ys) = ([C::X; LANES], [C::Y; LANES]);
        for (lane, (secret, peer)) in self.jobs.iter().enumerate() {
            match scalar::<C, N>(*secret) {
                Some(scalar) => scalars[lane] = scalar,
                None => errors[lane] = Some(LaneError::InputRange),
            }
            match coordinates::<C, N>(peer) {
                Some((x, y)) => (xs[lane], ys[lane]) = (x, y),
                None => errors[lane] = Some(LaneError::NotOnCurve),
            }
        }
        let r2 = constant(&C::Field::R2);
        let mut x = times::<V, C::Field, N>(&pack(&xs), &r2);
        let mut y = times::<V, C::Field, N>(&pack(&ys), &r2);
        let off = !on_curve::<V, C, N>(&x, &y);
        for (lane, error) in errors.iter_mut().enumerate().take(self.jobs.len()) {
            if off >> lane & 1 == 1 {
                *error = Some(LaneError::NotOnCurve);
            }
        }
        replace::<V, N>(&mut x, V::mask_from_bits(off), &C::X_FORM);
        replace::<V, N>(&mut y, V::mask_from_bits(off), &C::Y_FORM);
        let digits = Digits::<V>::new::<C, N>(&scalars);
        let [mut x, mut z] = multiply::<V, C, N>(&digits, &x, &y);
        let (mut inverse, exceptional) = invert::<V, C::Field, N>(&z);
        let mut square = times::<V, C::Field, N>(&inverse, &inverse);
        let mut quotient = times::<V, C::Field, N>(&x, &square);
        let mut shared = unpack(&reduced::<V, C::Field, N>(&quotient));
        let out = (0..self.jobs.len())
            .map(|lane| {
                if let Some(error) = errors[lane] {
                    return Err(error);
                }
                if exceptional >> lane & 1 == 1 {
                    return Err(LaneError::Fault);
                }
                let mut bytes = [0; BYTES];
                limbs::to_be(&shared[lane], &mut bytes);
                Ok(Secret::new(bytes))
            })
            .collect();
        for secret in [&mut x, &mut z, &mut inverse, &mut square, &mut quotient] {
            secret.zeroize();
        }
        scalars.zeroize();
        shared.zeroize();
        out
    }
}

/// The coordinates of an uncompressed point, each below p.
fn coordinates<C: Curve<N>, const N: usize>(point: &[u8]) -> Option<([u64; N], [u64; N])> {
    let (&4, rest) = point.split_first()? else { return None };
    if rest.len() != 2 * C::BYTES {
        return None;
    }
    let (x, y) = rest.split_at(C::BYTES);
    let (x, y) = (number::<C, N>(x)?, number::<C, N>(y)?);
    (limbs::less(&x, &C::Field::M) & limbs::less(&y, &C::Field::M) == 1).then_some((x, y))
}

pub(crate) struct PublicKeys<'a, C, const N: usize, const BYTES: usize, const POINT: usize> {
    pub(crate) scalars: &'a [&'a [u8; BYTES]],
    pub(crate) curve: PhantomData<C>,
}

impl<C: Curve<N> + Table, const N: usize, const BYTES: usize, const POINT: usize> Task
    for PublicKeys<'_, C, N, BYTES, POINT>
{
    type Out = Vec<Result<[u8; POINT], LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let table = C::table::<V>();
        let mut bad = 0u8;
        let mut scalars = [small::<N>(1); LANES];
        for (lane, secret) in self.scalars.iter().enumerate() {
            match scalar::<C, N>(*secret) {
                Some(scalar) => scalars[lane] = scalar,
                None => bad |= 1 << lane,
            }
        }
        let digits = Digits::<V>::of_base::<C, N>(&scalars);
        scalars.zeroize();
        let mut product = multiply_base::<V, C, N>(&digits, table);
        let (x, y, exceptional) = to_affine::<V, C, N>(&product);
        let (x, y) = (unpack(&x), unpack(&y));
        // Only the affine coordinates are public; the projective ones are not.
        for secret in [&mut product.x, &mut product.y, &mut product.z] {
            secret.zeroize();
        }
        (0..self.scalars.len())
            .map(|lane| {
                if bad >> lane & 1 == 1 {
                    return Err(LaneError::InputRange);
                }
                if exceptional >> lane & 1 == 1 {
                    return Err(LaneError::Fault);
                }
                let mut point = [0; POINT];
                point[0] = 4;
                limbs::to_be(&x[lane], &mut point[1..1 + BYTES]);
                limbs::to_be(&y[lane], &mut point[1 + BYTES..]);
                Ok(point)
            })
            .collect()
    }
}
