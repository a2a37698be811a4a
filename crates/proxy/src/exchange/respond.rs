//! Responses that are made here: error pages, replies of rules, the stats page.

use super::{
    ends::{Client, End},
    state::Exchange,
    timeouts::client_timeout,
    tunnel,
};
use crate::{
    connection::{Conn, taken_in_time},
    exchange::live::Live,
    http1::body::{VERSION, weight},
    inspect::passage,
    rules::{
        after_response,
        context::{self, Readable},
    },
};
use penstock_config::{Span, model::Proxy};
use penstock_http::{Connection, Framing, Known, Limits, Parse, ResponseHead, Version};
use penstock_rules::{LogLevel, ReplyBody, ReplyTemplate};
use std::{fmt::Write, future::poll_fn, sync::Arc, task::Poll};
use tokio::sync::mpsc::Receiver;

/// Responds to a request that could not be parsed, and ends the connection. HAProxy does so below the layer that counts
/// bytes and runs `http-after-response` rules, and uses the page set for the status only to see whether it is empty.
pub(crate) async fn refuse(live: &mut Live<'_, '_>, status: u16) {
    live.x.refused = true;
    if matches!(page(live.conn, live.x, status), Page::Silence) {
        hang_up(live.client, live.x, status);
    } else {
        let body = builtin(&mut live.x.response, status);
        send(live, &body, true, status).await;
    }
    live.x.log.bytes_read = 0;
}

/// Responds with the page for a status, unless a response has been started already.
pub(crate) async fn error(live: &mut Live<'_, '_>, status: u16) {
    if live.x.responded {
        return live.client.abort();
    }
    match page(live.conn, live.x, status) {
        Page::Body(body) => send(live, &body, false, status).await,
        Page::Silence => hang_up(live.client, live.x, status),
    }
}

/// The page to send when there is no response.
pub(crate) enum Page {
    /// A response, whose head is in the exchange.
    Body(Arc<[u8]>),
    /// Nothing: the errorfile is empty, like `/dev/null`.
    Silence,
}

/// Ends the connection, or the stream, without a response; the log shows `status`.
pub(crate) fn hang_up(client: &mut dyn Client, x: &mut Exchange, status: u16) {
    x.aborted(status);
    x.responded = true;
    client.abort();
}

/// Ends the client's connection without a response or a log line, as HAProxy does if a server has not answered one of its later
/// requests: a client has to expect that of a connection that it uses again, and knows whether it may repeat the request (RFC 9112
/// section 9.3.1).
pub(crate) fn close_silently(live: &mut Live<'_, '_>) {
    live.x.aborted(0);
    live.x.responded = true;
    live.x.txn.log_level = Some(LogLevel::Silent);
    live.client.close();
}

/// Writes the head of the page for a status into the exchange's response and returns the body: the backend's page, the
/// frontend's, or the built-in one.
pub(crate) fn page(conn: &mut Conn<'_>, x: &mut Exchange, status: u16) -> Page {
    let shared = conn.worker.shared.clone();
    let frontend = &shared.config.proxies[conn.frontend];
    let backend = x.backend.map(|index| &shared.config.proxies[index]);
    for (index, proxy) in backend.into_iter().zip(x.backend).map(|(p, i)| (i, p)).chain([(conn.frontend, frontend)]) {
        if let Some(template) = shared.program.of(index).http_errors.get(&status) {
            return from_template(conn, x, template);
        }
        if let Some(page) = own_page(proxy, &mut x.response, status) {
            return page;
        }
    }
    let why = tunnel::missing(conn, x).filter(|_| status == 503).map(|why| format!("{why}."));
    Page::Body(builtin_saying(&mut x.response, status, why.as_deref().unwrap_or(explanation(status))).into())
}

/// Makes a page that `http-error` describes.
fn from_template(conn: &mut Conn<'_>, x: &mut Exchange, template: &ReplyTemplate) -> Page {
    let reply = template.render(&context::context(conn, x, Readable::Request), Span::default());
    let (raw, body) = match reply.body {
        ReplyBody::Bytes(bytes) => (None, bytes.to_vec()),
        ReplyBody::Raw(raw) if raw.is_empty() => return Page::Silence,
        ReplyBody::Raw(raw) => (parse_page(&raw, &mut x.response), Vec::new()),
        ReplyBody::ErrorPage => return Page::Body(builtin(&mut x.response, reply.status).into()),
    };
    if let Some(body) = raw {
        return Page::Body(body.into());
    }
    x.response.start(reply.status, Version::Http11);
    for (name, value) in &reply.fields {
        // Fields that rules write are well formed.
        let _ = x.response.fields.append(name, value);
    }
    set_length(&mut x.response, body.len());
    Page::Body(body.into())
}

