//! The threads that work on logs beside the workers.

use super::handle::Handle;
use std::{io, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// How long the servers of rings may take to receive the last lines when the process ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Starts the thread that carries lines from rings to their servers, if there are any. It ends when
/// [`crate::log::LogTargets::end`] says so.
pub(crate) fn start(handle: &Handle) -> io::Result<()> {
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
