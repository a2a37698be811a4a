//! Clients and servers of exchanges, and what they saw, in words.

use super::{PATIENCE, coded, corpus::Server, memory::Memory};
use bytes::Bytes;
use penstock_http::{
    BodyReader, Fields, Framing, Parse, RequestHead, ResponseHead, Step, request_framing, response_framing,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends all of `request`, waits for the response, and ends its half.
pub(super) async fn http1_client(memory: Memory, request: &[u8]) -> Vec<String> {
    let (mut reader, mut writer) = tokio::io::split(memory);
    let sending = async {
        // If the request is refused, not all of it may be read.
        let _ = writer.write_all(request).await;
        tokio::time::sleep(PATIENCE).await;
        let _ = writer.shutdown().await;
    };
    let mut got = Vec::new();
    let ((), read) = tokio::join!(sending, reader.read_to_end(&mut got));
    let mut told = describe_responses(&got, request);
    if read.is_err() {
        told.push("reset".into());
    }
    told
}

/// Describes each response in one line, and lists the bytes that follow them.
fn describe_responses(mut bytes: &[u8], requests: &[u8]) -> Vec<String> {
    let mut told = Vec::new();
    let method = requests.split(|&byte| byte == b' ').next().unwrap_or_default();
    while !bytes.is_empty() {
        let mut head = ResponseHead::default();
        let Ok(Parse::Complete { consumed }) = head.parse(bytes, &penstock_http::Limits::default()) else { break };
        bytes = &bytes[consumed..];
        let fields = describe_fields(&head.fields);
        let status = head.status();
        let Ok(framing) = response_framing(&mut head, method, true) else { break };
        let framing = if head.is_interim() { Framing::None } else { framing };
        if framing == Framing::Tunnel {
            told.push(format!("{status} {fields}"));
            break;
        }
        let (body, used) = describe_body(framing, &head.fields, bytes);
        bytes = &bytes[used..];
        told.push(format!("{status} {fields} {body}"));
    }
    if !bytes.is_empty() {
        told.push(format!("bytes {:?}", String::from_utf8_lossy(bytes)));
    }
    told
}

fn describe_fields(fields: &Fields) -> String {
    let mut list: Vec<String> = fields
        .iter()
        .map(|field| format!("{}: {}", String::from_utf8_lossy(field.name), String::from_utf8_lossy(field.value)))
        .collect();
    list.sort();
    format!("[{}]", list.join(", "))
}

/// A body's payload, its trailers and whether it is complete; and how many bytes it took.
fn describe_body(framing: Framing, head: &Fields, bytes: &[u8]) -> (String, usize) {
    let mut reader = BodyReader::new(framing, penstock_http::Limits::default());
    let (mut payload, mut used) = (Vec::new(), 0);
    let end = loop {
        match reader.step(&bytes[used..]) {
            Ok(Step::Data(n)) => {
                payload.extend_from_slice(&bytes[used..used + n]);
                used += n;
            }
            Ok(Step::Framing(n) | Step::Skip(n)) => used += n,
            Ok(Step::End) => break "whole",
            Ok(Step::NeedMore) => break if reader.finish().is_ok() { "until close" } else { "cut" },
            Err(_) => break "broken",
        }
    };
    let payload = coded::decoded(head.get(b"content-encoding"), payload);
    (format!("{:?} {} {end}", String::from_utf8_lossy(&payload), describe_fields(reader.trailers())), used)
}

pub(super) async fn http2_client(
    memory: Memory,
    method: &str,
    path: &str,
    pieces: &'static [&'static [u8]],
    trailers: bool,
) -> Vec<String> {
    let mut told = Vec::new();
    let Ok((send, connection)) = h2::client::handshake(memory).await else { return vec!["no handshake".into()] };
    let driver = tokio::task::spawn_local(async move { drop(connection.await) });
    let mut send = send.ready().await.expect("the first request is let through");
    let request = http::Request::builder().method(method).uri(format!("http://h{path}")).body(()).expect("well formed");
    let (response, mut body) = send.send_request(request, pieces.is_empty()).expect("it is the first");
    for (at, piece) in pieces.iter().enumerate() {
        let last = at + 1 == pieces.len() && !trailers;
        // If the request is refused, not all of it may be read.
        let _ = body.send_data(Bytes::from_static(piece), last);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if trailers {
        let _ = body.send_trailers(
            [(http::HeaderName::from_static("x-trailer"), "one".parse().expect("plain"))].into_iter().collect(),
        );
    }
    match response.await {
        Ok(response) => told
            .push(describe_http2(response.status().as_str(), response.headers().clone(), response.into_body()).await),
        Err(e) => told.push(format!("failed: {e}")),
    }
    drop((send, body));
    let _ = driver.await;
    told
}

async fn describe_http2(start: &str, fields: http::HeaderMap, mut body: h2::RecvStream) -> String {
    let list = |fields: &http::HeaderMap| {
        let mut list: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        list.sort();
        list.join(", ")
    };
    let coding = fields.get("content-encoding").map(http::HeaderValue::as_bytes);
    let mut payload = Vec::new();
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                payload.extend_from_slice(&data);
            }
            Err(e) => {
                let payload = coded::decoded(coding, payload);
                return format!("{start} [{}] {:?} failed: {e}", list(&fields), String::from_utf8_lossy(&payload));
            }
        }
    }
    let payload = coded::decoded(coding, payload);
    let trailers = match body.trailers().await {
        Ok(trailers) => list(&trailers.unwrap_or_default()),
        Err(e) => format!("failed: {e}"),
    };
    format!("{start} [{}] {:?} [{trailers}]", list(&fields), String::from_utf8_lossy(&payload))
}

