//! What a study found, as it is written to `result.json` and read again.

use super::{
    catalogue::{Measure, Origin},
    contestant::Contestant,
    orchestration::PASSES_ON,
    place::Placement,
    stacks::Stacks,
};
use crate::{Histogram, load::Doubt, statistics::median};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// The form of the file; another number is another form.
const FORMAT: u32 = 1;

/// A study's whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The form of the file.
    pub format: u32,
    /// The study's name.
    pub study: String,
    /// What the study shows.
    pub doc: String,
    /// The machine and the date, in one line: the planner quotes it.
    pub source: String,
    /// The command as typed.
    pub command: String,
    /// The date, UTC.
    pub began: String,
    /// Whether this was the short form.
    pub quick: bool,
    /// Why the result is not whole; empty if it is.
    pub partial: Vec<String>,
    /// The figure that counts.
    pub measure: Measure,
    /// The study's parameters, as name and value.
    pub parameters: Vec<(String, String)>,
    /// Remarks on where the study departs from what it repeats.
    pub notes: Vec<String>,
    /// The machine, in groups.
    pub machine: Vec<Group>,
    /// The contestants that took part.
    pub contestants: Vec<Contestant>,
    /// The contestants that did not take part, and why.
    pub left_out: Vec<(String, String)>,
    /// Who ran where.
    pub placement: Placement,
    /// What was run, as one would type it.
    pub commands: Vec<String>,
    /// What was measured.
    pub cells: Vec<Cell>,
    /// Reasons not to believe it, of all cells.
    pub doubts: Vec<Doubt>,
    /// Call stacks by contestant, if they were asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stacks: BTreeMap<String, Stacks>,
    /// The service level that cores are counted for, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_rate: Option<f64>,
    /// Rates of penstock's modes by cores, as the planner reads them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, Rates>,
}

/// Facts that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What the facts describe.
    pub name: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
}

/// Rates of a mode, as the planner reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The measured points, rising.
    pub points: Vec<Point>,
    /// What a device never exceeds, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_peak_tps: Option<f64>,
}

/// A rate at a number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Cores of the server.
    pub cores: f64,
    /// Handshakes a second.
    pub tps: f64,
}

/// One contestant at one kind of work on one number of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The contestant's name.
    pub contestant: String,
    /// The kind of work.
    pub case: String,
    /// The name of a unit, in the plural.
    pub units: String,
    /// The kind of server behind that answered.
    pub origin: Origin,
    /// Cores of the server.
    pub cores: usize,
    /// Threads of the server.
    pub threads: usize,
    /// Arrivals a second that were offered, where not as many as it could take.
    pub offered: Option<f64>,
    /// What was agreed on in the handshakes.
    pub negotiated: Vec<String>,
    /// Window by window.
    pub windows: Vec<Window>,
    /// How the load was found, where it was searched for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Remarks on the cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The number of the round.
    pub round: usize,
    /// Connections at once.
    pub connections: usize,
    /// The window's length, seconds.
    pub seconds: f64,
    /// Units finished.
    pub done: u64,
    /// Units finished a second.
    pub rate: f64,
    /// Bytes of bodies a second.
    pub bytes_a_second: f64,
    /// CPU time of the server for a unit, µs.
    pub cpu_us: f64,
    /// The kernel's share of that CPU time, of 1.
    pub cpu_system: f64,
    /// Cores' worth that the server used.
    pub server_cores: f64,
    /// Full handshakes.
    pub full_handshakes: u64,
    /// Resumed handshakes.
    pub resumed_handshakes: u64,
    /// Units that failed.
    pub failed: u64,
    /// Time of whole units.
    pub latency: Histogram,
    /// Share of the time that the busiest thread of the client ran.
    pub client_busy: f64,
    /// CPU time of the client for a unit, µs.
    pub client_us: f64,
    /// Share of the server's processors that the hypervisor gave to others.
    pub steal: f64,
    /// Cores' worth of time that other processes used on the server's processors.
    pub others: f64,
    /// Reasons not to believe the window.
    pub doubts: Vec<Doubt>,
}

