//! The comparison as a page: the gain of each cell, cores at a rate, both machines.

use super::{Comparison, text::figure};
use penstock_figures::{Axis, Figure, Mark, Scale, Series, escaped, number::whole, page as whole_page};
use std::fmt::Write;

/// The page.
#[must_use]
pub fn page(comparison: &Comparison) -> String {
    let mut body = String::new();
    gains(&mut body, comparison);
    rows(&mut body, comparison);
    cores(&mut body, comparison);
    facts(&mut body, comparison);
    doubts(&mut body, comparison);
    let header = format!(
        "<h1>penstock bench <small>compare, {}</small></h1><p>A: {}<br>B: {}</p>",
        escaped(&comparison.a.study),
        escaped(&comparison.a.source),
        escaped(&comparison.b.source)
    );
    whole_page("penstock bench compare", include_str!("../report/style.css"), &header, &body)
}

/// The gain of each cell: groups are work and cores, colours are contestants.
fn gains(out: &mut String, comparison: &Comparison) {
    let place = |row: &super::Row| {
        let offered = row.offered.map_or(String::new(), |rate| format!(", {}/s", whole(rate)));
        format!("{} cores{offered}, {}", row.cores, row.case)
    };
    let mut groups: Vec<String> = comparison.rows.iter().map(place).collect();
    groups.dedup();
    let mut series: Vec<Series> = Vec::new();
    for row in &comparison.rows {
        let (Some(gain), Some(group)) = (row.gain, groups.iter().position(|group| *group == place(row))) else {
            continue;
        };
        let at = series.iter().position(|one| one.name == row.contestant).unwrap_or_else(|| {
            series.push(Series { name: row.contestant.clone(), ..Series::default() });
            series.len() - 1
        });
        series[at].points.push((group as f64, gain.value));
        series[at].spread.push(gain.telling().unwrap_or((gain.value, gain.value)));
    }
    let names: Vec<String> =
        groups.iter().map(|group| group.split(", ").next().unwrap_or_default().to_owned()).collect();
    let format = |value: f64| format!("{value:.2}");
    let figure = Figure {
        title: "B over A by cell",
        x: Axis { label: "cell", scale: Scale::Linear, format: &format },
        y: Axis { label: "B over A", scale: Scale::Linear, format: &format },
        series: &series,
        marks: &[Mark { y: 1.0, name: "no change".into() }],
    };
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "<div class=\"figures\"><section class=\"figure\"><h2>What changed: B over A</h2>{}</section></div>",
        penstock_figures::bars(&figure, &names)
    );
}

fn rows(out: &mut String, comparison: &Comparison) {
    out.push_str(
        "<section><h2>Cell by cell</h2><div class=\"scroll\"><table><thead><tr><th class=\"left\">work</th><th>cores</th>\
         <th class=\"left\">contestant</th><th>A</th><th>B</th><th>B / A</th><th>CPU µs, A</th><th>CPU µs, B</th><th>B / A</th>\
         <th class=\"remarks\">verdict</th></tr></thead><tbody>",
    );
    for row in &comparison.rows {
        let ratio = |ratio: &Option<crate::statistics::Ratio>| ratio.map_or(String::new(), |ratio| ratio.text());
        let _ = write!(
            out,
            "<tr><td class=\"left\">{}</td><td>{}</td><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"remarks\">{}</td></tr>",
            escaped(&row.case),
            row.cores,
            escaped(&row.contestant),
            figure(row.values.0),
            figure(row.values.1),
            ratio(&row.gain),
            figure(row.cpu_us.0),
            figure(row.cpu_us.1),
            ratio(&row.cpu),
            escaped(&row.verdict)
        );
    }
    let _ = write!(
        out,
        "</tbody></table></div><p class=\"note\">A and B in {}</p>",
        escaped(&comparison.a.measure.unit("units"))
    );
    for line in &comparison.unmatched {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(line));
    }
    out.push_str("</section>");
}

fn cores(out: &mut String, comparison: &Comparison) {
    if comparison.cores.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<section><h2>Cores for {} units/s</h2><table><thead><tr><th class=\"left\">contestant</th><th>A</th><th>B</th><th>saved</th>\
         <th class=\"remarks\"></th></tr></thead><tbody>",
        whole(comparison.target_rate)
    );
    for row in &comparison.cores {
        let beyond = if row.beyond { "beyond what was measured" } else { "" };
        let (a, b) = row.cores;
        let name = escaped(&row.contestant);
        let _ = write!(
            out,
            "<tr><td class=\"left\">{name}</td><td>{a:.2}</td><td>{b:.2}</td><td>{:.2}</td><td class=\"remarks\">{beyond}</td></tr>",
            a - b
        );
    }
    out.push_str("</tbody></table></section>");
}

fn facts(out: &mut String, comparison: &Comparison) {
    out.push_str("<section><h2>The machines</h2><div class=\"scroll\"><table class=\"facts\"><thead><tr><th></th><td>A</td><td>B</td></tr></thead><tbody>");
    for (name, a, b) in comparison.facts() {
        let class = if a == b { "" } else { " class=\"differs\"" };
        let _ =
            write!(out, "<tr{class}><th>{}</th><td>{}</td><td>{}</td></tr>", escaped(&name), escaped(&a), escaped(&b));
    }
    out.push_str("</tbody></table></div></section>");
}

fn doubts(out: &mut String, comparison: &Comparison) {
    let doubts = comparison.doubts();
    if doubts.is_empty() {
        return;
    }
    out.push_str("<section><h2>What speaks against it</h2><ul class=\"doubts\">");
    doubts.iter().for_each(|doubt| {
        let _ = write!(out, "<li>{}</li>", escaped(doubt));
    });
    out.push_str("</ul></section>");
}
