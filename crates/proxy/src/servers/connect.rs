//! Opens a connection to a server: socket, PROXY header, TLS.

use crate::{
    connection::{Conn, socket::Socket, sockopt, stream::Stream},
    process::{namespaces, shared::Shared},
    server::{Server, Target},
};
use penstock_backends::reuse::Key;
use penstock_config::model::SourceAddress;
use penstock_http::proxy_protocol::{self, Tlvs};
use penstock_rules::{PacketFields, Txn};
use penstock_tls::{HandshakeError, Probed, Requested};
use socket2::SockRef;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::{fd::AsFd, linux::net::SocketAddrExt},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, UnixStream},
};

/// Why a connection could not be opened.
#[derive(Debug)]
#[allow(dead_code, reason = "the reasons inside are for whoever debugs")]
pub(crate) enum Failure {
    /// The server's name is not resolved, or TLS is needed and switched off.
    NoAddress,
    /// Refused, unreachable or reset.
    Refused(io::Error),
    /// We lack a descriptor, port or memory for it.
    Exhausted(io::Error),
    /// TLS failed.
    Tls(HandshakeError),
}

/// Connects to a server as the key says. The caller limits the time.
pub(crate) async fn open(shared: &Shared, server: &Server, key: &Key) -> Result<Stream, Failure> {
    let socket = open_clear(shared, server, key).await?;
    let Some(connector) = server.with.connector.as_ref().filter(|_| key.encrypted) else {
        return Ok(Stream::Clear(socket));
    };
    let pinned = key.pinned.map(|digest| connector.pinned(digest));
    let connector = pinned.as_ref().unwrap_or(connector);
    let narrowed = key.only_http1.then(|| connector.offering(&[b"http/1.1"]));
    let connector = narrowed.as_ref().unwrap_or(connector);
    let tls = connector.connect(socket, key.name.sni.as_deref()).await.map_err(Failure::Tls)?;
    Ok(Stream::Tls(Box::new(tls)))
}

/// Connects to a server in whose place a client is to be answered, and finds out what is wrong with it. The caller limits the time.
pub(crate) async fn probe(
    shared: &Shared,
    server: &Server,
    key: &Key,
    asked: &Requested,
    tolerates: bool,
) -> Result<Probed<Socket>, Failure> {
    // An operator has switched TLS off.
    let Some(connector) = server.with.connector.as_ref().filter(|_| key.encrypted) else {
        return Err(Failure::NoAddress);
    };
    let socket = open_clear(shared, server, key).await?;
    connector.probe(socket, key.name.sni.as_deref(), asked, tolerates).await.map_err(Failure::Tls)
}

/// Opens what TLS, or else the protocol itself, begins on.
async fn open_clear(shared: &Shared, server: &Server, key: &Key) -> Result<Socket, Failure> {
    let namespace = namespaces::of_server(&server.config.settings, key.namespace.as_deref());
    let opened = open_socket(shared, server, &key.target, namespace, key.source, key.packets).await;
    let mut socket = opened.map_err(classify)?;
    if let Some(header) = &key.header {
        socket.write_all(header).await.map_err(Failure::Refused)?;
    }
    Ok(socket)
}

/// Where connections to the server come from, if its line or its section says so.
pub(crate) fn source_of<'a>(shared: &'a Shared, server: &'a Server) -> Option<&'a SourceAddress> {
    server.config.settings.source.as_ref().or(shared.config.proxies[server.at.proxy].source.as_ref())
}

/// Opens a clear-text connection, in this network namespace, from this client's address if there is one of the same kind.
pub(crate) async fn open_socket(
    shared: &Shared,
    server: &Server,
    target: &Target,
    namespace: Option<&str>,
    client: Option<IpAddr>,
    packets: PacketFields,
) -> io::Result<Socket> {
    let proxy = &shared.config.proxies[server.at.proxy];
    let address = match target {
        Target::Ip(address) => *address,
        Target::Unix(path) => return UnixStream::connect(&**path).await.map(Socket::Unix),
        Target::Abstract(name) => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&**name)?;
            let connect = || std::os::unix::net::UnixStream::connect_addr(&address);
            let stream = shared.namespaces.within(namespace, connect)??;
            stream.set_nonblocking(true)?;
            return UnixStream::from_std(stream).map(Socket::Unix);
        }
    };
    #[cfg(test)]
    if let Some(memory) = crate::model::memory::connect(address) {
        return Ok(Socket::Memory(memory));
    }
    let make = if address.is_ipv4() { TcpSocket::new_v4 } else { TcpSocket::new_v6 };
    let socket = shared.namespaces.within(namespace, make)??;
    socket.set_nodelay(true)?;
    if proxy.options.srvtcpka {
        sockopt::keep_alive(&SockRef::from(&socket), proxy.options.srvtcpka_probes, false)?;
    }
    let tune = &shared.config.global.tune;
    sockopt::size_buffers(&SockRef::from(&socket), tune.rcvbuf_server, tune.sndbuf_server);
    if let Some(timeout) = server.config.settings.tcp_ut {
        SockRef::from(&socket).set_tcp_user_timeout(Some(timeout))?;
    }
    if let Some(source) = source_of(shared, server) {
        if let Some(interface) = &source.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(client) = client.filter(|client| client.is_ipv4() == address.is_ipv4()) {
            match client {
                IpAddr::V4(_) => SockRef::from(&socket).set_ip_transparent_v4(true)?,
                IpAddr::V6(_) => SockRef::from(&socket).set_ip_transparent_v6(true)?,
            }
            bind_source(&socket, client, None)?;
        } else if let Some(ip) = source.ip.filter(|ip| ip.is_ipv4() == address.is_ipv4()) {
            bind_source(&socket, ip, source.ports)?;
        }
    }
    // Without the right to set it, packets stay as they are, as in HAProxy.
    let _ = penstock_sys::mark_packets(socket.as_fd(), address, packets.mark, packets.tos);
    let socket = Socket::from(socket.connect(address).await?);
    if proxy.options.nolinger {
        socket.reset_on_close();
    }
    Ok(socket)
}

