//! What was found, in sentences: the first thing a reader sees.

use super::view::short;
use crate::{
    compare::cores_for,
    study::{Cell, Measure, Outcome, against_baseline, in_rounds},
};
use penstock_figures::number::{percent, whole};

/// Doubts that say that the rate is not the server's.
const NOT_THE_SERVERS: [&str; 2] = ["client-saturated", "not-at-its-limit"];

/// A sentence each.
pub(super) fn findings(outcome: &Outcome) -> Vec<String> {
    let Some(baseline) = outcome.baseline() else { return vec!["Nothing was measured.".into()] };
    let mut found = Vec::new();
    if let Some(target) = outcome.target_rate {
        found.extend(saved(outcome, baseline, target));
    }
    if outcome.cells.iter().any(|cell| cell.offered.is_some()) {
        found.extend(at_equal_rate(outcome, baseline));
        return found;
    }
    for case in outcome.cases() {
        let Some(widest) = outcome.cells.iter().filter(|cell| cell.case == case).map(|cell| cell.cores).max() else {
            continue;
        };
        let cell_of = |name: &str| {
            outcome.cells.iter().find(|cell| {
                cell.contestant == name && cell.case == case && cell.cores == widest && !cell.windows.is_empty()
            })
        };
        let Some(baseline) = outcome.baseline_at(case) else { continue };
        let Some(base) = cell_of(baseline) else { continue };
        let names = outcome.measured();
        let others: Vec<&Cell> =
            names.iter().filter(|name| **name != baseline).filter_map(|name| cell_of(name)).collect();
        found.extend(beside(outcome, base, &others));
    }
    if found.is_empty() {
        found.extend(alone(outcome));
    }
    found
}

/// The others beside the baseline at one kind of work: by rate where the rates are the servers' own, and by CPU time.
fn beside(outcome: &Outcome, base: &Cell, others: &[&Cell]) -> Option<String> {
    let limited = |cell: &Cell| NOT_THE_SERVERS.iter().any(|kind| cell.has_doubt(kind));
    let units = if outcome.measure == Measure::Gbits { "bytes" } else { base.units.as_str() };
    let mut all_differ = true;
    let mut told = |cell: &Cell, measure: Measure| {
        let ratio = in_rounds(cell, base, |window| window.value(measure))?;
        all_differ &= ratio.differs();
        Some(format!("{}{}", ratio.text(), if ratio.differs() { "" } else { "*" }))
    };
    let mut parts = Vec::new();
    for cell in others {
        let Some(cpu) = told(cell, Measure::CpuUs) else { continue };
        let rate = if limited(cell) || limited(base) { None } else { told(cell, outcome.measure) };
        parts.push(match rate {
            Some(rate) => format!("{} does {rate} times the {units} at {cpu} of the CPU time each", cell.contestant),
            None => format!("{} takes {cpu} of the CPU time for each of the {}", cell.contestant, cell.units),
        });
    }
    let place = format!("{}, {}C{}T, beside {}", base.case, base.cores, base.threads, base.contestant);
    let star = if all_differ { "" } else { " (* not told from 1 by this data)" };
    (!parts.is_empty()).then(|| format!("{place}: {}{star}.", parts.join("; ")))
}

/// The text where there is nothing to compare with.
fn alone(outcome: &Outcome) -> Vec<String> {
    let cells = outcome.cells.iter().filter(|cell| !cell.windows.is_empty());
    cells
        .map(|cell| {
            format!(
                "{}, {}C{}T: {} does {} {}/s, {} µs of CPU time each.",
                cell.case,
                cell.cores,
                cell.threads,
                cell.contestant,
                short(cell.middle(|window| window.rate)),
                cell.units,
                short(cell.middle(|window| window.cpu_us))
            )
        })
        .collect()
}

fn saved(outcome: &Outcome, baseline: &str, target: f64) -> Vec<String> {
    let Some((base, base_highest)) = cores_for(outcome, baseline, target) else { return Vec::new() };
    let names = outcome.measured();
    names
        .iter()
        .filter(|name| **name != baseline)
        .filter_map(|name| {
            let (cores, highest) = cores_for(outcome, name, target)?;
            let beyond = match (target > highest, target > base_highest) {
                (false, false) => String::new(),
                (true, true) => ", both beyond what was measured".to_owned(),
                (true, false) => format!(", {name} beyond what was measured"),
                (false, true) => format!(", {baseline} beyond what was measured"),
            };
            Some(format!(
                "{}/s need {} cores with {name} and {} with {baseline}{beyond}.",
                whole(target),
                short(cores),
                short(base)
            ))
        })
        .collect()
}

/// CPU saved at the highest rate that both were offered.
fn at_equal_rate(outcome: &Outcome, baseline: &str) -> Vec<String> {
    let names = outcome.measured();
    names
        .iter()
        .filter(|name| **name != baseline)
        .filter_map(|name| {
            let own = outcome.cells.iter().filter(|cell| cell.contestant == **name);
            let both =
                own.filter_map(|cell| Some((cell, against_baseline(outcome, cell, |window| window.server_cores)?)));
            let (cell, ratio) =
                both.max_by(|a, b| a.0.offered.unwrap_or(0.0).total_cmp(&b.0.offered.unwrap_or(0.0)))?;
            let tells = if ratio.differs() { "" } else { " - which the data does not tell from 0" };
            Some(format!(
                "At {} connections/s {name} saves {} of the CPU time of {baseline}{tells}.",
                whole(cell.offered?),
                percent(1.0 - ratio.value)
            ))
        })
        .collect()
}
