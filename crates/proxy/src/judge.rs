//! Runs lists of rules on a message, and does what they decide.

use crate::{
    body::{self, Waited},
    conn::{Conn, in_time},
    exchange::{Exchange, ms_between},
    message::Client,
    respond,
    socket::Socket,
    worker::Worker,
};
use penstock_http::Framing;
use penstock_rules::{Buffered, Context, Now, ProxyId, Reply, ReplyBody, Rules, Verdict, Why};
use std::time::Duration;

/// Which heads rules may look at and change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is no HTTP message.
    Raw,
    /// The request is there.
    Request,
    /// The response too.
    Response,
}

/// Whether the exchange goes on after a list of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    GoOn,
    /// The client has been answered, or has been told nothing on purpose.
    Over,
}

/// What rules see.
pub(crate) fn context<'a>(worker: &'a Worker, conn: &'a mut Conn, x: &'a mut Exchange, stage: Stage) -> Context<'a> {
    let shared = &worker.shared;
    let proxy = |index: usize| (ProxyId(index as u32), &shared.proxies[index]);
    let (backend, server) = (x.backend, x.server);
    Context {
        now: Now { mono: worker.now_ms(), unix_us: worker.clock.unix_us() },
        conn: &conn.facts,
        frontend: proxy(conn.frontend),
        backend: backend.map(proxy),
        server: backend.zip(server).map(|(backend, server)| &shared.servers[backend][server]),
        server_conn: x.times.connected.map(|_| &x.server_conn),
        request: (stage != Stage::Raw).then_some(&mut x.request),
        response: (stage == Stage::Response).then_some(&mut x.response),
        input: Buffered {
            bytes: x.body.as_ref().map_or(&[], |body| body.data()),
            complete: x.body_complete,
            announced: x.announced,
        },
        output: Buffered::default(),
        session: &mut conn.session,
        txn: &mut x.txn,
        log: &x.log,
        world: worker,
    }
}

/// Runs `http-request` rules.
pub(crate) async fn request(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, rules: &Rules) -> Judged {
    let worker = conn.worker.clone();
    let mut from = 0;
    if let Framing::Length(length) = client.request_framing() {
        x.announced = Some(length);
    }
    loop {
        let verdict = rules.run(&mut context(&worker, conn, x, Stage::Request), from);
        let cells = worker.counters().frontend(conn.frontend);
        match verdict {
            Verdict::Continue | Verdict::Accept => return Judged::GoOn,
            Verdict::Respond(why, answer) => {
                if matches!(why, Why::Deny | Why::Tarpit | Why::Auth) {
                    conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
                } else {
                    cells.intercepted.inc();
                }
                let since = conn.worker.clock.now();
                if why == Why::Tarpit {
                    tarpit(conn, client, x).await;
                    (x.log.TR, x.log.Tw) = (-1, ms_between(since, conn.worker.clock.now()));
                }
                x.log.termination = match why {
                    Why::Deny => *b"PR",
                    Why::Tarpit => *b"PT",
                    Why::Return | Why::Redirect | Why::Auth => *b"LR",
                };
                let unread = why == Why::Redirect && client.request_framing() != Framing::None && !x.body_complete;
                reply(conn, client, x, &answer, unread).await;
                return Judged::Over;
            }
            Verdict::Reject | Verdict::Close => {
                conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
                x.log.TR = -1;
                x.log.termination = *b"PR";
                client.close();
                return Judged::Over;
            }
            Verdict::SilentDrop => {
                conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
                x.log.TR = -1;
                x.log.termination = *b"PR";
                client.vanish();
                return Judged::Over;
            }
            Verdict::Service(name) => {
                let services = &worker.shared.services;
                let Some((name, service)) = services.named.iter().find(|(known, _)| *known == &*name) else {
                    x.log.termination = *b"PR";
                    respond::error(conn, client, x, 500).await;
                    return Judged::Over;
                };
                respond::taken_by(conn, x, name);
                respond::service(conn, client, x, service.as_ref(), conn.frontend).await;
                return Judged::Over;
            }
            Verdict::WaitBody { next, time, at_least } => {
                from = next;
                if wait_for_body(conn, client, x, at_least, Some(time)).await == Judged::Over {
                    return Judged::Over;
                }
            }
            // More of the body is wanted than is here; when there is no more, the rule decides with what there is.
            Verdict::WaitMore { next } if !x.body_complete => {
                from = next;
                let more = x.body.as_ref().map_or(0, |body| body.len()) as u64 + 1;
                let limit = conn.proxy().timeouts.http_request;
                if wait_for_body(conn, client, x, more, limit).await == Judged::Over {
                    return Judged::Over;
                }
            }
            Verdict::WaitMore { next } => from = next + 1,
            Verdict::WaitHandshake { next } | Verdict::ExpectProxy { next } => from = next,
            Verdict::SwitchToHttp => return Judged::GoOn,
            Verdict::Failed => {
                cells.failed_rewrites.inc();
                x.log.termination = *b"PR";
                respond::error(conn, client, x, 500).await;
                return Judged::Over;
            }
        }
    }
}

