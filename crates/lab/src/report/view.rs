//! Figures and tables of a result, before they become markup or text.

use crate::{
    statistics::{range, spread},
    study::{Cell, Measure, Outcome, Window, against_baseline},
};
use penstock_figures::{
    Mark, Scale, Series,
    number::{percent, plain, whole},
};

/// How the values of an axis are written.
pub(super) type Format = fn(f64) -> String;

/// A figure.
pub(super) struct Plot {
    pub heading: String,
    pub kind: Kind,
    pub x: (String, Scale, Format),
    pub y: (String, Scale, Format),
    pub series: Vec<Series>,
    pub marks: Vec<Mark>,
}

/// Which.
pub(super) enum Kind {
    /// With the names of the groups.
    Bars(Vec<String>),
    Lines,
}

/// Rows under a heading; the first column names the row.
#[derive(Default)]
pub(super) struct Table {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// The column that is drawn as a bar where nothing else can be drawn, and its values.
    pub bars: Vec<f64>,
}

impl Table {
    /// Without columns that hold nothing, and without the names of the work where there is only one.
    pub(super) fn slim(mut self) -> Table {
        let says_nothing = |at: usize| {
            let mut values: Vec<&String> = self.rows.iter().map(|row| &row[at]).collect();
            values.dedup();
            values.iter().all(|value| value.is_empty()) || (self.head[at] == "work" && values.len() == 1)
        };
        let kept: Vec<bool> = (0..self.head.len()).map(|at| !says_nothing(at)).collect();
        fn only<T>(row: &mut Vec<T>, kept: &[bool]) {
            let mut at = kept.iter();
            row.retain(|_| at.next().copied().unwrap_or(true));
        }
        only(&mut self.head, &kept);
        self.rows.iter_mut().for_each(|row| only(row, &kept));
        self
    }
}

/// What belongs together.
pub(super) struct Section {
    pub heading: String,
    pub plots: Vec<Plot>,
    pub table: Table,
}

/// A rate or a time with three digits or more.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => whole(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v > 0.0 => format!("{value:.2}"),
        _ => "0".into(),
    }
}

/// The share of units beyond which a percentile lies, as its axis has it: 100 is 99 %.
fn percentile(value: f64) -> String {
    format!("{} %", plain(100.0 - 100.0 / value))
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// All sections, the one that counts first.
pub(super) fn sections(outcome: &Outcome) -> Vec<Section> {
    let by_rate = outcome.cells.iter().any(|cell| cell.offered.is_some());
    let mut sections = match (by_rate, outcome.target_rate) {
        (true, _) => vec![against_rate(outcome)],
        (false, Some(target)) => vec![cores_needed(outcome, target), measured(outcome)],
        (false, None) => vec![measured(outcome)],
    };
    if outcome.cells.iter().any(|cell| !cell.probes.is_empty()) {
        sections.push(searched(outcome));
    }
    for section in &mut sections {
        section.table = std::mem::take(&mut section.table).slim();
    }
    sections
}

/// Cells of one contestant with measurements.
fn of<'a>(outcome: &'a Outcome, name: &'a str, case: &'a str) -> impl Iterator<Item = &'a Cell> {
    outcome.cells.iter().filter(move |cell| cell.contestant == name && cell.case == case && !cell.windows.is_empty())
}

/// One series for each contestant: x, the median of something and its range.
fn series(outcome: &Outcome, case: &str, x: impl Fn(&Cell) -> f64, y: impl Fn(&Window) -> f64) -> Vec<Series> {
    let one = |name: &&str| {
        let cells: Vec<&Cell> = of(outcome, name, case).collect();
        Series {
            name: (*name).to_owned(),
            points: cells.iter().map(|cell| (x(cell), cell.middle(&y))).collect(),
            spread: cells.iter().map(|cell| range(&cell.windows.iter().map(&y).collect::<Vec<_>>())).collect(),
        }
    };
    outcome.measured().iter().map(one).filter(|series| !series.points.is_empty()).collect()
}

