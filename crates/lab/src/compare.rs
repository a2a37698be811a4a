//! Two results of the same study side by side: what changed from one to the other, and how sure that is.

mod page;
mod text;

pub use page::page;
pub use text::text;

use crate::{
    statistics::{Ratio, apart},
    study::{Cell, Measure, Outcome},
};
use penstock_planner::Curve;
use serde::Serialize;

/// Doubts that say that the rate is not the server's.
const NOT_THE_SERVERS: [&str; 2] = ["client-saturated", "not-at-its-limit"];

/// B beside A.
#[derive(Debug)]
pub struct Comparison {
    /// The first outcome.
    pub a: Outcome,
    /// The second outcome.
    pub b: Outcome,
    /// Cells that both have.
    pub rows: Vec<Row>,
    /// Cells that only one has.
    pub unmatched: Vec<String>,
    /// The rate that cores are counted for.
    pub target_rate: f64,
    /// Cores needed for the target rate.
    pub cores: Vec<Cores>,
}

/// One cell in both.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The kind of work.
    pub case: String,
    /// Cores of the server.
    pub cores: usize,
    /// The contestant's name.
    pub contestant: String,
    /// The rate offered; `None` for as much as the server could take.
    pub offered: Option<f64>,
    /// The figure that counts, in A and B.
    pub values: (f64, f64),
    /// The figure of B over that of A.
    pub gain: Option<Ratio>,
    /// CPU time for a unit, µs, in A and B.
    pub cpu_us: (f64, f64),
    /// The CPU time of B over that of A.
    pub cpu: Option<Ratio>,
    /// In words.
    pub verdict: String,
}

/// Cores that the rate needs.
#[derive(Clone, Debug, Serialize)]
pub struct Cores {
    /// The contestant's name.
    pub contestant: String,
    /// Cores in A and in B.
    pub cores: (f64, f64),
    /// Whether either goes beyond what was measured.
    pub beyond: bool,
}

/// Compares two outcomes; `target_rate` is what cores are counted for, else that of the studies, else the highest rate of A.
///
/// # Errors
/// If the outcomes are not of the same study, or have nothing in common.
pub fn compare(a: Outcome, b: Outcome, target_rate: Option<f64>) -> Result<Comparison, String> {
    if a.study != b.study {
        return Err(format!("one is the study '{}', the other '{}': only the same can be compared", a.study, b.study));
    }
    let same = |cell: &Cell, other: &Cell| {
        cell.contestant == other.contestant
            && cell.case == other.case
            && cell.cores == other.cores
            && cell.offered == other.offered
    };
    let mut rows = Vec::new();
    let mut unmatched = Vec::new();
    let name =
        |cell: &Cell, side: &str| format!("{}, {}, {} cores: only in {side}", cell.contestant, cell.case, cell.cores);
    for cell in a.cells.iter().filter(|cell| !cell.windows.is_empty()) {
        match b.cells.iter().find(|other| same(cell, other) && !other.windows.is_empty()) {
            Some(other) => rows.push(row(&a, cell, &b, other)),
            None => unmatched.push(name(cell, "A")),
        }
    }
    let only_b =
        b.cells.iter().filter(|cell| !cell.windows.is_empty() && !a.cells.iter().any(|other| same(cell, other)));
    unmatched.extend(only_b.map(|cell| name(cell, "B")));
    if rows.is_empty() {
        return Err(format!("they have no cell in common: {}", unmatched.join("; ")));
    }
    let highest = || a.cells.iter().map(|cell| cell.middle(|window| window.rate)).fold(0.0, f64::max);
    let target_rate = target_rate.or(a.target_rate).or(b.target_rate).unwrap_or_else(highest);
    let cores = a.measured().into_iter().filter_map(|name| {
        let ((in_a, most_a), (in_b, most_b)) = (cores_for(&a, name, target_rate)?, cores_for(&b, name, target_rate)?);
        let beyond = target_rate > most_a || target_rate > most_b;
        Some(Cores { contestant: name.to_owned(), cores: (in_a, in_b), beyond })
    });
    let cores = cores.collect();
    Ok(Comparison { a, b, rows, unmatched, target_rate, cores })
}

fn row(a: &Outcome, cell: &Cell, b: &Outcome, other: &Cell) -> Row {
    let ratio = |measure: Measure| apart(&other.values(measure), &cell.values(measure));
    let (gain, cpu) = (ratio(a.measure), ratio(Measure::CpuUs));
    Row {
        case: cell.case.clone(),
        cores: cell.cores,
        contestant: cell.contestant.clone(),
        offered: cell.offered,
        values: (cell.middle(|window| window.value(a.measure)), other.middle(|window| window.value(a.measure))),
        cpu_us: (cell.middle(|window| window.cpu_us), other.middle(|window| window.cpu_us)),
        verdict: verdict(a, cell, b, other, gain, cpu),
        gain,
        cpu,
    }
}

/// Only where the data carries one.
fn verdict(a: &Outcome, cell: &Cell, b: &Outcome, other: &Cell, gain: Option<Ratio>, cpu: Option<Ratio>) -> String {
    if a.quick || b.quick {
        return "none: the short form measures nothing".into();
    }
    let limited = |cell: &Cell| NOT_THE_SERVERS.iter().any(|kind| cell.has_doubt(kind));
    // A rate that the server did not set says nothing of it; its CPU time does.
    let by_cpu = a.measure == Measure::CpuUs || limited(cell) || limited(other);
    let Some(ratio) = (if by_cpu { cpu } else { gain }) else { return "none: nothing was done".into() };
    if ratio.interval.is_none() {
        return "none: measured once".into();
    }
    if !ratio.differs() {
        return format!("none: not told apart by {} windows", ratio.n);
    }
    match (by_cpu, ratio.value > 1.0) {
        (true, true) => format!("B spends {:.2} times the CPU time", ratio.value),
        (true, false) => format!("B spends {:.2} of the CPU time", ratio.value),
        (false, true) => format!("B does {:.2} times as much", ratio.value),
        (false, false) => format!("B does {:.2} of it", ratio.value),
    }
}

