//! `filter bwlim-in` and `filter bwlim-out` (manual section 9.7).

use crate::span::{Line, Spanned, Word};
use std::time::Duration;

/// A limit of the bandwidth of one direction, which `set-bandwidth-limit` puts in force.
#[derive(Clone, Debug)]
pub struct BandwidthFilter {
    /// Its name.
    pub name: Spanned<String>,
    /// Whether it limits what comes from servers.
    pub download: bool,
    /// `limit` or `default-limit`: the most bytes in a period.
    pub limit: u64,
    /// `min-size`: the fewest bytes that are forwarded at a time.
    pub min_size: u64,
    /// Who shares it.
    pub share: BandwidthShare,
}

/// Who shares a limit.
#[derive(Clone, Debug)]
pub enum BandwidthShare {
    /// Nobody: each exchange has its own, for this period (`default-period`).
    Own(Duration),
    /// All with the same entry in a stick table, whose rate of bytes has the period.
    Entry {
        /// `key`: the expression.
        key: Line,
        /// `table`; the section's own if it is not given.
        table: Option<Word>,
    },
}