/// Serves a server's connection.
pub(super) async fn serve(
    memory: Memory,
    server: &'static Server,
    seen: Rc<RefCell<Vec<String>>>,
    asked: Rc<std::cell::Cell<usize>>,
) {
    match server {
        Server::Http2(pieces, trailers) => http2_server(memory, pieces, *trailers, seen).await,
        Server::Http1(answers) => {
            let mut next = move || {
                asked.set(asked.get() + 1);
                answers[(asked.get() - 1) % answers.len()]
            };
            http1_server(memory, &mut next, seen).await;
        }
        Server::Tunnel(answer) => tunnel_server(memory, answer, seen).await,
    }
}

/// Reads whole requests and responds to each; a response that ends in `<close>` is the last.
async fn http1_server(mut memory: Memory, next: &mut dyn FnMut() -> &'static [u8], seen: Rc<RefCell<Vec<String>>>) {
    let mut bytes = Vec::new();
    loop {
        let mut head = RequestHead::default();
        let parsed = head.parse(&bytes, &penstock_http::Limits::default());
        if let Ok(Parse::Complete { consumed }) = parsed {
            let framing = request_framing(&mut head).unwrap_or(Framing::None);
            let (body, used) = describe_body(framing, &head.fields, &bytes[consumed..]);
            if body.ends_with("whole") {
                bytes.drain(..consumed + used);
                seen.borrow_mut().push(format!("{} {body}", describe_request(&head)));
                let answer = next();
                let (answer, closes) = answer.strip_suffix(b"<close>").map_or((answer, false), |answer| (answer, true));
                if memory.write_all(answer).await.is_err() || closes {
                    return;
                }
                continue;
            }
        }
        if !matches!(memory.read_buf(&mut bytes).await, Ok(1..)) {
            // How much arrives of a request that is cancelled depends on timing.
            return;
        }
    }
}

fn describe_request(head: &RequestHead) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{} {} {}", text(head.method()), text(head.target()), describe_fields(&head.fields))
}

/// Responds to the head, echoes every byte that follows it, and at the end sends a last message.
async fn tunnel_server(mut memory: Memory, answer: &[u8], seen: Rc<RefCell<Vec<String>>>) {
    let mut bytes = Vec::new();
    let mut head = RequestHead::default();
    let used = loop {
        match head.parse(&bytes, &penstock_http::Limits::default()) {
            Ok(Parse::Complete { consumed }) => break consumed,
            _ if matches!(memory.read_buf(&mut bytes).await, Ok(1..)) => {}
            _ => return,
        }
    };
    let mut tunnelled = bytes.split_off(used);
    if memory.write_all(answer).await.is_err() {
        return;
    }
    let mut sent = 0;
    loop {
        if memory.write_all(&tunnelled[sent..]).await.is_err() {
            break;
        }
        sent = tunnelled.len();
        if !matches!(memory.read_buf(&mut tunnelled).await, Ok(1..)) {
            break;
        }
    }
    // The client has ended its half, but is still owed the rest.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = memory.write_all(b" and goodbye, at some length").await;
    seen.borrow_mut().push(format!("{} {:?}", describe_request(&head), String::from_utf8_lossy(&tunnelled)));
}

async fn http2_server(
    memory: Memory,
    pieces: &'static [&'static [u8]],
    trailers: bool,
    seen: Rc<RefCell<Vec<String>>>,
) {
    let Ok(mut connection) = h2::server::handshake(memory).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let seen = seen.clone();
        tokio::task::spawn_local(async move {
            let (head, body) = request.into_parts();
            let told = describe_http2(&format!("{} {}", head.method, head.uri), head.headers, body).await;
            seen.borrow_mut().push(told);
            let Ok(mut stream) = respond.send_response(http::Response::new(()), false) else { return };
            for (at, piece) in pieces.iter().enumerate() {
                let _ = stream.send_data(Bytes::from_static(piece), at + 1 == pieces.len() && !trailers);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if trailers {
                let sum = (http::HeaderName::from_static("x-sum"), "1".parse().expect("plain"));
                let _ = stream.send_trailers([sum].into_iter().collect());
            }
        });
    }
}
