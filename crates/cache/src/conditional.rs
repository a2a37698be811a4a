//! Conditional requests for a stored response (RFC 9110 section 13).

use crate::{CacheEntry, date};
use penstock_http::{Known, RequestHead, list};

/// Whether the client has this response already, so that it is answered with 304.
pub fn is_not_modified(request: &RequestHead, entry: &CacheEntry) -> bool {
    let mut tags = request.fields.get_all(b"if-none-match").peekable();
    if tags.peek().is_some() {
        // With it, `If-Modified-Since` is ignored.
        let own = entry.head.fields.known(Known::Etag);
        return tags.flat_map(list).any(|tag| tag == b"*" || own.is_some_and(|own| weak(tag) == weak(own)));
    }
    let since = request.fields.get(b"if-modified-since").and_then(date::parse);
    since.is_some_and(|since| entry.last_modified_s <= since)
}

/// A tag without the mark that makes it weak: `If-None-Match` compares weakly.
fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
