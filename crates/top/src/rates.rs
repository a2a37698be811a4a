//! Rates, computed from two samples and the time between them.

use crate::sample::{Sample, Series};

/// The samples that a view is rendered from.
pub(crate) struct Rates<'a> {
    pub before: &'a Sample,
    pub now: &'a Sample,
    /// The time between the samples, in seconds.
    pub between: f64,
}

impl Rates<'_> {
    /// How much a counter has grown. A counter that is smaller than before has restarted, so its whole value counts.
    pub fn grown(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        let Some(now) = self.now.value(metric, labels) else { return 0.0 };
        let before = self.before.value(metric, labels).unwrap_or(0.0);
        if now < before { now } else { now - before }
    }

    /// How much a counter has grown per second.
    pub fn rate(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.grown(metric, labels) / self.between
    }

    /// The value of a gauge; `None` if it is missing or not a finite number.
    pub fn gauge(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.now.value(metric, labels).filter(|value| value.is_finite())
    }

    /// The upper bound of each bucket of a histogram, and how much that bucket alone has grown; the last bound is infinite.
    pub fn buckets(&self, metric: &str, labels: &[(&str, &str)]) -> Vec<(f64, f64)> {
        let fits = |series: &&Series| labels.iter().all(|(name, value)| series.label(name) == *value);
        let mut under = 0.0;
        let buckets = self.now.all(metric).iter().filter(fits).map(|series| {
            let le = series.label("le");
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", le)]).collect();
            let total = self.grown(metric, &labels);
            let own = total - std::mem::replace(&mut under, total);
            (le.parse().unwrap_or(f64::INFINITY), own.max(0.0))
        });
        buckets.collect()
    }
}

/// The bucket bound that this share of the counted values stays below; `None` if there are none.
pub(crate) fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let all: f64 = buckets.iter().map(|(_, count)| count).sum();
    let mut sum = 0.0;
    let reached = |(_, count): &&(f64, f64)| {
        sum += count;
        sum >= all * share
    };
    buckets.iter().find(reached).filter(|_| all > 0.0).map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_anew_do_not_run_backwards() {
        let (before, now) = (Sample::parse("a 100\nb 5\n"), Sample::parse("a 7\nb 25\nc 4\n"));
        let rates = Rates { before: &before, now: &now, between: 2.0 };
        assert_eq!([rates.rate("a", &[]), rates.rate("b", &[]), rates.rate("c", &[])], [3.5, 10.0, 2.0]);
        assert_eq!(rates.gauge("d", &[]), None);
    }

    #[test]
    fn buckets_are_told_apart_and_quantiles_are_their_bounds() {
        let text = |a, b, c| format!("h{{le=\"1\"}} {a}\nh{{le=\"2\"}} {b}\nh{{le=\"+Inf\"}} {c}\n");
        let (before, now) = (Sample::parse(&text(1, 1, 1)), Sample::parse(&text(3, 99, 101)));
        let rates = Rates { before: &before, now: &now, between: 1.0 };
        let buckets = rates.buckets("h", &[]);
        assert_eq!(buckets, [(1.0, 2.0), (2.0, 96.0), (f64::INFINITY, 2.0)]);
        assert_eq!(
            [0.02, 0.5, 0.98, 0.99].map(|share| quantile(&buckets, share)),
            [1.0, 2.0, 2.0, f64::INFINITY].map(Some)
        );
        assert_eq!(quantile(&[(1.0, 0.0)], 0.5), None);
    }
}
