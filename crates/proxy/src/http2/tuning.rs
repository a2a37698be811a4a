//! What both sides tell h2: how much it may keep, and how long a header list may be.

use penstock_http::Limits;

/// What h2 keeps of one stream's body that its peer has not taken yet.
pub(super) const SEND_BUFFER: usize = 64 * 1024;

/// What the small DATA frames that wait to be forwarded may cost beside what they carry. h2 counts 256 bytes for each that
/// carries less, and its default lets a hundred wait: a gRPC client that sends messages faster than its server takes them
/// is cut. So many are a full window of messages of ten bytes on two streams; each costs some 150 bytes.
pub(super) const SMALL_DATA: usize = 16_384 * 256;

/// As much as a head over HTTP/1 may have, in the terms of RFC 9113 section 6.5.2: a field counts for 32 bytes more than
/// its name and value, where a line of HTTP/1 has four.
pub(super) fn header_list_size(limits: &Limits) -> u32 {
    u32::try_from(limits.head_bytes + limits.fields * (32 - 4)).unwrap_or(u32::MAX)
}
