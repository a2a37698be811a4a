//! A page that stands by itself: figures, tables, machine and commands, nothing fetched, no script.

use super::{
    placement, story,
    view::{Kind, Plot, Section, Table, sections},
};
use crate::study::{Code, Frame, Outcome, version};
use penstock_figures::{
    Axis, Figure, Flame, escaped,
    number::{percent, whole},
    page as whole_page,
};
use std::fmt::Write;

/// The page.
#[must_use]
pub fn page(outcome: &Outcome) -> String {
    let mut body = String::with_capacity(64 * 1024);
    partial(&mut body, outcome);
    findings(&mut body, outcome);
    for section in sections(outcome) {
        figures(&mut body, &section);
        table(&mut body, &section);
    }
    stacks(&mut body, outcome);
    who_ran_where(&mut body, outcome);
    machine(&mut body, outcome);
    details(&mut body, outcome);
    let header = format!(
        "<h1>penstock bench <small>{}</small></h1><p>{}. {}, {}.</p>",
        escaped(&outcome.study),
        escaped(&capital(&outcome.doc)),
        escaped(&outcome.began),
        escaped(
            outcome
                .machine
                .iter()
                .flat_map(|group| &group.facts)
                .find(|(name, _)| name == "CPU")
                .map_or("", |(_, cpu)| cpu)
        )
    );
    whole_page(&format!("{} - penstock bench", outcome.study), include_str!("style.css"), &header, &body)
}

/// The first figure, the one that counts, as a file of its own.
#[must_use]
pub fn figure(outcome: &Outcome) -> Option<String> {
    let sections = sections(outcome);
    let plot = sections.first()?.plots.first()?;
    Some(penstock_figures::standalone(&drawn(plot), &plot.series))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn list(out: &mut String, class: &str, items: impl Iterator<Item = String>) {
    // Writing to a String does not fail.
    let _ = write!(out, "<ul class=\"{class}\">");
    items.for_each(|item| {
        let _ = write!(out, "<li>{item}</li>");
    });
    out.push_str("</ul>");
}

fn partial(out: &mut String, outcome: &Outcome) {
    if outcome.partial.is_empty() {
        return;
    }
    out.push_str("<section class=\"partial\"><h2>This result is partial</h2>");
    list(out, "doubts", outcome.partial.iter().map(|why| escaped(why)));
    out.push_str("</section>");
}

fn findings(out: &mut String, outcome: &Outcome) {
    out.push_str("<section><h2>What was found</h2>");
    list(out, "findings", story::findings(outcome).iter().map(|finding| escaped(finding)));
    if outcome.doubts.is_empty() {
        out.push_str("<p class=\"note\">Nothing seen that speaks against it.</p>");
    } else {
        out.push_str("<h3>What speaks against it</h3>");
        list(
            out,
            "doubts",
            outcome.doubts.iter().map(|doubt| format!("<b>{}</b>: {}", escaped(&doubt.kind), escaped(&doubt.says))),
        );
    }
    for note in &outcome.notes {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    let intervals = "Ratios are of geometric means over rounds in which all took turns, with the interval that holds in 95 of 100 repetitions; one that reaches from less than half to more than twice the estimate says only that there were too few rounds.";
    let _ = write!(out, "<p class=\"note\">{intervals}</p></section>");
}

fn figures(out: &mut String, section: &Section) {
    out.push_str("<div class=\"figures\">");
    for plot in &section.plots {
        let _ = write!(out, "<section class=\"figure\"><h2>{}</h2>{}</section>", escaped(&plot.heading), drawn(plot));
    }
    out.push_str("</div>");
}

fn drawn(plot: &Plot) -> String {
    let figure = Figure {
        title: &plot.heading,
        x: Axis { label: &plot.x.0, scale: plot.x.1, format: &plot.x.2 },
        y: Axis { label: &plot.y.0, scale: plot.y.1, format: &plot.y.2 },
        series: &plot.series,
        marks: &plot.marks,
    };
    match &plot.kind {
        Kind::Bars(groups) => penstock_figures::bars(&figure, groups),
        Kind::Lines => penstock_figures::lines(&figure),
    }
}

fn table(out: &mut String, section: &Section) {
    let Table { head, rows, .. } = &section.table;
    let _ = write!(out, "<section><h2>{}</h2><div class=\"scroll\"><table><thead><tr>", escaped(&section.heading));
    // Columns of words stand left.
    let class = |name: &str| match name {
        "work" | "contestant" | "cores" => " class=\"left\"",
        "remarks" => " class=\"remarks\"",
        _ => "",
    };
    head.iter().for_each(|name| {
        let _ = write!(out, "<th{}>{name}</th>", class(name));
    });
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (name, value) in head.iter().zip(row) {
            let _ = write!(out, "<td{}>{}</td>", class(name), escaped(value));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

fn stacks(out: &mut String, outcome: &Outcome) {
    for (name, stacks) in &outcome.stacks {
        let heading = format!("Where {name} spends its time");
        let flames: Vec<Flame> = stacks.tree.iter().map(flame).collect();
        let _ = write!(
            out,
            "<section><h2>{}</h2>{}<div class=\"scroll\"><table class=\"facts\"><tbody>",
            escaped(&heading),
            penstock_figures::flames(&heading, &flames, &Code::ALL.map(|(_, name)| name))
        );
        for (share, function) in &stacks.hottest {
            let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", percent(*share), escaped(function));
        }
        let _ = write!(
            out,
            "</tbody></table></div><p class=\"note\">{}. {} samples of its CPU time by perf, the share of each function itself in the table; \
             whole stacks, as tools for flame graphs read them: stacks-{}.txt</p></section>",
            escaped(&stacks.at),
            whole(stacks.samples as f64),
            escaped(name)
        );
    }
}

fn flame(frame: &Frame) -> Flame {
    Flame {
        name: frame.name.clone(),
        label: brief(&frame.name),
        share: frame.share,
        colour: Code::ALL.iter().position(|(code, _)| *code == frame.code).unwrap_or(0),
        above: frame.calls.iter().map(flame).collect(),
    }
}

/// The last two words of a path, without what it is generic over: `<a::B<C> as d::E>::f` is `B::f`.
fn brief(name: &str) -> String {
    let own = name.strip_prefix('<').and_then(|rest| {
        let (of, method) = rest.rsplit_once(">::")?;
        Some(format!("{}::{method}", of.split(" as ").next()?))
    });
    let mut depth = 0;
    let plain: String = own
        .as_deref()
        .unwrap_or(name)
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '<') - i32::from(*c == '>');
            depth == 0 && *c != '>'
        })
        .collect();
    let words: Vec<&str> = plain.split("::").filter(|word| !word.is_empty()).collect();
    words[words.len().saturating_sub(2)..].join("::")
}

fn who_ran_where(out: &mut String, outcome: &Outcome) {
    let _ = write!(out, "<section><h2>Who ran where</h2>{}", placement::drawing(outcome));
    for line in placement::words(outcome) {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(&line));
    }
    out.push_str("</section>");
}