/// A step of the search for the highest rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Connections at once.
    pub connections: usize,
    /// Units a second.
    pub rate: f64,
    /// The longest unit, ms.
    pub longest_ms: f64,
    /// Whether all units were within the bound.
    pub held: bool,
}

impl Window {
    /// The figure that counts.
    #[must_use]
    pub fn value(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Rate => self.rate,
            Measure::Gbits => self.bytes_a_second * 8.0 / 1e9,
            Measure::CpuUs => self.cpu_us,
        }
    }
}

impl Cell {
    /// The figure of each window.
    #[must_use]
    pub fn values(&self, measure: Measure) -> Vec<f64> {
        self.windows.iter().map(|window| window.value(measure)).collect()
    }

    /// The median of a value over the windows.
    #[must_use]
    pub fn middle(&self, of: impl Fn(&Window) -> f64) -> f64 {
        median(&self.windows.iter().map(of).collect::<Vec<_>>())
    }

    /// Times of all windows.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.windows.iter().for_each(|window| all.merge(&window.latency));
        all
    }

    /// Whether this kind of doubt was seen in it.
    #[must_use]
    pub fn has_doubt(&self, kind: &str) -> bool {
        self.windows.iter().any(|window| window.doubts.iter().any(|doubt| doubt.kind == kind))
    }
}

impl Measure {
    /// The unit of the measure, if units of work are called `units`.
    #[must_use]
    pub fn unit(self, units: &str) -> String {
        match self {
            Measure::Rate => format!("{units}/s"),
            Measure::Gbits => "Gbit/s".into(),
            Measure::CpuUs => format!("µs of server CPU for each of the {units}"),
        }
    }
}

impl Outcome {
    /// The kinds of work, in their order.
    #[must_use]
    pub fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !cases.contains(&cell.case.as_str()) {
                cases.push(&cell.case);
            }
        }
        cases
    }

    /// The contestants with measurements, in the order of the table of contestants.
    #[must_use]
    pub fn measured(&self) -> Vec<&str> {
        let has = |name: &str| self.cells.iter().any(|cell| cell.contestant == name && !cell.windows.is_empty());
        self.contestants.iter().map(|contestant| contestant.name.as_str()).filter(|name| has(name)).collect()
    }

    /// The contestant that the others are compared with: HAProxy where it took part, or Squid, otherwise the first one.
    #[must_use]
    pub fn baseline(&self) -> Option<&str> {
        baseline(&self.measured())
    }

    /// The same among those who did this kind of work.
    #[must_use]
    pub fn baseline_at(&self, case: &str) -> Option<&str> {
        let did = |name: &&str| {
            self.cells.iter().any(|cell| cell.contestant == *name && cell.case == case && !cell.windows.is_empty())
        };
        baseline(&self.measured().into_iter().filter(did).collect::<Vec<_>>())
    }

    /// Cores, in rising order.
    #[must_use]
    pub fn steps(&self) -> Vec<usize> {
        let mut steps: Vec<usize> = self.cells.iter().map(|cell| cell.cores).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The result as JSON.
    ///
    /// # Errors
    ///
    /// If a number cannot be written as JSON, which does not happen.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string(self).map(|text| text + "\n").map_err(|e| e.to_string())
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// A sentence.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = self.json()?;
        let beside = path.with_extension("json.new");
        let done = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
        done.map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Reads it again.
    ///
    /// # Errors
    /// A sentence: it is not there, or not a result.
    pub fn read(path: &Path) -> Result<Outcome, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {name}: {e}"))?;
        let outcome: Outcome =
            serde_json::from_str(&text).map_err(|e| format!("{name} is not the result of a study: {e}"))?;
        if outcome.format != FORMAT {
            return Err(format!("{name} has form {}, this release reads {FORMAT}", outcome.format));
        }
        Ok(outcome)
    }

    /// The form that is written.
    #[must_use]
    pub fn format() -> u32 {
        FORMAT
    }
}

