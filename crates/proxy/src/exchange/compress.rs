//! Decides about compression at three moments: once the request is ready, when the response's head arrives, and when that
//! head is sent. The decisions themselves are in `penstock_compression`.

use super::{encoding::Encoding, state::Exchange};
use crate::{connection::Conn, exchange::live::Live};
use penstock_compression::{
    CompressionSettings, Response, mark_request, mark_response, may_compress_request, may_compress_response,
};
use penstock_config::model::{CompressionAlgorithm, ProxyId};
use penstock_http::Framing;

/// What is compressed of an exchange.
#[derive(Default)]
pub(crate) struct Compressed {
    /// The algorithm for the response, as long as nothing speaks against it.
    pub response: Option<CompressionAlgorithm>,
    /// The request's body, between attempts.
    pub request: Option<Box<Encoding>>,
    /// Whether the request is compressed, so that its length is not the one that the client announced.
    pub is_request_encoded: bool,
}

/// The settings of the exchange's frontend and backend.
fn settings<'a>(conn: &'a Conn<'_>, x: &Exchange) -> Option<CompressionSettings<'a>> {
    let proxies = &conn.worker.shared.config.proxies;
    let of = |proxy: ProxyId| proxies[proxy].compression.as_ref();
    CompressionSettings::of(of(conn.frontend), x.backend.and_then(of))
}

/// Chooses the algorithm for the response. Called once, after the rules for requests.
pub(crate) fn choose_response(live: &mut Live<'_, '_>) {
    let worker = live.worker;
    let Some(settings) = settings(live.conn, live.x) else { return };
    live.x.compressed.response = settings.choose_response(&mut live.x.request, |it| worker.encoders.have_place(it));
    live.x.txn.compression = live.x.compressed.response.map(CompressionAlgorithm::name);
}

/// Compresses the request if that is configured. Called once, before it is sent to its server.
pub(crate) fn encode_request(live: &mut Live<'_, '_>) {
    let worker = live.worker;
    let Some(settings) = settings(live.conn, live.x) else { return };
    let framing = live.x.request_framing(live.client);
    let may = settings.request_algorithm().filter(|_| may_compress_request(settings, &live.x.request, framing));
    let compressing = &worker.shared.compressing;
    let Some(algorithm) = may.filter(|_| compressing.may_begin(worker.now_ms())) else { return };
    let Some(encoder) = worker.encoders.take(algorithm) else { return };
    mark_request(&mut live.x.request, algorithm);
    let mut encoding = Box::new(Encoding::new(encoder, worker, None));
    encoding.preload(live.x.body.take(), std::mem::take(&mut live.x.body_complete));
    (live.x.compressed.request, live.x.compressed.is_request_encoded) = (Some(encoding), true);
}

/// Looks at the response's head as the server sent it: rules can see the result (`res.comp`).
pub(crate) fn consider(conn: &Conn<'_>, x: &mut Exchange, framing: Framing) {
    if x.compressed.response.is_none() {
        return;
    }
    let worker = &conn.worker;
    let asked = x.request.version();
    let answer = Response { head: &x.response, framing, asked, head_only: x.wants_head_only() };
    let may = settings(conn, x).is_some_and(|settings| may_compress_response(settings, answer))
        && worker.shared.compressing.may_begin(worker.now_ms());
    if !may {
        (x.compressed.response, x.txn.compression) = (None, None);
    }
}

/// Starts to compress the response, whose head is about to be sent; returns how the body is framed then.
pub(crate) fn begin(conn: &Conn<'_>, x: &mut Exchange, framing: Framing) -> (Framing, Option<Box<Encoding>>) {
    let Some(algorithm) = x.compressed.response.filter(|_| matches!(framing, Framing::Length(_) | Framing::Chunked))
    else {
        return (framing, None);
    };
    let Some(encoder) = conn.worker.encoders.take(algorithm) else {
        (x.compressed.response, x.txn.compression) = (None, None);
        return (framing, None);
    };
    mark_response(&mut x.response, algorithm);
    let counted = Some((conn.frontend, x.backend));
    (Framing::Chunked, Some(Box::new(Encoding::new(encoder, conn.worker, counted))))
}
