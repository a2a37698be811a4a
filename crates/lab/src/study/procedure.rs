//! The two procedures that find their load themselves: the search for the highest rate, and rising rates.

use super::{
    catalogue::Case,
    place::Step,
    result::Probe,
    run::{Bench, Field},
    search::{best, search},
    window::Load,
};
use std::collections::BTreeMap;

/// A probe is this share of a window.
const PROBE: f64 = 1.0 / 12.0;
/// And no shorter than this, seconds.
const PROBE_LEAST: f64 = 0.3;
/// Round trips of a new connection with a request, by TLS 1.2: the connection, the handshake's two, the request.
const ROUND_TRIPS: f64 = 4.0;
/// How often concurrency is lowered when the bound does not hold for a whole window.
const RETREATS: usize = 6;
/// Below this share of its processors in use, something else than the CPU set the rate.
const CPU_BOUND: f64 = 0.9;

impl Bench<'_> {
    /// Concurrency is searched for each contestant; then the best of each is held for whole windows, in turns.
    pub(super) fn highest(&mut self, field: &Field, case: &Case, step: &Step) -> Result<(), String> {
        let bound = self.setup.bound;
        let timeout = self.timeout();
        let probe_seconds = (self.setup.seconds * PROBE).max(PROBE_LEAST);
        let mut cells = Vec::new();
        for (place, (at, server)) in field.servers.iter().enumerate() {
            let mut cell = self.cell(*at, case, step, None);
            let mut failed = self.warm_up(server, case, step, 16).err();
            let conditions = &self.conditions;
            let mut probe = |connections: usize, seconds: f64| -> Option<Probe> {
                if failed.is_some() || conditions.stop.is_stopped() {
                    return None;
                }
                let load = Load { connections, offered: None, seconds, timeout };
                match conditions.measure(server, case, step, load, 0) {
                    Ok((window, _)) => {
                        let longest = window.latency.max_us();
                        let held = window.failed == 0 && u128::from(longest) <= bound.as_micros();
                        Some(Probe { connections, rate: window.rate, longest_ms: longest as f64 / 1000.0, held })
                    }
                    Err(why) => {
                        failed = Some(why);
                        None
                    }
                }
            };
            cell.probes = search(self.setup.connections, |connections| probe(connections, probe_seconds));
            // What held for a probe must hold for a window: fewer connections until it does.
            let mut chosen = best(&cell.probes).map(|probe| probe.connections);
            for _ in 0..RETREATS {
                let Some(whole) = chosen.and_then(|connections| probe(connections, self.setup.seconds)) else { break };
                let held = whole.held;
                cell.probes.push(whole);
                if held {
                    break;
                }
                chosen = chosen.map(|connections| (connections * 3 / 4).max(1));
            }
            if let Some(why) = failed {
                self.outcome.partial.push(format!("{}, {}: {why}", cell.contestant, case.name));
            }
            match chosen {
                Some(connections) => {
                    cell.remarks.push(format!("{connections} connections, found in {} probes", cell.probes.len()));
                    cells.push((
                        place,
                        cell,
                        Load { connections, offered: None, seconds: self.setup.seconds, timeout },
                    ));
                }
                None => {
                    cell.remarks.push(format!("no rate keeps every latency within {} s", bound.as_secs_f64()));
                    self.outcome.cells.push(cell);
                }
            }
            if self.conditions.stop.is_stopped() {
                return Ok(());
            }
        }
        let first = self.outcome.cells.len();
        let loads: Vec<_> = cells.iter().map(|(place, _, load)| (*place, *load)).collect();
        self.in_turns(field, case, step, cells)?;
        self.stacks(field, case, step, &loads);
        for cell in &mut self.outcome.cells[first..] {
            let over =
                cell.windows.iter().filter(|window| u128::from(window.latency.max_us()) > bound.as_micros()).count();
            if over > 0 {
                cell.remarks.push(format!("in {over} of {} windows a latency was over the bound", cell.windows.len()));
            }
            let used = cell.middle(|window| window.server_cores) / step.cpus.len() as f64;
            if used < CPU_BOUND && !cell.windows.is_empty() {
                let why = if cell.has_doubt("client-saturated") {
                    "the client was at its limit"
                } else {
                    "the bound on latency, or waiting, set the rate"
                };
                cell.remarks
                    .push(format!("not bound by the CPU: {:.0} % of its processors in use; {why}", used * 100.0));
            }
        }
        Ok(())
    }

    /// The rate each can take is found; then rates up to that of the fastest are offered to all that can take them.
    pub(super) fn rising(&mut self, field: &Field, case: &Case, step: &Step) -> Result<(), String> {
        let timeout = self.timeout();
        // Nothing can have ended in the first round trips, which the rate is not to suffer from.
        let delay = self.setup.network.map_or(0.0, |network| network.delay.as_secs_f64());
        let idle = delay * ROUND_TRIPS;
        let seconds = (self.setup.seconds / 3.0).max(PROBE_LEAST + 5.0 * idle);
        let connections = self.setup.connections;
        let mut capacity = Vec::new();
        for (at, server) in &field.servers {
            self.warm_up(server, case, step, 64)?;
            let load = Load { connections, offered: None, seconds, timeout };
            let (window, _) = self.conditions.measure(server, case, step, load, 0)?;
            let rate = window.rate * seconds / (seconds - idle);
            let name = &self.outcome.contestants[*at].name;
            (self.tell)(&format!("{name}: can take {rate:.0}/s"));
            capacity.push(rate);
        }
        let most = capacity.iter().copied().fold(0.0, f64::max);
        let count = self.setup.rate_count;
        let rates = match &self.setup.rates[..] {
            [] => (1..=count).map(|at| (most * at as f64 / count as f64).round()).collect(),
            given => given.to_vec(),
        };
        // The last that each was offered, which is the most.
        let mut loads = BTreeMap::new();
        for (number, rate) in rates.into_iter().enumerate() {
            let mut cells = Vec::new();
            for (place, (at, _)) in field.servers.iter().enumerate() {
                // Beyond what it can take, arrivals only pile up; the lowest rate shows everybody.
                if rate <= capacity[place] || number == 0 {
                    let load = Load { connections, offered: Some(rate), seconds: self.setup.seconds, timeout };
                    cells.push((place, self.cell(*at, case, step, Some(rate)), load));
                    loads.insert(place, load);
                }
            }
            self.in_turns(field, case, step, cells)?;
            if self.conditions.stop.is_stopped() {
                return Ok(());
            }
        }
        self.stacks(field, case, step, &loads.into_iter().collect::<Vec<_>>());
        Ok(())
    }
}
