//! Medians, and ratios with the interval in which they lie.
//!
//! A ratio is that of geometric means: the t interval of the logarithms' difference. So it is bounded whatever the noise
//! (Fieller's is not), says the same whichever side is named first, and is not fooled by few repetitions (the bootstrap of
//! five values covers 80 % where it says 95). Rates and CPU times are positive and their noise is a factor, so that their
//! logarithms are nearer to normal than they are.

use serde::{Deserialize, Serialize};

/// How many times the first is the second, in 95 of 100 repetitions of the whole experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// The interval; `None` where it cannot be known: fewer than two values on a side.
    pub interval: Option<(f64, f64)>,
    /// Values on the side that had fewer.
    pub n: usize,
}

/// Said in place of an interval that says nothing.
pub const TOO_FEW: &str = "too few rounds";

impl Ratio {
    /// Whether the data tells the two apart.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }

    /// The interval, if it says anything: one that reaches from less than half to more than twice the estimate does not.
    #[must_use]
    pub fn telling(&self) -> Option<(f64, f64)> {
        self.interval.filter(|(_, high)| *high <= 2.0 * self.value)
    }

    /// For people: `3.12 (2.95-3.30)`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.telling() {
            Some((low, high)) => format!("{:.2} ({low:.2}-{high:.2})", self.value),
            None if self.interval.is_some() => format!("{:.2} ({TOO_FEW})", self.value),
            None => format!("{:.2} (n = {})", self.value, self.n),
        }
    }
}

/// The ratio of two figures measured in turns: the rounds' own ratios carry what the machine did to both.
#[must_use]
pub fn in_pairs(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let usable = pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0);
    let logs: Vec<f64> = usable.map(|(a, b)| (a / b).ln()).collect();
    let (mean, variance) = moments(&logs)?;
    let n = logs.len();
    Some(ratio(mean, (variance / n as f64).sqrt(), n as f64 - 1.0, n))
}

/// The ratio of two figures measured apart, on two machines or at two times (Welch).
#[must_use]
pub fn apart(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let logs = |values: &[f64]| values.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect::<Vec<_>>();
    let (a, b) = (logs(a), logs(b));
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(&a)?, moments(&b)?);
    let (share_a, share_b) = (var_a / a.len() as f64, var_b / b.len() as f64);
    let freedom = (share_a + share_b).powi(2)
        / (share_a.powi(2) / (a.len() as f64 - 1.0) + share_b.powi(2) / (b.len() as f64 - 1.0));
    // Values that are all alike on both sides leave nothing to divide by.
    let freedom = if freedom.is_finite() { freedom } else { (a.len() + b.len()) as f64 - 2.0 };
    let n = a.len().min(b.len());
    Some(ratio(mean_a - mean_b, (share_a + share_b).sqrt(), freedom, n))
}

fn ratio(log: f64, error: f64, freedom: f64, n: usize) -> Ratio {
    let interval = (n >= 2).then(|| {
        let reach = student_975(freedom) * error;
        ((log - reach).exp(), (log + reach).exp())
    });
    Ratio { value: log.exp(), interval, n }
}

/// Mean and variance of a sample; `None` for an empty one.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    Some((mean, variance))
}

/// What Student's t exceeds in one of forty cases. The table has whole degrees of freedom; between them, and beyond 30, it
/// is straight over their reciprocal, to within a percent from 2 on.
fn student_975(freedom: f64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.960;
    let freedom = freedom.max(1.0);
    if freedom >= 30.0 {
        return NORMAL + (TABLE[29] - NORMAL) * 30.0 / freedom;
    }
    let below = freedom.floor();
    let at = below as usize - 1;
    let share = (1.0 / below - 1.0 / freedom) / (1.0 / below - 1.0 / (below + 1.0));
    TABLE[at] + (TABLE[at + 1] - TABLE[at]) * share
}

/// The middle value; 0 for no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Lowest and highest value; both 0 for no values.
#[must_use]
pub fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least.is_finite() { (least, most) } else { (0.0, 0.0) }
}

