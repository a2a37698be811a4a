//! A page that stands by itself: tables and figures, no script, nothing fetched.

use super::text::verdicts;
use crate::{
    inputs::{ATTRIBUTION, INPUTS, Origin},
    plan::Fleet,
    rates::Mode,
    report::Report,
    views::RACK_CARDS,
};
use penstock_figures::number::{percent, plain, usd, whole};
use penstock_figures::{Axis, Figure, Scale, Series, bars, escaped, lines, page};
use std::fmt::Write;

/// The page.
pub fn render(report: &Report) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let title = if report.published.is_some() { "The published rack" } else { "Plan" };
    plans(&mut out, report);
    published(&mut out, report);
    out.push_str("<div class=\"figures\">");
    figures(&mut out, report);
    out.push_str("</div>");
    inputs(&mut out, report);
    let header = format!("<h1>penstock <small>plan</small></h1><p>Rates: {}</p>", escaped(&report.rates.source));
    page(title, "", &header, &out)
}

/// A figure of this page: both axes by difference, x in whole numbers.
fn drawn(
    title: &str,
    labels: (&str, &str),
    series: &[Series],
    format: &dyn Fn(f64) -> String,
    groups: &[String],
) -> String {
    let x = Axis { label: labels.0, scale: Scale::Linear, format: &whole };
    let y = Axis { label: labels.1, scale: Scale::Linear, format };
    let figure = Figure { title, x, y, series, marks: &[] };
    if groups.is_empty() { lines(&figure) } else { bars(&figure, groups) }
}

fn plans(out: &mut String, report: &Report) {
    out.push_str(
        "<section><h2>What each level takes</h2><div class=\"scroll\"><table><thead><tr><th>TPS</th><th>engine</th><th>servers</th>\
         <th>cores</th><th>idle</th><th>devices</th><th>device load</th><th>kW</th><th>USD a month</th><th>per 1,000 TPS</th>\
         </tr></thead><tbody>",
    );
    let mut notes: Vec<String> = Vec::new();
    for row in report.rows.iter().filter(|row| !row.is_as_before) {
        let name = row.mode.name();
        match &row.fleet {
            Ok(f) => {
                let devices = u64::from(f.share.devices) * u64::from(f.servers);
                let load = if devices > 0 { percent(f.share.device_load) } else { String::new() };
                let star = if f.share.beyond_measured { "*" } else { "" };
                let _ = write!(
                    out,
                    "<tr><th>{}</th><td class=\"{}\">{name}</td><td>{}</td><td>{}{star}</td><td>{}</td><td>{devices}</td><td>{load}</td>\
                     <td>{:.2}</td><td>{}</td><td>{}</td></tr>",
                    whole(row.level),
                    name.replace('+', "-"),
                    f.servers,
                    plain(f.share.cores * f64::from(f.servers)),
                    percent(f.idle),
                    f.kw,
                    usd(f.cost.total()),
                    usd(f.usd_per_1000_tps())
                );
                if !f.next.is_empty() {
                    notes.push(format!("{name}: {}", f.next));
                }
                if f.share.beyond_measured {
                    notes.push("* more cores than were measured".into());
                }
            }
            Err(problem) => {
                let problem = escaped(&problem.to_string());
                let _ = write!(
                    out,
                    "<tr><th>{}</th><td>{name}</td><td colspan=\"8\">{problem}</td></tr>",
                    whole(row.level)
                );
            }
        }
    }
    out.push_str("</tbody></table></div>");
    notes.dedup();
    for note in notes {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(&note));
    }
    out.push_str("</section>");
}

fn published(out: &mut String, report: &Report) {
    let Some((rows, search)) = &report.published else { return };
    out.push_str(
        "<section><h2>The published table beside what its inputs give</h2><div class=\"scroll\"><table><thead><tr><th>TPS</th>\
         <th>engine</th><th>printed</th><th></th><th>derived</th><th class=\"left\">remark</th></tr></thead><tbody>",
    );
    for row in rows {
        let show = |figures: Option<(f64, f64)>| match figures {
            Some((cores, idle)) => format!("{cores} cores, {idle:.0} % idle"),
            None => "not on one server".to_owned(),
        };
        let (class, mark) = if row.agrees { ("agrees", "=") } else { ("differs", "≠") };
        let _ = write!(
            out,
            "<tr class=\"{class}\"><th>{}</th><td>{}</td><td>{}</td><td>{mark}</td><td>{}</td><td class=\"left\">{}</td></tr>",
            whole(row.row.level),
            row.row.mode.name(),
            show(row.row.printed),
            show(row.derived),
            escaped(&row.remark)
        );
    }
    out.push_str("</tbody></table></div><h3>84, 85 and 86 %, and 9.6 times</h3>");
    for line in verdicts(search) {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(&line));
    }
    out.push_str("</section>");
}