/// Waits for a part of the request's body; a client that does not send it is told so.
pub(crate) async fn wait_for_body(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    at_least: u64,
    limit: Option<Duration>,
) -> Judged {
    match body::wait(conn, client, x, at_least, limit).await {
        Waited::Enough => return Judged::GoOn,
        Waited::Timeout => {
            x.log.termination = *b"cR";
            respond::refuse(conn, client, x, 408).await;
        }
        Waited::Failed(crate::message::Fault::Invalid(_)) => {
            x.log.termination = *b"PR";
            respond::refuse(conn, client, x, 400).await;
        }
        Waited::Failed(_) => {
            x.log.termination = *b"CR";
            x.aborted(400);
            client.abort();
        }
    }
    Judged::Over
}

/// Holds a client that was caught for `timeout tarpit`, unless it leaves.
async fn tarpit(conn: &mut Conn, client: &mut dyn Client, x: &Exchange) {
    let timeouts = &x.proxy(conn).timeouts;
    let Some(time) = timeouts.tarpit.or(timeouts.connect) else { return };
    conn.deadline.set(conn.worker.clock.now(), Some(time));
    let gone = std::future::poll_fn(|cx| client.poll_gone(cx));
    if in_time(&mut conn.deadline, gone).await.is_some() {
        return;
    }
    conn.worker.clock.tick();
}

/// Answers with what a rule made.
pub(crate) async fn reply(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, reply: &Reply, close: bool) {
    let body = match &reply.body {
        ReplyBody::ErrorPage => respond::page(conn, x, reply.status),
        ReplyBody::Bytes(bytes) => {
            x.response.start(reply.status, penstock_http::Version::Http11);
            bytes.clone()
        }
        ReplyBody::Raw(raw) => match respond::parse_page(raw, &mut x.response) {
            Some(body) => body,
            None => respond::page(conn, x, reply.status),
        },
    };
    for (name, value) in &reply.fields {
        // Rules write well-formed fields.
        let _ = x.response.fields.append(name, value);
    }
    if !matches!(reply.body, ReplyBody::ErrorPage | ReplyBody::Raw(_)) {
        let _ = x.response.fields.set(b"content-length", body.len().to_string().as_bytes());
    }
    respond::send(conn, client, x, &body, reply.close || close, reply.status).await;
}

/// Runs `http-response` rules; what they answer instead of the server's response has been sent when it is over.
pub(crate) async fn response(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, rules: &Rules) -> Judged {
    let worker = conn.worker.clone();
    let mut from = 0;
    loop {
        let verdict = rules.run(&mut context(&worker, conn, x, Stage::Response), from);
        let cells = worker.counters().frontend(conn.frontend);
        match verdict {
            Verdict::Continue | Verdict::Accept => return Judged::GoOn,
            Verdict::Respond(why, answer) => {
                if why == Why::Deny {
                    conn.listener_cells().iter().for_each(|cells| cells.denied_responses.inc());
                    if let (Some(backend), Some(server)) = (x.backend, x.server) {
                        worker.counters().backend(backend).denied_responses.inc();
                        worker.counters().server(backend, server).denied_responses.inc();
                    }
                }
                x.log.termination = if why == Why::Deny { *b"PH" } else { *b"LH" };
                reply(conn, client, x, &answer, false).await;
                return Judged::Over;
            }
            Verdict::Reject | Verdict::Close => {
                x.log.termination = *b"PH";
                client.close();
                return Judged::Over;
            }
            Verdict::SilentDrop => {
                x.log.termination = *b"PH";
                client.vanish();
                return Judged::Over;
            }
            Verdict::Failed => {
                cells.failed_rewrites.inc();
                x.log.termination = *b"PH";
                respond::error(conn, client, x, 502).await;
                return Judged::Over;
            }
            // Responses are not held back for their bodies: the rule is passed over.
            Verdict::WaitBody { next, .. } | Verdict::WaitMore { next } => from = next + 1,
            Verdict::WaitHandshake { next } | Verdict::ExpectProxy { next } => from = next,
            Verdict::Service(_) | Verdict::SwitchToHttp => return Judged::GoOn,
        }
    }
}

/// Rules that run before there is anything to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `tcp-request connection`: before PROXY header and TLS.
    Connection,
    /// `tcp-request session`: after them.
    Session,
}

/// Runs the rules of a fresh connection.
pub(crate) fn connection(conn: &mut Conn, socket: &Socket, kind: Kind) -> Judged {
    let worker = conn.worker.clone();
    let rules = worker.shared.program.of(conn.frontend);
    let list = match kind {
        Kind::Connection => &rules.tcp_connection,
        Kind::Session => &rules.tcp_session,
    };
    if list.is_empty() {
        return Judged::GoOn;
    }
    let mut x = Exchange::take(&worker);
    let mut from = 0;
    let judged = loop {
        match list.run(&mut context(&worker, conn, &mut x, Stage::Raw), from) {
            Verdict::Continue | Verdict::Accept | Verdict::SwitchToHttp => break Judged::GoOn,
            Verdict::ExpectProxy { next } => {
                conn.expects_proxy_header = true;
                from = next;
            }
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } | Verdict::WaitHandshake { next } => {
                from = next + 1
            }
            Verdict::SilentDrop => {
                socket.vanish_on_close();
                break Judged::Over;
            }
            Verdict::Reject | Verdict::Close | Verdict::Respond(..) | Verdict::Service(_) | Verdict::Failed => {
                break Judged::Over;
            }
        }
    };
    x.give(&worker);
    judged
}
