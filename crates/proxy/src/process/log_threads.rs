//! The threads that work on logs beside the workers.

use super::handle::{Handle, State};
use crate::{accept::listener::LogSocket, log::forward::Forwarder};
use std::{io, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// How long the servers of rings may take to receive the last lines when the process ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Starts the threads.
pub(crate) fn start(handle: &Handle, sockets: Vec<LogSocket>) -> io::Result<()> {
    start_delivery(handle)?;
    start_forwarding(handle, sockets)
}

/// Starts the thread that receives messages for `log-forward` sections, if there are any. It ends with the process, or when a drain
/// has begun and all senders have left: so long, the drain lasts.
fn start_forwarding(handle: &Handle, sockets: Vec<LogSocket>) -> io::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let own = handle.clone();
    let thread = std::thread::Builder::new().name("log-forward".into()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, forward(own, sockets));
    })?;
    handle.inner.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(thread);
    Ok(())
}

async fn forward(handle: Handle, sockets: Vec<LogSocket>) {
    let shared = handle.shared();
    let ends = async |state: State| {
        let mut ending = shared.peers.ending.subscribe();
        while handle.state() < state && ending.changed().await.is_ok() {}
    };
    let (max, teller) = (shared.config.global.tune.bufsize, handle.clone());
    let forwarder = Forwarder::new(shared.logs.clone(), max, move |severity, text| teller.log(severity, text));
    let engine = tokio::task::spawn_local(penstock_tls::drive_engine());
    tokio::select! {
        () = forwarder.run(sockets, ends(State::Draining)) => {}
        () = ends(State::Stopping) => {}
    }
    engine.abort();
}

/// Starts the thread that carries lines from rings to their servers, if there are any. It ends when
/// [`crate::log::LogTargets::end`] says so.
fn start_delivery(handle: &Handle) -> io::Result<()> {
    let logs = handle.shared().logs.clone();
    if logs.receivers().is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let own = handle.clone();
    let thread = std::thread::Builder::new().name("logs".into()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, deliver(own));
    })?;
    logs.delivered_by(thread);
    Ok(())
}

async fn deliver(handle: Handle) {
    let logs = &handle.shared().logs;
    let engine = tokio::task::spawn_local(penstock_tls::drive_engine());
    let mut over = logs.over();
    let mut tasks = JoinSet::new();
    for at in 0..logs.receivers().len() {
        let (handle, over) = (handle.clone(), over.clone());
        tasks.spawn_local(async move {
            handle.shared().logs.receivers()[at].run(&|severity, text| handle.log(severity, text), over).await;
        });
    }
    let ended = async { while tasks.join_next().await.is_some() {} };
    let late = async {
        let _ = over.wait_for(|over| *over).await;
        sleep(FAREWELL).await;
    };
    tokio::select! {
        () = ended => {}
        () = late => {}
    }
    engine.abort();
}
