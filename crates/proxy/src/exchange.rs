//! One request and its response, whatever protocols carry them: route, connect, forward, log. HTTP/1 connections and
//! HTTP/2 streams run the same code.
//!
//! In the order in which a request meets them: `collapse` (waits for another request's response), `retry` (attempts), `assign` (a place on a
//! server, and a connection), `attempt` (the request out, a head in), `answer` (the response to the client), `transfer` and `forward` (bodies), `finish`
//! (times, counters, log). `respond` makes responses here; `resend` keeps what another attempt needs.

mod answer;
pub(crate) mod assign;
pub(crate) mod attempt;
pub(crate) mod buffered_body;
pub(crate) mod caching;
mod collapse;
pub(crate) mod compress;
pub(crate) mod encoding;
pub(crate) mod ends;
pub(crate) mod finish;
pub(crate) mod flush;
pub(crate) mod forward;
mod forwarded_header;
pub(crate) mod headers;
pub(crate) mod invalid;
pub(crate) mod live;
mod redirect;
pub(crate) mod resend;
pub(crate) mod respond;
pub(crate) mod retry;
pub(crate) mod service;
pub(crate) mod state;
mod stored;
pub(crate) mod throttle;
pub(crate) mod timeouts;
mod transfer;
mod tunnel;

use crate::{
    exchange::{collapse::AnsweredBy, live::Live},
    inspect,
    log::debug,
    route::{self, Route},
    rules::context::Judged,
    server::Shutdown,
    worker::{
        present::Present,
        pulse::Stage,
        turn::{self, cost},
    },
};
use std::pin::pin;

/// Runs an exchange whose request head has been read.
pub(crate) async fn run(live: &mut Live<'_, '_>) {
    live.worker.pulse().enter(Stage::Route);
    turn::spend(cost::REQUEST + cost::FIELD * live.x.request.fields.len() as u32);
    if let Some(fault) = live.worker.planted.filter(|_| live.x.request.path() == b"/planted-fault") {
        fault.strike().await;
    }
    debug::request(live.conn, live.x);
    penstock_http::receive_hop_by_hop(&mut live.x.request.fields);
    let present = Present::begin(live.conn);
    live.x.listed = Some(present.place());
    let ended = {
        // Pinned, so that it stays where it is made: it is large.
        let work = pin!(served(live));
        present.unless_ended(work).await
    };
    if ended.is_none() {
        live.x.log.srv_conn = live.x.server.as_ref().map_or(0, |server| server.served());
        retry::shut_down(live, Shutdown::Operator).await;
    }
    inspect::passage::settle(live.conn, live.x);
    finish::run(live);
}

async fn served(live: &mut Live<'_, '_>) {
    if inspect::returned::is_expected(live) {
        return Box::pin(inspect::returned::serve(live)).await;
    }
    match route::request(live).await {
        Route::Backend(_) if tunnel::missing(live.conn, live.x).is_some() => Box::pin(tunnel::refuse(live)).await,
        Route::Backend(backend) => {
            if inspect::request(live).await == Judged::GoOn {
                match collapse::wait(live).await {
                    AnsweredBy::Server => retry::to_backend(live, backend).await,
                    AnsweredBy::Cache => Box::pin(stored::deliver(live)).await,
                    AnsweredBy::Nobody => {}
                }
            }
        }
        // In boxes as attempts are.
        Route::Stored => Box::pin(stored::deliver(live)).await,
        Route::Tunnel => Box::pin(tunnel::open(live)).await,
        Route::Answered => {}
    }
}