/// Says how long the body is, behind the other fields unless it is among them: a redirect has it in front, as HAProxy's.
pub(crate) fn set_length(head: &mut ResponseHead, length: usize) {
    let length = length.to_string();
    if head.fields.known(Known::ContentLength) != Some(length.as_bytes()) {
        // It is a number.
        let _ = head.fields.set(b"content-length", length.as_bytes());
    }
}

fn own_page(proxy: &Proxy, head: &mut ResponseHead, status: u16) -> Option<Page> {
    if let Some((code, url)) = proxy.errorlocs.get(&status) {
        head.start(*code, Version::Http11);
        fields(head, &[("cache-control", "no-cache"), ("content-length", "0"), ("location", url)]);
        return Some(Page::Body(Arc::default()));
    }
    let file = proxy.errorfiles.get(&status)?;
    match file.content.is_empty() {
        true => Some(Page::Silence),
        false => parse_page(&file.content, head).map(|body| Page::Body(body.into())),
    }
}

/// Parses a response from the contents of an errorfile; returns its body.
pub(crate) fn parse_page(content: &[u8], head: &mut ResponseHead) -> Option<Vec<u8>> {
    head.clear();
    let Ok(Parse::Complete { consumed }) = head.parse(content, &Limits { lenient: true, ..Limits::default() }) else {
        return None;
    };
    let body = content[consumed..].to_vec();
    Some(body)
}

fn builtin(head: &mut ResponseHead, status: u16) -> Vec<u8> {
    builtin_saying(head, status, explanation(status))
}

fn builtin_saying(head: &mut ResponseHead, status: u16, explanation: &str) -> Vec<u8> {
    head.start(status, Version::Http11);
    if let Some(reason) = page_reason(status) {
        head.set_reason(reason.as_bytes()).expect("plain text");
    }
    let reason = std::str::from_utf8(head.reason()).unwrap_or_default();
    let mut body = String::with_capacity(128);
    // Writing to a string cannot fail.
    let _ = write!(body, "<html><body><h1>{status} {reason}</h1>\n{explanation}\n</body></html>\n");
    let length = body.len().to_string();
    fields(head, &[("content-length", length.as_str()), ("cache-control", "no-cache"), ("content-type", "text/html")]);
    if matches!(status, 400 | 408) {
        // The client may disagree about where its next request begins.
        fields(head, &[("connection", "close")]);
    }
    body.into_bytes()
}

/// HAProxy's pages word some reasons differently.
fn page_reason(status: u16) -> Option<&'static str> {
    match status {
        400 => Some("Bad request"),
        413 => Some("Payload Too Large"),
        502 => Some("Bad Gateway"),
        _ => None,
    }
}

/// What `connection: close` adds to the size of a head in logs and statistics.
const CLOSE: &str = "connectionclose";

/// One sentence for the person who sees the page.
fn explanation(status: u16) -> &'static str {
    match status {
        200 => "Service ready.",
        400 => "Your browser sent an invalid request.",
        401 => "You need a valid user and password to access this content.",
        403 => "Request forbidden by administrative rules.",
        404 => "The resource could not be found.",
        405 => "A request was made of a resource using a request method not supported by that resource",
        407 => "You need a valid user and password to access this content.",
        408 => "Your browser didn't send a complete request in time.",
        410 => "The resource is no longer available and will not be available again.",
        413 => "The request entity exceeds the maximum allowed.",
        421 => "Request sent to a non-authoritative server.",
        422 => "The server cannot process the contained instructions.",
        425 => "Your browser sent early data.",
        429 => "You have sent too many requests in a given amount of time.",
        500 => "An internal server error occurred.",
        501 => "The server does not support the functionality required to fulfill the request.",
        502 => "The server returned an invalid or incomplete response.",
        503 => "No server is available to handle this request.",
        504 => "The server didn't respond in time.",
        _ => "",
    }
}

pub(crate) fn fields(head: &mut ResponseHead, list: &[(&str, &str)]) {
    for (name, value) in list {
        // Names and values from the configuration were checked when it was read.
        let _ = head.fields.append(name.as_bytes(), value.as_bytes());
    }
}

/// Gives back the memory of a request that is not looked at any more, for as long as its client takes to read the response: the log shows of
/// it what is known by now.
pub(crate) fn release_request(conn: &mut Conn<'_>, x: &mut Exchange) {
    context::make_unique_id(conn, x, Readable::Request);
    x.request.release();
}

