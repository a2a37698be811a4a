//! `-d`: prints a line per event on standard output, in the format of HAProxy's debug mode: the proxy, the event, the
//! client, and the text. Nothing is formatted unless asked for.

use crate::{connection::Conn, exchange::state::Exchange};
use penstock_http::Fields;
use std::io::Write;

/// Shows a connection that has reached its first request.
pub(crate) fn accepted(conn: &Conn<'_>) {
    show(conn, &conn.proxy().name, |out, event| {
        let alpn = conn.facts.tls.as_ref().and_then(|tls| tls.alpn.as_deref()).unwrap_or(b"<none>");
        writeln!(out, "{}: ALPN={}", event("accept"), alpn.escape_ascii())
    });
}

/// Shows a request that has been read.
pub(crate) fn request(conn: &Conn<'_>, x: &Exchange) {
    show(conn, &conn.proxy().name, |out, event| {
        let (method, target) = (x.request.method().escape_ascii(), x.request.target().escape_ascii());
        writeln!(out, "{}: {method} {target} {}", event("clireq"), x.request.version().as_str())?;
        fields(out, &event("clihdr"), &x.request.fields)
    });
}

/// Shows the response of a server.
pub(crate) fn response(conn: &Conn<'_>, x: &Exchange) {
    show(conn, &conn.proxy_of(x).name, |out, event| {
        let (status, reason) = (x.response.status(), x.response.reason().escape_ascii());
        writeln!(out, "{}: {} {status} {reason}", event("srvrep"), x.response.version().as_str())?;
        fields(out, &event("srvhdr"), &x.response.fields)
    });
}

fn fields(out: &mut dyn Write, event: &str, fields: &Fields) -> std::io::Result<()> {
    fields.iter().try_for_each(|f| writeln!(out, "{event}: {}: {}", f.name.escape_ascii(), f.value.escape_ascii()))
}

/// Writes the lines of one event together, so that those of other workers do not come between them.
fn show(
    conn: &Conn<'_>,
    proxy: &str,
    write: impl FnOnce(&mut Vec<u8>, &dyn Fn(&str) -> String) -> std::io::Result<()>,
) {
    if !conn.worker.shared.config.global.debug {
        return;
    }
    let client = conn.facts.source().map_or_else(|| "unix".to_owned(), |src| src.to_string());
    let mut out = Vec::new();
    // Writing to a Vec does not fail, and a closed standard output is no reason to stop serving.
    let _ = write(&mut out, &|event| format!("{proxy}.{event}[{client}]"));
    let _ = std::io::stdout().write_all(&out);
}