/// Bars with cases side by side, of one number of cores.
fn by_case(outcome: &Outcome, cases: &[&str], cores: usize, y: impl Fn(&Window) -> f64) -> Vec<Series> {
    let one = |name: &&str| {
        let mut series = Series { name: (*name).to_owned(), ..Series::default() };
        for (at, case) in cases.iter().enumerate() {
            for cell in of(outcome, name, case).filter(|cell| cell.cores == cores) {
                series.points.push((at as f64, cell.middle(&y)));
                series.spread.push(range(&cell.windows.iter().map(&y).collect::<Vec<_>>()));
            }
        }
        series
    };
    outcome.measured().iter().map(one).filter(|series| !series.points.is_empty()).collect()
}

fn bars(heading: String, x: &str, y: String, groups: Vec<String>, series: Vec<Series>, marks: Vec<Mark>) -> Plot {
    let x = (x.to_owned(), Scale::Linear, short as Format);
    Plot { heading, kind: Kind::Bars(groups), x, y: (y, Scale::Linear, short), series, marks }
}

fn measured(outcome: &Outcome) -> Section {
    let (cases, steps) = (outcome.cases(), outcome.steps());
    let measure = outcome.measure;
    let units = outcome.cells.first().map_or("units", |cell| cell.units.as_str());
    let per_unit = |units: &str| format!("µs of server CPU for each of the {units}");
    let mut plots = Vec::new();
    // Work of different kinds has no common axis.
    let mut kinds: Vec<Vec<&str>> = Vec::new();
    for case in &cases {
        let unit = |case: &str| outcome.cells.iter().find(|cell| cell.case == case).map(|cell| cell.units.clone());
        match kinds.iter_mut().find(|kind| unit(kind[0]) == unit(case)) {
            Some(kind) if steps.len() == 1 => kind.push(case),
            _ => kinds.push(vec![case]),
        }
    }
    for kind in &kinds {
        let first = kind[0];
        let units = outcome.cells.iter().find(|cell| cell.case == first).map_or(units, |cell| cell.units.as_str());
        let shown = if units == "downloads" { Measure::Gbits } else { measure };
        let marks = device_peak(outcome, shown);
        if steps.len() > 1 {
            let groups = steps.iter().map(|cores| step_name(outcome, *cores)).collect();
            let place = |cell: &Cell| steps.iter().position(|cores| *cores == cell.cores).unwrap_or(0) as f64;
            let series_of = |y: &dyn Fn(&Window) -> f64| series(outcome, first, place, y);
            plots.push(bars(
                first.to_owned(),
                "cores and threads of the server",
                shown.unit(units),
                groups,
                series_of(&|w| w.value(shown)),
                marks,
            ));
            plots.extend(scaling(outcome, first, shown, units));
        } else {
            let groups = || {
                if kind.len() == 1 {
                    vec![step_name(outcome, steps[0])]
                } else {
                    kind.iter().map(|case| (*case).to_owned()).collect()
                }
            };
            let bars_of = |y: &dyn Fn(&Window) -> f64| by_case(outcome, kind, steps[0], y);
            let heading = if kind.len() == 1 {
                first.to_owned()
            } else {
                format!("By kind of work, {}", step_name(outcome, steps[0]))
            };
            plots.push(bars(heading, "", shown.unit(units), groups(), bars_of(&|w| w.value(shown)), marks));
            if units == "downloads" {
                let per_gb =
                    |w: &Window| if w.bytes_a_second > 0.0 { w.server_cores / w.bytes_a_second * 1e9 } else { 0.0 };
                plots.push(bars(
                    "What it costs the server".into(),
                    "",
                    "seconds of CPU for a GB".into(),
                    groups(),
                    bars_of(&per_gb),
                    Vec::new(),
                ));
            } else {
                plots.push(bars(
                    "What it costs the server".into(),
                    "",
                    per_unit(units),
                    groups(),
                    bars_of(&|w| w.cpu_us),
                    Vec::new(),
                ));
            }
        }
    }
    if let (Some(case), Some(cores)) = (cases.first(), steps.last()) {
        plots.extend(latencies(outcome, case, *cores));
    }
    Section { heading: "What was measured".into(), plots, table: table(outcome) }
}

