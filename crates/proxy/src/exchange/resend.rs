//! Whether a request can be sent again after a failed attempt, and what is kept of it for that.

use super::{ends::Client, forward::Flow, state::Exchange};
use crate::{exchange::live::Live, route::persistence, worker::buffer::Buffers};
use penstock_backends::retry::{Reason, may_repeat_body};
use penstock_config::model::Proxy;
use penstock_http::Framing;

/// The result of forwarding that did not complete.
pub(crate) enum Ended {
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

/// Gives back the memory of a request's head that has been sent, while its server has not answered; of one that may have to be sent
/// again (`again`: once, to a server of HTTP/2 that refuses it), or that services will see with the response, only what it does not use.
pub(super) fn release_head(live: &mut Live<'_, '_>, request: &Flow, proxy: &Proxy, again: bool) {
    let may_be_refused = again && live.x.server_conn.http_major == 2;
    let may_go_again =
        (may_be_refused || (live.x.may_retry && may_repeat_body(proxy))) && is_repeatable(live.client, live.x, request);
    match may_go_again || live.x.txn.inspection.is_some() {
        true => live.x.request.shrink(),
        false => {
            persistence::keep_keys(live.conn, live.x);
            live.x.request.release();
        }
    }
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
