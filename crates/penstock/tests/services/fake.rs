//! A service of ICAP that misbehaves as its path says, and a server that sends back what it is sent.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Serves connections for ever, each on a thread of its own; returns the port.
pub fn serve(work: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let work = Arc::new(work);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let work = work.clone();
            std::thread::spawn(move || work(stream));
        }
    });
    port
}

/// The lines of a head, without their ends; `None` at the end of the connection.
pub fn head(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

pub fn field<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Chunks up to the last; the line of that one.
pub fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Option<String> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..]).ok()?;
        let mut end = String::new();
        reader.read_line(&mut end).ok()?;
        if size == 0 {
            return Some(line);
        }
    }
}

/// A server that sends back the body it is sent, or as many bytes as the query says.
pub fn origin() -> u16 {
    serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(lines) = head(&mut reader) {
            let mut body = Vec::new();
            if field(&lines, "transfer-encoding").is_some() {
                if chunks(&mut reader, &mut body).is_none() {
                    return;
                }
            } else if let Some(length) = field(&lines, "content-length") {
                body.resize(length.parse().unwrap(), 0);
                if reader.read_exact(&mut body).is_err() {
                    return;
                }
            }
            if let Some((_, size)) = lines[0].split(' ').nth(1).and_then(|target| target.split_once("?bytes=")) {
                body = crate::common::bytes(size.parse().unwrap());
            }
            let told =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all(&[told.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    })
}

/// A server that sends back the head of the request that it got.
pub fn telling_origin() -> u16 {
    serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(lines) = head(&mut reader) {
            let body = lines.join("\n");
            let told = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(told.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// A server that takes most of a second to answer where its path says so.
pub fn slow_origin() -> u16 {
    serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(lines) = head(&mut reader) {
            if lines[0].contains("/slow") {
                std::thread::sleep(Duration::from_millis(800));
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    })
}

/// An origin with more to say than a response: early hints, and a trailer.
pub fn chatty_origin() -> u16 {
    serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while head(&mut reader).is_some() {
            let told = b"HTTP/1.1 103 Early Hints\r\nX-Early: hint\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                4\r\nbody\r\n0\r\nX-Late: trailer\r\n\r\n";
            if stream.write_all(told).is_err() {
                return;
            }
        }
    })
}

/// What a service is asked.
struct Asked {
    name: String,
    options: bool,
    heads: Vec<(String, Vec<u8>)>,
    has_body: bool,
    preview: bool,
    body: Vec<u8>,
    whole: bool,
}

fn asked(reader: &mut impl BufRead) -> Option<Asked> {
    let lines = head(reader)?;
    let mut words = lines[0].split(' ');
    let (method, uri) = (words.next()?, words.next()?);
    let name = uri.rsplit('/').next()?.to_owned();
    let parts: Vec<(&str, usize)> = field(&lines, "encapsulated")?
        .split(", ")
        .map(|part| part.split_once('=').unwrap())
        .map(|(name, at)| (name, at.parse().unwrap()))
        .collect();
    let mut heads = Vec::new();
    for pair in parts.windows(2) {
        let mut bytes = vec![0; pair[1].1 - pair[0].1];
        reader.read_exact(&mut bytes).ok()?;
        heads.push((pair[0].0.to_owned(), bytes));
    }
    let has_body = parts.last()?.0 != "null-body";
    let preview = field(&lines, "preview").is_some();
    let (mut body, mut whole) = (Vec::new(), true);
    // One that answers early does not wait for the body.
    if has_body && name != "early" {
        whole = chunks(reader, &mut body)?.contains("ieof") || !preview;
    }
    Some(Asked { name, options: method == "OPTIONS", heads, has_body, preview, body, whole })
}

/// An answer with an HTTP head, and its body as it is written.
fn answer(status: &str, part: &str, head: &str, body: &str) -> Vec<u8> {
    let what = part.replace("hdr", "body");
    let length = head.len();
    format!("ICAP/1.0 {status}\r\nISTag: \"1\"\r\nEncapsulated: {part}=0, {what}={length}\r\n\r\n{head}{body}")
        .into_bytes()
}

const BLOCKED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n";

/// How often each path was asked, by connection and in all.
#[derive(Default)]
struct Count(HashMap<String, u32>);

impl Count {
    fn next(&mut self, name: &str) -> u32 {
        let count = self.0.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }
}

/// A service; while `ill`, the path `healing` gets garbage.
pub fn service(ill: Arc<AtomicBool>) -> u16 {
    serve(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        let mut count = Count::default();
        while let Some(mut asked) = asked(&mut reader) {
            if asked.options {
                let preview = if asked.name == "whole" { "" } else { "Preview: 30\r\n" };
                let told = format!(
                    "ICAP/1.0 200 OK\r\nMethods: REQMOD, RESPMOD\r\nISTag: \"1\"\r\n{preview}Allow: 204, 206\r\nEncapsulated: null-body=0\r\n\r\n"
                );
                if stream.write_all(told.as_bytes()).is_err() {
                    return;
                }
                continue;
            }
            let times = count.next(&asked.name);
            let Some(told) = reply(&mut asked, times, &mut reader, &mut stream, &ill) else { return };
            let closes = told.ends_with(b"close");
            let told = told.strip_suffix(b"close").unwrap_or(&told);
            if stream.write_all(told).is_err() || closes {
                return;
            }
        }
    })
}

/// The answer, ending in `close` if the connection is to be closed after it; `None` to close it without one.
fn reply(
    asked: &mut Asked,
    times: u32,
    reader: &mut impl BufRead,
    stream: &mut TcpStream,
    ill: &AtomicBool,
) -> Option<Vec<u8>> {
    let plain = |text: &str| Some(text.as_bytes().to_vec());
    match asked.name.as_str() {
        "never" => {
            std::thread::sleep(Duration::from_secs(3));
            None
        }
        "late" => {
            std::thread::sleep(Duration::from_millis(150));
            plain("ICAP/1.0 204 Late\r\n\r\n")
        }
        "vanish" => None,
        "once" => plain("ICAP/1.0 204 Once\r\n\r\nclose"),
        "drop" if times > 1 => None,
        "drop" | "whole" => plain("ICAP/1.0 204 Unmodified\r\n\r\n"),
        "healing" if !ill.load(Ordering::SeqCst) => plain("ICAP/1.0 204 Unmodified\r\n\r\n"),
        "garbage" | "healing" => plain("\0\u{7f}garbage\r\n\r\nclose"),
        "http" => plain("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "refusing" => plain("ICAP/1.0 500 Server Error\r\n\r\n"),
        "missing" => plain("ICAP/1.0 404 Not Found\r\n\r\n"),
        "beginning" => plain("ICAP/1.0 200 OK\r\nEncapsulclose"),
        "half" => Some(
            [answer("200 OK", "res-hdr", "HTTP/1.1 200 OK\r\n\r\n", "64\r\nonly a part"), b"close".to_vec()].concat(),
        ),
        "smuggle" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length : 5\r\nX: y\r\n\r\n";
            Some(answer("200 OK", "res-hdr", head, "5\r\nhello\r\n0\r\n\r\n"))
        }
        "beyond" => {
            let (part, head) = asked.heads.pop()?;
            let head = String::from_utf8(head).ok()?;
            let part = if part == "req-hdr" { "req-hdr" } else { "res-hdr" };
            Some(answer("206 Partial", part, &head, "0; use-original-body=9999999\r\n\r\n"))
        }
        "early" => {
            Some([answer("200 OK", "res-hdr", BLOCKED, "7\r\nblocked\r\n0\r\n\r\n"), b"close".to_vec()].concat())
        }
        "echo" => {
            if asked.has_body && asked.preview && !asked.whole {
                stream.write_all(b"ICAP/1.0 100 Continue\r\n\r\n").ok()?;
                chunks(reader, &mut asked.body)?;
            }
            let mut told = String::from("ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nEncapsulated: ");
            let (part, head) = asked.heads.pop()?;
            let body = if asked.has_body { part.replace("hdr", "body") } else { "null-body".to_owned() };
            told += &format!("{part}=0, {body}={}\r\n\r\n", head.len());
            let mut told = [told.as_bytes(), &head].concat();
            // Chunks of sizes that nobody expects.
            let mut rest = &asked.body[..];
            let mut size = 1;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(size));
                told.extend_from_slice(format!("{:x}\r\n", now.len()).as_bytes());
                told.extend_from_slice(now);
                told.extend_from_slice(b"\r\n");
                (rest, size) = (later, size * 3 % 20_011 + 1);
            }
            if asked.has_body {
                told.extend_from_slice(b"0\r\n\r\n");
            }
            Some(told)
        }
        other => panic!("there is no service {other}"),
    }
}
