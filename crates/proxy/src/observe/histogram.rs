//! Histograms of times, with four buckets for each doubling, so that percentiles are accurate to an eighth.
//!
//! Each worker writes its own, and allocates it when a time first exceeds the first bucket: until then it takes only a
//! counter.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// 64 µs, four for each doubling up to 2^26 µs, which is 67 s, and one for what takes longer.
const BUCKETS: usize = 2 + 4 * (POWER_END - POWER) as usize;
const POWER: u32 = 6;
const POWER_END: u32 = 26;

/// A histogram of the times that one worker measured.
#[derive(Debug, Default)]
pub struct Histogram {
    /// The count of the first bucket.
    short: AtomicU32,
    buckets: OnceLock<Box<[AtomicU32; BUCKETS]>>,
}

impl Histogram {
    /// Adds a time, in microseconds.
    pub fn push(&self, us: u64) {
        let cell = match bucket(us) {
            0 => &self.short,
            bucket => &self.buckets.get_or_init(|| Box::new([const { AtomicU32::new(0) }; BUCKETS]))[bucket],
        };
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

fn bucket(us: u64) -> usize {
    let power = us.checked_ilog2().unwrap_or(0);
    match power {
        0..POWER => 0,
        POWER..POWER_END => 1 + 4 * (power - POWER) as usize + (us >> (power - 2) & 3) as usize,
        _ => BUCKETS - 1,
    }
}

/// The lower bound of a bucket, in microseconds.
fn floor(bucket: usize) -> u64 {
    let Some(place) = bucket.checked_sub(1) else { return 0 };
    (4 + place as u64 % 4) << (POWER as usize - 2 + place / 4)
}

/// The sum of several histograms, at one moment or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally([u32; BUCKETS]);

impl Default for Tally {
    fn default() -> Self {
        Tally([0; BUCKETS])
    }
}

impl Tally {
    /// Adds one worker's histogram. Counts wrap around, as they do in the histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        self.0[0] = self.0[0].wrapping_add(histogram.short.load(Relaxed));
        let Some(buckets) = histogram.buckets.get() else { return };
        for (sum, bucket) in self.0.iter_mut().zip(buckets.iter()).skip(1) {
            *sum = sum.wrapping_add(bucket.load(Relaxed));
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Tally) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
    }

    /// The difference from an earlier sum.
    pub fn since(&self, earlier: &Tally) -> Tally {
        Tally(std::array::from_fn(|at| self.0[at].wrapping_sub(earlier.0[at])))
    }

    /// Whether no time has been counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// The time, in microseconds, that this share of the times stays below; `None` if there are none. The first bucket counts
    /// as zero.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = all as f64 * share;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (low, high) = (floor(bucket) as f64, floor((bucket + 1).min(BUCKETS - 1)) as f64);
                return Some(if bucket == 0 { 0.0 } else { low + (high - low) * ((wanted - below) / count) });
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_the_bucket_whose_floor_is_not_above_it() {
        for us in (0..200_000).chain([1 << 25, (1 << 26) - 1, 1 << 26, u64::MAX]) {
            let at = bucket(us);
            assert!(floor(at) <= us && (at + 1 == BUCKETS || us < floor(at + 1)), "{us} in {at}");
        }
        assert_eq!((bucket(63), bucket(64), floor(1), floor(BUCKETS - 1)), (0, 1, 64, 1 << 26));
    }

    #[test]
    fn a_percentile_is_known_to_an_eighth_of_itself() {
        let (histogram, mut tally) = (Histogram::default(), Tally::default());
        (1..=10_000).for_each(|n| histogram.push(n * 100));
        tally.add(&histogram);
        for (share, exact) in [(0.01, 10_000.0), (0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = tally.quantile(share).unwrap();
            assert!((found - exact).abs() <= exact / 8.0, "{share}: {found} for {exact}");
        }
    }

    #[test]
    fn what_came_between_two_moments_is_seen_over_the_turn_of_a_count() {
        let histogram = Histogram::default();
        histogram.short.store(u32::MAX, Relaxed);
        let (mut before, mut now) = (Tally::default(), Tally::default());
        before.add(&histogram);
        [0, 1000].iter().for_each(|us| histogram.push(*us));
        now.add(&histogram);
        let between = now.since(&before);
        assert_eq!(between.0.iter().sum::<u32>(), 2);
        assert_eq!(between.quantile(0.5), Some(0.0));
        assert!((896.0..=1024.0).contains(&between.quantile(0.99).unwrap()));
        assert!(now.since(&now).is_empty() && now.since(&now).quantile(0.5).is_none());
    }

    #[test]
    fn who_is_never_waited_for_has_no_buckets() {
        let histogram = Histogram::default();
        (0..1000).for_each(|_| histogram.push(0));
        assert!(histogram.buckets.get().is_none());
    }
}
