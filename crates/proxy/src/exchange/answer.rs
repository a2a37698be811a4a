//! Sends a response to the client, a server's or a stored one, as rules leave it.

use super::{
    buffered_body::Ahead,
    caching, compress,
    ends::Upstream,
    finish,
    flush::send,
    forward::Flow,
    headers,
    resend::Ended,
    respond,
    throttle::Throttle,
    timeouts::{Patience, Side},
    transfer::{Transfer, finish_body, finish_request, poll_body, skip_body, tunnel},
};
use crate::{
    exchange::live::Live,
    inspect::{self, passage, taps},
    route::{self, checkcache, cookie},
    rules::evaluate::count_denied_response,
    server::{Notice, Server},
    tap::Copying,
};
use penstock_capture::Speaker;
use penstock_config::{model::Proxy, syslog};
use penstock_http::{Framing, Known};
use penstock_rules::{By, During, Termination};
use std::future::poll_fn;

/// A response whose head is in the exchange.
pub(super) struct Answer<'a> {
    /// The server, or stored response, that the body is read from.
    pub upstream: &'a mut dyn Upstream,
    /// The request's body, which may still be on its way.
    pub request: Flow,
    /// How the response's body is framed.
    pub framing: Framing,
    /// The server that sent it, unless a cache did.
    pub server: Option<&'a Server>,
    /// The proxy whose settings apply.
    pub proxy: &'a Proxy,
    pub patience: Patience,
}

/// Sends a response, once the rules for responses have run. (By reference: a future stores what it is given twice.)
pub(super) async fn answer(live: &mut Live<'_, '_>, answer: &mut Answer<'_>) -> Result<(), Ended> {
    let Answer { upstream, request, framing, server, proxy, patience } = answer;
    let (upstream, framing, server, proxy) = (&mut **upstream, *framing, *server, *proxy);
    let worker = live.worker;
    let buffers = &worker.buffers;
    live.x.txn.response_begins();
    let is_bodiless = framing == Framing::None;
    let has_body = !matches!(framing, Framing::None | Framing::Tunnel) && !live.x.wants_head_only();
    live.x.response_announced = match framing {
        Framing::Length(length) if has_body => Some(length),
        _ => None,
    };
    compress::consider(live.conn, live.x, framing);
    let mut ahead = Ahead { upstream: &mut *upstream, request: &mut *request, framing, has_body };
    let goes_on = route::response(live, &mut ahead).await;
    patience.obey_rules(live.conn, live.x, proxy);
    // Rules saw a response of which nothing was sent; the log counts the bytes received, even if it was replaced.
    live.x.log.bytes_read += ahead.upstream.counts().received;
    let inspected = if goes_on { inspect::response(live, &mut ahead, framing).await } else { None };
    caching::decided(live.x, worker.clock.unix_s());
    let Some(framing) = inspected else {
        request.give_back(buffers);
        return Err(Ended::Over);
    };
    let by_rule = headers::to_client(live.x);
    let may_share = proxy.options.checkcache && live.x.response.fields.has(Known::SetCookie);
    cookie::to_client(live.x, proxy, worker.clock.unix_s());
    if let Some(server) = server
        && may_share
        && checkcache::finds(live.x, proxy)
    {
        request.give_back(buffers);
        refuse_shared_cookie(live, server).await;
        return Err(Ended::Over);
    }
    let framing = headers::framing_to_client(live.x, framing);
    let (framing, encoding) = compress::begin(live.conn, live.x, framing);
    let reads_on = !request.done && live.client.reads_on();
    let last = by_rule || headers::closes(live.conn) || !(request.done || reads_on);
    taps::copy_response(live, framing);
    passage::report(live.x, false);
    live.client.respond(&mut live.x.response, framing, last && framing != Framing::Tunnel);
    live.x.responded = true;
    live.x.txn.status = Some(live.x.response.status());
    respond::release_request(live.conn, live.x);
    if framing == Framing::Tunnel {
        live.client.tunnel();
        upstream.tunnel();
        request.give_back(buffers);
        return Box::pin(tunnel(live, upstream, proxy)).await;
    }
    finish::as_soon_as(live);
    let mut response = Flow::new();
    response.throttle(Throttle::of(&live.x.txn, true, worker));
    if taps::may_change(live.conn, live.x) {
        response.drop_trailers();
    }
    let mut storing = caching::storing(live.x);
    if let Some(body) = &live.x.response_body {
        caching::keep(&mut storing, body.data());
    }
    if live.x.response_complete || is_bodiless {
        caching::complete(&mut storing, upstream);
    }
    let unread = live.x.wants_head_only() && live.x.request.method() != b"HEAD" && !live.x.response_complete;
    if live.x.wants_head_only() || framing == Framing::None {
        // The body goes to no client. That of a response to HEAD is skipped later; any other ends the server's
        // connection.
        live.x.forget_response_body(buffers);
        response.preload(None, true);
    } else {
        if let Some(mut encoding) = encoding {
            encoding.preload(live.x.response_body.take(), live.x.response_complete);
            response.encode(Some(encoding));
        } else if let Some(body) = live.x.response_body.take() {
            response.preload(Some(body), live.x.response_complete);
        }
        if let Some(replay) = live.x.inspected.response.take() {
            response.replay(replay);
        }
    }
    response.copy(Copying::body(&live.x.inspected.copied, Speaker::Server));
    let result = poll_fn(|cx| {
        let polled = poll_body(cx, live, upstream, request, &mut response, patience, &mut storing);
        // Kept up to date, since the server's sessions may be ended at any moment.
        live.x.count_response(upstream);
        polled
    })
    .await;
    if reads_on && !request.done && matches!(result, Transfer::Done) {
        finish_request(live, upstream, request).await;
    }
    request.give_back(buffers);
    if matches!(result, Transfer::ServerFault | Transfer::Timeout(Side::Server)) {
        let mut rest = response.take_rest();
        // The exchange has failed, whether the client takes this or not.
        let _ = send(live, &mut rest).await;
        buffers.give(rest);
    }
    response.give_back(buffers);
    if unread && matches!(result, Transfer::Done) {
        skip_body(live.conn, upstream).await;
    }
    finish_body(live, server, result)
}

/// Answers 502 in place of a response that `option checkcache` stops, and says so in the log.
async fn refuse_shared_cookie(live: &mut Live<'_, '_>, server: &Server) {
    let (shared, proxy) = (&live.worker.shared, server.at.proxy);
    let backend = &shared.config.proxies[proxy].name;
    let text = format!("Blocking cacheable cookie in response from instance {backend}, server {}.", server.name);
    shared.backends.announce(&Notice { proxy, severity: syslog::ALERT, text, mailed: None });
    count_denied_response(live.conn, live.x);
    live.x.log.termination = Termination(By::Refusal, During::Headers);
    respond::error(live, 502).await;
}
