//! What rules can see of an exchange: created for each list that runs, from what is known by then.

use crate::{connection::Conn, exchange::state::Exchange};
use penstock_config::model::ProxyId;
use penstock_rules::{Buffered, Context, Now, Phase};

/// The heads that rules may read and change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// None: there is no HTTP message.
    Raw,
    /// The request's.
    Request,
    /// The request's and the response's.
    Response,
}

/// Whether the exchange continues after a list of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    GoOn,
    /// The exchange is over: the client has been answered, or deliberately not.
    Over,
}

/// Makes the request's unique-id, if it has none yet and the frontend has a format for it.
pub(crate) fn make_unique_id(conn: &mut Conn<'_>, x: &mut Exchange, stage: Readable) {
    // Asked first: what rules can see is long to put together, for each request.
    if conn.worker.shared.proxies[conn.frontend].unique_id_format.is_some() {
        context(conn, x, stage).make_unique_id();
    }
}

/// What rules can see. They decide on this basis; the few lists that may wait for more say so in what is buffered.
pub(crate) fn context<'a>(conn: &'a mut Conn<'_>, x: &'a mut Exchange, stage: Readable) -> Context<'a> {
    let worker = conn.worker;
    let shared = &worker.shared;
    let proxy = |id: ProxyId| (id, &shared.proxies[id]);
    let (backend, server) = (x.backend, x.server.as_deref());
    Context {
        now: Now { mono: worker.now_ms(), unix_us: worker.clock.unix_us() },
        phase: if x.times.complete.is_some() { Phase::During } else { Phase::Before },
        conn: &conn.facts,
        frontend: proxy(conn.frontend),
        backend: backend.map(proxy),
        server: server.map(|server| &server.with.facts),
        server_conn: (x.times.connected.is_some() || x.server_conn.http_major != 0).then_some(&x.server_conn),
        request: (stage != Readable::Raw).then_some(&mut x.request),
        response: (stage == Readable::Response).then_some(&mut x.response),
        input: Buffered {
            bytes: x.body.as_ref().map_or(&[], |body| body.data()),
            complete: true,
            raw: stage == Readable::Raw,
            announced: x.announced,
        },
        output: Buffered {
            bytes: x.response_body.as_ref().map_or(&[], |body| body.data()),
            complete: true,
            raw: stage == Readable::Raw,
            announced: x.response_announced,
        },
        session: &mut conn.session,
        txn: &mut x.txn,
        log: &x.log,
        world: &**worker,
    }
}
