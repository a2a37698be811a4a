//! Chooses the worker that serves a connection: the one that accepted it, or one with far less to do.

use super::accepted::{Accepted, Moved};
use crate::{
    handshake,
    process::handle::State,
    worker::{control::Control, pulse::Who, state::Worker, task},
};
use std::{rc::Rc, sync::atomic::Ordering};

/// A worker may have this many connections more than the least busy one, and an eighth on top, before it hands new ones
/// over: with many connections the system spreads them well by itself, and moving one costs two more system calls.
const SPREAD_SLACK: u32 = 2;

/// Starts a connection, on this worker or on one with far less to do.
pub(crate) fn take(worker: &Rc<Worker>, accepted: Accepted) {
    let Some(other) = less_busy(worker) else { return start(worker, accepted) };
    // During a drain the other worker could end before the message arrives. A worker that is told to drain waits for
    // those that are counted here.
    let inner = &worker.handle.inner;
    inner.handing_over.fetch_add(1, Ordering::SeqCst);
    let running = worker.handle.state() == State::Running;
    match if running { accepted.into_moved(other) } else { Err(accepted) } {
        // If that worker has ended, the process is about to.
        Ok(moved) => drop(inner.workers[other].send(Control::Connection(Box::new(moved)))),
        Err(accepted) => start(worker, accepted),
    }
    inner.handing_over.fetch_sub(1, Ordering::SeqCst);
}

/// Starts a connection that another worker has accepted.
pub(crate) fn arrived(worker: &Rc<Worker>, moved: Moved) {
    if let Some(accepted) = moved.arrive() {
        start(worker, accepted);
    }
}

/// Starts the connection's task on this worker.
pub(crate) fn start(worker: &Rc<Worker>, accepted: Accepted) {
    let who = Who::Connection { proxy: accepted.proxy, bind: accepted.bind, peer: accepted.socket.peer_addr().ok() };
    task::spawn(worker, who, handshake::run(worker.clone(), accepted));
}

/// Another worker that has enough fewer connections than this one (not counting the one just accepted) that handing it
/// over pays.
fn less_busy(worker: &Worker) -> Option<usize> {
    let loads = &worker.shared.loads;
    if loads.len() == 1 || !worker.shared.config.global.tune.listener_multi_queue {
        return None;
    }
    let mine = loads[worker.id].load(Ordering::Relaxed).saturating_sub(1);
    let (other, least) =
        loads.iter().map(|load| load.load(Ordering::Relaxed)).enumerate().min_by_key(|&(_, load)| load)?;
    (mine > least + least / 8 + SPREAD_SLACK).then_some(other)
}
