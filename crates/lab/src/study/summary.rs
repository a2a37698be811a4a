//! What the cells of a study say together: doubts in words, the planner's rates, the line for each window.

use super::{
    contestant::Contestant,
    result::{Cell, Outcome, Point, Rates, Window},
};
use crate::{
    LoadReport,
    load::Doubt,
    statistics::{Ratio, in_pairs, spread},
};
use std::{collections::BTreeMap, time::SystemTime};

/// Windows of one cell that differ by more than this, highest less lowest over the median, are worth a word.
const SPREAD_MAX: f64 = 0.1;

/// Reasons not to believe, which are about the study and not about a window.
const OF_THE_STUDY: [&str; 3] = ["shared-processors", "quick", "double"];

impl Outcome {
    /// Works out what follows from the cells: doubts and the planner's rates. May be called as often as there is news.
    pub fn conclude(&mut self) {
        conclude(self);
    }
}

fn conclude(outcome: &mut Outcome) {
    outcome.doubts.retain(|doubt| OF_THE_STUDY.contains(&doubt.kind.as_str()));
    let measured = outcome.cells.iter().filter(|cell| !cell.windows.is_empty());
    let mut kinds: BTreeMap<&str, (Vec<&Cell>, &str)> = BTreeMap::new();
    for cell in measured.clone() {
        for doubt in cell.windows.iter().flat_map(|window| &window.doubts) {
            let (cells, _) = kinds.entry(&doubt.kind).or_insert((Vec::new(), &doubt.says));
            if !cells.last().is_some_and(|last| std::ptr::eq(*last, cell)) {
                cells.push(cell);
            }
        }
    }
    let all = measured.clone().count();
    let mut found: Vec<Doubt> = Vec::new();
    for (kind, (cells, says)) in kinds {
        found.push(Doubt { kind: kind.into(), says: format!("{says} [{}]", listed(&cells, all)) });
    }
    let spread_of = |cell: &Cell| spread(&cell.values(outcome.measure));
    let uneven: Vec<&Cell> = measured.filter(|cell| cell.windows.len() > 1 && spread_of(cell) > SPREAD_MAX).collect();
    if !uneven.is_empty() {
        let most = uneven.iter().map(|cell| spread_of(cell)).fold(0.0, f64::max);
        let says = format!(
            "windows of the same cell differ by up to {:.0} % of their median [{}]",
            most * 100.0,
            listed(&uneven, all)
        );
        found.push(Doubt { kind: "spread".into(), says });
    }
    if outcome.cells.iter().any(|cell| cell.windows.len() == 1) {
        let says = "some cells were measured once: how far they vary is not known".into();
        found.push(Doubt { kind: "once".into(), says });
    }
    outcome.doubts.extend(found);
    outcome.modes = modes(outcome);
}

/// Whose cells these are, and how many of all.
fn listed(cells: &[&Cell], all: usize) -> String {
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.contestant.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    format!("in {} of {all} cells: {}", cells.len(), names.join(", "))
}

/// Rates of penstock's modes at the first kind of work, where its units are new connections and as many as can be.
fn modes(outcome: &Outcome) -> BTreeMap<String, Rates> {
    let mut modes: BTreeMap<String, Rates> = BTreeMap::new();
    let Some(first) = outcome.cases().first().map(|case| (*case).to_owned()) else { return modes };
    let mode = |name: &str| outcome.contestants.iter().find(|one| one.name == name)?.mode.clone();
    for cell in outcome.cells.iter().filter(|cell| cell.case == first && cell.offered.is_none()) {
        let (Some(mode), false) = (mode(&cell.contestant), cell.units == "downloads" || cell.windows.is_empty()) else {
            continue;
        };
        let tps = cell.middle(|window| window.rate);
        let points = &mut modes.entry(mode).or_default().points;
        // The planner's rates rise with cores: where more cores gain nothing, there is nothing to plan with.
        if tps > points.last().map_or(0.0, |last| last.tps) {
            points.push(Point { cores: cell.cores as f64, tps });
        }
    }
    // A device that gains less than a tenth from more cores is at its peak.
    if let Some(rates) = modes.get_mut("hw")
        && let [.., before, last] = rates.points[..]
        && last.tps < before.tps * 1.1
    {
        rates.device_peak_tps = Some(last.tps);
    }
    modes
}

/// Cells beside that of the baseline: same work, same cores, same offer.
#[must_use]
pub fn against_baseline(outcome: &Outcome, cell: &Cell, of: impl Fn(&Window) -> f64) -> Option<Ratio> {
    let baseline = outcome.baseline_at(&cell.case)?;
    if cell.contestant == baseline {
        return None;
    }
    let same = |other: &&Cell| {
        other.contestant == baseline
            && other.case == cell.case
            && other.cores == cell.cores
            && other.offered == cell.offered
    };
    in_rounds(cell, outcome.cells.iter().find(same)?, of)
}

/// How many times one cell is the other, by the rounds that both have.
#[must_use]
pub fn in_rounds(a: &Cell, b: &Cell, of: impl Fn(&Window) -> f64) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> = a
        .windows
        .iter()
        .filter_map(|window| Some((of(window), of(b.windows.iter().find(|other| other.round == window.round)?))))
        .collect();
    in_pairs(&pairs)
}

/// What was agreed on, without repeats.
pub(super) fn negotiated(report: &LoadReport) -> Vec<String> {
    let words = |agreed: &crate::load::Negotiated| {
        let signature = agreed.signature.as_ref().map_or(String::new(), |name| format!(", {name}"));
        let resumed = if agreed.resumed { ", resumed" } else { "" };
        format!("{} {}, {}{signature}{resumed}", agreed.version, agreed.suite, agreed.group)
    };
    let mut found: Vec<String> = report.negotiated.iter().map(|(agreed, _)| words(agreed)).collect();
    found.sort();
    found.dedup();
    found
}

/// A window as one line, shown while the study runs.
pub(super) fn line(cell: &Cell, window: &Window) -> String {
    let bytes = if cell.units == "downloads" {
        format!(", {:.2} Gbit/s", window.bytes_a_second * 8.0 / 1e9)
    } else {
        String::new()
    };
    let doubts: Vec<&str> = window.doubts.iter().map(|doubt| doubt.kind.as_str()).collect();
    let doubts = if doubts.is_empty() { String::new() } else { format!("  ({})", doubts.join(", ")) };
    format!(
        "{}, {}, {}C{}T, round {}: {:.0} {}/s{bytes}, {:.0} µs of server CPU each, p99 {:.1} ms{doubts}",
        cell.contestant,
        cell.case,
        cell.cores,
        cell.threads,
        window.round + 1,
        window.rate,
        cell.units,
        window.cpu_us,
        window.latency.percentile_us(99.0) as f64 / 1000.0
    )
}

/// The versions of those that took part, for tables.
#[must_use]
pub fn version(contestant: &Contestant) -> String {
    contestant.version.first().map(|line| line.trim().to_owned()).unwrap_or_default()
}

/// The date and time, UTC: `2026-11-22 03:41 UTC`.
pub(super) fn date_now() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds)
}

/// Days into the civil calendar by Howard Hinnant's algorithm (chrono-compatible low-level date algorithms, 2013).
fn date(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    let era = days / 146_097;
    let day_of_era = days - era * 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_795_318_860), "2026-11-22 03:41 UTC");
    }
}
