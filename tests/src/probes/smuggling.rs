//! Requests that two parsers could read differently. A raw-byte origin records what arrives: it must be readable in one
//! way only, and the request hidden in each probe must never be among what it reads.

use std::io::Write;
use std::time::Duration;

use super::{Probe, strict, with_penstock};
use crate::Failure;
use crate::client;
use crate::scenario::Section;
use crate::wire::quote;

const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

const CONFIG: &str = "[config]\nlisten l\n    bind {{bind http}}\n    server s1 {{origin a}}\n";

/// Name, head and body; `@` stands for the hidden request, `%` for its length in hexadecimal.
const REQUESTS: &[(&str, &str)] = &[
    (
        "length-and-chunked",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n@",
    ),
    (
        "chunked-and-length",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 200\r\n\r\n0\r\n\r\n@",
    ),
    ("two-lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n@"),
    ("two-lengths-in-one-field", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0, 36\r\n\r\n@"),
    ("equal-lengths-twice", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi@"),
    ("length-with-plus", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +0\r\n\r\n@"),
    ("length-negative", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n@"),
    ("length-hexadecimal", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x0\r\n\r\n@"),
    ("length-overflowing", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n@"),
    ("length-with-inner-space", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0 36\r\n\r\n@"),
    ("length-empty", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n@"),
    ("space-before-colon", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 36\r\n\r\n@"),
    ("folded-length", "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n Content-Length: 36\r\n\r\n@"),
    ("folded-encoding", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n@"),
    (
        "encoding-with-prefix",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n@",
    ),
    (
        "encoding-identity",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n@",
    ),
    ("encoding-not-last", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n@"),
    (
        "encoding-twice",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n@",
    ),
    ("encoding-chunked-twice", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n@"),
    (
        "encoding-vertical-tab",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n@",
    ),
    (
        "encoding-quoted",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n@",
    ),
    (
        "encoding-name-with-underscore",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n@",
    ),
    (
        "encoding-in-http10",
        "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n@",
    ),
    (
        "bare-lf-in-chunk-extension",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%;\n@\r\n0\r\n\r\n",
    ),
    ("bare-lf-after-chunk-size", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n@"),
    ("bare-cr-after-chunk-size", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\rhi\r\n0\r\n\r\n@"),
    (
        "chunk-size-overflowing",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n@",
    ),
    (
        "chunk-size-with-prefix",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n@",
    ),
    ("chunk-size-negative", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n@\r\n0\r\n\r\n"),
    ("chunk-size-empty", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\n@\r\n0\r\n\r\n"),
    ("chunk-without-line-end", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n@"),
    ("chunk-too-long", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiXX0\r\n\r\n@"),
    (
        "trailer-with-framing",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n@",
    ),
    ("trailer-with-bare-lf", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n@"),
    ("nul-in-value", "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n@"),
    ("nul-in-name", "GET / HTTP/1.1\r\nHost: h\r\nX\0Y: a\r\n\r\n@"),
    ("bare-cr-in-value", "GET / HTTP/1.1\r\nHost: h\r\nX: a\rContent-Length: 36\r\n\r\n@"),
    ("bare-cr-ends-head", "GET / HTTP/1.1\r\nHost: h\r\n\r\r\n@"),
    (
        "line-without-colon",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n@",
    ),
    ("body-with-get", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 36\r\n\r\n@"),
    ("request-line-in-target", "GET /x HTTP/1.1\r\nX: HTTP/1.1\r\nHost: h\r\nContent-Length: 36\r\n\r\n@"),
    ("tab-in-request-line", "GET\t/ HTTP/1.1\r\nHost: h\r\nContent-Length: 36\r\n\r\n@"),
];

pub fn probes() -> Vec<Probe> {
    let requests = REQUESTS.iter().map(|(name, text)| Probe::new(format!("smuggling/{name}"), move || probe(text)));
    let upgrades = Probe::new("smuggling/refused-upgrade-is-no-tunnel", refused_upgrade);
    requests.chain([upgrades]).collect()
}

/// Which of the probes carry the hidden text as a body of stated length, where it may arrive as such, is decided by
/// the strict reading: only a request whose target is `/smuggled` on a connection that was sent none counts.
fn probe(text: &str) -> Result<(), Failure> {
    let bytes = text.replace('@', HIDDEN).replace('%', &format!("{:x}", HIDDEN.len()));
    // A request that ends where the hidden one begins makes that one an ordinary second request.
    let ordinary = matches!(text.find('@'), Some(at) if ends_plainly(&text[..at]));
    with_penstock(CONFIG, |run| {
        let address = run.bind("http")?;
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(address, &plain)?;
        wire.set_read_timeout(Duration::from_millis(250)).map_err(|e| e.to_string())?;
        let _ = wire.write_all(bytes.as_bytes());
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer);
        for connection in run.recorder.raw() {
            let read = strict::requests(&connection)
                .map_err(|e| format!("the origin received {}: {e}", quote(&connection)))?;
            if !ordinary && read.iter().any(|m| m.start.contains("/smuggled")) {
                return Err(format!("the hidden request arrived: {}", quote(&connection)));
            }
        }
        if answer.is_empty() {
            return Ok(());
        }
        match answer.starts_with(b"HTTP/1.") {
            true => Ok(()),
            false => Err(format!("the answer is no HTTP: {}", quote(&answer))),
        }
    })
}

/// A head that states a clean, complete, empty or chunked body.
fn ends_plainly(text: &str) -> bool {
    // Equal lengths count once (RFC 9112 section 6.3), and the origin is told one.
    let text = text.replace("Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length: 2\r\n");
    strict::requests(text.as_bytes()).is_ok_and(|r| r.len() == 1) && !text.contains("Content-Length: 36")
}

/// A client that pretends to upgrade keeps a plain connection when the server does not switch.
fn refused_upgrade() -> Result<(), Failure> {
    with_penstock(&format!("{CONFIG}[answer a /ws]\nHTTP/1.1 426 No\nContent-Length: 0\n"), |run| {
        let address = run.bind("http")?;
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(address, &plain)?;
        wire.set_read_timeout(Duration::from_millis(250)).map_err(|e| e.to_string())?;
        let upgrade = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \
                       x\r\nSec-WebSocket-Version: 13\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: \
                       chunked\r\n\r\n";
        wire.write_all(upgrade.as_bytes()).map_err(|e| e.to_string())?;
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer);
        for connection in run.recorder.raw() {
            strict::requests(&connection).map_err(|e| format!("the origin received {}: {e}", quote(&connection)))?;
        }
        Ok(())
    })
}