/// Highest less lowest, over the median.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let (least, most) = range(values);
    let middle = median(values);
    if middle > 0.0 { (most - least) / middle } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of twelve uniform numbers less six is near enough to normal.
    struct Noise(fastrand::Rng);

    impl Noise {
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0
        }
    }

    fn holds(ratio: Option<Ratio>, truth: f64) -> bool {
        ratio.unwrap().interval.is_some_and(|(low, high)| low <= truth && truth <= high)
    }

    #[test]
    fn intervals_hold_the_truth_in_95_of_100_repetitions() {
        let mut noise = Noise(fastrand::Rng::with_seed(20_261_122));
        let rounds = 4000;
        let (mut paired, mut unpaired) = (0, 0);
        for _ in 0..rounds {
            let pairs: Vec<(f64, f64)> = (0..5)
                .map(|_| {
                    // What the machine did in this round is common to both.
                    let both = (0.3 * noise.normal()).exp();
                    (3000.0 * both * (0.05 * noise.normal()).exp(), 1000.0 * both * (0.05 * noise.normal()).exp())
                })
                .collect();
            paired += u32::from(holds(in_pairs(&pairs), 3.0));
            let a: Vec<f64> = (0..4).map(|_| 3000.0 * (0.1 * noise.normal()).exp()).collect();
            let b: Vec<f64> = (0..7).map(|_| 1000.0 * (0.03 * noise.normal()).exp()).collect();
            unpaired += u32::from(holds(apart(&a, &b), 3.0));
        }
        for (name, held) in [("paired", paired), ("apart", unpaired)] {
            let share = f64::from(held) / f64::from(rounds);
            assert!((0.935..=0.965).contains(&share), "{name}: {share}");
        }
    }

    #[test]
    fn either_side_may_be_named_first() {
        let (a, b) = ([10.0, 11.0, 12.0], [5.0, 5.5, 7.0]);
        let (there, back) = (apart(&a, &b).unwrap(), apart(&b, &a).unwrap());
        assert!((there.value * back.value - 1.0).abs() < 1e-12);
        let (low, high) = (there.interval.unwrap(), back.interval.unwrap());
        assert!((low.0 * high.1 - 1.0).abs() < 1e-12 && there.differs() && back.differs());
    }

    #[test]
    fn one_value_carries_no_interval_and_none_no_ratio() {
        let one = in_pairs(&[(2.0, 1.0)]).unwrap();
        assert_eq!((one.value, one.interval, one.differs()), (2.0, None, false));
        assert_eq!(one.text(), "2.00 (n = 1)");
        assert_eq!(in_pairs(&[]), None);
        assert_eq!(apart(&[1.0], &[]), None);
        // Rates of nothing have no ratio, and no NaN.
        assert_eq!(in_pairs(&[(0.0, 1.0)]), None);
        let alike = apart(&[2.0, 2.0], &[1.0, 1.0]).unwrap();
        assert_eq!(alike.interval, Some((alike.value, alike.value)));
    }

    #[test]
    fn an_interval_that_says_nothing_is_not_shown() {
        let noisy = in_pairs(&[(3.6, 1.0), (1.44, 1.0)]).unwrap();
        assert!(noisy.interval.is_some_and(|(low, high)| low < 0.1 && high > 100.0), "{noisy:?}");
        assert_eq!((noisy.text().as_str(), noisy.telling()), ("2.28 (too few rounds)", None));
        let calm = in_pairs(&[(2.0, 1.0), (2.1, 1.0), (1.9, 1.0)]).unwrap();
        assert!(calm.telling() == calm.interval && calm.text().starts_with("2.00 (1.7"), "{}", calm.text());
    }

    #[test]
    fn the_quantile_is_that_of_the_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (4.0, 2.776), (30.0, 2.042), (60.0, 2.000), (120.0, 1.980), (1e9, 1.960)]
        {
            assert!((student_975(freedom) - expected).abs() < 0.003, "{freedom}: {}", student_975(freedom));
        }
        assert!(student_975(2.5) < 4.303 && student_975(2.5) > 3.182);
    }

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!([median(&[]), median(&[3.0, 1.0, 2.0]), median(&[1.0, 2.0])], [0.0, 2.0, 1.5]);
        assert_eq!((range(&[2.0, 1.0]), range(&[])), ((1.0, 2.0), (0.0, 0.0)));
        assert_eq!(spread(&[9.0, 10.0, 11.0]), 0.2);
    }
}
