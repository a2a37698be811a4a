//! What a cache is asked for: everything in a request that decides about its response.

use crate::{key::key_of, rules, vary::Asked};
use penstock_http::RequestHead;

/// What a cache needs of a request, read when the rule that names the cache runs: what later rules do to the request changes
/// what the server is asked, not whose response it is.
#[derive(Clone, Debug)]
pub struct CacheQuery {
    pub(crate) key: Box<[u8]>,
    /// What responses may vary by; `None` if the cache that was asked stores none that vary.
    pub(crate) asked: Option<Asked>,
    /// Whether the response may be shared only if it says so itself.
    pub(crate) authorized: bool,
    may_answer: bool,
    may_store: bool,
    may_change: bool,
}

impl CacheQuery {
    pub(crate) fn of(request: &RequestHead, received: &[u8], has_body: bool, vary: bool) -> Option<CacheQuery> {
        let key = key_of(request)?;
        Some(CacheQuery {
            key: key.into(),
            asked: vary.then(|| Asked::of(request)),
            authorized: rules::is_authorized(request),
            may_answer: rules::may_answer(request, has_body) && request.method() == received,
            may_store: rules::may_store_for(request, has_body) && received == b"GET",
            may_change: rules::is_unsafe_method(request.method()) || rules::is_unsafe_method(received),
        })
    }
    /// Whether a stored response may answer the request.
    pub fn may_answer(&self) -> bool {
        self.may_answer
    }
    /// Whether the response may be stored, as far as the request decides it.
    pub fn may_store(&self) -> bool {
        self.may_store
    }
    /// Whether a response with this status says that what is stored for the target may have changed (RFC 9111 section 4.4).
    pub fn has_changed(&self, status: u16) -> bool {
        self.may_change && (200..400).contains(&status)
    }
}
