//! Which worker serves a connection: the one that accepted it, or one with much less to do.

use super::accepted::{Accepted, Moved};
use crate::{
    handshake,
    process::handle::State,
    worker::{control::Control, pulse::Who, state::Worker, task},
};
use std::{rc::Rc, sync::atomic::Ordering};

/// A worker may have this many connections, and an eighth, more than the least busy one before it hands new ones over: the
/// system spreads well by itself when there are many, and a connection that moves costs two more system calls.
const SPREAD_SLACK: u32 = 2;

/// Starts a connection, here or on a worker with much less to do.
pub(crate) fn take(worker: &Rc<Worker>, accepted: Accepted) {
    let Some(other) = less_busy(worker) else { return start(worker, accepted) };
    // Once the workers drain, the other one may end before it hears of it. One that is told to drain waits for those who
    // were seen here before.
    let inner = &worker.handle.inner;
    inner.handing_over.fetch_add(1, Ordering::SeqCst);
    let running = worker.handle.state() == State::Running;
    match if running { accepted.into_moved(other) } else { Err(accepted) } {
        // Where that worker has ended, the process is about to.
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

/// Another worker whose connections are so many fewer than this one's, not counting the one just accepted, that handing it
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
