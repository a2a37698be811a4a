//! Requests, answers and connection scripts: well-formed ones, odd ones, malformed ones.

use super::case::Block;
use super::dice::Dice;

/// Targets that origins answer by themselves (see `origin::default_answer`), and some that say nothing to them.
const TARGETS: &[&str] = &[
    "/",
    "/",
    "/a/b?a=1&b=2",
    "/echo",
    "/bytes/10",
    "/bytes/5000",
    "/bytes/40000",
    "/chunked/3000",
    "/chunked/0",
    "/chunked/20000",
    "/status/404",
    "/status/503",
    "/status/204",
    "/status/304",
    "/status/401",
    "/close/10",
    "/trailers",
    "/told",
    "/told",
    "/told",
    "/told",
    "/a%20b/../c//d?x=%41",
    "/sleep/20",
    "/upgrade",
    "/monitor",
];

const ODD_TARGETS: &[&str] = &[
    "*",
    "http://h.example/a?a=1",
    "http://h.example",
    "https://other:8443/x",
    "//double/x",
    "/?",
    "/%zz",
    "/a#frag",
    "a/b",
    "http://",
    "/a;b=c",
    "/~{}|^`",
    "/\\xff",
    "/\\x01",
    "/a\\sb",
    "",
    "http:/one",
    "ftp://h.example/",
    "/a?a=1;b=2&a=3",
    "h.example:80",
    "?a=1",
    "http://u@h.example/x",
    "/cut/length",
    "/cut/chunked",
    "/reset/length",
];

const METHODS: &[&str] =
    &["GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO", "TRACE"];
const ODD_METHODS: &[&str] =
    &["CONNECT", "get", "G@T", "PRI", "GET\\s", "", "A:B", "LONGMETHODNAMEXXXXXXXXXXXXXXXXXXXXXX"];
const ODD_VERSIONS: &[&str] =
    &["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/11.1", "http/1.1", "HTTP/1.", "HTTP/1.1\\s", "RTSP/1.0", "HTTP/1.10"];

const FIELDS: &[&str] = &[
    "a: 1",
    "a: 1,2, 3",
    "A: \"q,r\",s",
    "b: b",
    "X-A: abc",
    "x-a: /a/b",
    "X-B: 127.0.0.1",
    "x-b: ::1",
    "x-c: 10",
    "x-c:",
    "x-c:  spaced  ",
    "Accept: */*",
    "Accept-Language: fr, en;q=0.5",
    "User-Agent: suite",
    "Cookie: sid=c1; A=c1~x; b=2",
    "Cookie: a=1",
    "Cookie: a=1,2; sid=\"x,y;z\", b=3",
    "cookie: a=\"x;y\"; b",
    "Authorization: Basic YWxpY2U6c2VjcmV0",
    "Authorization: Bearer tok.en",
    "X-Forwarded-For: 1.2.3.4",
    "X-Forwarded-For: 1.2.3.4, 5.6.7.8",
    "Referer: http://h.example/r",
    "X-B: {\"a\":1,\"b\":{\"c\":\"x\"}}",
    "x-a: YWJj",
    "Upgrade: websocket",
    "Connection: keep-alive",
    "Connection: close",
    "Expect: 100-continue",
    "Range: bytes=0-3",
    "If-None-Match: \"x\"",
    "Via: 1.1 v",
    "X-B: \\xc3\\xa9",
    "Max-Forwards: 0",
    "TE: trailers",
    "Accept-Encoding: gzip",
];

const ODD_FIELDS: &[&str] = &[
    "Connection: Upgrade",
    "Connection: x-a, close",
    "Connection: close, keep-alive",
    "Proxy-Connection: close",
    "Keep-Alive: 5",
    "Content-Length: 0",
    "Content-Length: 3",
    "Content-Length: 3\\n",
    "Content-Length: +3",
    "Content-Length: 3, 3",
    "Content-Length: 3,4",
    "Content-Length: -1",
    "Content-Length: 0x3",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding:  chunked",
    "Transfer-Encoding: CHUNKED",
    "Host: two",
    "Host: h.example:80",
    "Host: h.example:x",
    "Host:",
    "Bad Name: 1",
    "Bad\\x01: 1",
    "x-ctl: a\\x01b",
    "x-nul: a\\0b",
    "x-tab: a\\tb",
    " folded",
    ": nameless",
    "nocolon",
    "x-a : 1",
    "x_a: under",
    "x.a: dot",
    "x-del: a\\x7fb",
    "Expect: other",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Content-Type: application/x-www-form-urlencoded",
];

