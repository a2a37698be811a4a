//! Random numbers for spreading load: fast and uniform, but not suitable for secrets.

use std::hash::{BuildHasher, RandomState};

/// A seed that differs between processes, and between values of `id` within one; never zero.
pub fn seed(id: usize) -> u64 {
    RandomState::new().hash_one(id) | 1
}

/// The next number of xorshift64*. `state` must not be zero, and never becomes zero.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_xorshift64_star_and_spread_evenly() {
        let mut state = 1;
        // Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled": shifts 12, 25, 27.
        assert_eq!([next(&mut state), next(&mut state)], [0x47e4_ce4b_896c_dd1d, 0xabcf_a6a8_e079_651d]);
        let mut counts = [0_u32; 16];
        for _ in 0..16_000 {
            counts[(next(&mut state) >> 60) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn seeds_differ_and_are_never_zero() {
        let seeds: std::collections::HashSet<_> = (0..100).map(seed).collect();
        assert_eq!(seeds.len(), 100);
        assert!(!seeds.contains(&0));
    }
}
