//! Event rates over a sliding period, counted like HAProxy does.
//!
//! There are two counters: events in the current period, and in the one before. The rate is the current count plus the
//! previous count in proportion to the part of the previous period that is still within one period of now. So a burst
//! fades linearly, and no list of events is kept. The state is three numbers: when the current period started, its
//! count, and the previous count.

use super::Millis;

/// The size of a rate's state in an entry.
pub(super) const SLOTS: usize = 3;

/// Counts `events` at `now`, over `period`. Returns the rate afterwards.
pub(super) fn add(state: &mut [u64], now: Millis, period: Millis, events: u64) -> u64 {
    let [begin, current, previous] = state else { return 0 };
    let period = period.max(1);
    // A period that a peer told us of may have begun before this process: then `begin` is a negative number.
    let since = |begin: u64| now.wrapping_sub(begin) as i64;
    if since(*begin) >= period as i64 {
        *previous = *current;
        *current = 0;
        *begin = begin.wrapping_add(period);
        if since(*begin) >= period as i64 {
            // At least one whole period has passed without an event.
            *previous = 0;
            *begin = now;
        }
    }
    *current += events;
    read(state, now, period)
}

/// The rate over the period that ends now.
pub(super) fn read(state: &[u64], now: Millis, period: Millis) -> u64 {
    let &[begin, mut current, mut previous] = state else { return 0 };
    let period = period.max(1);
    let mut remain = begin.wrapping_add(period).wrapping_sub(now) as i64;
    if remain < 0 {
        remain += period as i64;
        previous = if remain >= 0 { current } else { 0 };
        current = 0;
    }
    // At very low rates a fraction would alternate between 0 and 1, so one event counts until its period is over.
    if previous <= 1 && current == 0 {
        return previous;
    }
    (previous * remain.max(0) as u64 + current * period) / period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_fades_over_the_following_period() {
        let mut state = [0; SLOTS];
        let now = 1_000_000;
        for _ in 0..100 {
            add(&mut state, now, 10_000, 1);
        }
        assert_eq!(read(&state, now, 10_000), 100);
        assert_eq!(read(&state, now + 9_999, 10_000), 100);
        assert_eq!(read(&state, now + 15_000, 10_000), 50);
        assert_eq!(read(&state, now + 19_000, 10_000), 10);
        assert_eq!(read(&state, now + 20_001, 10_000), 0);
    }

    #[test]
    fn one_event_neither_vanishes_early_nor_flaps() {
        let mut state = [0; SLOTS];
        add(&mut state, 50_000, 1_000, 1);
        assert_eq!(read(&state, 51_900, 1_000), 1);
        assert_eq!(read(&state, 52_001, 1_000), 0);
    }

    #[test]
    fn a_steady_stream_is_seen_at_its_rate() {
        let mut state = [0; SLOTS];
        let mut rate = 0;
        for at in 0..1_000u64 {
            rate = add(&mut state, 100_000 + at * 100, 1_000, 1);
        }
        assert!((9..=11).contains(&rate), "{rate}");
    }
}
