//! Commands that list and end sessions, and show the last invalid messages.

use super::{Answer, Executor, Piece};
use penstock_config::model::{Mode, ProxyId};
use penstock_control::{Sessions, Severity};
use penstock_proxy::{BadMessage, Handle, SessionView};
use serde_json::json;
use std::{
    fmt::Write as _,
    net::SocketAddr,
    pin::Pin,
    task::{Poll, ready},
};

/// Writes one session.
type Write = fn(&Handle, &SessionView) -> String;

impl Executor {
    pub(super) fn sessions(&self, command: Sessions) -> Answer {
        match command {
            Sessions::List { json } => self.list_sessions(if json { object } else { line }, json),
            Sessions::Tell { id: None, json } => self.list_sessions(if json { object } else { lines }, json),
            Sessions::Tell { id: Some(id), json } => {
                let handle = self.handle.clone();
                let mut found = Some(handle.session(id));
                Answer::poll(move |cx| {
                    let Some(asked) = &mut found else { return Poll::Ready(None) };
                    let view = ready!(Pin::new(asked).poll(cx)).ok().flatten();
                    found = None;
                    Poll::Ready(Some(match view {
                        Some(view) => Piece::Data((if json { object } else { lines })(&handle, &view).into_bytes()),
                        None => Piece::Say(Severity::Info, "Session not found.".into()),
                    }))
                })
            }
            Sessions::End(id) => {
                let mut asked = Some(self.handle.end_session(id));
                Answer::poll(move |cx| {
                    let Some(found) = &mut asked else { return Poll::Ready(None) };
                    let was_there = ready!(Pin::new(found).poll(cx)).unwrap_or(false);
                    asked = None;
                    let missing = || Piece::Say(Severity::Error, "No such session (use 'show sess').".into());
                    Poll::Ready((!was_there).then(missing))
                })
            }
            Sessions::Errors { proxy, requests, json } => self.errors(proxy.as_deref(), requests, json),
        }
    }

    fn errors(&self, proxy: Option<&str>, requests: Option<bool>, json: bool) -> Answer {
        let shared = self.handle.shared();
        let wanted = match proxy.filter(|word| *word != "-1") {
            None => None,
            Some(word) => {
                let number = word.parse::<u32>().ok();
                let numbered = || shared.config.proxies.ids().find(|id| number == Some(shared.proxy_number(*id)));
                match self.handle.proxy(word, |_| true).or_else(numbered) {
                    Some(found) => Some(found),
                    None => return Answer::error("No such proxy."),
                }
            }
        };
        let places = shared.config.proxies.ids().flat_map(|id| [(id, true), (id, false)]);
        let found = places.filter(|(_, request)| requests.is_none_or(|only| only == *request));
        let found = found.filter_map(|(id, request)| Some((request, shared.bad_message(id, request)?)));
        // As in HAProxy: those in which the proxy takes part, on either side.
        let found = found.filter(|(_, message)| {
            wanted.is_none_or(|wanted| message.frontend == wanted || message.backend == Some(wanted))
        });
        let (count, found) = (shared.bad_messages(), found.collect::<Vec<_>>());
        let handle = self.handle.clone();
        if json {
            let list: Vec<_> = found.iter().map(|(request, message)| bad_object(&handle, *request, message)).collect();
            return Answer::data(format!("{}\n", json!({ "count": count, "last": list })));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let head = format!("Total events captured on [{}] : {count}\n", date(now.as_micros() as u64));
        let rest = found.into_iter().flat_map(move |(request, message)| bad_lines(&handle, request, &message));
        Answer::lines(std::iter::once(head).chain(rest))
    }

    fn list_sessions(&self, write: Write, json: bool) -> Answer {
        let (handle, mut list) = (self.handle.clone(), Some(self.handle.sessions()));
        let mut separator = if json { "[" } else { "" };
        Answer::poll(move |cx| {
            let Some(sessions) = &mut list else { return Poll::Ready(None) };
            let mut piece = String::new();
            match ready!(sessions.poll_some(cx)) {
                Some(views) => {
                    for view in views {
                        piece.push_str(separator);
                        piece.push_str(&write(&handle, &view));
                        separator = if json { "," } else { "" };
                    }
                }
                None => {
                    list = None;
                    match (json, separator) {
                        (true, "[") => piece.push_str("[]\n"),
                        (true, _) => piece.push_str("]\n"),
                        (false, _) => {}
                    }
                }
            }
            Poll::Ready(Some(Piece::Data(piece.into_bytes())))
        })
    }
}

/// Names of a session's places in the configuration.
struct Names<'a> {
    frontend: &'a str,
    backend: &'a str,
    server: String,
}

