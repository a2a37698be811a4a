//! Latencies, in buckets that never lose more than a thousandth of a value and that add up exactly.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Three significant digits.
const DIGITS: u8 = 3;

/// The longest time that is told apart, µs: an hour. What is longer counts as this.
const LONGEST_US: u64 = 3_600_000_000;

/// Times, by the microsecond. As JSON it is its summary and its buckets (`[µs, how many]`), from which it is read again:
/// merging the histograms of several machines loses nothing.
#[derive(Clone, Debug)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        let buckets = hdrhistogram::Histogram::new_with_max(LONGEST_US, DIGITS);
        Histogram(buckets.expect("three digits and a maximum above two are within the crate's bounds"))
    }
}

impl Histogram {
    /// Counts one time.
    pub fn record(&mut self, time: Duration) {
        self.record_n(u64::try_from(time.as_micros()).unwrap_or(LONGEST_US), 1);
    }

    /// Counts `n` values of `us` microseconds.
    pub fn record_n(&mut self, us: u64, n: u64) {
        // The value is within bounds, and a counter has 64 bits.
        let _ = self.0.record_n(us.min(LONGEST_US), n);
    }

    /// Adds what another one holds, bucket by bucket.
    pub fn merge(&mut self, other: &Histogram) {
        // Both have the same bounds and digits.
        let _ = self.0.add(&other.0);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that `percent` of all (99.9, say) do not exceed, µs; 0 where there are none.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(percent / 100.0).min(self.0.max()) }
    }

    /// The mean, µs.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.0.mean()
    }

    /// The standard deviation, µs.
    #[must_use]
    pub fn deviation_us(&self) -> f64 {
        self.0.stdev()
    }

    /// The shortest time, µs.
    #[must_use]
    pub fn min_us(&self) -> u64 {
        self.0.min()
    }

    /// The longest time, µs.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.0.max()
    }

    /// The share of times within `deviations` standard deviations of the mean, of 1.
    #[must_use]
    pub fn within(&self, deviations: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let (mean, reach) = (self.0.mean(), self.0.stdev() * deviations);
        let inside: u64 = self
            .0
            .iter_recorded()
            .filter(|bucket| (bucket.value_iterated_to() as f64 - mean).abs() <= reach)
            .map(|bucket| bucket.count_at_value())
            .sum();
        inside as f64 / self.0.len() as f64
    }

    /// The buckets that hold something: the longest time of each, µs, and how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// What is written; only the buckets are read back.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Written {
    count: u64,
    min_us: u64,
    mean_us: f64,
    deviation_us: f64,
    p50_us: u64,
    p75_us: u64,
    p90_us: u64,
    p99_us: u64,
    p99_9_us: u64,
    max_us: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written {
            count: self.count(),
            min_us: self.min_us(),
            mean_us: self.mean_us(),
            deviation_us: self.deviation_us(),
            p50_us: self.percentile_us(50.0),
            p75_us: self.percentile_us(75.0),
            p90_us: self.percentile_us(90.0),
            p99_us: self.percentile_us(99.0),
            p99_9_us: self.percentile_us(99.9),
            max_us: self.max_us(),
            buckets: self.buckets().collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Histogram::default();
        for (us, n) in Written::deserialize(deserializer)?.buckets {
            histogram.record_n(us, n);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        times.into_iter().for_each(|us| histogram.record(Duration::from_micros(us)));
        histogram
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let histogram = of(1..=1000);
        assert_eq!([50.0, 99.0, 100.0].map(|p| histogram.percentile_us(p)), [500, 990, 1000]);
        assert_eq!((histogram.min_us(), histogram.max_us(), histogram.count()), (1, 1000, 1000));
        assert_eq!(Histogram::default().percentile_us(99.0), 0);
    }

    #[test]
    fn merged_through_json_is_the_same_as_recorded_together() {
        let (a, b) = (of((0..5000).map(|n| n * n)), of((0..300).map(|n| n * 7919)));
        let mut merged = Histogram::default();
        for part in [&a, &b] {
            let text = serde_json::to_string(part).unwrap();
            merged.merge(&serde_json::from_str(&text).unwrap());
        }
        let mut together = a.clone();
        together.merge(&b);
        assert_eq!(merged, together);
        // Percentiles of the parts, averaged, would be something else.
        assert_ne!(merged.percentile_us(50.0), u64::midpoint(a.percentile_us(50.0), b.percentile_us(50.0)));
    }

    #[test]
    fn an_hour_and_more_is_counted_as_an_hour() {
        let histogram = of([LONGEST_US * 5]);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.max_us().abs_diff(LONGEST_US) < LONGEST_US / 1000);
    }
}
