//! The crypto engine and its device on the statistics page: figures for each class of operation and each instance.

use crate::html::{Count, Text};
use penstock_engine::{
    Class, ClassCounters, DeviceReport,
    hw::{Health, Summary},
};
use penstock_proxy::engine::Report;
use std::{fmt::Write as _, time::Duration};

/// A column: its heading, its legend, and its cell.
type Column<T> = (&'static str, &'static str, fn(&T) -> String);

#[rustfmt::skip] // One line a column reads as the table that it is.
const CLASSES: &[Column<ClassCounters>] = &[
    ("Operations", "Public-key operations asked for", |c| Count(c.ops).to_string()),
    ("Inline", "Computed natively without waiting", |c| Count(c.inline).to_string()),
    ("Few", "Computed natively because too few had come together", |c| Count(c.few).to_string()),
    ("Ahead", "Answered at once from what was made ahead", |c| Count(c.at_hand).to_string()),
    ("Batches", "Batches given to the engine", |c| Count(c.batches).to_string()),
    ("Fill", "Operations in a batch, on average", |c| c.mean_fill().map(|fill| format!("{fill:.1}")).unwrap_or_default()),
    ("Wait p50", "Half of those that waited were answered within this", |c| wait(c, 0.5)),
    ("p99", "So were 99 in a hundred", |c| wait(c, 0.99)),
    ("Wrong", "Answers that failed their check", |c| Count(c.wrong).to_string()),
    ("Late", "Not answered in time", |c| Count(c.late).to_string()),
    ("Failed", "Failed by the device", |c| Count(c.failed).to_string()),
    ("Redone", "Computed again natively", |c| Count(c.redone).to_string()),
    ("Left", "Whose client had gone before the answer", |c| Count(c.abandoned).to_string()),
];

const INSTANCES: &[Column<Summary>] = &[
    ("Node", "NUMA node it is on", |i| i.node.map(|node| node.to_string()).unwrap_or_default()),
    ("Workers", "Workers that share it", |i| Count(i.workers.into()).to_string()),
    ("In progress", "Requests it has not answered, of all workers", |i| Count(i.depth.into()).to_string()),
];

/// Adds the sections; none if no handshake has used the engine and there is no device.
pub fn render(out: &mut String, report: &Report) {
    let counters = &report.counters;
    let used: Vec<Class> = Class::ALL.into_iter().filter(|class| counters.class(*class).ops > 0).collect();
    if !used.is_empty() {
        let stacks = &report.stacks;
        let closed = [counters.closed_full, counters.closed_idle, counters.closed_age].map(Count);
        let details = format!(
            "{} · batches closed full {}, idle {}, by age {} · longest turn {} µs · stacks {} used, {} kept, most {}",
            report.engine,
            closed[0],
            closed[1],
            closed[2],
            counters.turn_ns_max / 1000,
            stacks.used,
            stacks.kept,
            stacks.most
        );
        let rows = used.iter().map(|class| (class.name(), String::new(), counters.class(*class)));
        section(out, "engine", "Crypto engine", &details, CLASSES, rows);
    }
    report.device.iter().for_each(|device| instances(out, device));
}

fn instances(out: &mut String, device: &DeviceReport) {
    let c = &device.counters;
    let given: u64 = c.given.iter().sum();
    let benched = if c.is_benched > 0 { format!(", now for {} workers", c.is_benched) } else { String::new() };
    let details = format!(
        "by {} · {} operations · {} in progress, most {} of a worker · ring full {} times · benched {}{benched} · {} resets",
        Text(device.library),
        Count(given),
        c.depth,
        c.depth_max,
        Count(c.ring_full),
        Count(c.benched),
        device.restarts
    );
    let rows = device.instances.iter().map(|instance| {
        let (class, state) = match instance.health {
            Health::Up => ("up", "up"),
            Health::Restarting => ("turning", "being reset"),
            Health::Lost => ("down", "lost"),
        };
        (instance.name.as_str(), format!(" <span class=\"state {class}\">{state}</span>"), instance)
    });
    section(out, "device", "QuickAssist device", &details, INSTANCES, rows);
}

/// Adds a heading and a table of rows: a name, details, and cells. `details` is HTML.
fn section<'a, T: 'a>(
    out: &mut String,
    id: &str,
    title: &str,
    details: &str,
    columns: &[Column<T>],
    rows: impl Iterator<Item = (&'a str, String, &'a T)>,
) {
    let _ = write!(
        out,
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{title}<small>{details}</small></h2><div class=\"scroll\">\
         <table><caption class=\"sr\">{title}</caption><thead><tr><th scope=\"col\"><span class=\"sr\">Name</span></th>"
    );
    for (name, legend, _) in columns {
        let _ = write!(out, "<th scope=\"col\"><abbr title=\"{legend}\">{name}</abbr></th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (name, behind, row) in rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}{behind}</th>", Text(name));
        for (.., cell) in columns {
            let _ = write!(out, "<td>{}</td>", cell(row));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

fn wait(counters: &ClassCounters, share: f64) -> String {
    match counters.wait_below(share) {
        None => String::new(),
        Some(Duration::MAX) => "&gt; 1 s".into(),
        Some(bound) if bound < Duration::from_millis(1) => format!("&lt; {} µs", bound.as_micros()),
        Some(bound) => format!("&lt; {} ms", bound.as_micros().div_ceil(1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_engine::DeviceCounters;

    #[test]
    fn a_class_is_a_row_with_its_fill_and_waits_and_an_instance_one_with_its_ring() {
        let mut report = Report { engine: "hw+sw", ..Report::default() };
        let class = &mut report.counters.classes[Class::Rsa2048 as usize];
        (class.ops, class.batches, class.redone) = (12, 2, 3);
        (class.fill[3], class.fill[7]) = (1, 1);
        (class.wait[9], class.wait[20]) = (11, 1);
        let instance = crate::device::tests::instance("<qat0>");
        let lost = Summary { name: "qat1".into(), node: None, health: Health::Lost, depth: 0, ..instance.clone() };
        let counters = DeviceCounters { depth: 7, depth_max: 40, ring_full: 5, ..DeviceCounters::default() };
        let instances = vec![instance, lost];
        report.device = Some(DeviceReport { counters, instances, restarts: 1, compression: 0, library: "libqat.so.4" });
        let mut page = String::new();
        render(&mut page, &report);
        for part in [
            "<th scope=\"row\">rsa2048</th><td>12</td>",
            "<td>2</td><td>6.0</td><td>&lt; 512 µs</td><td>&gt; 1 s</td>",
            "by libqat.so.4 · <span class=\"zero\">0</span> operations · 7 in progress, most 40 of a worker · ring full 5 times",
            "&lt;qat0&gt; <span class=\"state up\">up</span></th><td>1</td><td>2</td><td>7</td>",
            "qat1 <span class=\"state down\">lost</span></th><td></td>",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        let mut page = String::new();
        render(&mut page, &Report::default());
        assert_eq!(page, "", "nothing to show");
    }
}
