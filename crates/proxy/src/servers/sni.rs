//! `sni` of a server's line: the name that its TLS is asked for.

use crate::{
    connection::Conn,
    exchange::state::Exchange,
    rules::context::{self, Stage},
    server::{Server, ServerRef},
};

/// The name to ask a server's TLS for.
pub(crate) fn sni(conn: &mut Conn, x: &mut Exchange, server: &Server, at: ServerRef, stage: Stage) -> Option<String> {
    let worker = conn.worker.clone();
    let expression = worker.shared.program.sni[at.proxy][server.index].as_ref()?;
    let context = context::context(&worker, conn, x, stage);
    let value = expression.eval(&context).ok()?;
    String::from_utf8(value.to_text()).ok()
}
