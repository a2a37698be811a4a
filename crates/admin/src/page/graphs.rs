//! Graphs of the process, a frontend, a backend or a server: drawn here, and updated by the script.

use super::view::View;
use crate::html::Text;
use penstock_figures::{round_up, timeline};
use penstock_proxy::{
    Handle,
    history::{Graph, Metric, Range, Subject},
    snapshot::{Kind, Row},
};
use std::fmt::Write as _;

/// The graphs that a page shows.
pub struct Shown {
    /// What the graphs are about; `None` if the page has no such row.
    pub subject: Option<Subject>,
    /// The values, if a history is kept.
    pub graph: Option<Graph>,
}

impl Shown {
    /// The graphs that a view selects; `rows` are those that it may see.
    pub fn of(handle: &Handle, view: &View, rows: &[&Row]) -> Shown {
        let subject = match &view.subject {
            None => Some(Subject::Process),
            Some((proxy, name)) => {
                rows.iter().find(|row| row.proxy_name == *proxy && row.name == *name).and_then(|row| subject(row))
            }
        };
        let graph = subject.and_then(|subject| handle.graph(subject, view.range));
        Shown { subject, graph }
    }
}

/// The subject of a row's history.
fn subject(row: &Row) -> Option<Subject> {
    match row.kind {
        Kind::Frontend => Some(Subject::Frontend(row.proxy)),
        Kind::Backend => Some(Subject::Backend(row.proxy)),
        Kind::Server => row.at.map(Subject::Server),
        Kind::Listener => None,
    }
}

/// The address of the page with a row's graphs.
pub fn link(view: &View, row: &Row) -> String {
    View { subject: Some((row.proxy_name.clone(), row.name.clone())), done: None, ..view.clone() }.link() + "#graphs"
}

/// How the values of a chart are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rate,
    Time,
    Percent,
    Number,
}

impl Unit {
    /// The unit's name, which the script uses too.
    fn word(self) -> &'static str {
        match self {
            Unit::Rate => "rate",
            Unit::Time => "time",
            Unit::Percent => "percent",
            Unit::Number => "number",
        }
    }

    /// Formats a value: two or three digits and a unit.
    fn write(self, value: f64) -> String {
        match self {
            Unit::Rate => {
                let (scaled, unit) = match value {
                    v if v >= 1e6 => (v / 1e6, "M"),
                    v if v >= 1e4 => (v / 1e3, "k"),
                    v => (v, ""),
                };
                format!("{}{unit}/s", short(scaled))
            }
            Unit::Time => match value {
                us if us >= 1e6 => format!("{} s", short(us / 1e6)),
                us if us >= 1e3 => format!("{} ms", short(us / 1e3)),
                us => format!("{us:.0} µs"),
            },
            Unit::Percent => format!("{value:.0} %"),
            Unit::Number => short(value),
        }
    }
}

/// Formats a number, with one decimal if it is below a hundred and that decimal is not zero.
fn short(value: f64) -> String {
    let text = if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

struct Chart {
    title: &'static str,
    unit: Unit,
    lines: &'static [(Metric, &'static str)],
}

use Metric::*;

#[rustfmt::skip] // With one line per chart, this reads as a table.
const CHARTS: &[Chart] = &[
    Chart { title: "Requests", unit: Unit::Rate, lines: &[(Requests, "")] },
    Chart { title: "TLS handshakes", unit: Unit::Rate, lines: &[(Full, "full"), (Resumed, "resumed")] },
    Chart { title: "Response time", unit: Unit::Time, lines: &[(ResponseP50, "p50"), (ResponseP99, "p99")] },
    Chart { title: "Errors", unit: Unit::Rate, lines: &[(Errors, "errors"), (Failures, "5xx")] },
    Chart { title: "Time in queue", unit: Unit::Time, lines: &[(WaitP50, "p50"), (WaitP99, "p99")] },
    Chart { title: "CPU of the process", unit: Unit::Percent, lines: &[(Cpu, "of a core")] },
    Chart { title: "CPU per handshake", unit: Unit::Time, lines: &[(CpuPerHandshake, "process"), (EnginePerHandshake, "engine")] },
    Chart { title: "Operations in a batch", unit: Unit::Number, lines: &[(Fill, "")] },
];

/// Adds the section with the graphs.
pub fn render(out: &mut String, shown: &Shown, view: &View) {
    let (title, back) = match &view.subject {
        None => ("Process".to_owned(), String::new()),
        Some((proxy, name)) => {
            let all = View { subject: None, ..view.clone() }.link();
            (format!("{proxy} / {name}"), format!("<a href=\"{}#graphs\">Process</a>", Text(&all)))
        }
    };
    let _ = write!(
        out,
        "<section id=\"graphs\" aria-labelledby=\"gh\"><h2 id=\"gh\">{}<span class=\"ranges\">{back}",
        Text(&title)
    );
    for range in Range::ALL {
        let link = View { range, ..view.clone() }.link();
        let current = if range == view.range { " aria-current=\"true\"" } else { "" };
        let _ = write!(out, "<a href=\"{}#graphs\"{current}>{}</a>", Text(&link), name(range));
    }
    out.push_str("</span></h2>");
    match &shown.graph {
        Some(graph) => {
            let _ = write!(
                out,
                "<div class=\"graphs\" data-steps=\"{}\" data-step=\"{}\">",
                view.range.steps(),
                view.range.step()
            );
            for chart in CHARTS {
                render_chart(out, chart, graph, view.range);
            }
            out.push_str("</div>");
        }
        None => {
            let why = match (shown.subject, view.range) {
                (None, _) => "There is no such proxy or server here.",
                (Some(_), Range::Week) => "No traffic yet.",
                (Some(_), _) => "No traffic yet, or too many servers to keep this one by the second: see the week.",
            };
            let _ = write!(out, "<p class=\"nothing\">{why}</p>");
        }
    }
    out.push_str("</section>");
}

