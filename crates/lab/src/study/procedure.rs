//! The two procedures that find their load themselves: the search for the highest rate, and rising rates.

use super::{
    catalogue::Case,
    place::Step,
    result::{Probe, Window},
    run::{Bench, Field},
    search::{best, search},
    server::Server,
    window::{Load, Measurement},
};
use std::{collections::BTreeMap, time::Duration};

/// A probe is this share of a window.
const PROBE: f64 = 1.0 / 24.0;
/// And no shorter than this, seconds.
const PROBE_LEAST: f64 = 0.3;
/// Round trips of a new connection with a request, by TLS 1.2: the connection, the handshake's two, the request.
const ROUND_TRIPS: f64 = 4.0;
/// How often concurrency is lowered when the bound does not hold for a whole window.
const RETREATS: usize = 6;
/// Below this share of its processors in use, something else than the CPU set the rate.
const CPU_BOUND: f64 = 0.9;

impl Bench<'_> {
    /// Concurrency is searched for each contestant, by short probes; then the best of each is held for whole windows, in turns.
    pub(super) fn highest(&mut self, field: &Field, case: &Case, step: &Step) -> Result<(), String> {
        let bound = self.setup.bound;
        let timeout = self.timeout();
        let load = |connections, seconds| Load { connections, offered: None, seconds, timeout };
        let probe_seconds = (self.setup.seconds * PROBE).max(PROBE_LEAST);
        let first = self.outcome.cells.len();
        let mut turns = Vec::new();
        for (place, (at, server)) in field.servers.iter().enumerate() {
            let mut cell = self.cell(*at, case, step, None);
            let mut failed = self.warm_up(server, case, step, 16).err();
            let conditions = &self.conditions;
            cell.probes = search(self.setup.connections, |connections| {
                if failed.is_some() || conditions.stop.is_stopped() {
                    return None;
                }
                let measured = conditions.measure(server, case, step, load(connections, probe_seconds), 0);
                let (window, _) = measured.map_err(|why| failed = Some(why)).ok()?;
                Some(probe(connections, &window, bound))
            });
            let found = best(&cell.probes).map(|probe| probe.connections);
            if found.is_none() {
                cell.remarks.push(format!("no rate keeps every latency within {} s", bound.as_secs_f64()));
            }
            let cell = self.add(cell);
            if let Some(why) = failed {
                self.failed(cell, &why);
            }
            if let Some(connections) = found {
                let turn = Measurement { place, cell, load: load(connections, self.setup.seconds) };
                turns.extend(self.settle(server, case, step, turn)?);
            }
            if self.conditions.stop.is_stopped() {
                return Ok(());
            }
        }
        self.in_turns(field, case, step, &turns, 1..self.setup.rounds)?;
        self.stacks(field, case, step, &turns);
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

    /// What held for a probe must hold for a window: fewer connections until it does. That window is the first round's.
    fn settle(
        &mut self,
        server: &Server,
        case: &Case,
        step: &Step,
        mut turn: Measurement,
    ) -> Result<Option<Measurement>, String> {
        for retreats_left in (0..=RETREATS).rev() {
            if self.conditions.stop.is_stopped() {
                return Ok(None);
            }
            let connections = turn.load.connections;
            let (window, report) = match self.conditions.measure(server, case, step, turn.load, 0) {
                Ok(measured) => measured,
                Err(why) => {
                    self.failed(turn.cell, &why);
                    return Ok(None);
                }
            };
            let whole = probe(connections, &window, self.setup.bound);
            let cell = &mut self.outcome.cells[turn.cell];
            if whole.held || retreats_left == 0 {
                cell.remarks.push(format!("{connections} connections, found in {} probes", cell.probes.len()));
                self.keep(turn.cell, window, &report)?;
                break;
            }
            cell.probes.push(whole);
            turn.load.connections = (connections * 3 / 4).max(1);
        }
        Ok(Some(turn))
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
        let mut last = BTreeMap::new();
        for (number, rate) in rates.into_iter().enumerate() {
            let mut turns = Vec::new();
            for (place, (at, _)) in field.servers.iter().enumerate() {
                // Beyond what it can take, arrivals only pile up; the lowest rate shows everybody.
                if rate <= capacity[place] || number == 0 {
                    let load = Load { connections, offered: Some(rate), seconds: self.setup.seconds, timeout };
                    let cell = self.add(self.cell(*at, case, step, Some(rate)));
                    let turn = Measurement { place, cell, load };
                    turns.push(turn);
                    last.insert(place, turn);
                }
            }
            self.in_turns(field, case, step, &turns, 0..self.setup.rounds)?;
            if self.conditions.stop.is_stopped() {
                return Ok(());
            }
        }
        self.stacks(field, case, step, &last.into_values().collect::<Vec<_>>());
        Ok(())
    }
}

fn probe(connections: usize, window: &Window, bound: Duration) -> Probe {
    let longest = window.latency.max_us();
    let held = window.failed == 0 && u128::from(longest) <= bound.as_micros();
    Probe { connections, rate: window.rate, longest_ms: longest as f64 / 1000.0, held }
}