/// Binds to the source address. Without a port, the system chooses one once it knows the destination, so that the same
/// port can be used for many destinations.
fn bind_source(socket: &TcpSocket, ip: IpAddr, ports: Option<(u16, u16)>) -> io::Result<()> {
    let Some((first, last)) = ports else {
        // If this fails, each connection takes a port of its own: there can be fewer of them, but they work.
        let _ = penstock_sys::set_bind_address_no_port(socket.as_fd());
        return socket.bind(SocketAddr::new(ip, 0));
    };
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for port in first..=last {
        result = socket.bind(SocketAddr::new(ip, port));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn classify(e: io::Error) -> Failure {
    use rustix::io::Errno as E;
    match E::from_io_error(&e) {
        Some(E::MFILE | E::NFILE | E::NOBUFS | E::NOMEM | E::ADDRNOTAVAIL | E::AGAIN) => Failure::Exhausted(e),
        _ => Failure::Refused(e),
    }
}

/// Writes the header of `send-proxy` and similar options, which says who the client is, with fields of the server's own. A
/// unique-id must have been made before.
pub(crate) fn proxy_header(
    conn: &Conn<'_>,
    txn: &Txn,
    version: u8,
    options: &[String],
    own: &[(u8, Vec<u8>)],
    out: &mut Vec<u8>,
) {
    let facts = &conn.facts;
    let addresses = txn.source(facts).zip(txn.destination(facts));
    if version == 1 {
        return proxy_protocol::write_v1(addresses, out);
    }
    let start = out.len();
    let plain = || proxy_protocol::Header { addresses, ..Default::default() };
    let written = fields(conn, txn, options, own).and_then(|tlvs| {
        let header = proxy_protocol::Header { tlvs, ..plain() };
        proxy_protocol::write_v2(&header, out)
    });
    if written.is_err() {
        // An optional part does not fit; the addresses alone always do.
        out.truncate(start);
        let _ = proxy_protocol::write_v2(&plain(), out);
    }
}

/// The network namespace that a client's connection comes from, if it is another one.
pub(crate) fn namespace_of<'a>(conn: &'a Conn<'_>) -> Option<&'a str> {
    let told = conn.facts.proxy_header.as_ref().and_then(|tlvs| tlvs.first(proxy_protocol::NETNS));
    conn.worker.shared.namespaces.of_client(told, conn.bind())
}

/// The fields of a header, in HAProxy's order.
fn fields(
    conn: &Conn<'_>,
    txn: &Txn,
    options: &[String],
    own: &[(u8, Vec<u8>)],
) -> Result<Tlvs, proxy_protocol::Error> {
    let facts = &conn.facts;
    let tls = facts.tls.as_deref();
    let asked = |name: &str| options.iter().any(|option| option == name);
    let mut tlvs = Tlvs::default();
    for (kind, value) in own {
        tlvs.push(*kind, value)?;
    }
    if asked("crc32c") {
        tlvs.push_checksum();
    }
    if let Some(alpn) = tls.and_then(|tls| tls.alpn.as_ref()) {
        tlvs.push(proxy_protocol::ALPN, alpn)?;
    }
    if asked("authority") {
        let sni = tls.and_then(|tls| tls.sni.as_ref()).map(String::as_bytes);
        let received = || facts.proxy_header.as_ref()?.first(proxy_protocol::AUTHORITY);
        if let Some(authority) = sni.or_else(received) {
            tlvs.push(proxy_protocol::AUTHORITY, authority)?;
        }
    }
    if asked("unique-id") {
        // Like HAProxy, an empty one if no format is set.
        tlvs.push(proxy_protocol::UNIQUE_ID, txn.unique_id.borrow().as_deref().unwrap_or_default())?;
    }
    let details = ["ssl", "cert-cn", "ssl-cipher", "cert-sig", "cert-key"];
    if details.iter().any(|name| asked(name)) {
        let ssl = match tls {
            None => proxy_protocol::Ssl::default(),
            Some(tls) => proxy_protocol::Ssl {
                client: 1 | if tls.peer.is_some() { 6 } else { 0 },
                verify: tls.verify,
                version: Some(tls.version.as_bytes().to_vec()),
                common_name: asked("cert-cn").then(|| tls.peer_common_name()).flatten().map(String::into_bytes),
                cipher: asked("ssl-cipher").then(|| tls.cipher.as_bytes().to_vec()),
                sig_alg: asked("cert-sig").then(|| tls.own_signature_algorithm()).flatten().map(String::into_bytes),
                key_alg: asked("cert-key").then(|| tls.own_key()).flatten().map(String::into_bytes),
            },
        };
        tlvs.push(proxy_protocol::SSL, &ssl.to_value()?)?;
    }
    if let Some(namespace) = namespace_of(conn) {
        tlvs.push(proxy_protocol::NETNS, namespace.as_bytes())?;
    }
    Ok(tlvs)
}