/// Squid takes part in one study alone, which is about it.
fn baseline<'a>(measured: &[&'a str]) -> Option<&'a str> {
    let known = ["squid", "haproxy", PASSES_ON];
    let found = known.iter().find_map(|known| measured.iter().find(|name| *name == known));
    found.or(measured.first()).copied()
}

/// A result with three windows of each of these: contestant, cores, rate; two thousandths apart.
#[cfg(test)]
pub(crate) fn example(cells: &[(&str, usize, f64)]) -> Outcome {
    use super::{contestant::Program, place::Step};
    let window = |round: usize, cores: usize, rate: f64| {
        let mut latency = Histogram::default();
        (1..=2000_u64).for_each(|n| latency.record_n(n * 10, 1));
        Window {
            round,
            connections: 64,
            seconds: 30.0,
            done: (rate * 30.0) as u64,
            rate,
            bytes_a_second: 0.0,
            cpu_us: cores as f64 * 1e6 / rate,
            cpu_system: 0.2,
            server_cores: cores as f64 * 0.98,
            full_handshakes: (rate * 30.0) as u64,
            resumed_handshakes: 0,
            failed: 0,
            latency,
            client_busy: 0.4,
            client_us: 150.0,
            steal: 0.0,
            others: 0.0,
            doubts: Vec::new(),
        }
    };
    let cell = |(contestant, cores, rate): &(&str, usize, f64)| Cell {
        contestant: (*contestant).into(),
        case: "TLS 1.3 <RSA-2048>".into(),
        units: "requests".into(),
        origin: Origin::None,
        cores: *cores,
        threads: *cores,
        offered: None,
        negotiated: vec!["TLSv1.3 TLS13_AES_256_GCM_SHA384, X25519".into()],
        windows: (0..3).map(|round| window(round, *cores, rate * (1.0 + 0.002 * round as f64))).collect(),
        probes: Vec::new(),
        remarks: Vec::new(),
    };
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.0).collect();
    names.dedup();
    let contestant = |name: &&str| Contestant {
        name: (*name).into(),
        doc: "it".into(),
        program: Program::Haproxy,
        path: "/usr/sbin/it".into(),
        version: vec!["it version 1".into()],
        mode: name.strip_prefix("penstock-").map(str::to_owned),
        global: Vec::new(),
        environment: Vec::new(),
        double: false,
        configuration: "global\n".into(),
    };
    let most = cells.iter().map(|cell| cell.1).max().unwrap_or(1);
    let step = |cores: usize| Step { cores, cpus: (0..cores as u32).collect() };
    Outcome {
        format: FORMAT,
        study: "handshake".into(),
        doc: "one request on each new connection".into(),
        source: "here".into(),
        command: "penstock bench study handshake".into(),
        began: "2026-11-22 03:41 UTC".into(),
        quick: false,
        partial: Vec::new(),
        measure: Measure::Rate,
        parameters: vec![("window".into(), "30 s".into())],
        notes: Vec::new(),
        machine: vec![Group { name: "Processor".into(), facts: vec![("CPU".into(), "Xeon & friends".into())] }],
        contestants: names.iter().map(contestant).collect(),
        left_out: vec![("nginx".into(), "nginx is not installed".into())],
        placement: Placement {
            steps: (1..=most).map(step).collect(),
            clients: vec![most as u32],
            origin: Vec::new(),
            agents: Vec::new(),
            cores: (0..=most as u32).map(|cpu| vec![cpu]).collect(),
        },
        commands: vec!["it: /usr/sbin/it -f x".into()],
        cells: cells.iter().map(cell).collect(),
        doubts: Vec::new(),
        stacks: BTreeMap::new(),
        target_rate: None,
        modes: BTreeMap::new(),
    }
}
