//! `timeout *` and the TCP keep-alive times.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed},
    keyword::{ALL, BACK, FRONT, Keyword, ONE, Places},
    model::Timeouts,
};
use std::time::Duration;

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    timeout("timeout client", FRONT, "Longest inactivity of a client", |d, a| set(d, a, |t| &mut t.client)),
    timeout("timeout client-fin", FRONT, "Longest inactivity of a client once its side is half closed", |d, a| {
        set(d, a, |t| &mut t.client_fin)
    }),
    timeout("timeout server", BACK, "Longest inactivity of a server", |d, a| set(d, a, |t| &mut t.server)),
    timeout("timeout server-fin", BACK, "Longest inactivity of a server once its side is half closed", |d, a| {
        set(d, a, |t| &mut t.server_fin)
    }),
    timeout("timeout connect", BACK, "Longest wait for a connection to a server", |d, a| set(d, a, |t| &mut t.connect)),
    timeout("timeout queue", BACK, "Longest wait for a free connection slot", |d, a| set(d, a, |t| &mut t.queue)),
    timeout("timeout check", BACK, "Longest health check once connected", |d, a| set(d, a, |t| &mut t.check)),
    timeout("timeout http-request", ALL, "Longest time a client may take to send a request's head", |d, a| {
        set(d, a, |t| &mut t.http_request)
    }),
    timeout("timeout http-keep-alive", ALL, "Longest wait for a client's next request", |d, a| {
        set(d, a, |t| &mut t.http_keep_alive)
    }),
    timeout("timeout tunnel", BACK, "Longest inactivity of a tunnel, in both directions", |d, a| {
        set(d, a, |t| &mut t.tunnel)
    }),
    timeout("timeout tarpit", ALL, "How long tarpitted requests are held", |d, a| set(d, a, |t| &mut t.tarpit)),
    timeout("timeout client-hs", FRONT, "Time that a client's TLS handshake may take", |d, a| {
        set(d, a, |t| &mut t.client_handshake)
    })
    .notice("timeout client bounds the handshake"),
    obsolete("clitimeout", FRONT, "write 'timeout client'"),
    obsolete("srvtimeout", BACK, "write 'timeout server'"),
    obsolete("contimeout", BACK, "write 'timeout connect'"),
    obsolete("timeout clitimeout", FRONT, "write 'timeout client'"),
    obsolete("timeout srvtimeout", BACK, "write 'timeout server'"),
    obsolete("timeout contimeout", BACK, "write 'timeout connect'"),
];

const fn timeout(
    name: &'static str,
    places: Places,
    doc: &'static str,
    parse: fn(&mut Draft, &mut Args<'_>) -> Parsed,
) -> Entry {
    Entry::new(name, ONE, doc, parse).at(places)
}

const fn obsolete(name: &'static str, places: Places, instead: &'static str) -> Entry {
    Entry::refused(name, "Old name of a timeout", "HAProxy 2.1 removed it", instead).at(places)
}

fn set(draft: &mut Draft, args: &mut Args<'_>, field: fn(&mut Timeouts) -> &mut Option<Duration>) -> Parsed {
    let time = args.time("a time")?;
    // Zero has always meant no limit.
    *field(&mut draft.proxy.timeouts) = Some(time).filter(|t| !t.is_zero());
    Ok(())
}
