//! What signals tell a process besides to end: SIGTTOU and SIGTTIN pause and resume its listeners, SIGHUP and SIGQUIT ask what it
//! does (management guide, section 4).

use crate::say::{show, warning};
use penstock_proxy::{
    Handle, Listening,
    snapshot::{Kind, Row},
};

/// Makes the frontends that are `from` be `to`. Sockets for commands go on answering, so that an operator can look.
pub fn pause(handle: &Handle, from: Listening, to: Listening) {
    let proxies = &handle.shared().config.proxies;
    for id in proxies.ids().filter(|id| proxies[*id].kind.has_frontend() && !proxies[*id].disabled) {
        if handle.listening(id) == from {
            handle.listen(id, to);
        }
    }
}

/// Reports the state of each server and proxy.
pub fn states(handle: &Handle) {
    warning("SIGHUP received, dumping servers states.");
    let rows = handle.snapshot().rows;
    rows.iter().filter_map(|row| state(row, &rows)).for_each(|text| warning(format!("SIGHUP: {text}")));
}

fn state(row: &Row, rows: &[Row]) -> Option<String> {
    let of_proxy = |kind| rows.iter().find(|other| other.kind == kind && other.proxy == row.proxy);
    let (proxy, name, now, total) = (&row.proxy_name, &row.name, row.sessions.now, row.totals.sessions);
    match row.kind {
        Kind::Server => {
            let up = if row.upstream.as_ref().is_some_and(|upstream| upstream.up) { "UP" } else { "DOWN" };
            let waiting = row.queue.now;
            Some(format!("Server {proxy}/{name} is {up}. Conn: {now} act, {waiting} pend, {total} tot."))
        }
        Kind::Frontend if of_proxy(Kind::Backend).is_some() => None,
        Kind::Listener => None,
        Kind::Frontend | Kind::Backend => {
            let servers = of_proxy(Kind::Server).is_some();
            let state =
                match row.upstream.as_ref().filter(|_| servers).map(|upstream| (upstream.active, upstream.backup)) {
                    None => "has no servers".to_owned(),
                    Some((0, 0)) => "has no server available !".to_owned(),
                    Some((active, backup)) => {
                        format!("has {active} active servers and {backup} backup servers available")
                    }
                };
            let end = if state.ends_with('!') { "" } else { "." };
            let counts = |kind| of_proxy(kind).map_or((0, 0), |row| (row.sessions.now, row.totals.sessions));
            let ((front, fronts), (back, backs)) = (counts(Kind::Frontend), counts(Kind::Backend));
            let waiting = of_proxy(Kind::Backend).map_or(0, |row| row.queue.now);
            let own = waiting
                - rows
                    .iter()
                    .filter(|other| other.kind == Kind::Server && other.proxy == row.proxy)
                    .map(|server| server.queue.now)
                    .sum::<u32>()
                    .min(waiting);
            Some(format!(
                "Proxy {proxy} {state}{end} Conn: act(FE+BE): {front}+{back}, {waiting} pend ({own} unass), tot(FE+BE): {fronts}+{backs}."
            ))
        }
    }
}

/// Reports the memory that the process takes. There are no pools to empty: what is freed goes back to the allocator.
pub fn memory(handle: &Handle) {
    let kib = handle.snapshot().process.memory_bytes / 1024;
    show(&format!("SIGQUIT: {kib} KiB of memory are in use; there are no pools.\n"));
}
