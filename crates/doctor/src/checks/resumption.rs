//! Tickets, and how many sessions are resumed.

use super::Case;
use crate::{Finding, Level, finding::Area::Tls};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(config) = case.config {
        let everywhere = config.global.tls_bind.no_tls_tickets;
        let binds = config.proxies.iter().filter(|p| !p.disabled).flat_map(|p| p.binds.iter().map(move |b| (p, b)));
        let without: Vec<String> = binds
            .filter_map(|(proxy, bind)| {
                let tls = bind.tls.as_ref()?;
                let source = config.source(bind.span.file).map_or("", |source| source.name.as_str());
                (everywhere || tls.conf.no_tls_tickets)
                    .then(|| format!("{source}:{}: 'bind' of {}", bind.span.line, proxy.name))
            })
            .collect();
        if !without.is_empty() {
            let mut finding = Finding::new("tls-tickets", Tls, Level::Warning, 23, "tickets are off: sessions are resumed from the memory of this process only")
                .means("clients that reach another node or a restarted process do a full handshake; their sessions fill tune.ssl.cachesize")
                .by_hand("leave 'no-tls-tickets' out; with several nodes, share keys with 'tls-ticket-keys'");
            finding.evidence = without;
            found.push(finding);
        } else if case.has_tls() {
            found.push(Finding::good(
                "tls-tickets",
                Tls,
                "tickets are on, with keys that rotate, or those of 'tls-ticket-keys'",
            ));
        }
    }
    if let Some((sessions, resumed)) = case.resumed {
        found.push(rate(sessions, resumed));
    } else if case.has_tls() {
        found.push(
            Finding::new("tls-resumption", Tls, Level::Notice, 4, "the share of resumed sessions is not known here")
                .seen("no metrics of a running process were given")
                .means("a resumed handshake needs no signature: the share decides how much there is to save")
                .by_hand("penstock doctor --metrics http://HOST/metrics (a frontend with 'http-request use-service prometheus-exporter')"),
        );
    }
    found
}

fn rate(sessions: u64, resumed: u64) -> Finding {
    let share = resumed.min(sessions) as f64 / sessions.max(1) as f64;
    let seen = format!("{resumed} of {sessions} sessions since the start");
    let text = format!("{:.0} % of TLS sessions are resumed", share * 100.0);
    // A few hundred sessions say little.
    if sessions < 1000 {
        return Finding::new("tls-resumption", Tls, Level::Notice, 3, format!("{text}, of few"))
            .seen(seen)
            .means("too few to judge");
    }
    if share >= 0.3 {
        return Finding::good("tls-resumption", Tls, text).seen(seen);
    }
    Finding::new("tls-resumption", Tls, Level::Warning, 26, text)
        .seen(seen)
        .means("almost every connection pays for a signature: clients without sessions, or nodes that do not know each other's tickets")
        .by_hand("share ticket keys between nodes ('tls-ticket-keys'), keep 'tune.ssl.lifetime' above the time clients stay away, look for clients that never resume")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_resumed_sessions_is_judged_where_there_are_enough() {
        assert_eq!(rate(100_000, 60_000).level, Level::Good);
        assert_eq!(rate(100_000, 2_000).level, Level::Warning);
        assert_eq!(rate(10, 0).level, Level::Notice);
        assert_eq!(rate(0, 5).level, Level::Notice);
    }
}
