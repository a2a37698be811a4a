//! The exchange on a connection of a device that brings a request back: the rest of the chain, and the server.

use super::{
    crossing::{Back, Crossing, FIELD, OfDevice, Path},
    request::request,
    verdict::settings,
};
use crate::{
    connection::Conn,
    exchange::{live::Live, respond, retry, state::Exchange},
    rules::context::Judged,
    servers::private::Own,
};
use penstock_config::model::ServiceMode;
use penstock_rules::{By, During, Termination};
use std::rc::Rc;

/// Whether the connection is one on which devices bring requests back.
pub(crate) fn is_expected(live: &Live<'_, '_>) -> bool {
    live.conn.proxy().service.is_some()
}

/// Serves a request that a device has brought back.
pub(crate) async fn serve(live: &mut Live<'_, '_>) {
    let crossings = &live.worker.shared.crossings;
    let service = live.conn.frontend;
    let is_by_path = settings(&live.worker.shared, service).mode == Some(ServiceMode::Tcp);
    let claimed = match live.x.request.method() {
        b"CONNECT" => None,
        _ if is_by_path => {
            let path = Path::new(live.conn.facts.peer, live.conn.facts.local);
            path.and_then(|path| crossings.claim_on(service, path))
        }
        _ => crossings.claim(service, &mut live.x.request.fields),
    };
    let Some(crossing) = claimed else { return refuse(live).await };
    if let Some(own) = &crossing.own_target
        && live.x.request.come_from_proxy(own).is_err()
    {
        return refuse(live).await;
    }
    live.conn.own.note_return();
    let backend = crossing.backend;
    adopt(live.conn, live.x, crossing);
    if request(live).await == Judged::GoOn {
        retry::to_backend(live, backend).await;
    }
}

/// Carries the exchange out in the name of the client's from here on.
pub(crate) fn adopt(conn: &mut Conn<'_>, x: &mut Exchange, crossing: Crossing) {
    x.backend = Some(crossing.backend);
    conn.worker.roster.note(x.listed, |session| session.backend = Some(crossing.backend));
    let received = std::mem::take(&mut x.txn.received);
    x.txn = crossing.txn;
    x.txn.received = received;
    // Devices share their connections between clients, and a server's connection that one has authenticated is its own.
    let own = Rc::new(Own::default());
    let of_device = OfDevice {
        frontend: std::mem::replace(&mut conn.frontend, crossing.frontend),
        bind: std::mem::replace(&mut conn.bind, crossing.bind),
        facts: std::mem::replace(&mut conn.facts, crossing.facts),
        session: std::mem::replace(&mut conn.session, crossing.session),
        requests: std::mem::replace(&mut conn.requests, crossing.requests),
        own: std::mem::replace(&mut conn.own, own),
    };
    x.passage.back = Some(Box::new(Back { told: crossing.told, stream: crossing.stream, of_device }));
}

/// Answers a request that is not expected, so that the exchange before the device can tell that from what the device says.
async fn refuse(live: &mut Live<'_, '_>) {
    live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
    live.x.log.termination = Termination(By::Refusal, During::Request);
    match respond::page(live.conn, live.x, 403) {
        respond::Page::Body(body) => {
            let _ = live.x.response.fields.append(FIELD, b"unknown");
            respond::send(live, &body, false, 403).await;
        }
        respond::Page::Silence => respond::hang_up(live.client, live.x, 403),
    }
}
