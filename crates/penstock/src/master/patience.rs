//! When a worker that died is replaced (pure): at once, after a pause, or never.

use std::time::Duration;

/// A worker that served for less than this counts as failed.
const STEADY: Duration = Duration::from_secs(1);

/// After this many failures in a row no more workers are started; the pauses add up to 6.3 s.
const FAILURES_MAX: u32 = 8;

/// The pause after the second failure in a row; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The reaction to a worker's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start another one after this time.
    Replace(Duration),
    /// Give up, since this many in a row have failed.
    GiveUp(u32),
}

/// Counts workers that failed in a row.
#[derive(Debug, Default)]
pub struct Patience {
    failures: u32,
}

impl Patience {
    /// Records that a worker has ended after serving for this long; `None` if it never did.
    pub fn after(&mut self, served: Option<Duration>) -> Verdict {
        if served.is_some_and(|served| served >= STEADY) {
            self.failures = 0;
            return Verdict::Replace(Duration::ZERO);
        }
        self.failures += 1;
        match self.failures {
            1 => Verdict::Replace(Duration::ZERO),
            FAILURES_MAX.. => Verdict::GiveUp(self.failures),
            again => Verdict::Replace(FIRST_PAUSE * 2u32.pow(again - 2)),
        }
    }

    /// Starts counting anew, since the configuration has changed.
    pub fn renew(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn one_that_served_is_replaced_at_once_however_often() {
        let mut patience = Patience::default();
        assert!((0..1000).all(|_| patience.after(LONG) == Verdict::Replace(Duration::ZERO)));
    }

    #[test]
    fn those_that_fail_at_once_are_given_ever_more_time_and_then_up() {
        let mut patience = Patience::default();
        let pauses: Vec<_> = (1..FAILURES_MAX).map(|_| patience.after(None)).collect();
        let wanted = [0, 100, 200, 400, 800, 1600, 3200].map(|ms| Verdict::Replace(Duration::from_millis(ms)));
        assert_eq!(pauses, wanted);
        assert_eq!(patience.after(Some(STEADY / 2)), Verdict::GiveUp(FAILURES_MAX));
    }

    #[test]
    fn one_that_serves_between_them_or_another_configuration_begins_anew() {
        let mut patience = Patience::default();
        for round in 0..3 {
            (0..5).for_each(|_| assert!(matches!(patience.after(None), Verdict::Replace(_))));
            match round {
                1 => assert_eq!(patience.after(LONG), Verdict::Replace(Duration::ZERO)),
                _ => patience.renew(),
            }
            assert_eq!(patience.after(None), Verdict::Replace(Duration::ZERO));
            patience.renew();
        }
    }
}
