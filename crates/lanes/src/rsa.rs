//! RSA with 2048, 3072 and 4096 bits: the private operation by the Chinese remainder theorem, and verification.
//!
//! The two half exponentiations of one key, modulo p and modulo q, are independent: they take two lanes of one pass,
//! so four signatures fill a vector, and up to four live jobs cost half of what eight cost. A pass is a state machine
//! that can be left and resumed after any step: [`RsaBatch::advance`].

mod batch;
mod key;
mod mont;
mod mont20;
mod pack;
mod verify;

pub use batch::{Progress, RsaBatch, RsaJob};
pub use key::{KeyError, RsaKey, RsaParts, RsaPublicKey, RsaSize};
pub use verify::{VerifyJob, verify_raw};