fn step_name(outcome: &Outcome, cores: usize) -> String {
    outcome
        .placement
        .steps
        .iter()
        .find(|step| step.cores == cores)
        .map_or_else(|| format!("{cores}C"), crate::study::Step::name)
}

/// The rate at which a device levels off, as a mark in a chart of rates; empty if it was not measured.
fn device_peak(outcome: &Outcome, measure: Measure) -> Vec<Mark> {
    let peak = outcome.modes.get("hw").and_then(|rates| rates.device_peak_tps).filter(|_| measure == Measure::Rate);
    peak.into_iter().map(|y| Mark { y, name: format!("peak of the device: {}/s", whole(y)) }).collect()
}

/// Rate and CPU use by cores, on logarithmic axes.
fn scaling(outcome: &Outcome, case: &str, measure: Measure, units: &str) -> Vec<Plot> {
    let cores = |cell: &Cell| cell.cores as f64;
    let x = || ("cores of the server".to_owned(), Scale::Logarithmic, whole as Format);
    vec![
        Plot {
            heading: format!("{case}: by cores, logarithmic"),
            kind: Kind::Lines,
            x: x(),
            y: (measure.unit(units), Scale::Logarithmic, short),
            series: series(outcome, case, cores, |w| w.value(measure)),
            marks: Vec::new(),
        },
        Plot {
            heading: "Cores in use".into(),
            kind: Kind::Lines,
            x: x(),
            y: ("cores that the server used".into(), Scale::Logarithmic, short),
            series: series(outcome, case, cores, |w| w.server_cores),
            marks: Vec::new(),
        },
    ]
}

/// Percentiles of latency, rare ones as wide as common ones.
fn latencies(outcome: &Outcome, case: &str, cores: usize) -> Option<Plot> {
    const SHARES: [f64; 7] = [2.0, 4.0, 10.0, 20.0, 100.0, 200.0, 1000.0];
    let one = |name: &&str| {
        let cell = of(outcome, name, case).find(|cell| cell.cores == cores)?;
        let all = cell.latency();
        // Beyond what was seen ten times, a percentile is one unit's luck.
        let known = |share: &&f64| all.count() as f64 / **share >= 10.0;
        let points =
            SHARES.iter().filter(known).map(|share| (*share, ms(all.percentile_us(100.0 - 100.0 / share)))).collect();
        Some(Series { name: (*name).to_owned(), points, spread: Vec::new() })
    };
    let series: Vec<Series> =
        outcome.measured().iter().filter_map(one).filter(|series| !series.points.is_empty()).collect();
    (!series.is_empty()).then(|| Plot {
        heading: "Latency".into(),
        kind: Kind::Lines,
        x: ("percentile".into(), Scale::Logarithmic, percentile),
        y: ("ms from when it was due".into(), Scale::Logarithmic, short),
        series,
        marks: Vec::new(),
    })
}

