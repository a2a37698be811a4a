//! Copies of what passes a chain, for its services in `mode tap`: of the request as it goes to its server, and of the response as it goes
//! to its client.

use crate::{
    connection::Conn,
    exchange::{live::Live, state::Exchange},
    rules::context::{self, Readable},
    tap::Copied,
};
use penstock_capture::Speaker;
use penstock_config::model::ProxyId;
use penstock_http::{Framing, Version, state_framing};
use penstock_rules::{Answer, Buffered, Chain, Inspection};
use std::{
    cell::Cell,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

/// Whether services may change what passes the exchange's chain, and so see neither trailers nor interim responses.
pub(crate) fn may_change(conn: &Conn<'_>, x: &Exchange) -> bool {
    chain(conn, x).is_some_and(|(_, chain)| chain.steps.iter().any(|step| !step.is_tap))
}

/// Notes whose turn it is on a connection of `mode tcp`, as far as it has arrived.
pub(crate) fn choose(conn: &mut Conn<'_>, x: &mut Exchange, stage: Readable, arrived: Buffered<'_>) {
    let Some((_, chain)) = chain(conn, x) else { return };
    let due = {
        let mut context = context::context(conn, x, stage);
        context.input = arrived;
        // What is not known in time does not keep a connection from being inspected, but from being copied.
        let holds = |bit: usize| match chain.steps[bit].condition.holds(&context) {
            Answer::Yes => true,
            Answer::NotYet => chain.steps[bit].is_inline,
            Answer::No => false,
        };
        (0..chain.steps.len()).filter(|bit| holds(*bit)).fold(0u64, |due, bit| due | 1 << bit)
    };
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.due = due;
    }
}

/// Begins the copy of a connection of `mode tcp`.
pub(crate) fn copy_connection(conn: &Conn<'_>, x: &mut Exchange) {
    x.inspected.copied = begin(conn, x);
}

/// Begins the copy of an exchange, with the request's head; that of an attempt before it ends.
pub(crate) fn copy_request(live: &mut Live<'_, '_>, framing: Framing) {
    live.x.inspected.copied = begin(live.conn, live.x);
    let Some(copied) = &live.x.inspected.copied else { return };
    let mut head = live.x.request.clone();
    let reads_chunks = head.version() != Version::Http10;
    let framing = state_framing(&mut head.fields, framing, reads_chunks, true);
    let mut bytes = Vec::new();
    head.write_to(&mut bytes);
    copied.head(Speaker::Client, &bytes, framing == Framing::Chunked);
}

/// Continues it with the response's head.
pub(crate) fn copy_response(live: &mut Live<'_, '_>, framing: Framing) {
    let Some(copied) = &live.x.inspected.copied else { return };
    let mut head = live.x.response.clone();
    let reads_chunks = head.version() != Version::Http10;
    let framing = state_framing(&mut head.fields, framing, reads_chunks, false);
    let mut bytes = Vec::new();
    head.write_to(&mut bytes);
    copied.head(Speaker::Server, &bytes, framing == Framing::Chunked && !live.x.wants_head_only());
}

fn chain<'c>(conn: &Conn<'c>, x: &Exchange) -> Option<(u64, &'c Chain)> {
    let Inspection { chain, due, within, .. } = x.txn.inspection.as_deref()?;
    Some((*due & *within, &conn.worker.shared.program.chains[*chain]))
}

fn begin(conn: &Conn<'_>, x: &Exchange) -> Option<Rc<Copied>> {
    let (due, chain) = chain(conn, x)?;
    let taps = || {
        let steps = chain.steps.iter().enumerate();
        steps.filter(|(bit, step)| step.is_tap && due >> bit & 1 == 1).map(|(_, step)| step.service)
    };
    taps().next()?;
    let worker = conn.worker;
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut client = conn.facts.source().unwrap_or(nowhere);
    if conn.facts.http_major == 2 {
        client.set_port(next_port());
    }
    let now = worker.now_ms();
    let due = taps().filter_map(|service: ProxyId| {
        worker.counters().backend(service).session(now);
        worker.shared.taps.due(service)
    });
    Copied::begin(client, conn.facts.destination().unwrap_or(nowhere), due)
}

thread_local! {
    static PORT: Cell<u16> = Cell::new(fastrand::u16(PORT_FIRST..));
}

/// Streams of HTTP/2 become connections of their own, which are at the same time: they have ports in turn.
const PORT_FIRST: u16 = 1024;

fn next_port() -> u16 {
    PORT.with(|port| {
        let next = port.get().checked_add(1).unwrap_or(PORT_FIRST);
        port.replace(next)
    })
}