fn names<'a>(handle: &'a Handle, view: &SessionView) -> Names<'a> {
    let shared = handle.shared();
    let server = view.server.and_then(|at| shared.backends.server(at));
    Names {
        frontend: &shared.config.proxies[view.frontend].name,
        backend: view.backend.map_or("<NONE>", |backend| &shared.config.proxies[backend].name),
        server: server.map_or_else(|| "<none>".into(), |server| server.name.clone()),
    }
}

fn protocol(source: Option<SocketAddr>) -> &'static str {
    match source {
        Some(SocketAddr::V4(_)) => "tcpv4",
        Some(SocketAddr::V6(_)) => "tcpv6",
        None => "unix_stream",
    }
}

/// An address, or for a unix socket the number of its listener.
fn address(address: Option<SocketAddr>, view: &SessionView) -> String {
    match address {
        Some(SocketAddr::V4(address)) => address.to_string(),
        Some(SocketAddr::V6(address)) => format!("{}:{}", address.ip(), address.port()),
        None => format!("unix:{}", view.listener_id),
    }
}

/// A time in local time, as in logs.
fn date(unix_us: u64) -> String {
    penstock_rules::time::log_date(unix_us, penstock_proxy::local_offset(unix_us / 1_000_000))
}

/// A session in one line, as in `show sess`. What HAProxy shows of its tasks and buffers, after the server, has no
/// counterpart here.
fn line(handle: &Handle, view: &SessionView) -> String {
    let Names { frontend, backend, server } = names(handle, view);
    let source = address(view.source, view);
    format!(
        "{:#x}: proto={} src={source} fe={frontend} be={backend} srv={server} age={} thr={} rc={}\n",
        view.id,
        protocol(view.source),
        age(view.age.as_secs()),
        view.worker + 1,
        view.attempts.saturating_sub(1),
    )
}

/// A session in several lines.
fn lines(handle: &Handle, view: &SessionView) -> String {
    let shared = handle.shared();
    let Names { frontend, backend, server } = names(handle, view);
    let mode = |proxy: ProxyId| if shared.config.proxies[proxy].mode == Mode::Http { "http" } else { "tcp" };
    let listener = &shared.config.proxies[view.frontend].binds[view.bind];
    let mut text = format!(
        "{:#x}: [{}{:03}] id={} proto={} source={}\n",
        view.id,
        date(view.accepted_unix_us),
        view.accepted_unix_us % 1000,
        view.serial,
        protocol(view.source),
        address(view.source, view),
    );
    let _ = writeln!(
        text,
        "  frontend={frontend} (id={} mode={}), listener={} (id={}) addr={}",
        shared.proxy_number(view.frontend),
        mode(view.frontend),
        listener.name.as_deref().unwrap_or("?"),
        view.listener_id,
        address(view.destination, view),
    );
    let _ = match view.backend {
        Some(place) => {
            writeln!(text, "  backend={backend} (id={} mode={})", shared.proxy_number(place), mode(place))
        }
        None => writeln!(text, "  backend=<NONE> (id=-1 mode=-)"),
    };
    let known = view.server.and_then(|at| shared.backends.server(at));
    let _ = match known {
        Some(known) => writeln!(text, "  server={server} (id={})", known.id),
        None => writeln!(text, "  server=<none> (id=0)"),
    };
    let _ = writeln!(text, "  thr={} attempts={} age={}", view.worker + 1, view.attempts, age(view.age.as_secs()));
    text
}

fn object(handle: &Handle, view: &SessionView) -> String {
    let Names { frontend, backend, server } = names(handle, view);
    json!({
        "id": format!("{:#x}", view.id),
        "proto": protocol(view.source),
        "source": address(view.source, view),
        "destination": address(view.destination, view),
        "frontend": frontend,
        "backend": view.backend.map(|_| backend),
        "server": view.server.map(|_| server),
        "worker": view.worker + 1,
        "attempts": view.attempts,
        "age_ms": view.age.as_millis() as u64,
        "accepted_unix_us": view.accepted_unix_us,
    })
    .to_string()
}

