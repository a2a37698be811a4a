//! `timeout *` and the TCP keep-alive times.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed},
    keyword::{ALL, BACK, FRONT, Keyword, ONE, Places},
    model::{Probes, Timeouts},
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
    }),
    timeout("clitcpka-cnt", FRONT, "Number of TCP keep-alive probes before a client counts as dead", |d, a| {
        count(a, &mut d.proxy.options.clitcpka_probes)
    }),
    timeout("clitcpka-idle", FRONT, "Inactivity before the first TCP keep-alive probe to a client", |d, a| {
        seconds(a, &mut d.proxy.options.clitcpka_probes.idle)
    }),
    timeout("clitcpka-intvl", FRONT, "Time between TCP keep-alive probes to a client", |d, a| {
        seconds(a, &mut d.proxy.options.clitcpka_probes.interval)
    }),
    timeout("srvtcpka-cnt", BACK, "Number of TCP keep-alive probes before a server counts as dead", |d, a| {
        count(a, &mut d.proxy.options.srvtcpka_probes)
    }),
    timeout("srvtcpka-idle", BACK, "Inactivity before the first TCP keep-alive probe to a server", |d, a| {
        seconds(a, &mut d.proxy.options.srvtcpka_probes.idle)
    }),
    timeout("srvtcpka-intvl", BACK, "Time between TCP keep-alive probes to a server", |d, a| {
        seconds(a, &mut d.proxy.options.srvtcpka_probes.interval)
    }),
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

/// Linux takes no more probes than these (tcp(7), TCP_KEEPCNT).
const PROBES_MAX: u32 = 127;

/// Linux takes no longer times between probes than these (tcp(7), TCP_KEEPIDLE, TCP_KEEPINTVL), in seconds.
const PROBE_SECONDS_MAX: u64 = 32_767;

fn count(args: &mut Args<'_>, probes: &mut Probes) -> Parsed {
    // Zero means the system's own, here and in the times.
    probes.count = Some(args.number("a number of probes", 0..=PROBES_MAX)?).filter(|count| *count > 0);
    Ok(())
}

fn seconds(args: &mut Args<'_>, into: &mut Option<Duration>) -> Parsed {
    let word = args.peek();
    let time = args.time_in_unit("a time", Duration::from_secs(1))?;
    // The system counts whole seconds.
    let seconds = time.as_millis().div_ceil(1_000) as u64;
    if let Some(word) = word.filter(|_| seconds > PROBE_SECONDS_MAX) {
        let message = format!("'{}' is longer than the system waits with a probe", word.text);
        return args.wrong(word, message, format!("expected at most {PROBE_SECONDS_MAX} s"));
    }
    *into = Some(Duration::from_secs(seconds)).filter(|time| !time.is_zero());
    Ok(())
}
