//! The token that says what this processor supports: detected once, and passed to every call.

use crate::vector::{Avx512, Portable};

/// Which of the two implementations a [`Lanes`] token selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Implementation {
    /// 512-bit vectors and VPMADD52, which this crate is written for.
    Avx512Ifma,
    /// Plain Rust on arrays of eight words: the same arithmetic, some twenty times slower than `Avx512Ifma` and
    /// several times slower than a good one-at-a-time library. For tests, and for machines where nothing else runs.
    Portable,
}

impl core::fmt::Display for Implementation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Implementation::Avx512Ifma => "AVX-512 IFMA, eight lanes",
            Implementation::Portable => "portable (slow: no AVX-512 IFMA on this processor, or not asked for)",
        })
    }
}

/// Proof that the processor's features were detected. Every operation takes one.
///
/// Only [`Lanes::detect`] can make a token for AVX-512, and only after both the processor and the operating system
/// report support; the private field is what makes the vector code sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes(Implementation);

impl Lanes {
    /// The fastest implementation that this processor can run.
    pub fn detect() -> Lanes {
        #[cfg(target_arch = "x86_64")]
        {
            let all = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512ifma")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("bmi2");
            if all {
                return Lanes(Implementation::Avx512Ifma);
            }
        }
        Lanes(Implementation::Portable)
    }

    /// The portable implementation, on any processor.
    pub const fn portable() -> Lanes {
        Lanes(Implementation::Portable)
    }

    /// Which implementation this token selects.
    pub const fn implementation(self) -> Implementation {
        self.0
    }

    /// Whether this token selects the vector implementation: without it the operations are correct, but a
    /// one-at-a-time library is faster and should be preferred.
    pub const fn is_accelerated(self) -> bool {
        matches!(self.0, Implementation::Avx512Ifma)
    }

    /// Clears the vector registers, so that nothing of a computation remains in them.
    pub(crate) fn clear_registers(self) {
        #[cfg(target_arch = "x86_64")]
        if self.is_accelerated() {
            // SAFETY: a token of this kind exists only after `detect` found the features.
            unsafe { crate::vector::avx512::clear_registers() }
        }
    }

    /// Runs `task` on the vector type this token selects, then clears the vector registers.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Out {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512Ifma => {
                let out = task.run::<Avx512>();
                self.clear_registers();
                out
            }
            _ => task.run::<Portable>(),
        }
    }
}

/// Work to be done on whichever vector type a token selects.
pub(crate) trait Task {
    type Out;
    fn run<V: crate::vector::Lane8>(self) -> Self::Out;
}