/// A duration in HAProxy's format: its two largest units.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Lines about an invalid message: who sent it, what is wrong with it, and what was read.
fn bad_lines(handle: &Handle, request: bool, message: &BadMessage) -> Vec<String> {
    let shared = handle.shared();
    let named = |id: ProxyId| format!("{} (#{})", shared.config.proxies[id].name, shared.proxy_number(id));
    let backend = message.backend.map(named);
    let server = message.server.as_ref().map(|(name, id)| format!("{name} (#{id})"));
    let server = server.unwrap_or_else(|| "<NONE> (#-1)".into());
    let source = match message.source {
        Some(SocketAddr::V6(address)) => format!("{}:{}", address.ip(), address.port()),
        Some(address) => address.to_string(),
        None => format!("unix:{}", message.listener_id),
    };
    let at = date(message.unix_us);
    let (number, frontend) = (message.number, named(message.frontend));
    let mut lines = vec![" \n".to_string()];
    if request {
        let backend = backend.unwrap_or_else(|| "<NONE> (#-1)".into());
        lines.push(format!("[{at}] frontend {frontend}: invalid request\n"));
        lines.push(format!("  backend {backend}, server {server}, event #{number}, src {source}\n"));
    } else {
        lines.push(format!("[{at}] backend {}: invalid response\n", backend.as_deref().unwrap_or(&frontend)));
        lines.push(format!("  frontend {frontend}, server {server}, event #{number}, src {source}\n"));
    }
    lines.push(format!("  len {}, error: {}\n", message.bytes.len(), message.why));
    lines.push("  \n".into());
    lines.extend(dumped(&message.bytes));
    lines
}

/// The most bytes on one line of a dump.
const DUMPED: usize = 70;

/// Bytes in HAProxy's dump format: each line with its offset, and `+` if it continues the previous one.
fn dumped(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut start, mut begins) = (0, true);
    while start < bytes.len() {
        let (mut text, mut end) = (String::new(), start);
        while let Some(&byte) = bytes.get(end) {
            let written = match byte {
                b'\n' => "\\n".into(),
                b'\r' => "\\r".into(),
                b'\t' => "\\t".into(),
                0x1b => "\\e".into(),
                b'\\' => "\\\\".into(),
                b' '..=b'~' => (byte as char).to_string(),
                _ => format!("\\x{byte:02X}"),
            };
            if text.len() + written.len() > DUMPED {
                break;
            }
            text.push_str(&written);
            end += 1;
            if byte == b'\n' {
                break;
            }
        }
        lines.push(format!("  {start:05}{} {text}\n", if begins { ' ' } else { '+' }));
        begins = bytes[end - 1] == b'\n';
        start = end;
    }
    lines
}

fn bad_object(handle: &Handle, request: bool, message: &BadMessage) -> serde_json::Value {
    let name = |id: ProxyId| handle.shared().config.proxies[id].name.as_str();
    json!({
        "request": request,
        "number": message.number,
        "unix_us": message.unix_us,
        "frontend": name(message.frontend),
        "backend": message.backend.map(name),
        "server": message.server.as_ref().map(|(name, _)| name),
        "source": message.source.map(|source| source.to_string()),
        "error": message.why,
        "bytes": dumped(&message.bytes).concat(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_dump_shows_every_byte_and_where_its_lines_begin() {
        let dump = super::dumped(b"GET / HTTP/1.1\r\nA: \xff\x1b\\\r\n");
        assert_eq!(dump, ["  00000  GET / HTTP/1.1\\r\\n\n", "  00016  A: \\xFF\\e\\\\\\r\\n\n"]);
        let dump = super::dumped(&[b'a'; 75]);
        assert_eq!(dump[1], "  00070+ aaaaa\n");
    }

    #[test]
    fn ages() {
        for (seconds, wanted) in [(0, "0s"), (61, "1m1s"), (3661, "1h1m"), (90_000, "1d1h")] {
            assert_eq!(super::age(seconds), wanted);
        }
    }
}
