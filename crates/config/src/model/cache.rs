//! `cache` sections.

use crate::span::{Span, Spanned};
use std::time::Duration;

/// The place of a `cache` section in [`Config::caches`](super::Config::caches).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheId(pub u32);

/// `cache`: a store of responses that proxies name in their rules.
#[derive(Clone, Debug)]
pub struct CacheSection {
    /// The cache's name, by which rules refer to it.
    pub name: String,
    /// `total-max-size`, in bytes; 0 if it was not given, which is an error.
    pub total_size: u64,
    /// `max-object-size`, in bytes; `None` for a 256th of the total.
    pub object_size: Option<Spanned<u64>>,
    /// `max-age`, in seconds.
    pub max_age_s: u64,
    /// `process-vary`.
    pub process_vary: bool,
    /// `max-secondary-entries`.
    pub secondary_entries: usize,
    /// `answer-ranges`; off, since HAProxy answers them with the whole.
    pub answer_ranges: bool,
    /// `collapse`: how long a request waits for the response to another one; `None` if it does not, as in HAProxy.
    pub collapse: Option<Duration>,
    /// The section's first line.
    pub span: Span,
}

impl CacheSection {
    /// A section with HAProxy's defaults (manual section 6.2.1).
    pub fn new(name: String, span: Span) -> Self {
        CacheSection {
            name,
            total_size: 0,
            object_size: None,
            max_age_s: 60,
            process_vary: false,
            secondary_entries: 10,
            answer_ranges: false,
            collapse: None,
            span,
        }
    }
    /// The size of the largest response that is stored, in bytes.
    pub fn object_size(&self) -> u64 {
        self.object_size.as_ref().map_or(self.total_size / 256, |size| size.value)
    }
}
