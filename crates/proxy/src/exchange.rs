//! One request and its response, whatever protocols carry them: route, connect, forward, log. HTTP/1 connections and
//! HTTP/2 streams run the same code.

pub(crate) mod assign;
pub(crate) mod attempt;
pub(crate) mod buffered_body;
pub(crate) mod ends;
pub(crate) mod finish;
pub(crate) mod flush;
pub(crate) mod forward;
mod forwarded;
pub(crate) mod headers;
mod repeat;
pub(crate) mod respond;
mod retry;
pub(crate) mod service;
pub(crate) mod state;
pub(crate) mod timeouts;
mod transfer;

use crate::{
    connection::Conn,
    log::debug,
    route::{self, Route},
    worker::{
        pulse::Stage,
        turn::{self, cost},
    },
};
use ends::Client;
use state::Exchange;

/// Runs an exchange whose request head has been read.
pub(crate) async fn run(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange) {
    conn.worker.pulse().enter(Stage::Route);
    turn::spend(cost::REQUEST);
    if let Some(fault) = conn.worker.planted.filter(|_| x.request.path() == b"/planted-fault") {
        fault.strike().await;
    }
    debug::request(conn, x);
    penstock_http::receive_hop_by_hop(&mut x.request.fields);
    match route::request(conn, client, x).await {
        Route::Backend(backend) => retry::to_backend(conn, client, x, backend).await,
        Route::Answered => {}
    }
    finish::run(conn, client, x);
}
