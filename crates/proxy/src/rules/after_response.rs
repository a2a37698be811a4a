//! `http-after-response`: rules that run on every response, whether a server's or one made here.

use super::context::{self, Readable};
use crate::{connection::Conn, exchange::state::Exchange};
use penstock_rules::Verdict;

/// Runs `http-after-response` on any response; returns whether no rule failed.
pub(crate) fn run(conn: &mut Conn<'_>, x: &mut Exchange) -> bool {
    let worker = conn.worker;
    x.txn.response_begins();
    // Behind a device it is a response to that.
    if x.passage.back.is_some() {
        return true;
    }
    for proxy in x.backend.into_iter().chain((x.backend != Some(conn.frontend)).then_some(conn.frontend)) {
        let rules = &worker.shared.program.of(proxy).http_after_response;
        if !rules.is_empty() {
            let mut from = 0;
            let verdict = loop {
                match rules.run(&mut context::context(conn, x, Readable::Response), from) {
                    // The response is being sent: what its rules cost beyond this turn is charged to the next.
                    Verdict::Rest { next } => from = next,
                    verdict => break verdict,
                }
            };
            if matches!(verdict, Verdict::Failed) {
                worker.counters().frontend(conn.frontend).failed_rewrites.inc();
                return false;
            }
        }
    }
    true
}
