//! Stick tables: what is remembered about an address, a cookie or any other key. Shared by all workers, bounded, and
//! without a clock of their own.

mod bandwidth;
mod journal;
mod key;
mod names;
mod rate;
mod schema;
mod sharing;
mod spec;
mod store;
mod tracking;
mod view;

pub use bandwidth::{Bandwidth, FilterId};
pub(crate) use bandwidth::{Seen, Share};
pub use key::KeyType;
pub use schema::{Data, DataKind, MAX_ARRAY, Schema};
pub use sharing::Stored;
pub use spec::{TableError, TableSpec};
pub use store::{Entry, StickTable};
pub use tracking::{Tracked, Tracking};
pub use view::{Filter, KeyError, Operator, Removal, SHOWN};

/// Milliseconds of a monotonic clock; its origin does not matter.
pub type Millis = u64;
