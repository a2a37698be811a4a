//! Changes that a proxy itself makes to messages: fields about the connection and about the client.

use super::{forwarded_header, state::Exchange};
use crate::connection::Conn;
use crate::server::Server;
use penstock_config::model::{Capture, ConnectionMode, ForwardFor, Proxy};
use penstock_http::{
    Connection, Fields, Framing, Known, Persistence, Version, receive_hop_by_hop, remove_hop_by_hop, set_connection,
};
use penstock_rules::fetch::{cookies, end_of_cookie};
use std::{fmt::Write, net::IpAddr};

/// Prepares the request's head for a server; returns whether the connection may be kept afterwards.
pub(crate) fn to_server(conn: &Conn<'_>, x: &mut Exchange, backend: &Proxy, server: &Server) -> bool {
    let frontend = conn.proxy();
    let version = match x.request.version() {
        Version::Http2 => Version::Http11,
        version => version,
    };
    // `option httpclose` of a frontend is about its clients.
    let close = frontend.options.connection == ConnectionMode::ServerClose
        || backend.options.connection != ConnectionMode::KeepAlive
        || conn.worker.draining.get();
    // What the client said has been taken out: a `close` is a rule's.
    let Connection { upgrade, close: by_rule, .. } = Connection::of(&x.request.fields);
    let close = close || by_rule;
    let fields = &mut x.request.fields;
    remove_hop_by_hop(fields, upgrade);
    let persistence = if by_rule || close && !backend.options.http_pretend_keepalive {
        Persistence::Close
    } else {
        Persistence::KeepAlive
    };
    set_connection(fields, version, version, persistence, upgrade);
    if let Some(name) = &backend.http_send_name_header {
        set(x, name, server.name.as_bytes());
        if name.eq_ignore_ascii_case("host") {
            x.request.put_host_into_target();
        }
    }
    !close
}

/// Adds the fields of `option forwardfor` and similar options, once per request.
pub(crate) fn forwarded_for(conn: &Conn<'_>, x: &mut Exchange, backend: &Proxy) {
    let (front, back) = (&conn.proxy().options, &backend.options);
    if front.forwardfor.is_some() || back.forwardfor.is_some() {
        let source = x.txn.source(&conn.facts).map(|a| a.ip());
        add_address(&mut x.request.fields, [&front.forwardfor, &back.forwardfor], source, "x-forwarded-for");
    }
    if front.originalto.is_some() || back.originalto.is_some() {
        let destination = x.txn.destination(&conn.facts).map(|a| a.ip());
        add_address(&mut x.request.fields, [&front.originalto, &back.originalto], destination, "x-original-to");
    }
    let Some(conf) = front.forwarded.as_ref().or(back.forwarded.as_ref()) else { return };
    let (source, destination) = (x.txn.source(&conn.facts), x.txn.destination(&conn.facts));
    let host = x.request.fields.get(b"host").map(<[u8]>::to_vec);
    if let Some(value) = forwarded_header::value(conf, conn.facts.tls.is_some(), host.as_deref(), destination, source) {
        append_to_list(&mut x.request.fields, b"forwarded", value.as_bytes());
    }
}

/// Adds an element to a field that is a list: behind the last one, which HAProxy writes on the same line.
fn append_to_list(fields: &mut Fields, name: &[u8], value: &[u8]) {
    let is_last = |position: &usize| {
        let said = fields.at(*position).filter(|field| field.name.eq_ignore_ascii_case(name));
        said.is_some_and(|field| !field.value.is_empty())
    };
    let _ = match (0..fields.len()).rev().find(is_last) {
        Some(position) => {
            let before = fields.at(position).map(|field| field.value).unwrap_or_default();
            let joined = [before, b",", value].concat();
            fields.set_value_at(position, &joined)
        }
        None => fields.append(name, value),
    };
}

/// Adds a field with an address, called `name` unless one side names it otherwise.
fn add_address(fields: &mut Fields, both: [&Option<ForwardFor>; 2], address: Option<IpAddr>, name: &str) {
    let [front, back] = both.map(Option::as_ref);
    // The backend's option names the header, even if only by default; the exceptions of both sides apply.
    let (Some(conf), Some(address)) = (back.or(front), address) else { return };
    let sides = || [front, back].into_iter().flatten();
    if sides().any(|side| is_excepted(side, address)) {
        return;
    }
    let name = conf.header.as_deref().unwrap_or(name);
    // It is added unconditionally if at least one side does so.
    if sides().all(|side| side.if_none) && fields.get(name.as_bytes()).is_some() {
        return;
    }
    let mut text = String::with_capacity(40);
    // Writing to a string cannot fail.
    let _ = write!(text, "{address}");
    let _ = fields.append(name.as_bytes(), text.as_bytes());
}