fn figures(out: &mut String, report: &Report) {
    let thousands = |value: f64| if value >= 10_000.0 { format!("{}K", whole(value / 1000.0)) } else { whole(value) };
    let mut figure = |heading: &str, drawing: String| {
        let _ = write!(out, "<section class=\"figure\"><h2>{heading}</h2>{drawing}</section>");
    };
    let rack = |value: &dyn Fn(&crate::views::RackPoint) -> f64| -> Vec<Series> {
        let series = RACK_CARDS.into_iter().map(|cards| Series {
            name: match cards {
                0 => format!("software ({})", report.rates.software().map_or("", |(mode, _)| mode.name())),
                1 => "1 card a server".into(),
                _ => format!("{cards} cards a server"),
            },
            points: report.rack.iter().filter(|p| p.cards == cards).map(|p| (p.cores, value(p))).collect(),
            ..Series::default()
        });
        series.filter(|s| !s.points.is_empty()).collect()
    };
    let servers = report.rack.first().map_or(0, |p| p.servers);
    figure(
        &format!("A rack of {servers} servers: TPS"),
        drawn(
            "TPS of a rack by cores per server",
            ("cores of each server for the service", "TPS"),
            &rack(&|p| p.tps),
            &thousands,
            &[],
        ),
    );
    // Free cores depend on cards only where fewer servers fit: one line says it.
    let mut free = rack(&|p| p.free_cores);
    free.dedup_by(|later, first| later.points == first.points);
    if let [only] = free.as_mut_slice() {
        only.name = "whatever the cards".into();
    }
    figure(
        "The same rack: cores free for other work",
        drawn("Free cores of a rack", ("cores of each server for the service", "free cores"), &free, &whole, &[]),
    );
    let edge = |value: &dyn Fn((f64, f64)) -> f64| -> Vec<Series> {
        let mode = |mode: Mode| Series {
            name: mode.name().into(),
            points: report
                .edge
                .iter()
                .filter(|p| p.mode == mode)
                .filter_map(|p| Some((p.level, value(p.cores?))))
                .collect(),
            ..Series::default()
        };
        distinct(report.rates.modes().into_iter().map(mode).collect())
    };
    figure(
        "One server at the edge: cores",
        drawn("Cores by service level", ("TPS", "cores allocated"), &edge(&|c| c.0), &whole, &[]),
    );
    figure(
        "One server at the edge: idle share",
        drawn("Idle share by service level", ("TPS", "idle"), &edge(&|c| c.1), &percent, &[]),
    );
    let levels = report.levels();
    let groups: Vec<String> = levels.iter().map(|level| whole(*level)).collect();
    let by_level = |value: &dyn Fn(&Fleet) -> f64| -> Vec<Series> {
        let mode = |mode: Mode| {
            let fleets = report.rows.iter().filter(|row| row.mode == mode).filter_map(|row| row.fleet.as_ref().ok());
            let place = |fleet: &Fleet| Some((levels.iter().position(|l| *l == fleet.level)? as f64, value(fleet)));
            Series { name: mode.name().into(), points: fleets.filter_map(place).collect(), ..Series::default() }
        };
        distinct(report.rates.modes().into_iter().map(mode).collect())
    };
    figure(
        "Cost of 1,000 TPS",
        drawn(
            "USD a month for 1,000 TPS",
            ("service level, TPS", "USD a month"),
            &by_level(&Fleet::usd_per_1000_tps),
            &|v| format!("{v:.1}"),
            &groups,
        ),
    );
    figure(
        "Power of the servers and cards",
        drawn(
            "kW by service level",
            ("service level, TPS", "kW, before PUE"),
            &by_level(&|f| f.kw),
            &|v| format!("{v:.2}"),
            &groups,
        ),
    );
}

/// Without lines that lie on the one before: below a card's peak, hw+sw is hw.
fn distinct(mut series: Vec<Series>) -> Vec<Series> {
    series.dedup_by(|later, first| {
        let same = later.points == first.points;
        if same {
            first.name = format!("{}, {}", first.name, later.name);
        }
        same
    });
    series
}

fn inputs(out: &mut String, report: &Report) {
    out.push_str(
        "<section><h2>The constants</h2><div class=\"scroll\"><table><thead><tr><th class=\"left\">name</th><th>value</th>\
         <th class=\"left\">unit</th><th class=\"left\">source</th><th class=\"left\">what</th></tr></thead><tbody>",
    );
    let mut row = |name: &str, value: &str, unit: &str, origin: Origin, doc: &str| {
        let class = if origin == Origin::Assumed { "differs" } else { "" };
        let _ = write!(
            out,
            "<tr class=\"{class}\"><th class=\"left\">{name}</th><td>{value}</td><td class=\"left\">{unit}</td><td class=\"left\">{}</td><td class=\"left\">{doc}</td></tr>",
            origin.name()
        );
    };
    for input in INPUTS {
        row(input.name, &plain(report.inputs.value(input)), input.unit, report.inputs.origin(input), input.doc);
    }
    let doc = "what of a server is paid for: whole, or the share of its allocated cores";
    row(ATTRIBUTION, report.inputs.attribution.name(), "", report.inputs.attribution_origin(), doc);
    out.push_str("</tbody></table></div></section>");
}
