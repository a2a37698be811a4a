//! For a terminal.

use crate::{
    inputs::{ATTRIBUTION, INPUTS, Origin},
    published::Compared,
    report::{Report, Row},
    reproduce::{Found, Search},
    views::RACK_CARDS,
};
use penstock_figures::number::{percent, plain, usd, whole};
use std::fmt::Write;

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The plan of each level.
    Plan,
    /// A rack.
    Rack,
    /// One server.
    Edge,
    /// Cost by level.
    Cost,
    /// The constants.
    Inputs,
}

impl View {
    /// All views.
    pub const ALL: [View; 5] = [View::Plan, View::Rack, View::Edge, View::Cost, View::Inputs];

    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            View::Plan => "plan",
            View::Rack => "rack",
            View::Edge => "edge",
            View::Cost => "cost",
            View::Inputs => "inputs",
        }
    }
}

const BOLD: &str = "\x1b[1m";
const SOFT: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

struct Page {
    out: String,
    colour: bool,
}

impl Page {
    fn paint(&self, code: &'static str, text: &str) -> String {
        if self.colour { format!("{code}{text}{PLAIN}") } else { text.to_owned() }
    }

    fn title(&mut self, text: &str) {
        let text = self.paint(BOLD, text);
        self.line(&format!("\n{text}"));
    }

    fn soft(&mut self, text: &str) {
        let text = self.paint(SOFT, text);
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }
}

/// The views asked for; with ANSI colours where `colour`.
pub fn render(report: &Report, views: &[View], colour: bool) -> String {
    let mut page = Page { out: String::new(), colour };
    page.line(&format!("Rates: {}", report.rates.source));
    for view in views {
        match view {
            View::Plan => plan(&mut page, report),
            View::Rack => rack(&mut page, report),
            View::Edge => edge(&mut page, report),
            View::Cost => cost(&mut page, report),
            View::Inputs => inputs(&mut page, report),
        }
    }
    page.out
}

fn plan(page: &mut Page, report: &Report) {
    page.title("What each level takes");
    page.soft(&format!(
        "{:>9}  {:<7}{:>8}{:>7}  {:<21}{:>8}{:>7}{:>9}{:>12}{:>12}",
        "TPS", "engine", "servers", "cores", "idle", "devices", "load", "kW", "USD/month", "per 1K TPS"
    ));
    let mut last = 0.0;
    for row in report.rows.iter().filter(|row| !row.is_as_before) {
        let level = if row.level == last { String::new() } else { whole(row.level) };
        last = row.level;
        plan_row(page, &level, row);
    }
    if report.rows.iter().any(|row| row.is_as_before) {
        page.line("  hw+sw is hw until a card's peak, and left out up to there");
    }
    let mut notes: Vec<String> = Vec::new();
    let mut note = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    for row in &report.rows {
        let name = row.mode.name();
        if let Ok(fleet) = &row.fleet {
            if !row.on_one_server {
                note(format!("{name}: one server ends at {} TPS", whole(fleet.server_max)));
            }
            if fleet.share.beyond_measured {
                note(format!("{name} at {}: more cores than were measured; * marks such rows", whole(row.level)));
            }
            if !fleet.next.is_empty() {
                note(format!("{name}: {}", fleet.next));
            }
            if fleet.share.beside > 0.0 {
                let beside = whole(fleet.share.beside);
                note(format!("{name} at {}: {beside} TPS of each server are computed in software", whole(row.level)));
            }
        }
    }
    for text in notes {
        page.line(&format!("  {text}"));
    }
    if let Some((rows, search)) = &report.published {
        published(page, rows, search);
    }
}

fn plan_row(page: &mut Page, level: &str, row: &Row) {
    let fleet = match &row.fleet {
        Ok(fleet) => fleet,
        Err(problem) => {
            page.line(&format!("{level:>9}  {:<7} {problem}", row.mode.name()));
            return;
        }
    };
    let star = if fleet.share.beyond_measured { "*" } else { "" };
    let devices = u64::from(fleet.share.devices) * u64::from(fleet.servers);
    let load = if devices > 0 { percent(fleet.share.device_load) } else { String::new() };
    page.line(&format!(
        "{level:>9}  {:<7}{:>8}{:>7}  {:<21}{devices:>8}{load:>7}{:>9.2}{:>12}{:>12}",
        row.mode.name(),
        fleet.servers,
        format!("{}{star}", plain(fleet.share.cores * f64::from(fleet.servers))),
        format!("{:>5} {}", percent(fleet.idle), bar(1.0 - fleet.idle, 14)),
        fleet.kw,
        usd(fleet.cost.total()),
        usd(fleet.usd_per_1000_tps()),
    ));
}

/// A share as a bar.
fn bar(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(filled) + &"░".repeat(width - filled)
}

fn published(page: &mut Page, rows: &[Compared], search: &Search) {
    page.title("The published table beside what its inputs give");
    for row in rows {
        let (mark, code) = if row.agrees { ("=", GREEN) } else { ("≠", YELLOW) };
        let show = |figures: Option<(f64, f64)>| match figures {
            Some((cores, idle)) => format!("{cores:>3} cores {idle:>3.0} % idle"),
            None => "not on one server".to_owned(),
        };
        let mark = page.paint(code, mark);
        page.line(&format!(
            "  {:>7}  {:<7} printed {:<22} {mark} derived {:<22} {}",
            whole(row.row.level),
            row.row.mode.name(),
            show(row.row.printed),
            show(row.derived),
            row.remark
        ));
    }
    page.title("Which values reproduce the published savings of 84, 85 and 86 % and the 9.6 times");
    for line in verdicts(search) {
        page.line(&format!("  {line}"));
    }
}

