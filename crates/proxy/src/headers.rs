//! What a proxy itself changes in messages on their way: connection handling, and who the client is.

use crate::{conn::Conn, exchange::Exchange, forwarded, server::Server};
use penstock_config::model::{Capture, ConnectionMode, ForwardFor, Proxy};
use penstock_http::{Connection, Fields, Known, Persistence, Version, remove_hop_by_hop, set_connection};
use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

/// Prepares the request's head for a server; whether the connection may be kept afterwards.
pub(crate) fn to_server(conn: &Conn, x: &mut Exchange, backend: &Proxy, server: &Server) -> bool {
    let frontend = conn.proxy();
    let version = match x.request.version() {
        Version::Http2 => Version::Http11,
        version => version,
    };
    let close = frontend.options.connection != ConnectionMode::KeepAlive
        || backend.options.connection != ConnectionMode::KeepAlive;
    let connection = Connection::of(&x.request.fields);
    let upgrade = connection.upgrade;
    let fields = &mut x.request.fields;
    remove_hop_by_hop(fields, connection, upgrade);
    let persistence =
        if close && !backend.options.http_pretend_keepalive { Persistence::Close } else { Persistence::KeepAlive };
    set_connection(fields, version, version, persistence, upgrade);
    if let Some(name) = &backend.http_send_name_header {
        set(x, name, server.name.as_bytes());
    }
    !close
}

/// Adds what `option forwardfor` and its relatives say, once a request.
pub(crate) fn forwarded_for(conn: &Conn, x: &mut Exchange, backend: &Proxy) {
    let (front, back) = (&conn.proxy().options, &backend.options);
    if front.forwardfor.is_some() || back.forwardfor.is_some() {
        let source = x.txn.src_ip.or(conn.facts.src.map(|a| a.ip()));
        add_address(&mut x.request.fields, [&front.forwardfor, &back.forwardfor], source, "x-forwarded-for");
    }
    if front.originalto.is_some() || back.originalto.is_some() {
        let destination = x.txn.dst_ip.or(conn.facts.dst.map(|a| a.ip()));
        add_address(&mut x.request.fields, [&front.originalto, &back.originalto], destination, "x-original-to");
    }
    let Some(conf) = front.forwarded.as_ref().or(back.forwarded.as_ref()) else { return };
    // Rules may have given the connection other addresses.
    let with = |told: Option<IpAddr>, facts: Option<SocketAddr>| match (told, facts) {
        (Some(ip), facts) => Some(SocketAddr::new(ip, facts.map_or(0, |a| a.port()))),
        (None, facts) => facts,
    };
    let (source, destination) = (with(x.txn.src_ip, conn.facts.src), with(x.txn.dst_ip, conn.facts.dst));
    let host = x.request.fields.get(b"host").map(<[u8]>::to_vec);
    if let Some(value) = forwarded::value(conf, conn.facts.tls.is_some(), host.as_deref(), destination, source) {
        let _ = x.request.fields.append(b"forwarded", value.as_bytes());
    }
}

/// Adds a field with an address, called `name` where neither side says otherwise.
fn add_address(fields: &mut Fields, both: [&Option<ForwardFor>; 2], address: Option<IpAddr>, name: &str) {
    let [front, back] = both.map(Option::as_ref);
    // The backend's header name wins, either side's exception counts.
    let (Some(conf), Some(address)) = (back.or(front), address) else { return };
    let sides = || [front, back].into_iter().flatten();
    if sides().any(|side| is_excepted(side, address)) {
        return;
    }
    let name = conf.header.as_deref().or(front.and_then(|front| front.header.as_deref())).unwrap_or(name);
    if sides().any(|side| side.if_none) && fields.get(name.as_bytes()).is_some() {
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

/// Prepares the response's head for the client.
pub(crate) fn to_client(x: &mut Exchange, _backend: &Proxy) {
    let connection = Connection::of(&x.response.fields);
    let upgrade = x.response.status() == 101;
    remove_hop_by_hop(&mut x.response.fields, connection, upgrade);
    if upgrade {
        let version = x.response.version();
        set_connection(&mut x.response.fields, version, version, Persistence::KeepAlive, true);
    }
}

/// Whether the configuration wants the client's connection closed after this exchange (`option httpclose`).
pub(crate) fn closes(conn: &Conn, x: &Exchange) -> bool {
    let close = |proxy: &Proxy| proxy.options.connection == ConnectionMode::Close;
    close(conn.proxy()) || close(x.proxy(conn)) || conn.worker.draining.get()
}

fn set(x: &mut Exchange, name: &str, value: &[u8]) {
    // A name that the configuration's reader let through, or a server's name: both are well formed.
    let _ = x.request.fields.set(name.to_ascii_lowercase().as_bytes(), value);
}

/// `capture cookie NAME len N` of a request: the first cookie whose name begins so, with its value.
pub(crate) fn captured_cookie(fields: &Fields, capture: &Capture) -> Option<Vec<u8>> {
    fields
        .all_known(Known::Cookie)
        .flat_map(|header| header.split(|&b| b == b';').map(<[u8]>::trim_ascii))
        .find(|cookie| cookie.starts_with(capture.name.as_bytes()))
        .map(|cookie| cut(cookie, capture))
}

/// The same of a response.
pub(crate) fn captured_set_cookie(fields: &Fields, capture: &Capture) -> Option<Vec<u8>> {
    fields
        .all_known(Known::SetCookie)
        .map(|header| header.split(|&b| b == b';').next().unwrap_or_default().trim_ascii())
        .find(|cookie| cookie.starts_with(capture.name.as_bytes()))
        .map(|cookie| cut(cookie, capture))
}

fn cut(cookie: &[u8], capture: &Capture) -> Vec<u8> {
    cookie[..cookie.len().min(capture.len as usize)].to_vec()
}