/// Cores that a rate needs of a contestant at the first kind of work, and the highest rate that was measured: straight lines
/// between the points, and beyond the last one as the planner has it.
#[must_use]
pub fn cores_for(outcome: &Outcome, contestant: &str, rate: f64) -> Option<(f64, f64)> {
    let case = outcome.cases().first().copied()?.to_owned();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let own = outcome
        .cells
        .iter()
        .filter(|cell| cell.contestant == contestant && cell.case == case && cell.offered.is_none());
    for cell in own.filter(|cell| !cell.windows.is_empty()) {
        let tps = cell.middle(|window| window.rate);
        // More cores that gain nothing do not help to reach a rate.
        if tps > points.last().map_or(0.0, |last| last.1) {
            points.push((cell.cores as f64, tps));
        }
    }
    let highest = points.last()?.1;
    Some((Curve::new(contestant, points).ok()?.cores(rate), highest))
}

impl Comparison {
    /// For programs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "study": self.a.study, "a": self.a.source, "b": self.b.source, "rows": self.rows,
            "unmatched": self.unmatched, "target_rate": self.target_rate, "cores": self.cores })
    }

    /// Facts about both machines: first those that differ, then the equal ones, listed once.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, String, String)> {
        let all = |outcome: &Outcome| -> Vec<(String, String)> {
            let facts = outcome.machine.iter().flat_map(|group| {
                group.facts.iter().map(|(name, value)| (format!("{}, {name}", group.name), value.clone()))
            });
            facts.collect()
        };
        let (a, b) = (all(&self.a), all(&self.b));
        let of = |list: &[(String, String)], name: &str| {
            list.iter().find(|(own, _)| own == name).map_or(String::new(), |(_, value)| value.clone())
        };
        let mut names: Vec<&String> = a.iter().map(|(name, _)| name).collect();
        names.extend(b.iter().map(|(name, _)| name).filter(|name| !a.iter().any(|(own, _)| own == *name)));
        let mut facts: Vec<_> = names.into_iter().map(|name| (name.clone(), of(&a, name), of(&b, name))).collect();
        facts.sort_by_key(|(_, a, b)| a == b);
        facts
    }

    /// Reasons not to believe it, of both.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let of = |outcome: &Outcome, side: &str| -> Vec<String> {
            let partial = outcome.partial.iter().map(|why| format!("{side} is partial: {why}"));
            partial
                .chain(outcome.doubts.iter().map(|doubt| format!("{side}, {}: {}", doubt.kind, doubt.says)))
                .collect()
        };
        let mut all = of(&self.a, "A");
        all.extend(of(&self.b, "B"));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::example;

    #[test]
    fn a_gain_that_the_data_carries_gets_a_verdict_and_noise_does_not() {
        let (a, mut b) = (
            example(&[("haproxy", 1, 1000.0), ("penstock-sw", 1, 3000.0)]),
            example(&[("haproxy", 1, 1003.0), ("penstock-sw", 1, 4500.0)]),
        );
        b.source = "another machine".into();
        let found = compare(a.clone(), b.clone(), None).unwrap();
        assert_eq!(found.rows[0].verdict, "none: not told apart by 3 windows");
        assert_eq!(found.rows[1].verdict, "B does 1.50 times as much");
        let (low, high) = found.rows[1].gain.unwrap().interval.unwrap();
        assert!(low < 1.5 && 1.5 < high && low > 1.3, "{low} {high}");
        // Turned round, the same the other way.
        let back = compare(b, a, None).unwrap();
        assert!((back.rows[1].gain.unwrap().value * 1.5 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_that_the_client_set_is_judged_by_cpu_time() {
        let mut a = example(&[("haproxy", 1, 1000.0)]);
        for window in &mut a.cells[0].windows {
            window.doubts.push(crate::load::Doubt { kind: "client-saturated".into(), says: String::new() });
        }
        let found = compare(a, example(&[("haproxy", 1, 2000.0)]), None).unwrap();
        assert_eq!(found.rows[0].verdict, "B spends 0.50 of the CPU time");
    }

    #[test]
    fn cores_at_a_rate_and_what_cannot_be_compared() {
        let a = example(&[("haproxy", 1, 1000.0), ("haproxy", 2, 1900.0), ("haproxy", 4, 3700.0)]);
        let b = example(&[("haproxy", 1, 2000.0), ("haproxy", 2, 3900.0), ("haproxy", 4, 7700.0)]);
        let found = compare(a.clone(), b.clone(), Some(1900.0)).unwrap();
        assert!((found.cores[0].cores.0 - 2.0).abs() < 0.02 && found.cores[0].cores.1 < 1.0, "{:?}", found.cores);
        assert!(!found.cores[0].beyond && compare(a.clone(), b.clone(), Some(5000.0)).unwrap().cores[0].beyond);
        let other = Outcome { study: "throughput".into(), ..b.clone() };
        assert!(compare(a.clone(), other, None).unwrap_err().contains("'throughput'"));
        let strangers = example(&[("nginx", 1, 5.0)]);
        assert!(compare(a, strangers, None).unwrap_err().contains("no cell in common"));
        let quick = Outcome { quick: true, ..b.clone() };
        assert!(compare(quick, b, None).unwrap().rows[0].verdict.starts_with("none: the short form"));
    }
}