fn is_excepted(conf: &ForwardFor, address: IpAddr) -> bool {
    let Some((net, prefix)) = conf.except else { return false };
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((net, net_size), (address, size)) = (bits(net), bits(address));
    let prefix = u32::from(prefix);
    net_size == size && (prefix == 0 || (net ^ address) >> (128 - prefix.min(128)) == 0)
}

/// Prepares an interim response (1xx) for the client: it has no body and does not end the connection, whatever it says
/// (RFC 9110 section 8.6).
pub(crate) fn interim_to_client(x: &mut Exchange) {
    let fields = &mut x.response.fields;
    receive_hop_by_hop(fields);
    remove_hop_by_hop(fields, false);
    fields.remove_known(Known::TransferEncoding);
    fields.remove_known(Known::ContentLength);
}

/// How the response to the client is framed. This differs from the server's framing if a rule has changed the status,
/// or the method to or from HEAD.
pub(crate) fn framing_to_client(x: &mut Exchange, framing: Framing) -> Framing {
    if framing == Framing::Tunnel {
        return framing;
    }
    let status = x.response.status();
    if status == 204 {
        // RFC 9110, 8.6: a response whose status a rule has changed to this one keeps no length.
        x.response.fields.remove_known(Known::TransferEncoding);
        x.response.fields.remove_known(Known::ContentLength);
    }
    if x.wants_head_only() || matches!(status, 204 | 304) {
        return Framing::None;
    }
    if x.request.method() == b"HEAD" || framing == Framing::None {
        // The length is that of a body that the server was not asked for, or that its status did not have: a client that
        // waited for it would mistake the next response for it.
        x.response.fields.remove_known(Known::TransferEncoding);
        x.response.fields.set(b"content-length", b"0").expect("a name and a number");
    }
    framing
}

/// Prepares the response's head for the client; returns whether a rule wants the connection to close after it.
pub(crate) fn to_client(x: &mut Exchange) -> bool {
    // What the server said has been taken out.
    let close = Connection::of(&x.response.fields).close;
    let status = x.response.status();
    let upgrade = status == 101;
    // A 426 names the protocol that the client must change to (RFC 9110 section 15.5.22).
    remove_hop_by_hop(&mut x.response.fields, upgrade || status == 426);
    if upgrade {
        let version = x.response.version();
        set_connection(&mut x.response.fields, version, version, Persistence::KeepAlive, true);
    }
    close
}

/// Whether the client's connection must close after this exchange: because its frontend has `option httpclose` (in a
/// backend that closes the server's connection), or because the worker is ending.
pub(crate) fn closes(conn: &Conn<'_>) -> bool {
    conn.proxy().options.connection == ConnectionMode::Close || conn.worker.draining.get()
}

fn set(x: &mut Exchange, name: &str, value: &[u8]) {
    // Either a name that the configuration's parser accepted, or a server's name: both are well formed.
    let _ = x.request.fields.set(name.to_ascii_lowercase().as_bytes(), value);
}

/// Keeps the cookie that `capture cookie` names, as rules have left it.
pub(crate) fn capture_cookie(conn: &Conn<'_>, x: &mut Exchange) {
    if let Some(capture) = &conn.proxy().capture_cookie {
        x.txn.request_cookie = captured_cookie(&x.request.fields, capture);
    }
}

/// `capture cookie NAME len N` for a request: the first cookie whose name starts with NAME, with its value.
fn captured_cookie(fields: &Fields, capture: &Capture) -> Option<Vec<u8>> {
    fields
        .all_known(Known::Cookie)
        .flat_map(|header| cookies(header).map(<[u8]>::trim_ascii))
        .find(|cookie| is_captured(cookie, capture))
        .map(|cookie| cut(cookie, capture))
}

/// `capture cookie NAME len N` for a response: the first cookie set whose name starts with NAME, with its value.
pub(crate) fn captured_set_cookie(fields: &Fields, capture: &Capture) -> Option<Vec<u8>> {
    fields
        .all_known(Known::SetCookie)
        .map(|header| header[..end_of_cookie(header)].trim_ascii())
        .find(|cookie| is_captured(cookie, capture))
        .map(|cookie| cut(cookie, capture))
}

/// Whether the cookie's name starts as the capture says. What has no `=` is no cookie.
fn is_captured(cookie: &[u8], capture: &Capture) -> bool {
    cookie.starts_with(capture.name.as_bytes()) && cookie.contains(&b'=')
}

/// A captured cookie without blanks around its equals sign, as long as the capture says.
fn cut(cookie: &[u8], capture: &Capture) -> Vec<u8> {
    let mut cut = match memchr::memchr(b'=', cookie) {
        Some(at) => [cookie[..at].trim_ascii_end(), b"=", cookie[at + 1..].trim_ascii_start()].concat(),
        None => cookie.to_vec(),
    };
    cut.truncate(capture.len as usize);
    cut
}
