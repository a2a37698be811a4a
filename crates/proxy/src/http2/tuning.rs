//! Limits that both sides set in h2: how much it may keep, and how long a header list may be.

use penstock_http::Limits;

/// Most bytes that h2 keeps of one stream's body before its peer takes them.
pub(super) const SEND_BUFFER: usize = 64 * 1024;

/// Limit of the overhead of small DATA frames that wait to be forwarded. h2 counts 256 bytes for each frame that
/// carries less, and allows a hundred by default; a gRPC client that sends messages faster than its server reads them
/// would be cut off. This many frames are a full window of ten-byte messages on two streams; each costs some 150 bytes.
pub(super) const SMALL_DATA: usize = 16_384 * 256;

/// The size of a head over HTTP/1 in the terms of RFC 9113 section 6.5.2: a field counts for 32 bytes more than its
/// name and value, a line of HTTP/1 for four.
pub(super) fn header_list_size(limits: &Limits) -> u32 {
    u32::try_from(limits.head_bytes + limits.fields * (32 - 4)).unwrap_or(u32::MAX)
}
