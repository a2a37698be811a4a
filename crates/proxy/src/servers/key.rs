//! The required properties of a request's connection to its server, as a [`Key`] by which kept connections are found.

use super::connect;
use crate::{
    connection::Conn,
    exchange::state::Exchange,
    rules::context::{self, Readable},
    server::Server,
};
use penstock_backends::reuse::Key;

/// The required properties of the request's connection to that server; `None` while the server's name is not resolved.
pub(crate) fn key_of(
    conn: &mut Conn,
    x: &mut Exchange,
    server: &Server,
    only_http1: bool,
    stage: Readable,
) -> Option<Key> {
    let target = server.endpoint.load().target(x.txn.destination(&conn.facts))?;
    let sni = sni(conn, x, server, stage);
    let settings = &server.config.settings;
    let header = settings.proxy_header_version().map(|version| {
        if settings.proxy_v2_options.iter().any(|option| option == "unique-id") {
            let worker = conn.worker.clone();
            context::context(&worker, conn, x, stage).make_unique_id();
        }
        let mut header = Vec::with_capacity(128);
        connect::proxy_header(conn, &x.txn, version, &settings.proxy_v2_options, &mut header);
        header.into_boxed_slice()
    });
    let origin = conn.facts.origin.as_ref().filter(|origin| origin.backend == server.at.proxy);
    Some(Key {
        at: server.at,
        target,
        encrypted: server.is_encrypted(),
        sni: sni.map(String::into_boxed_str),
        header,
        pinned: origin.and_then(|origin| origin.pinned),
        only_http1,
    })
}

/// The server name to send in TLS.
fn sni(conn: &mut Conn, x: &mut Exchange, server: &Server, stage: Readable) -> Option<String> {
    let worker = conn.worker.clone();
    let expression = server.with.sni.as_ref()?;
    let context = context::context(&worker, conn, x, stage);
    let value = expression.eval(&context).ok()?;
    String::from_utf8(value.to_text()).ok()
}
