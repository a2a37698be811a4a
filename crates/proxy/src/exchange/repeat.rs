//! Whether a request can be sent again after an attempt that failed, and what is kept of it for that.

use super::{ends::Client, forward::Flow, state::Exchange};
use crate::worker::buffer::Buffers;
use penstock_backends::retry::Reason;
use penstock_http::Framing;

/// How forwarding ended, when it did not end well.
pub(super) enum Ended {
    /// Nothing was answered, nothing but the head was sent: it may be sent again.
    Retry(Reason),
    /// It is over: log it so.
    Over,
}

/// What was read from the client is gone once sent, unless it was kept; a request without a body can be sent as often as
/// needed.
pub(super) fn is_repeatable(client: &dyn Client, x: &Exchange, request: &Flow) -> bool {
    !x.txn.no_retry && (client.request_framing() == Framing::None || request.keeps_all())
}

/// Has the next attempt begin with what this one has sent of the body.
pub(super) fn keep_body(x: &mut Exchange, request: &mut Flow, buffers: &Buffers) {
    if let Some((body, complete)) = request.again(buffers) {
        (x.body, x.body_complete) = (Some(body), complete);
    }
}
