//! The public interface of a curve: a macro that generates both [`crate::p256`] and [`crate::p384`].

/// The public operations on `$curve` with `$hash`, whose numbers have `$limbs` limbs and `$bytes` bytes.
macro_rules! api {
    ($curve:ident, $hash:ident, $limbs:literal, $bytes:literal) => {
        use crate::ec::curves::$curve;
        use crate::ec::{ecdh, ecdsa};
        use crate::sha2::$hash;
        use crate::{LANES, LaneError, Lanes, Secret};
        use core::marker::PhantomData;

        pub use crate::ec::ecdsa::{Presignature, SignJob};

        /// Bytes of a scalar, of a coordinate, and of each half of a signature.
        pub const BYTES: usize = $bytes;
        /// Bytes of an uncompressed point.
        pub const POINT: usize = 1 + 2 * BYTES;

        /// One exchange: our scalar and the peer's point.
        #[derive(Clone, Copy)]
        pub struct DeriveJob<'a> {
            /// Our private scalar, big-endian, from 1 to n - 1.
            pub scalar: &'a [u8; BYTES],
            /// The peer's point, uncompressed (SEC 1, section 2.3.3): it is checked to be on the curve.
            pub peer: &'a [u8],
        }

        /// The shared x-coordinates of one to eight exchanges. Panics unless there are 1 to 8 jobs.
        pub fn derive(lanes: Lanes, jobs: &[DeriveJob<'_>]) -> Vec<Result<Secret<BYTES>, LaneError>> {
            assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
            let jobs: Vec<_> = jobs.iter().map(|job| (job.scalar, job.peer)).collect();
            lanes.run(ecdh::Derive::<$curve, $limbs, BYTES> { jobs: &jobs, curve: PhantomData })
        }

        /// The public points, uncompressed, of one to eight private scalars from 1 to n - 1, big-endian. Panics unless there
        /// are 1 to 8.
        pub fn public_keys(lanes: Lanes, scalars: &[&[u8; BYTES]]) -> Vec<Result<[u8; POINT], LaneError>> {
            assert!((1..=LANES).contains(&scalars.len()), "a call takes 1 to 8 scalars");
            lanes.run(ecdh::PublicKeys::<$curve, $limbs, BYTES, POINT> { scalars, curve: PhantomData })
        }

        /// Signs one to eight digests: r and s, big-endian. Panics unless there are 1 to 8 jobs whose random parts have one
        /// length.
        pub fn sign(lanes: Lanes, jobs: &[SignJob<'_, BYTES>]) -> Vec<Result<([u8; BYTES], [u8; BYTES]), LaneError>> {
            assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
            lanes.run(ecdsa::Sign::<$curve, $hash, $limbs, BYTES> { jobs, curve: PhantomData })
        }

        /// The part of one to eight signatures that can be computed before there is a message, from uniformly random
        /// scalars below n (a bias of a few bits reveals the key: reject, do not reduce). Stored nonces are a risk
        /// that [`sign`] does not have: each may be used only once, and none may survive a fork. Panics unless there
        /// are 1 to 8.
        pub fn presign(lanes: Lanes, randoms: &[&[u8; BYTES]]) -> Vec<Result<Presignature<BYTES>, LaneError>> {
            assert!((1..=LANES).contains(&randoms.len()), "a call takes 1 to 8 scalars");
            lanes.run(ecdsa::Presign::<$curve, $limbs, BYTES> { randoms, curve: PhantomData })
        }

        /// Completes signatures, consuming the presignatures: each job is a presignature, a key and a digest. Panics
        /// unless there are 1 to 8 jobs.
        pub fn sign_presigned(
            lanes: Lanes,
            jobs: Vec<(Presignature<BYTES>, &[u8; BYTES], &[u8])>,
        ) -> Vec<Result<([u8; BYTES], [u8; BYTES]), LaneError>> {
            assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
            lanes.run(ecdsa::Finish::<$curve, $limbs, BYTES> { jobs, curve: PhantomData })
        }
    };
}
pub(crate) use api;