const BODIES: &[&str] = &["abc", "a=1&b=2", "a=1&a=%20x;b=3", "{\"a\":1}", "x"];

/// A step that asks for something. `told` are the answers to `/told`.
pub fn step(told: &[Block], dice: &mut Dice) -> Block {
    match dice.below(100) {
        0..=6 => script(told, dice),
        7..=13 => over_http2(dice),
        _ => request(told, dice),
    }
}

fn request(told: &[Block], dice: &mut Dice) -> Block {
    let mut head = "request b§".to_owned();
    let pipelined = dice.chance(6);
    let watched = !pipelined && dice.chance(12);
    let message = message(dice);
    if pipelined && !ends_the_connection(&message[0], told) {
        head.push_str(" pipeline=2");
    } else if watched {
        head.push_str(" watch");
    }
    Block::new(head, message)
}

/// Whether the body of the answer to this request ends with the connection. Penstock goes on there, with chunks
/// (`http/close-delimited-response`), and serves what HAProxy never reads.
fn ends_the_connection(request_line: &str, told: &[Block]) -> bool {
    request_line.contains("/close/")
        || request_line.contains("/told") && told.iter().any(|answer| answer.lines.iter().any(|l| l == "until close"))
}

/// A request as lines of a scenario.
fn message(dice: &mut Dice) -> Vec<String> {
    let odd = dice.chance(22);
    let method = if odd && dice.chance(15) { dice.pick(ODD_METHODS) } else { dice.pick(METHODS) };
    let target = if odd && dice.chance(35) { dice.pick(ODD_TARGETS) } else { dice.pick(TARGETS) };
    let version = match dice.below(20) {
        0 if odd => dice.pick(ODD_VERSIONS),
        1..=3 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let mut lines = vec![format!("{method} {target} {version}")];
    lines.push(format!("Host: {}", dice.pick(&["h.example", "h.example", "H.Example:8080", "127.0.0.1", "[::1]:80"])));
    if odd && dice.chance(4) {
        lines.pop();
    }
    for _ in 0..dice.below(5) {
        lines.push(dice.pick(FIELDS).to_owned());
    }
    if odd {
        for _ in 0..dice.below(3) {
            let at = 1 + dice.below(lines.len());
            lines.insert(at, dice.pick(ODD_FIELDS).to_owned());
        }
    }
    let framed = lines.iter().any(|l| {
        l.to_ascii_lowercase().starts_with("content-length") || l.to_ascii_lowercase().starts_with("transfer")
    });
    let wants_body = matches!(method, "POST" | "PUT" | "PATCH") || dice.chance(4);
    if wants_body && !framed {
        let body = dice.pick(BODIES);
        if dice.chance(50) {
            lines.push("Transfer-Encoding: chunked".to_owned());
            lines.push(String::new());
            lines.extend(chunked(body, dice));
        } else {
            lines.push(format!("Content-Length: {}", body.len()));
            lines.push(String::new());
            lines.push(body.to_owned());
        }
    } else if framed {
        lines.push(String::new());
        lines.push(dice.pick(&["abc", "3\\r\\nabc\\r\\n0\\r\\n\\r\\n", "abcdef"]).to_owned());
    }
    lines
}

/// A chunked body, as lines.
fn chunked(body: &str, dice: &mut Dice) -> Vec<String> {
    let cut = dice.below(body.len() + 1);
    let mut lines = Vec::new();
    for part in [&body[..cut], &body[cut..]] {
        if !part.is_empty() {
            let extension = if dice.chance(10) { dice.pick(&[";a", ";a=b", " ", ";a=\"q\""]) } else { "" };
            lines.push(format!("{:x}{extension}", part.len()));
            lines.push(part.to_owned());
        }
    }
    lines.push(dice.pick(&["0", "0", "0", "00", "000;x"]).to_owned());
    if dice.chance(15) {
        lines.push("X-Trailer: t".to_owned());
    }
    // Lines are joined, not ended, by CRLF, and a section loses its last empty ones.
    lines.push("\\r\\n".to_owned());
    if dice.chance(4) {
        let at = dice.below(lines.len());
        lines[at] = dice.pick(&["g", "-1", "ffffffffffffffffff", "3 3", ""]).to_owned();
    }
    lines
}

/// A connection in pieces, half closed, or cut.
fn script(told: &[Block], dice: &mut Dice) -> Block {
    let mut text = message(dice);
    // A script shows the chunks, whose sizes depend on packets: one of this length is one.
    text[0] = text[0].replace("/chunked/20000", "/chunked/3000");
    let split = text.iter().position(String::is_empty);
    let whole = match split {
        Some(at) => format!("{}\\r\\n\\r\\n{}", text[..at].join("\\r\\n"), text[at + 1..].join("\\r\\n")),
        None => format!("{}\\r\\n\\r\\n", text.join("\\r\\n")),
    };
    // Cut between the escapes' letters is no cut at all: the end of the first line is one that is safe.
    let cut = whole.find("\\r\\n").map_or(whole.len(), |at| at + 4 * dice.below(2));
    let mut lines = Vec::new();
    match dice.below(6) {
        0 => {
            lines.push(format!("send {}", &whole[..cut]));
            lines.push("sleep 30".to_owned());
            lines.push(format!("send {}", &whole[cut..]));
        }
        1 => {
            lines.push(format!("send {whole}"));
            lines.push("shutdown".to_owned());
        }
        2 => {
            lines.push(format!("send {}", &whole[..cut]));
            lines.push("shutdown".to_owned());
        }
        3 => lines.push(format!("send \\r\\n{whole}")),
        4 if ends_the_connection(&text[0], told) => lines.push(format!("send {whole}")),
        4 => lines.push(format!("send {whole}GET /second HTTP/1.1\\r\\nHost: h\\r\\nConnection: close\\r\\n\\r\\n")),
        _ => lines.push(format!("send {}", whole.replacen("HTTP/1.1", "HTTP/1.0", 1))),
    }
    lines.push("recv end".to_owned());
    Block::new("tcp b§", lines)
}

fn over_http2(dice: &mut Dice) -> Block {
    let mut line = "--http2-prior-knowledge -H user-agent:".to_owned();
    let method = dice.pick(METHODS);
    match method {
        "HEAD" => line.push_str(" -I"),
        method => line.push_str(&format!(" -X {method}")),
    }
    for _ in 0..dice.below(4) {
        let field = dice.pick(FIELDS);
        let forbidden = ["Connection", "Upgrade", "TE", "Expect", "User-Agent"].iter().any(|n| field.starts_with(n));
        if !forbidden && !field.contains(['"', '\\', '\'']) && !field.ends_with(':') {
            line.push_str(&format!(" -H '{field}'"));
        }
    }
    if matches!(method, "POST" | "PUT" | "PATCH") {
        line.push_str(&format!(" --data-binary '{}'", dice.pick(BODIES)));
    }
    line.push_str(&format!(" 'http://{{{{bind b§}}}}{}'", dice.pick(TARGETS)));
    Block::new("curl", vec![line, "-H 'Host: h.example'".to_owned()])
}

/// What the origin says to `/told`: one answer, or one after the other.
pub fn answers(dice: &mut Dice) -> Vec<Block> {
    (0..=dice.below(2)).map(|_| answer(dice)).collect()
}

const ANSWER_FIELDS: &[&str] = &[
    "a: 1",
    "X-A: abc",
    "x-b: 1,2",
    "Set-Cookie: sid=c1; Path=/",
    "Set-Cookie: A=x",
    "Set-Cookie: b=2; HttpOnly",
    "Cache-Control: no-cache",
    "Server: o",
    "Location: /else",
    "Content-Type: text/plain",
    "ETag: \"x\"",
    "Connection: keep-alive",
    "Connection: close",
    "X-B: \\xc3\\xa9",
    "Date: Thu, 01 Jan 1970 00:00:00 GMT",
    "Vary: a",
    "x-c: 5",
];

const ODD_ANSWER_FIELDS: &[&str] = &[
    "Content-Length: 7",
    "Content-Length: 3, 3",
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Bad Name: 1",
    "x-ctl: a\\x01b",
    "x-nul: a\\0b",
    ": nameless",
    "nocolon",
    " folded",
    "Connection: x-a",
    "Upgrade: websocket",
    "Keep-Alive: 5",
    "Proxy-Authenticate: Basic",
    "Trailer: x",
    "x_a: 1",
];

fn answer(dice: &mut Dice) -> Block {
    let mut head = "answer o§ /told".to_owned();
    let odd = dice.chance(30);
    match dice.below(30) {
        0 => head.push_str(" then=close"),
        1 => head.push_str(" then=\"sleep 50\" then=reset"),
        2 => head.push_str(" delay=30"),
        3 => head.push_str(" delay=1200"),
        _ => {}
    }
    let status = if odd && dice.chance(30) {
        dice.pick(&[
            "HTTP/1.1 200",
            "HTTP/1.1 200 ",
            "HTTP/2 200 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 20 OK",
            "200 OK",
            "HTTP/1.1 600 Odd",
            "HTTP/1.1 101 Switching",
            "HTTP/1.1 099 Low",
            "HTTP/1.0 200 Old",
            "junk",
        ])
    } else {
        dice.pick(&[
            "HTTP/1.1 200 OK",
            "HTTP/1.1 200 OK",
            "HTTP/1.1 404 No",
            "HTTP/1.1 503 Busy",
            "HTTP/1.1 302 Found",
            "HTTP/1.1 204 None",
            "HTTP/1.1 304 Same",
            "HTTP/1.0 200 OK",
            "HTTP/1.1 500 Err",
            "HTTP/1.1 206 Part",
            "HTTP/1.1 401 Who",
            "HTTP/1.1 205 Reset",
        ])
    };
    let mut lines = Vec::new();
    if dice.chance(6) {
        let early = dice.pick(&["HTTP/1.1 100 Continue", "HTTP/1.1 103 Early Hints\\r\\nLink: x", "HTTP/1.1 102 Wait"]);
        lines.push(format!("{early}\\r\\n\\r\\n{status}"));
    } else {
        lines.push(status.to_owned());
    }
    for _ in 0..dice.below(4) {
        lines.push(dice.pick(ANSWER_FIELDS).to_owned());
    }
    if odd {
        let at = 1 + dice.below(lines.len());
        lines.insert(at, dice.pick(ODD_ANSWER_FIELDS).to_owned());
    }
    let bodiless = status.contains(" 204") || status.contains(" 304");
    match dice.below(10) {
        _ if bodiless => {}
        0 | 1 => lines.extend([String::new(), "until close".to_owned()]),
        2 | 3 => {
            lines.push("Transfer-Encoding: chunked".to_owned());
            lines.push(String::new());
            lines.extend(chunked("told you", dice));
        }
        4 if odd => lines.extend(["Content-Length: 20".to_owned(), String::new(), "too short".to_owned()]),
        _ => lines.extend(["Content-Length: 4".to_owned(), String::new(), "told".to_owned()]),
    }
    Block::new(head, lines)
}

/// Names that requests and answers use are those that rules ask for.
#[cfg(test)]
mod tests {
    use super::super::speech::NAMES;
    use super::*;

    #[test]
    fn most_names_that_rules_ask_for_are_sent() {
        let sent: Vec<String> =
            FIELDS.iter().map(|f| f.split(':').next().unwrap_or_default().to_ascii_lowercase()).collect();
        let missing = NAMES.iter().filter(|n| !sent.contains(&n.to_ascii_lowercase())).count();
        assert!(missing <= 3, "{missing}");
    }

    #[test]
    fn chunked_bodies_end() {
        let lines = chunked("abc", &mut Dice::new(3));
        assert!(lines.iter().any(|l| l.starts_with('0')), "{lines:?}");
    }
}
