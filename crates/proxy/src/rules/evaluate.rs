//! Runs lists of rules on a message, and carries out what they decide.

use super::{
    context::{Judged, Readable, context},
    login::{self, Settled},
    resolve,
};
use crate::{
    connection::{Conn, in_time, socket::Socket},
    exchange::{
        buffered_body::{self, Ahead, Waited},
        caching,
        ends::Fault,
        finish, flush, headers,
        live::Live,
        respond::{self, Page},
        service,
        state::{Exchange, ms_between},
    },
    http1::body::{VERSION, weight},
    spoe,
    worker::turn,
};
use penstock_http::{Framing, ResponseHead, Version};
use penstock_rules::{By, During, Reply, ReplyBody, Rules, Termination, Verdict, Why};
use std::{future::poll_fn, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Runs `http-request` rules, or `tcp-request content` rules on a request. The latter may wait for more of the body for
/// up to `inspect`, their `inspect-delay`.
pub(crate) async fn request(live: &mut Live<'_, '_>, rules: &Rules, inspect: Option<Duration>) -> Judged {
    let worker = live.worker;
    let mut from = 0;
    let until = worker.clock.now() + inspect.unwrap_or_default();
    let mut last = inspect.is_none();
    if let Framing::Length(length) = live.client.request_framing() {
        live.x.announced = Some(length);
    }
    loop {
        turn::round();
        let verdict = {
            let complete = last || live.x.body_is_final();
            let mut context = context(live.conn, live.x, Readable::Request);
            (context.input.complete, context.output.complete) = (complete, complete);
            rules.run(&mut context, from)
        };
        let cells = worker.counters().frontend(live.conn.frontend);
        match verdict {
            Verdict::Continue | Verdict::Accept => {
                say_early_hints(live).await;
                return Judged::GoOn;
            }
            Verdict::Respond(why, answer) => {
                say_early_hints(live).await;
                if matches!(why, Why::Deny | Why::Tarpit | Why::Auth) {
                    finish::track_denied(live.conn, live.x);
                    live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
                } else {
                    cells.intercepted.inc();
                }
                match why {
                    Why::Deny => {
                        live.conn.request_decided(live.x);
                        finish::look_at_cookie(live.conn, live.x);
                        refused(live, During::Request);
                    }
                    Why::Tarpit => {
                        finish::look_at_cookie(live.conn, live.x);
                        refused(live, During::Tarpit);
                        respond::release_request(live.conn, live.x);
                        if tarpit(live).await == Tarpit::Left {
                            respond::hang_up(live.client, live.x, answer.status);
                            return Judged::Over;
                        }
                    }
                    Why::Return | Why::Redirect | Why::Auth => {
                        live.conn.request_decided(live.x);
                        live.x.log.termination = Termination(By::Ourselves, During::Request);
                    }
                }
                reply(live, &answer).await;
                rules.tell(answer.span, &mut live.x.txn);
                return Judged::Over;
            }
            Verdict::Reject | Verdict::Close => {
                live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
                live.x.log.TR = -1;
                live.x.log.termination = Termination(By::Refusal, During::Request);
                live.client.close();
                return Judged::Over;
            }
            Verdict::SilentDrop => {
                count_silent_drop(live.conn, live.x);
                live.x.log.TR = -1;
                live.x.log.termination = Termination(By::Refusal, During::Request);
                live.client.vanish();
                return Judged::Over;
            }
            Verdict::Service(name) => {
                let services = &worker.handle.inner.services;
                let Some(found) = services.find(&name) else {
                    refused(live, During::Request);
                    respond::error(live, 500).await;
                    return Judged::Over;
                };
                live.conn.request_decided(live.x);
                service::taken_by(live.conn, live.x, found.log_name());
                service::answer(live, found.clone(), live.conn.frontend).await;
                return Judged::Over;
            }
            Verdict::WaitBody { next, time, at_least } => {
                from = next;
                if wait_for_body(live, at_least, time).await == Judged::Over {
                    live.x.txn.last_rule = rules.before(next);
                    return Judged::Over;
                }
            }
            // The rule wants more of the body than there is; if no more will come, it decides on what there is.
            Verdict::WaitMore { next } if !last => {
                from = next;
                let before = body_len(live.x);
                let left = until.saturating_duration_since(worker.clock.now());
                match buffered_body::wait(live, before + 1, Some(left)).await {
                    Waited::Enough => last = body_len(live.x) == before,
                    Waited::Timeout => last = true,
                    Waited::Failed(fault) => return body_failed(live, &fault).await,
                }
            }
            Verdict::CacheUse { cache, next } => {
                from = next;
                caching::look_up(live, cache);
            }
            Verdict::WaitMore { next } => from = next + 1,
            Verdict::WaitHandshake { next } | Verdict::ExpectProxy { next } | Verdict::CacheStore { next, .. } => {
                from = next
            }
            Verdict::Rest { next } => {
                from = next;
                poll_fn(turn::poll_proceed).await;
            }
            Verdict::Resolve { next } => {
                from = next;
                resolve::settle(live.conn, live.x, Readable::Request).await;
            }
            Verdict::Consult { group, next } => {
                from = next;
                spoe::http_group(live, group, Readable::Request).await;
            }
            Verdict::Verify { next } => {
                from = next;
                if login::settle(live).await == Settled::Refused {
                    login::refuse(live).await;
                    return Judged::Over;
                }
            }
            Verdict::SwitchToHttp(_) => return Judged::GoOn,
            Verdict::Failed => {
                count_failed_rewrite(live.conn, live.x);
                refused(live, During::Request);
                respond::error(live, 500).await;
                return Judged::Over;
            }
        }
    }
}

/// Records that rules refuse the request. As in HAProxy, its cookie is in the log, and that of one that a rule answers is not.
fn refused(live: &mut Live<'_, '_>, during: During) {
    live.x.log.termination = Termination(By::Refusal, during);
    headers::capture_cookie(live.conn, live.x);
}

/// Waits for part of the request's body; a client that does not send it gets an error response.
pub(crate) async fn wait_for_body(live: &mut Live<'_, '_>, at_least: u64, limit: Option<Duration>) -> Judged {
    match buffered_body::wait(live, at_least, limit).await {
        Waited::Enough => return Judged::GoOn,
        // In the log, a request whose body did not arrive was never complete.
        Waited::Timeout => {
            (live.x.log.termination, live.x.log.TR) = (Termination(By::ClientTimeout, During::Request), -1);
            respond::error(live, 408).await;
        }
        Waited::Failed(fault) => return body_failed(live, &fault).await,
    }
    Judged::Over
}

/// Handles a request body that ended before it was complete.
async fn body_failed(live: &mut Live<'_, '_>, fault: &Fault) -> Judged {
    if matches!(fault, Fault::Invalid(_)) {
        refused(live, During::Request);
        live.x.log.TR = -1;
        respond::error(live, 400).await;
    } else {
        let by = if matches!(fault, Fault::Memory(_)) { By::Exhaustion } else { By::Client };
        live.x.log.termination = Termination(by, During::Request);
        live.x.log.TR = live.x.times.first_byte.map_or(-1, |first| ms_between(first, live.worker.clock.tick()));
        live.x.aborted(400);
        live.client.abort();
    }
    Judged::Over
}

/// Sends the fields of `early-hint` rules, those of consecutive rules in one 103 (RFC 8297); not to HTTP/1.0 clients, which would
/// not understand it (RFC 9110, 15.2).
async fn say_early_hints(live: &mut Live<'_, '_>) {
    let hints = std::mem::take(&mut live.x.txn.early_hints);
    if hints.is_empty() || live.x.request.version() == Version::Http10 {
        return;
    }
    for hints in hints.chunk_by(|_, hint| hint.joins) {
        let mut head = ResponseHead::from_status(103);
        for hint in hints {
            // Fields that rules write are well formed.
            let _ = head.fields.append(&hint.name, &hint.value);
        }
        live.x.continued += weight(VERSION + 3 + head.reason().len(), &head.fields);
        live.client.interim(&head);
    }
    live.x.log.bytes_read = live.x.continued;
    // An error appears again when the response is sent.
    let _ = flush::flush(live).await;
}

fn body_len(x: &Exchange) -> u64 {
    x.body.as_ref().map_or(0, |body| body.len() as u64)
}

/// Waits for part of the response's body (`http-response wait-for-body`); a server that does not send it counts as
/// failed.
async fn wait_for_response_body(
    live: &mut Live<'_, '_>,
    ahead: &mut Ahead<'_>,
    at_least: u64,
    limit: Option<Duration>,
) -> Judged {
    let status = match buffered_body::wait_ahead(live, ahead, at_least, limit).await {
        Waited::Enough => return Judged::GoOn,
        Waited::Timeout => {
            live.x.log.termination = Termination(By::ServerTimeout, During::Headers);
            504
        }
        Waited::Failed(_) => {
            live.x.log.termination = Termination(By::Refusal, During::Headers);
            // In the log there was no response, but the bytes that arrived are counted.
            live.x.log.Tr = -1;
            502
        }
    };
    live.x.times.answered = None;
    respond::error(live, status).await;
    Judged::Over
}

/// How a client that was held left the tarpit.
#[derive(PartialEq, Eq)]
enum Tarpit {
    /// It has waited for all of the time.
    Served,
    /// It has reset its stream, or the connection of its streams has ended.
    Left,
}

/// Holds a client for `timeout tarpit`. One that closes a connection of HTTP/1, or its half, is held all the same: else it would have
/// its answer at once. In the log, the time counts as that in queues; and the request was never complete, unless its body was waited for.
async fn tarpit(live: &mut Live<'_, '_>) -> Tarpit {
    let timeouts = &live.proxy().timeouts;
    let mut left = Tarpit::Served;
    if let Some(time) = timeouts.tarpit.or(timeouts.connect) {
        live.conn.deadline.set(live.worker.clock.now(), Some(time));
        let cancelled = std::future::poll_fn(|cx| live.client.poll_cancelled(cx));
        if in_time(&mut live.conn.deadline, cancelled).await.is_some() {
            left = Tarpit::Left;
        }
    }
    let now = live.worker.clock.now();
    let buffers = live.proxy().options.http_buffer_request || live.conn.proxy().options.http_buffer_request;
    let (log, times) = (&mut live.x.log, &live.x.times);
    let waited = |since: Option<Instant>| since.map_or(0, |since| ms_between(since, now));
    if buffers {
        log.Tw = waited(times.complete);
    } else {
        (log.TR, log.Tw) = (-1, log.Th + log.Ti + waited(times.first_byte));
    }
    left
}

/// Sends a response that a rule made.
pub(crate) async fn reply(live: &mut Live<'_, '_>, reply: &Reply) {
    let page = match &reply.body {
        ReplyBody::Bytes(bytes) => {
            live.x.response.start(reply.status, penstock_http::Version::Http11);
            Page::Body(Arc::clone(bytes))
        }
        ReplyBody::Raw(raw) if raw.is_empty() => Page::Silence,
        ReplyBody::Raw(raw) => match respond::parse_page(raw, &mut live.x.response) {
            Some(body) => Page::Body(body.into()),
            None => respond::page(live.conn, live.x, reply.status),
        },
        ReplyBody::ErrorPage => respond::page(live.conn, live.x, reply.status),
    };
    let Page::Body(body) = page else { return respond::hang_up(live.client, live.x, reply.status) };
    for (name, value) in &reply.fields {
        // Fields that rules write are well formed.
        let _ = live.x.response.fields.append(name, value);
    }
    if !matches!(reply.body, ReplyBody::ErrorPage | ReplyBody::Raw(_)) {
        respond::set_length(&mut live.x.response, body.len());
    }
    respond::send(live, &body, reply.close, reply.status).await;
}

/// Runs `http-response` or `tcp-response content` rules. If they replace the server's response, theirs has been sent
/// when this returns. `seen` says whether they see the response: those of TCP without a delay decide before there is
/// one.
pub(crate) async fn response(live: &mut Live<'_, '_>, rules: &Rules, seen: bool, ahead: &mut Ahead<'_>) -> Judged {
    let mut from = 0;
    loop {
        turn::round();
        let verdict = {
            let mut context = context(live.conn, live.x, Readable::Response);
            if !seen {
                context.response = None;
            }
            rules.run(&mut context, from)
        };
        match verdict {
            Verdict::Continue | Verdict::Accept => return Judged::GoOn,
            Verdict::Respond(why, answer) => {
                if why == Why::Deny {
                    count_denied_response(live.conn, live.x);
                }
                live.x.log.termination = if why == Why::Deny {
                    Termination(By::Refusal, During::Headers)
                } else {
                    Termination(By::Ourselves, During::Headers)
                };
                reply(live, &answer).await;
                rules.tell(answer.span, &mut live.x.txn);
                return Judged::Over;
            }
            // `tcp-response content close`: the client keeps its response and its connection.
            Verdict::Close => {
                ahead.upstream.close_after();
                return Judged::GoOn;
            }
            Verdict::Reject => {
                count_denied_response(live.conn, live.x);
                // `tcp-response content`: in the log there was no response.
                live.x.txn.status = None;
                live.x.log.termination = Termination(By::Refusal, During::Data);
                live.client.close();
                return Judged::Over;
            }
            Verdict::SilentDrop => {
                count_silent_drop(live.conn, live.x);
                live.x.log.termination = Termination(By::Refusal, During::Request);
                live.client.vanish();
                return Judged::Over;
            }
            Verdict::Failed => {
                count_failed_rewrite(live.conn, live.x);
                live.x.log.termination = Termination(By::Refusal, During::Headers);
                respond::error(live, 500).await;
                return Judged::Over;
            }
            Verdict::WaitBody { next, time, at_least } => {
                from = next;
                if wait_for_response_body(live, ahead, at_least, time).await == Judged::Over {
                    live.x.txn.last_rule = rules.before(next);
                    return Judged::Over;
                }
            }
            Verdict::CacheStore { cache, next } => {
                from = next;
                caching::store(live, cache, ahead.framing);
            }
            // Responses are not held back for data that rules would like to see.
            Verdict::WaitMore { next } => from = next + 1,
            Verdict::WaitHandshake { next } | Verdict::ExpectProxy { next } | Verdict::CacheUse { next, .. } => {
                from = next
            }
            Verdict::Rest { next } => {
                from = next;
                poll_fn(turn::poll_proceed).await;
            }
            Verdict::Verify { next } => {
                from = next;
                if login::settle(live).await == Settled::Refused {
                    login::refuse(live).await;
                    return Judged::Over;
                }
            }
            Verdict::Consult { group, next } => {
                from = next;
                let stage = if seen { Readable::Response } else { Readable::Request };
                spoe::http_group(live, group, stage).await;
            }
            Verdict::Service(_) | Verdict::SwitchToHttp(_) | Verdict::Resolve { .. } => return Judged::GoOn,
        }
    }
}

/// Counts a rule that could not write a field, as an internal error.
fn count_failed_rewrite(conn: &Conn<'_>, x: &Exchange) {
    let counters = conn.worker.counters();
    let backend = x.backend.map(|backend| counters.backend(backend));
    let server = x.server.as_ref().map(|server| conn.worker.cells(server));
    for cells in conn.listener_cells().into_iter().chain(backend).chain(server) {
        cells.failed_rewrites.inc();
        cells.internal_errors.inc();
    }
}

/// Counts a server's response that was denied.
pub(crate) fn count_denied_response(conn: &Conn<'_>, x: &Exchange) {
    conn.listener_cells().iter().for_each(|cells| cells.denied_responses.inc());
    if let Some(server) = &x.server {
        conn.worker.counters().backend(server.at.proxy).denied_responses.inc();
        conn.worker.cells(server).denied_responses.inc();
    }
}

/// Counts a client that was dropped silently as a denied request, whichever rule did it.
pub(crate) fn count_silent_drop(conn: &Conn<'_>, x: &Exchange) {
    conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
    if let Some(backend) = x.backend {
        conn.worker.counters().backend(backend).denied_requests.inc();
    }
}

/// The lists of rules that run before there is anything to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `tcp-request connection`: before the PROXY header and TLS.
    Connection,
    /// `tcp-request session`: after the PROXY header and TLS.
    Session,
}

