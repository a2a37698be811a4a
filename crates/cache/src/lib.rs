//! The HTTP cache: what may be stored and used (RFC 9111, as HAProxy applies it), and a bounded store that the workers share.
//! Pure: heads, bytes and `now` in; heads and bytes out.
//!
//! `tests/scenarios/cache` compares the behaviour with HAProxy's; where this crate is stricter, `tests/DIFFERENCES.md` says so.

#![forbid(unsafe_code)]

mod collapse;
mod conditional;
mod date;
mod entry;
mod key;
mod query;
mod range;
mod rules;
mod store;
mod storing;
mod vary;

pub use collapse::{CacheTime, Collapsed, Collapsing, Fetch, may_fetch};
pub use conditional::is_not_modified;
pub use entry::CacheEntry;
pub use query::CacheQuery;
pub use range::CachedPart;
pub use store::{Cache, CacheLimits, CachedEntries, Collapses, EntryView};
pub use storing::Storing;