/// What the search says, in sentences.
pub(crate) fn verdicts(search: &Search) -> Vec<String> {
    let mut lines = Vec::new();
    let values = |found: &Found| found.values.iter().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", ");
    let savings = |found: &Found| found.savings.map(|s| format!("{s:.1}")).join(", ");
    let tried = format!("{} combinations of what was not published were tried", search.tried);
    match search.hits.as_slice() {
        [] => lines.push(format!("{tried}; with the server's cores as inferred, none gives the three savings.")),
        hits => {
            lines.push(format!("{tried}; {} give the three savings:", hits.len()));
            lines.extend(
                hits.iter().take(4).map(|h| format!("  {} ({}): {} %", values(h), h.reading.describe(), savings(h))),
            );
        }
    }
    if let Some(nearest) = search.nearest.as_ref().filter(|_| search.hits.is_empty()) {
        lines.push(format!(
            "  The nearest, {:.1} points off: {} ({}): {} %",
            nearest.off,
            values(nearest),
            nearest.reading.describe(),
            savings(nearest)
        ));
    }
    if !search.hits_with_24.is_empty() {
        lines.push(format!(
            "  With 24 cores in a server, which contradicts the other idle shares, {} do, in another order than the levels:",
            search.hits_with_24.len()
        ));
        lines.extend(
            search
                .hits_with_24
                .iter()
                .take(3)
                .map(|h| format!("    {} ({}): {} %", values(h), h.reading.describe(), savings(h))),
        );
    }
    let hits: Vec<_> = search.gains.iter().filter(|gain| gain.hits()).collect();
    match hits.as_slice() {
        [] => {
            let nearest = search.gains.first().map(|g| format!("; the nearest is {:.2}: {}", g.ratio, g.what));
            lines.push(format!("No ratio of the model is 9.6{}.", nearest.unwrap_or_default()));
        }
        hits => lines.extend(hits.iter().map(|g| format!("9.6 times is {:.3}: {}.", g.ratio, g.what))),
    }
    lines
}

fn rack(page: &mut Page, report: &Report) {
    page.title("A rack: TPS (free cores) by cores of each server, for cards in each server");
    let mut head = format!("{:>7}", "cores");
    for cards in RACK_CARDS {
        let _ = write!(head, "{:>20}", if cards == 0 { "software".to_owned() } else { format!("{cards} per server") });
    }
    page.soft(&head);
    let mut cores: Vec<f64> = report.rack.iter().map(|p| p.cores).collect();
    cores.sort_by(f64::total_cmp);
    cores.dedup();
    for cores in cores {
        let mut line = format!("{cores:>7}");
        for cards in RACK_CARDS {
            let point = report.rack.iter().find(|p| p.cores == cores && p.cards == cards);
            let cell = point.map(|p| format!("{} ({})", whole(p.tps), whole(p.free_cores))).unwrap_or_default();
            let _ = write!(line, "{cell:>20}");
        }
        page.line(&line);
    }
    for cards in RACK_CARDS {
        if let Some(point) = report.rack.iter().find(|p| p.cards == cards) {
            page.line(&format!(
                "  {cards} cards each: {} servers, {:.2} kW of {}",
                point.servers,
                point.kw,
                plain(report.inputs.rack_kw)
            ));
        }
    }
}

fn edge(page: &mut Page, report: &Report) {
    page.title("One server at the edge: cores allocated (idle share) by level");
    let modes = report.rates.modes();
    let mut head = format!("{:>8}", "TPS");
    for mode in &modes {
        let _ = write!(head, "  {:<28}", mode.name());
    }
    page.soft(&head);
    let mut levels: Vec<f64> = report.edge.iter().map(|p| p.level).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    for level in levels {
        let mut line = format!("{:>8}", whole(level));
        for mode in &modes {
            let point = report.edge.iter().find(|p| p.level == level && p.mode == *mode);
            let cell = match point.and_then(|p| p.cores) {
                Some((cores, idle)) => format!("{} {:>3} {:>6}", bar(1.0 - idle, 16), plain(cores), percent(idle)),
                None => "not on one server".into(),
            };
            let _ = write!(line, "  {cell:<28}");
        }
        page.line(&line);
    }
}

fn cost(page: &mut Page, report: &Report) {
    page.title("USD a month for every 1,000 TPS");
    let most = report.cost.iter().map(|p| p.usd_per_1000_tps).fold(0.0, f64::max);
    let mut last = 0.0;
    for point in &report.cost {
        let level = if point.level == last { String::new() } else { whole(point.level) };
        last = point.level;
        let width = (point.usd_per_1000_tps / most * 40.0).round().max(1.0) as usize;
        page.line(&format!(
            "{level:>9}  {:<7}{:>10}  {}",
            point.mode.name(),
            usd(point.usd_per_1000_tps),
            "█".repeat(width)
        ));
    }
}

fn inputs(page: &mut Page, report: &Report) {
    page.title("The constants, each overridden by --NAME VALUE");
    for input in INPUTS {
        let origin = report.inputs.origin(input);
        row(page, input.name, &plain(report.inputs.value(input)), input.unit, origin, input.doc);
    }
    let origin = report.inputs.attribution_origin();
    let doc = "what of a server is paid for: 'whole', or the share of its allocated 'cores'";
    row(page, ATTRIBUTION, report.inputs.attribution.name(), "", origin, doc);
}

fn row(page: &mut Page, name: &str, value: &str, unit: &str, origin: Origin, doc: &str) {
    let marked = format!("{:<14}", origin.name());
    let marked = if origin == Origin::Assumed { page.paint(YELLOW, &marked) } else { marked };
    page.line(&format!("  {name:<18}{value:>9} {unit:<11}{marked} {doc}"));
}
