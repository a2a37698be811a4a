//! Where a connection of `mode tcp` goes: runs the rules that look at the first bytes from its client, and chooses the
//! backend.

use super::choose;
use crate::{
    connection::{Conn, in_time, stream::Fill},
    exchange::state::Exchange,
    inspect::taps,
    rules::{
        context::{self, Readable},
        resolve,
    },
    spoe,
    tcp::raw::Raw,
    worker::turn,
};
use penstock_config::model::{Mode, ProxyId, SpoeEvent};
use penstock_http::{Limits, Parse, Version};
use penstock_rules::{Buffered, By, During, Termination, Verdict};
use std::future::poll_fn;

/// How a connection of `mode tcp` continues.
pub(crate) enum Connected {
    Backend(ProxyId),
    /// As HTTP: `tcp-request content switch-mode`, maybe with a version, or a backend in mode http.
    Http(Option<Version>),
    Over,
}

/// Runs the rules of `mode tcp` on the first bytes from a client, and chooses its backend.
pub(crate) async fn connection(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange) -> Connected {
    let worker = conn.worker;
    for event in [SpoeEvent::ClientSession, SpoeEvent::FrontendTcpRequest] {
        if spoe::is_asked(conn, x, event) {
            Box::pin(told(conn, client, x, event)).await;
        }
    }
    match content(conn, client, x, conn.frontend).await {
        Content::Passed => {}
        Content::Http(version) => return Connected::Http(version),
        Content::Refused => return Connected::Over,
    }
    let stage = peek_request(x, client.pending());
    std::mem::swap(&mut x.body, &mut client.input);
    let chosen = choose(conn, x, stage);
    std::mem::swap(&mut x.body, &mut client.input);
    x.request.clear();
    let Some(backend) = chosen else {
        x.log.termination = Termination(By::Server, During::Connect);
        return Connected::Over;
    };
    if worker.shared.config.proxies[backend].mode == Mode::Http {
        return Connected::Http(None);
    }
    enter(conn, client, x, backend).await
}

/// Runs the rules of the chosen backend.
pub(crate) async fn enter(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, backend: ProxyId) -> Connected {
    x.backend = Some(backend);
    conn.worker.roster.note(x.listed, |session| session.backend = Some(backend));
    if backend != conn.frontend && spoe::is_asked(conn, x, SpoeEvent::BackendTcpRequest) {
        Box::pin(told(conn, client, x, SpoeEvent::BackendTcpRequest)).await;
    }
    if backend != conn.frontend && matches!(content(conn, client, x, backend).await, Content::Refused) {
        return Connected::Over;
    }
    Connected::Backend(backend)
}

/// Tells agents about an event, and what the client has sent so far.
async fn told(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, event: SpoeEvent) {
    let stage = peek_request(x, client.pending());
    std::mem::swap(&mut x.body, &mut client.input);
    spoe::tcp(conn, x, event, stage).await;
    std::mem::swap(&mut x.body, &mut client.input);
    x.request.clear();
}

/// Parses what the client has sent so far as an HTTP request, if it is one, since rules in TCP mode may ask about that
/// too. It is forwarded unchanged, so the parser here has to accept whatever a server might.
fn peek_request(x: &mut Exchange, bytes: &[u8]) -> Readable {
    x.request.clear();
    match x.request.peek(bytes, &Limits { lenient: true, ..Limits::default() }) {
        Ok(Parse::Complete { .. }) => Readable::Request,
        _ => {
            x.request.clear();
            Readable::Raw
        }
    }
}

/// The decision of content rules on a connection.
enum Content {
    Passed,
    Http(Option<Version>),
    Refused,
}

/// Evaluates `tcp-request content` again as more arrives, for at most `inspect-delay`.
async fn content(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, proxy: ProxyId) -> Content {
    let worker = conn.worker;
    let rules = &worker.shared.program.of(proxy).tcp_content;
    if rules.is_empty() {
        return Content::Passed;
    }
    let delay = worker.shared.config.proxies[proxy].tcp_request_inspect_delay;
    // Without a delay, the rules decide on what is there.
    conn.deadline.set(worker.clock.now(), Some(delay.unwrap_or_default()));
    let mut from = 0;
    let mut complete = false;
    loop {
        let verdict = {
            let stage = peek_request(x, client.pending());
            let mut context = context::context(conn, x, stage);
            context.input = Buffered { bytes: client.pending(), complete, raw: true, announced: None };
            context.output.complete = complete;
            rules.run(&mut context, from)
        };
        let refused = match verdict {
            Verdict::Continue | Verdict::Accept => {
                let stage = if x.request.method().is_empty() { Readable::Raw } else { Readable::Request };
                taps::choose(
                    conn,
                    x,
                    stage,
                    Buffered { bytes: client.pending(), complete, raw: true, announced: None },
                );
                x.request.clear();
                return Content::Passed;
            }
            Verdict::SwitchToHttp(version) => {
                x.request.clear();
                return Content::Http(version);
            }
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } if complete => {
                from = next + 1;
                continue;
            }
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } => {
                from = next;
                let more = in_time(&mut conn.deadline, poll_fn(|cx| client.poll_more(cx))).await;
                complete = client.is_full() || !matches!(more, Some(Ok(Fill::Bytes(_))));
                continue;
            }
            Verdict::ExpectProxy { next }
            | Verdict::WaitHandshake { next }
            | Verdict::CacheUse { next, .. }
            | Verdict::CacheStore { next, .. } => {
                from = next;
                continue;
            }
            Verdict::Resolve { next } => {
                from = next;
                resolve::settle(conn, x, Readable::Raw).await;
                continue;
            }
            Verdict::Consult { group, next } => {
                from = next;
                let stage = peek_request(x, client.pending());
                std::mem::swap(&mut x.body, &mut client.input);
                spoe::tcp_group(conn, x, group, stage).await;
                std::mem::swap(&mut x.body, &mut client.input);
                continue;
            }
            Verdict::Rest { next } => {
                from = next;
                poll_fn(turn::poll_proceed).await;
                continue;
            }
            Verdict::SilentDrop => {
                client.stream.socket().vanish_on_close();
                true
            }
            Verdict::Reject | Verdict::Close | Verdict::Respond(..) | Verdict::Service(_) | Verdict::Failed => true,
            // There are no passwords before HTTP.
            Verdict::Verify { .. } => true,
        };
        debug_assert!(refused);
        conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
        x.log.termination = Termination(By::Refusal, During::Request);
        x.request.clear();
        return Content::Refused;
    }
}
