//! The required properties of a request's connection to its server, as a [`Key`] by which kept connections are found.

use super::connect;
use crate::{
    connection::Conn,
    exchange::state::Exchange,
    rules::context::{self, Readable},
    server::{Server, Target},
};
use penstock_backends::reuse::{Key, Name};
use penstock_config::model::ServerNamespace;
use penstock_rules::Expr;
use std::net::UdpSocket;

/// Whether the client has not been redirected, but connected to this machine by itself, and is to be connected to where it is: each
/// connection would bring about another.
fn leads_back(conn: &Conn<'_>, target: &Target) -> bool {
    let Target::Ip(address) = target else { return false };
    if conn.facts.local != Some(*address) {
        return false;
    }
    let namespace = conn.proxy().binds[conn.bind].namespace.as_ref().map(|name| &*name.value);
    // Only to an address of its own can a socket be bound; one that packets were steered to belongs to another machine.
    let bound = conn.worker.shared.namespaces.within(namespace, || UdpSocket::bind((address.ip(), 0)));
    bound.is_ok_and(|bound| bound.is_ok())
}

/// The required properties of the request's connection to that server; `None` while the server's name is not resolved, or where it would
/// lead back here.
pub(crate) fn key_of(
    conn: &mut Conn<'_>,
    x: &mut Exchange,
    server: &Server,
    only_http1: bool,
    stage: Readable,
) -> Option<Key> {
    let endpoint = server.endpoint.load();
    let target = endpoint.target(x.txn.destination(&conn.facts))?;
    if endpoint.is_clients() && leads_back(conn, &target) {
        return None;
    }
    let expressions = &server.with.expressions;
    let sni = value(conn, x, expressions.sni.as_ref(), stage).and_then(|sni| String::from_utf8(sni).ok());
    // A connection of no name is for requests of no name, not for those whose SNI is the same.
    let pool_name = expressions.pool_name.as_ref();
    let pool = pool_name.map(|name| value(conn, x, Some(name), stage).unwrap_or_default().into_boxed_slice());
    let settings = &server.config.settings;
    let header = settings.proxy_header_version().map(|version| {
        if settings.proxy_v2_options.iter().any(|option| option == "unique-id") {
            context::make_unique_id(conn, x, stage);
        }
        let context = context::context(conn, x, stage);
        let tlvs = expressions.tlvs.iter().map(|(kind, format)| (*kind, format.to_bytes(&context))).collect::<Vec<_>>();
        let mut header = Vec::with_capacity(128);
        connect::proxy_header(conn, &x.txn, version, &settings.proxy_v2_options, &tlvs, &mut header);
        header.into_boxed_slice()
    });
    let origin = conn.facts.origin.as_ref().filter(|origin| origin.backend == server.at.proxy);
    Some(Key {
        at: server.at,
        target,
        encrypted: server.is_encrypted(),
        name: Name { sni: sni.map(String::into_boxed_str), pool },
        header,
        pinned: origin.and_then(|origin| origin.pinned),
        source: connect::source_of(&conn.worker.shared, server)
            .filter(|source| source.clientip.is_some())
            .and_then(|_| x.txn.source(&conn.facts))
            .map(|client| client.ip().to_canonical()),
        packets: x.txn.server_packets,
        namespace: matches!(settings.namespace, Some(ServerNamespace::OfClient(_)))
            .then(|| connect::namespace_of(conn))
            .flatten()
            .map(Into::into),
        only_http1,
    })
}

/// What an expression gives for the request.
fn value(conn: &mut Conn<'_>, x: &mut Exchange, expression: Option<&Expr>, stage: Readable) -> Option<Vec<u8>> {
    let expression = expression?;
    Some(expression.eval(&context::context(conn, x, stage)).ok()?.to_text())
}
