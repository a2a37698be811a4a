//! Public-key arithmetic on eight lanes at a time.
//!
//! One vector instruction does the same step of eight different signatures or key exchanges. Every operation here
//! takes one to eight jobs, with different keys and different inputs, and answers for each by itself: a job that is
//! wrong fails alone, in the same time, and harms no other.
//!
//! What runs is decided by a [`Lanes`] token: AVX-512 IFMA where the processor has it, else a portable twin of the
//! same kernels, which is correct and slow. See `README.md` for measurements and `SOUNDNESS.md` for what is claimed
//! about constant time and correctness, and by which tests.

#![deny(unsafe_op_in_unsafe_fn)]
// Kernels are macros expanded with the index of each digit: conditions on it are decided while compiling, arms that
// cannot be reached among them, which to these lints look like mistakes.
#![allow(clippy::absurd_extreme_comparisons, clippy::out_of_bounds_indexing, clippy::redundant_comparisons)]
// Eight lanes are walked by their number, and a batch's result is what its signature says.
#![allow(clippy::needless_range_loop, clippy::type_complexity)]

mod cpu;
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod ctgrind;
mod declassify;
mod ec;
mod error;
mod inverse;
mod limbs;
pub mod mlkem768;
pub mod p256;
pub mod p384;
pub mod rsa;
mod secret;
mod sha2;
mod vector;
pub mod x25519;

pub use cpu::{Implementation, Lanes};
pub use error::LaneError;
pub use secret::Secret;
#[doc(hidden)]
pub use vector::portable::multiplications;

/// Lanes of a vector: the most jobs one call takes.
pub const LANES: usize = 8;