fn name(range: Range) -> &'static str {
    match range {
        Range::Minutes => "5 minutes",
        Range::Hour => "hour",
        Range::Week => "week",
    }
}

fn render_chart(out: &mut String, chart: &Chart, graph: &Graph, range: Range) {
    let places = chart.lines.iter().map(|(metric, _)| graph.lines.iter().position(|(of, _)| of == metric));
    let Some(places) = places.collect::<Option<Vec<usize>>>() else { return };
    let lines: Vec<&[Option<f64>]> = places.iter().map(|place| graph.lines[*place].1.as_slice()).collect();
    let most = round_up(lines.iter().flat_map(|line| line.iter().flatten()).copied().fold(0.0, f64::max));
    let numbers: Vec<String> = places.iter().map(usize::to_string).collect();
    let _ = write!(
        out,
        "<figure data-unit=\"{}\" data-lines=\"{}\"><figcaption><span>{}</span>",
        chart.unit.word(),
        numbers.join(" "),
        chart.title
    );
    for (at, ((_, name), line)) in chart.lines.iter().zip(&lines).enumerate() {
        let value = line.last().copied().flatten().map_or("–".into(), |value| chart.unit.write(value));
        let _ = write!(out, "<span class=\"key k{at}\"><i></i>{name} <b>{value}</b></span>");
    }
    let _ = write!(
        out,
        "</figcaption><div class=\"plot\">{}<span class=\"most\">{}</span><output hidden></output></div>\
         <p class=\"times\"><span>{} ago</span><span>now</span></p></figure>",
        timeline(chart.title, &lines, most),
        chart.unit.write(most),
        match range {
            Range::Minutes => "5 min",
            Range::Hour => "1 h",
            Range::Week => "7 d",
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_proxy::history::{History, Reading};

    #[test]
    fn values_are_short() {
        for (unit, value, text) in [
            (Unit::Rate, 0.0, "0/s"),
            (Unit::Rate, 1.25, "1.2/s"),
            (Unit::Rate, 9999.0, "9999/s"),
            (Unit::Rate, 12_345.0, "12.3k/s"),
            (Unit::Time, 0.0, "0 µs"),
            (Unit::Time, 1500.0, "1.5 ms"),
            (Unit::Time, 250_000.0, "250 ms"),
            (Unit::Time, 2e6, "2 s"),
            (Unit::Percent, 99.6, "100 %"),
            (Unit::Number, 6.25, "6.2"),
        ] {
            assert_eq!(unit.write(value), text);
        }
    }

    #[test]
    fn a_chart_of_what_is_not_kept_of_a_subject_is_left_out() {
        let lines = |metrics: &[Metric]| metrics.iter().map(|metric| (*metric, vec![None, Some(3.0)])).collect();
        let view = View::parse("/s", ";of=b/s1", false);
        let shown =
            Shown { subject: None, graph: Some(Graph { last: 7, lines: lines(&[Requests, Errors, Failures]) }) };
        let mut out = String::new();
        render(&mut out, &shown, &view);
        assert_eq!(out.matches("<figure").count(), 2, "{out}");
        for part in [
            "data-lines=\"1 2\"",
            "5xx <b>3/s</b>",
            "<h2 id=\"gh\">b / s1",
            "href=\"/s#graphs\">Process<",
            "/s;hour;of=b%2Fs1#graphs",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
    }

    #[test]
    fn once_a_week_has_passed_every_line_is_whole() {
        let mut history = History::default();
        for now in (0..=7 * 86_400 + 3600).step_by(5) {
            history.record(now, [(Subject::Process, Reading { requests: 2 * now, full: now, ..Reading::default() })]);
        }
        for (option, range, ago) in
            [("", Range::Minutes, "5 min ago"), (";hour", Range::Hour, "1 h ago"), (";week", Range::Week, "7 d ago")]
        {
            let shown = Shown { subject: Some(Subject::Process), graph: history.graph(Subject::Process, range) };
            let mut out = String::new();
            render(&mut out, &shown, &View::parse("/s", option, false));
            assert!(out.contains(ago) && out.contains("<b>2/s</b>") && out.contains("full <b>1/s</b>"), "{out}");
            let requests = out.split("<path class=\"line l0\" d=\"").nth(1).and_then(|rest| rest.split('"').next());
            let (requests, end) = (requests.unwrap(), format!("L{} ", range.steps() - 1));
            assert!(requests.starts_with("M0 ") && requests.contains(&end), "{requests}");
            assert_eq!(requests.matches('M').count(), 1, "no gap: {requests}");
        }
    }
}