/// Sends the response's head and `body`, and logs `status`, which differs from the one sent if an error is answered by
/// a redirect.
pub(crate) async fn send(live: &mut Live<'_, '_>, body: &[u8], last: bool, status: u16) {
    let before = live.x.response.status();
    (live.x.compressed.response, live.x.txn.compression) = (None, None);
    // What its rules see.
    live.x.txn.status = Some(status);
    if !live.x.refused {
        // A rule that fails here leaves the response as it is, since there is no other to replace it.
        let _ = after_response::run(live.conn, live.x);
    }
    release_request(live.conn, live.x);
    let said = Connection::of(&live.x.response.fields).close;
    // A 101 made by rules, as a test uses it in place of a WebSocket server, has no length and no response after it.
    let switches = live.x.response.status() == 101;
    if switches {
        live.x.response.fields.remove_known(Known::ContentLength);
    } else {
        live.x.response.fields.remove_known(Known::Connection);
    }
    // The log shows the intended status, unless a rule has set another.
    live.x.txn.status = Some(if live.x.response.status() == before { status } else { live.x.response.status() });
    live.x.log.bytes_read += weight(VERSION + 3 + live.x.response.reason().len(), &live.x.response.fields);
    if last || said || switches {
        live.x.log.bytes_read += CLOSE.len() as u64;
    }
    if live.x.response.status() == 204 {
        live.x.response.fields.remove_known(Known::ContentLength);
    }
    let head_only = live.x.wants_head_only() || matches!(live.x.response.status(), 204 | 304);
    let (framing, body) = match head_only {
        true => (Framing::None, &b""[..]),
        false if switches => (Framing::Tunnel, body),
        // The page of an errorfile may omit its length; then the end of the connection marks the end.
        false if !live.x.response.fields.has(Known::ContentLength) => (Framing::UntilClose, body),
        false => (Framing::Length(body.len() as u64), body),
    };
    live.x.log.bytes_read += body.len() as u64;
    let last = last || said || crate::exchange::headers::closes(live.conn);
    live.client.skip_body();
    passage::report(live.x, true);
    live.client.respond(&mut live.x.response, framing, last);
    live.x.responded = true;
    if !pour(live, body, true).await {
        live.client.abort();
    }
}

/// Sends the response's head and `first`, and then the pieces as they come, for as long as the client takes each within its
/// time; logs `status`.
pub(crate) async fn stream(live: &mut Live<'_, '_>, first: &[u8], mut pieces: Receiver<Vec<u8>>, status: u16) {
    live.x.txn.status = Some(status);
    // A rule that fails here leaves the answer as it is: there is none to take its place.
    let _ = after_response::run(live.conn, live.x);
    release_request(live.conn, live.x);
    live.x.response.fields.remove_known(Known::Connection);
    live.x.log.bytes_read += weight(VERSION + 3 + live.x.response.reason().len(), &live.x.response.fields);
    live.client.skip_body();
    live.client.respond(&mut live.x.response, Framing::Chunked, crate::exchange::headers::closes(live.conn));
    live.x.responded = true;
    let mut piece = Some(first.to_vec());
    while let Some(bytes) = &piece {
        live.x.log.bytes_read += bytes.len() as u64;
        if !pour(live, bytes, false).await {
            return live.client.abort();
        }
        piece = pieces.recv().await;
    }
    if !pour(live, b"", true).await {
        live.client.abort();
    }
}

/// Sends a part of the body, the last one with `is_last`; whether the client took it within its time.
async fn pour(live: &mut Live<'_, '_>, body: &[u8], is_last: bool) -> bool {
    let mut lent = None;
    let mut rest = body;
    let buffers = &live.worker.buffers;
    let sending = poll_fn(|cx| {
        loop {
            let Ok(buffer) = buffers.hold(&mut lent) else { return Poll::Ready(false) };
            if buffer.is_empty() {
                let taken = buffer.append(rest);
                rest = &rest[taken..];
            }
            let is_all = rest.is_empty();
            let end = (is_all && is_last).then_some(End { trailers: None });
            match live.client.poll_send(cx, buffer, end) {
                Poll::Pending => {
                    // If the client does not take the response, its copy is not held in a buffer.
                    if live.client.sends_plainly() {
                        rest = &body[body.len() - rest.len() - buffer.len()..];
                        buffers.give(lent.take().expect("it was there to be sent from"));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(())) if is_all => return Poll::Ready(true),
                Poll::Ready(Ok(())) => {}
            }
        }
    });
    live.conn.deadline.set(live.worker.clock.now(), client_timeout(live.conn, live.x));
    let sent = taken_in_time(live.worker, &mut live.conn.deadline, sending).await;
    if let Some(buffer) = lent {
        buffers.give(buffer);
    }
    sent == Some(true)
}
