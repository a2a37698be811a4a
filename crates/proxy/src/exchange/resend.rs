//! Whether a request can be sent again after a failed attempt, and what is kept of it for that.

use super::{ends::Client, forward::Flow, state::Exchange};
use crate::worker::buffer::Buffers;
use penstock_backends::retry::Reason;
use penstock_http::Framing;

/// The result of forwarding that did not complete.
pub(super) enum Ended {
    /// Nothing was received and only the head was sent: the request may be sent again.
    Retry(Reason),
    /// The exchange is over, and is logged as such.
    Over,
}

/// Whether the request can be sent again. What was read from the client is gone once sent, unless it was kept; a
/// request without a body can be sent any number of times.
pub(super) fn is_repeatable(client: &dyn Client, x: &Exchange, request: &Flow) -> bool {
    !x.txn.no_retry && (x.request_framing(client) == Framing::None || has_whole_request(x) || request.keeps_all())
}

/// Whether the body was kept for services, and can be read from its beginning again. What an encoder has read is gone.
fn has_whole_request(x: &Exchange) -> bool {
    x.inspected.has_whole_request() && !x.compressed.is_request_encoded
}

/// Makes the next attempt start with the part of the body that this one has sent.
pub(super) fn keep_body(x: &mut Exchange, request: &mut Flow, buffers: &Buffers) {
    x.compressed.request = request.take_encoding();
    if has_whole_request(x) {
        return;
    }
    if let Some((body, complete)) = request.again(buffers) {
        (x.body, x.body_complete) = (Some(body), complete);
    }
}