fn table(outcome: &Outcome) -> Table {
    let head = vec![
        "work",
        "cores",
        "contestant",
        "a second",
        "lowest-highest",
        "beside the baseline",
        "Gbit/s",
        "server CPU, µs",
        "of it kernel",
        "beside the baseline",
        "cores used",
        "p50, ms",
        "p99, ms",
        "longest, ms",
        "failed",
        "windows",
        "remarks",
    ];
    let mut table = Table { head, ..Table::default() };
    for cell in outcome.cells.iter().filter(|cell| !cell.windows.is_empty()) {
        let rates = cell.values(Measure::Rate);
        let (low, high) = range(&rates);
        let ratio = |measure: Measure| {
            against_baseline(outcome, cell, |window| window.value(measure)).map_or("".into(), |ratio| ratio.text())
        };
        let all = cell.latency();
        let failed: u64 = cell.windows.iter().map(|window| window.failed).sum();
        let mut remarks = cell.remarks.clone();
        if cell.windows.len() > 1 && spread(&rates) > 0.1 {
            remarks.push(format!("spread {}", percent(spread(&rates))));
        }
        if cell.has_doubt("client-saturated") {
            remarks.push("client saturated".into());
        }
        let downloads = cell.units == "downloads";
        table.rows.push(vec![
            cell.case.clone(),
            format!("{}C{}T", cell.cores, cell.threads),
            cell.contestant.clone(),
            short(cell.middle(|w| w.rate)),
            format!("{}-{}", short(low), short(high)),
            ratio(Measure::Rate),
            if downloads { short(cell.middle(|w| w.value(Measure::Gbits))) } else { String::new() },
            short(cell.middle(|w| w.cpu_us)),
            percent(cell.middle(|w| w.cpu_system)),
            ratio(Measure::CpuUs),
            format!("{:.2}", cell.middle(|w| w.server_cores)),
            short(ms(all.percentile_us(50.0))),
            short(ms(all.percentile_us(99.0))),
            short(ms(all.max_us())),
            whole(failed as f64),
            cell.windows.len().to_string(),
            remarks.join("; "),
        ]);
        table.bars.push(cell.middle(|w| w.value(outcome.measure)));
    }
    table
}

/// Cores that a rate needs, by straight lines between what was measured, as the planner has it.
fn cores_needed(outcome: &Outcome, target: f64) -> Section {
    let case = outcome.cases().first().copied().unwrap_or_default().to_owned();
    let mut table = Table {
        head: vec!["contestant", "cores for it", "saved, cores", "measured up to", "remarks"],
        ..Table::default()
    };
    let needed = |name: &str| crate::compare::cores_for(outcome, name, target);
    let baseline = outcome.baseline().and_then(needed);
    let mut series = Vec::new();
    for name in outcome.measured() {
        let Some((cores, highest)) = needed(name) else { continue };
        let saved =
            baseline.filter(|_| outcome.baseline() != Some(name)).map_or(String::new(), |(all, _)| short(all - cores));
        let beyond = if target > highest { "continued beyond what was measured" } else { "" };
        table.rows.push(vec![
            name.to_owned(),
            format!("{cores:.2}"),
            saved,
            format!("{}/s", whole(highest)),
            beyond.into(),
        ]);
        table.bars.push(cores);
        series.push(Series { name: name.to_owned(), points: vec![(0.0, cores)], spread: Vec::new() });
    }
    let heading = format!("Cores for {}/s: {case}", whole(target));
    let plot = bars(heading, "", "cores".into(), vec![format!("{}/s", whole(target))], series, Vec::new());
    Section { heading: "Cores saved".into(), plots: vec![plot], table }
}

