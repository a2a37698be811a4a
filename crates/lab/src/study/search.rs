//! The highest rate within a bound on latency, by concurrency: doubled as long as that helps, then refined around the best.

use super::result::Probe;

/// A doubling that gains less than this has not helped.
const GAIN_MIN: f64 = 1.02;
/// Doublings in a row that may not help: probes are short, and what else the machine does shows in them.
const PATIENCE: usize = 3;
/// The concurrency at which a search begins.
const FIRST: usize = 4;

/// Probes until the best concurrency is known; `None` from a probe ends the search. The best is the last one.
pub(super) fn search(most: usize, mut probe: impl FnMut(usize) -> Option<Probe>) -> Vec<Probe> {
    let mut seen: Vec<Probe> = Vec::new();
    let mut connections = FIRST.min(most);
    let mut idle = 0;
    while let Some(found) = probe(connections) {
        let before = best(&seen).map_or(0.0, |best| best.rate);
        idle = if found.held && found.rate >= before * GAIN_MIN { 0 } else { idle + 1 };
        let held = found.held;
        seen.push(found);
        if connections >= most || idle >= PATIENCE || !held {
            break;
        }
        connections = (connections * 2).min(most);
    }
    let Some(top) = best(&seen).map(|probe| probe.connections) else { return seen };
    // Half-way, by ratio, to the neighbours on both sides.
    for between in [top * 5 / 7, top * 7 / 5] {
        if between > 0 && between <= most && !seen.iter().any(|probe| probe.connections == between) {
            let Some(found) = probe(between) else { break };
            seen.push(found);
        }
    }
    if let Some(at) = seen.iter().position(|probe| Some(probe) == best(&seen)) {
        let top = seen.remove(at);
        seen.push(top);
    }
    seen
}

/// The one with the highest rate among those within the bound; of equals that with the fewest connections.
pub(super) fn best(probes: &[Probe]) -> Option<&Probe> {
    let held = probes.iter().filter(|probe| probe.held);
    held.max_by(|a, b| a.rate.total_cmp(&b.rate).then(b.connections.cmp(&a.connections)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that does 1000 units a second, each taking 10 ms at least, and whose longest is four times the mean.
    fn server(bound_ms: f64) -> impl FnMut(usize) -> Option<Probe> {
        move |connections| {
            let rate = (connections as f64 * 100.0).min(1000.0);
            let longest_ms = connections as f64 / rate * 4000.0;
            Some(Probe { connections, rate, longest_ms, held: longest_ms <= bound_ms })
        }
    }

    #[test]
    fn the_search_ends_on_the_plateau() {
        let probes = search(4096, server(2000.0));
        let last = probes.last().unwrap();
        assert!(last.held && last.rate >= 980.0, "{probes:?}");
        assert!(probes.len() <= 8 && probes.iter().all(|probe| probe.connections <= 128), "{probes:?}");
    }

    #[test]
    fn the_bound_holds_even_where_the_rate_could_rise() {
        // 40 ms is what every unit takes; at 12 connections it is 48.
        let probes = search(4096, server(45.0));
        let last = probes.last().unwrap();
        assert!(last.held && last.connections == 11 && last.rate == 1000.0, "{probes:?}");
    }

    #[test]
    fn nothing_within_the_bound_is_said_by_the_probes() {
        let probes = search(4096, server(1.0));
        assert!(best(&probes).is_none() && probes.len() == 1, "{probes:?}");
        assert!(search(16, |_| None).is_empty());
    }
}