fn machine(out: &mut String, outcome: &Outcome) {
    out.push_str("<section><h2>The machine</h2><div class=\"columns\">");
    for group in &outcome.machine {
        let _ = write!(out, "<div><h3>{}</h3><table class=\"facts\"><tbody>", escaped(&group.name));
        for (name, value) in &group.facts {
            let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
        }
        out.push_str("</tbody></table></div>");
    }
    out.push_str("</div></section>");
}

fn details(out: &mut String, outcome: &Outcome) {
    out.push_str("<section><h2>How it was measured</h2><table class=\"facts\"><tbody>");
    let mut row = |name: &str, value: &str| {
        let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
    };
    row("command", &outcome.command);
    outcome.parameters.iter().for_each(|(name, value)| row(name, value));
    let mut agreed: Vec<&String> = outcome.cells.iter().flat_map(|cell| &cell.negotiated).collect();
    agreed.sort();
    agreed.dedup();
    agreed.iter().for_each(|agreed| row("agreed on", agreed));
    for contestant in &outcome.contestants {
        row(&contestant.name, &format!("{} ({})", contestant.doc, version(contestant)));
    }
    outcome.left_out.iter().for_each(|(name, why)| row(name, &format!("left out: {why}")));
    out.push_str("</tbody></table>");
    let _ = write!(
        out,
        "<details><summary>commands</summary><pre>{}</pre></details>",
        escaped(&outcome.commands.join("\n"))
    );
    for contestant in outcome.contestants.iter().filter(|contestant| !contestant.configuration.is_empty()) {
        let _ = write!(
            out,
            "<details><summary>configuration of {}</summary><pre>{}</pre></details>",
            escaped(&contestant.name),
            escaped(&contestant.configuration)
        );
    }
    out.push_str("<p class=\"note\">Beside this page: result.json, which bench compare and plan --study read, and raw.jsonl with every histogram.</p></section>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_are_cut_to_what_tells_them_apart() {
        for (name, short) in [
            ("tcp_sendmsg", "tcp_sendmsg"),
            ("penstock_lanes::vector::avx512::with_features", "avx512::with_features"),
            ("<penstock_proxy::socket::Socket as tokio::io::AsyncWrite>::poll_write", "Socket::poll_write"),
            ("<a::Batch<V,_,_> as a::Work>::step", "Batch::step"),
            ("a::b::run::{{closure}}", "run::{{closure}}"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "ptr::drop_in_place"),
        ] {
            assert_eq!(brief(name), short);
        }
    }
}
