//! What `set-bandwidth-limit` has set for a direction of an exchange: how much may be forwarded, and when. Pure.

use super::{Data, Entry, Millis, StickTable, rate};
use penstock_config::model::ProxyId;
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// The filter that a limit belongs to: its proxy, and its place there.
pub type FilterId = (ProxyId, usize);

/// A limit of one direction.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// The filter that set it.
    pub filter: FilterId,
    /// Whether it is that from the server.
    pub download: bool,
    /// The most bytes in a period.
    pub limit: u64,
    /// The fewest bytes that are worth being forwarded.
    pub min_size: u64,
    /// What has been forwarded.
    pub(crate) seen: Seen,
}

/// The bytes that count.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Those of the exchange itself.
    Own {
        /// The state of their rate.
        rate: [u64; rate::SLOTS],
        period: Millis,
    },
    /// Those of all exchanges with the same entry in a table.
    Shared(Arc<Share>),
}

/// One of the exchanges that share an entry's bandwidth, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    table: Arc<StickTable>,
    entry: Arc<Entry>,
    data: Data,
}

impl Share {
    pub(crate) fn new(table: Arc<StickTable>, entry: Arc<Entry>, data: Data) -> Share {
        entry.trackers.fetch_add(1, Relaxed);
        Share { table, entry, data }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.entry.trackers.fetch_sub(1, Relaxed);
    }
}

impl Bandwidth {
    /// How many bytes may be forwarded now.
    ///
    /// # Errors
    ///
    /// For how long none may be.
    pub fn allowed(&self, now: Millis) -> Result<u64, Millis> {
        let (limit, rate, period) = match &self.seen {
            Seen::Own { rate, period } => (self.limit, rate::read(rate, now, *period), *period),
            Seen::Shared(share) => {
                let Share { table, entry, data } = &**share;
                let users = u64::from(entry.trackers()).max(1);
                let rate = table.value(entry, *data, 0, now).unwrap_or(0);
                (self.limit.div_ceil(users), rate, table.period(*data))
            }
        };
        let left = limit.saturating_sub(rate);
        let wanted = self.min_size.clamp(1, limit.max(1));
        if left >= wanted {
            return Ok(left);
        }
        // A rate falls by its previous period's bytes within a period: what is missing takes its share of that time.
        let missing = u128::from(wanted - left) * u128::from(period) / u128::from(limit.max(1));
        Err(u64::try_from(missing).unwrap_or(u64::MAX).clamp(1, period.max(1)))
    }

    /// Records that bytes were forwarded.
    pub fn spend(&mut self, bytes: u64, now: Millis) {
        match &mut self.seen {
            Seen::Own { rate, period } => {
                rate::add(rate, now, *period, bytes);
            }
            Seen::Shared(share) => {
                share.table.add(&share.entry, share.data, 0, bytes, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(limit: u64, min_size: u64) -> Bandwidth {
        let seen = Seen::Own { rate: [1_000_000, 0, 0], period: 1_000 };
        Bandwidth { filter: (ProxyId::default(), 0), download: true, limit, min_size, seen }
    }

    /// How long it takes to forward so much, if all is forwarded that may be.
    fn time_of(mut bandwidth: Bandwidth, mut bytes: u64) -> (Millis, u32) {
        let (begin, mut now, mut pieces) = (1_000_000, 1_000_000, 0);
        while bytes > 0 {
            match bandwidth.allowed(now) {
                Ok(allowed) => {
                    bandwidth.spend(allowed.min(bytes), now);
                    bytes -= allowed.min(bytes);
                    pieces += 1;
                }
                Err(wait) => {
                    assert!((1..=1_000).contains(&wait));
                    now += wait;
                }
            }
        }
        (now - begin, pieces)
    }

    #[test]
    fn a_period_passes_for_each_limit_of_bytes() {
        assert_eq!(time_of(own(1_000, 0), 1_000), (0, 1));
        let (time, _) = time_of(own(1_000, 0), 3_000);
        assert!((2_900..=3_100).contains(&time), "{time}");
        let (time, _) = time_of(own(1_000_000, 0), 10_000_000);
        assert!((9_900..=10_100).contains(&time), "{time}");
    }

    #[test]
    fn small_pieces_are_not_forwarded() {
        let (time, pieces) = time_of(own(1_000, 250), 5_000);
        assert!((3_500..=5_500).contains(&time) && pieces <= 20, "{time} {pieces}");
        // More than the limit cannot be waited for.
        assert_eq!(own(1_000, 5_000).allowed(1_000_000), Ok(1_000));
    }

    #[test]
    fn a_limit_of_nothing_forwards_nothing() {
        assert_eq!(own(0, 0).allowed(1_000_000), Err(1_000));
    }
}
