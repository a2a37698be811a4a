//! Public-key arithmetic on eight lanes at a time.
//!
//! One vector instruction does the same step of eight different signatures or key exchanges. Every operation takes one
//! to eight jobs, with different keys and inputs, and returns a result for each: an invalid job fails alone, without
//! affecting the time or the results of the others.
//!
//! A [`Lanes`] token selects the implementation: AVX-512 IFMA if the processor has it, otherwise a portable version of
//! the same kernels, which is correct but slow. See `README.md` for measurements, and `SOUNDNESS.md` for what is
//! claimed about constant time and correctness, and which tests support it.

#![deny(unsafe_op_in_unsafe_fn)]
// Kernels are macros expanded with the index of each digit: conditions on the index are decided at compile time,
// including those of unreachable arms, which these lints take for mistakes.
#![allow(clippy::absurd_extreme_comparisons, clippy::out_of_bounds_indexing, clippy::redundant_comparisons)]
// Eight lanes are iterated by number, and a batch's result type is spelled out in its signature.
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