/// Rates over the server's CPU use, and what is saved at equal rate.
fn against_rate(outcome: &Outcome) -> Section {
    let case = outcome.cases().first().copied().unwrap_or_default();
    let use_of = |w: &Window, threads: usize| w.server_cores / threads.max(1) as f64 * 100.0;
    let line = |name: &&str| {
        let mut points: Vec<(f64, f64)> = of(outcome, name, case)
            .map(|cell| (cell.middle(|w| use_of(w, cell.threads)), cell.middle(|w| w.rate)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: (*name).to_owned(), points, spread: Vec::new() }
    };
    let measured = outcome.measured();
    let percent_sign: Format = |value| format!("{value:.0} %");
    let plot = Plot {
        heading: format!("{case}: connections a second over CPU use"),
        kind: Kind::Lines,
        x: ("CPU use of the server".into(), Scale::Linear, percent_sign),
        y: ("connections/s".into(), Scale::Linear, short),
        series: measured.iter().map(line).collect(),
        marks: Vec::new(),
    };
    let cost = Plot {
        heading: "What a connection costs the server".into(),
        kind: Kind::Lines,
        x: ("connections/s offered".into(), Scale::Linear, whole),
        y: ("µs of CPU".into(), Scale::Linear, short),
        series: series(outcome, case, |cell| cell.offered.unwrap_or(0.0), |w| w.cpu_us),
        marks: Vec::new(),
    };
    let head = vec![
        "offered/s",
        "contestant",
        "done/s",
        "CPU use",
        "server CPU, µs",
        "CPU saved",
        "p50, ms",
        "p99, ms",
        "failed",
        "windows",
    ];
    let mut table = Table { head, ..Table::default() };
    for cell in outcome.cells.iter().filter(|cell| !cell.windows.is_empty()) {
        let all = cell.latency();
        let saved = against_baseline(outcome, cell, |w| w.server_cores).map_or(String::new(), |ratio| {
            let reach = match (ratio.telling(), ratio.interval) {
                (Some((low, high)), _) => format!(" ({}-{})", percent(1.0 - high), percent(1.0 - low)),
                (None, Some(_)) => format!(" ({})", crate::statistics::TOO_FEW),
                (None, None) => String::new(),
            };
            format!("{}{reach}", percent(1.0 - ratio.value))
        });
        let failed: u64 = cell.windows.iter().map(|window| window.failed).sum();
        let used = cell.middle(|w| use_of(w, cell.threads));
        table.rows.push(vec![
            whole(cell.offered.unwrap_or(0.0)),
            cell.contestant.clone(),
            whole(cell.middle(|w| w.rate)),
            format!("{used:.1} %"),
            short(cell.middle(|w| w.cpu_us)),
            saved,
            short(ms(all.percentile_us(50.0))),
            short(ms(all.percentile_us(99.0))),
            whole(failed as f64),
            cell.windows.len().to_string(),
        ]);
        table.bars.push(used);
    }
    Section { heading: "CPU against rate".into(), plots: vec![plot, cost], table }
}

/// How the highest rates were found.
fn searched(outcome: &Outcome) -> Section {
    let head = vec!["work", "cores", "contestant", "connections", "a second", "longest, ms", "within the bound"];
    let mut table = Table { head, ..Table::default() };
    let mut plots = Vec::new();
    for case in outcome.cases() {
        let widest = outcome.steps().last().copied().unwrap_or(1);
        let cells =
            outcome.cells.iter().filter(|cell| cell.case == case && cell.cores == widest && !cell.probes.is_empty());
        let line = |cell: &Cell| {
            let mut points: Vec<(f64, f64)> =
                cell.probes.iter().map(|probe| (probe.connections as f64, probe.rate)).collect();
            // What was tried again, in a whole window, stands once, at its best.
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
            points.dedup_by_key(|(connections, _)| *connections);
            Series { name: cell.contestant.clone(), points, spread: Vec::new() }
        };
        plots.push(Plot {
            heading: format!("{case}, {}", step_name(outcome, widest)),
            kind: Kind::Lines,
            x: ("connections at once".into(), Scale::Logarithmic, whole),
            y: ("a second".into(), Scale::Linear, short),
            series: cells.map(line).collect(),
            marks: Vec::new(),
        });
    }
    for cell in &outcome.cells {
        for probe in &cell.probes {
            let held = if probe.held { "yes" } else { "no" };
            let (connections, rate, longest) =
                (probe.connections.to_string(), short(probe.rate), short(probe.longest_ms));
            table.rows.push(vec![
                cell.case.clone(),
                format!("{}C{}T", cell.cores, cell.threads),
                cell.contestant.clone(),
                connections,
                rate,
                longest,
                held.into(),
            ]);
        }
    }
    Section { heading: "The search".into(), plots, table }
}