/// Runs the rules for a new connection.
pub(crate) fn connection(conn: &mut Conn<'_>, socket: &Socket, kind: Kind) -> Judged {
    let worker = conn.worker;
    let rules = worker.shared.program.of(conn.frontend);
    let list = match kind {
        Kind::Connection => &rules.tcp_connection,
        Kind::Session => &rules.tcp_session,
    };
    if list.is_empty() {
        return Judged::GoOn;
    }
    let mut x = worker.take_exchange();
    let mut from = 0;
    let judged = loop {
        match list.run(&mut context(conn, &mut x, Readable::Raw), from) {
            Verdict::Continue | Verdict::Accept | Verdict::SwitchToHttp(_) => break Judged::GoOn,
            Verdict::ExpectProxy { next } => {
                conn.expects_proxy_header = true;
                from = next;
            }
            Verdict::Rest { next } | Verdict::CacheUse { next, .. } | Verdict::CacheStore { next, .. } => from = next,
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } | Verdict::WaitHandshake { next } => {
                from = next + 1
            }
            Verdict::SilentDrop => {
                count_silent_drop(conn, &x);
                socket.vanish_on_close();
                break Judged::Over;
            }
            Verdict::Reject
            | Verdict::Close
            | Verdict::Respond(..)
            | Verdict::Service(_)
            | Verdict::Failed
            | Verdict::Resolve { .. }
            | Verdict::Consult { .. }
            | Verdict::Verify { .. } => {
                conn.listener_cells().iter().for_each(|cells| match kind {
                    Kind::Connection => cells.denied_connections.inc(),
                    Kind::Session => cells.denied_sessions.inc(),
                });
                break Judged::Over;
            }
        }
    };
    // Changes that these rules make to the addresses apply to everything on the connection.
    let facts = &mut conn.facts;
    let (src, dst) = match kind {
        Kind::Connection => (&mut facts.src, &mut facts.dst),
        Kind::Session => (&mut facts.session_src, &mut facts.session_dst),
    };
    (*src, *dst) = (x.txn.src.or(*src), x.txn.dst.or(*dst));
    worker.give_exchange(x);
    judged
}
