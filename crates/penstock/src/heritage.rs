//! Inherits listening sockets from the previous process, and passes them to the next: through the master, or through a
//! `stats socket ... expose-fd listeners` (`-x`).

use crate::{flags::Flags, ready::Reporter, say::warning, strangers, tie::Occasion};
use penstock_config::{Config, model::StatsSocket};
use penstock_proxy::{Inherited, Listeners, handover};
use std::{io, os::fd::OwnedFd};

/// The listening sockets of the previous worker, or those that the process behind `-x` exposes.
///
/// # Errors
///
/// Why they cannot be had, as a sentence.
pub fn inherit(reporter: &Reporter, flags: &Flags) -> Result<Inherited, String> {
    let of_worker = reporter.inherited().map_err(|e| format!("the master is gone: {e}"))?;
    let is_first = matches!(reporter.occasion(), None | Some(Occasion::Start));
    let exposed = match &flags.heir_of {
        Some(path) if is_first => handover::ask(path).map_err(|e| (path, e)),
        _ => Ok(Vec::new()),
    };
    let exposed = match exposed {
        Ok(sockets) => sockets,
        Err((path, e)) => {
            let why = format!("cannot take over the listening sockets of the process behind {}: {e}", path.display());
            if reporter.occasion().is_none() {
                return Err(why);
            }
            // As in HAProxy: a service is started with the same options if there is no previous process.
            warning(why);
            Vec::new()
        }
    };
    let predecessors: Vec<i32> = flags.finish.iter().chain(&flags.terminate).copied().filter(|_| is_first).collect();
    let mut of_others = Vec::new();
    if exposed.is_empty() && !predecessors.is_empty() {
        let (sockets, refused) = strangers::sockets_of(&predecessors);
        of_others = sockets;
        refused.iter().for_each(warning);
    }
    let sockets = of_worker.into_iter().chain(exposed).chain(of_others).collect();
    let inherited = Inherited::new(sockets).map_err(|e| format!("cannot take over listening sockets: {e}"))?;
    let is_told = is_first && (flags.heir_of.is_some() || !predecessors.is_empty());
    Ok(inherited.taking_over(is_told))
}

/// Copies of the listening sockets, if a later process can ask for them: through the master, or with `-x`.
///
/// # Errors
///
/// If there are not enough descriptors.
pub fn copies(listeners: &Listeners, config: &Config, reporter: &Reporter) -> io::Result<Vec<OwnedFd>> {
    let exposes = config.global.stats_sockets.iter().any(StatsSocket::exposes_over_unix);
    if exposes || matches!(reporter, Reporter::Master(_)) { listeners.copies() } else { Ok(Vec::new()) }
}
