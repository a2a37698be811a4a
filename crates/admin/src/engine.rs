//! Metrics of the crypto engine in the Prometheus format, which HAProxy does not have.

use crate::device;
use penstock_engine::{Class, ClassCounters, Counters, TURN_BOUNDS};
use penstock_proxy::engine::Report;
use std::fmt::Write as _;

type Value = fn(&ClassCounters) -> u64;

#[rustfmt::skip] // One line a metric reads as the table that it is.
const BY_CLASS: [(&str, Value, &str); 10] = [
    ("operations_total", |c| c.ops, "Public-key operations asked for"),
    ("inline_total", |c| c.inline, "Operations computed natively without waiting"),
    ("few_total", |c| c.few, "Operations computed natively because too few had come together"),
    ("ahead_total", |c| c.at_hand, "Operations answered at once from what was made ahead"),
    ("batches_total", |c| c.batches, "Batches given to the engine"),
    ("wrong_total", |c| c.wrong, "Answers that failed their check"),
    ("late_total", |c| c.late, "Operations the engine did not answer in time"),
    ("failed_total", |c| c.failed, "Operations the engine's device failed"),
    ("redone_total", |c| c.redone, "Operations redone natively"),
    ("abandoned_total", |c| c.abandoned, "Operations whose client had gone before the answer"),
];

/// Adds the engine's metrics.
pub fn render(out: &mut String, report: &Report) {
    let counters = &report.counters;
    let used: Vec<(Class, &ClassCounters)> =
        Class::ALL.iter().map(|class| (*class, counters.class(*class))).filter(|(_, c)| c.ops > 0).collect();
    head(out, "info", "gauge", "The engine that computes handshakes");
    let _ = writeln!(out, "penstock_engine_info{{engine=\"{}\"}} 1", report.engine);
    for (name, value, help) in BY_CLASS {
        head(out, name, "counter", help);
        for (class, counters) in &used {
            let _ = writeln!(out, "penstock_engine_{name}{{class=\"{}\"}} {}", class.name(), value(counters));
        }
    }
    head(out, "batch_operations", "histogram", "Operations in a batch");
    for (class, counters) in &used {
        let bounds = (1..).map(|fill| fill.to_string());
        let sum: u64 = counters.fill.iter().zip(1..).map(|(batches, fill): (_, u64)| batches * fill).sum();
        histogram(out, "batch_operations", Some(*class), &counters.fill, bounds, &sum.to_string());
    }
    head(out, "wait_seconds", "histogram", "Time from an operation's submission to its answer");
    for (class, counters) in &used {
        let bounds = (0..).map(|power| format!("{:?}", f64::from(1u32 << power) / 1e6));
        let sum = format!("{:.6}", counters.wait_us as f64 / 1e6);
        histogram(out, "wait_seconds", Some(*class), &counters.wait, bounds, &sum);
    }
    process(out, counters);
    report.device.iter().for_each(|device| device::render(out, device));
    report.compression.iter().for_each(|compression| device::render_compression(out, compression));
    let line = &report.line;
    for (name, kind, value, help) in [
        ("waiting", "gauge", line.waiting, "Handshakes in the line before the engine"),
        ("waiting_max", "gauge", line.most, "The most there have been"),
        ("turned_away_total", "counter", line.turned_away, "Handshakes turned away because the line was too long"),
        ("left_total", "counter", line.left, "Handshakes whose client had left by their turn"),
    ] {
        head(out, name, kind, help);
        let _ = writeln!(out, "penstock_engine_{name} {value}");
    }
    let stacks = &report.stacks;
    head(out, "stacks", "gauge", "Stacks of handshakes that wait for an operation");
    for (state, count) in [("used", stacks.used), ("kept", stacks.kept), ("most", stacks.most)] {
        let _ = writeln!(out, "penstock_engine_stacks{{state=\"{state}\"}} {count}");
    }
}

fn process(out: &mut String, counters: &Counters) {
    head(out, "closed_total", "counter", "Batches by why they closed");
    let reasons = [("full", counters.closed_full), ("age", counters.closed_age), ("idle", counters.closed_idle)];
    for (reason, count) in reasons {
        let _ = writeln!(out, "penstock_engine_closed_total{{reason=\"{reason}\"}} {count}");
    }
    let seconds = |ns: u64| format!("{:.9}", ns as f64 / 1e9);
    head(out, "turn_seconds", "histogram", "CPU time of the queue's turns");
    let bounds = TURN_BOUNDS.iter().map(|us| format!("{:?}", *us as f64 / 1e6)).chain([String::new()]);
    histogram(out, "turn_seconds", None, &counters.turns, bounds, &seconds(counters.turns_ns));
    for (name, kind, value, help) in [
        ("turn_seconds_max", "gauge", seconds(counters.turn_ns_max), "CPU time of the longest turn"),
        ("benched_total", "counter", counters.benched.to_string(), "Times an engine was taken out of service"),
        ("benched", "gauge", u8::from(counters.is_benched).to_string(), "1 while one is"),
    ] {
        head(out, name, kind, help);
        let _ = writeln!(out, "penstock_engine_{name} {value}");
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP penstock_engine_{name} {help}\n# TYPE penstock_engine_{name} {kind}\n");
}

/// Converts counts of separate buckets to the cumulative ones of the format; the last bucket has no upper bound.
fn histogram(
    out: &mut String,
    name: &str,
    class: Option<Class>,
    counts: &[u64],
    bounds: impl Iterator<Item = String>,
    sum: &str,
) {
    let label = class.map(|class| format!("class=\"{}\"", class.name())).unwrap_or_default();
    let (before, comma) = if label.is_empty() { (String::new(), "") } else { (format!("{{{label}}}"), ",") };
    let mut total = 0;
    let last = counts.len() - 1;
    for ((place, count), bound) in counts.iter().enumerate().zip(bounds) {
        total += count;
        let bound = if place == last { "+Inf" } else { bound.as_str() };
        let _ = writeln!(out, "penstock_engine_{name}_bucket{{{label}{comma}le=\"{bound}\"}} {total}");
    }
    let _ = writeln!(out, "penstock_engine_{name}_sum{before} {sum}");
    let _ = writeln!(out, "penstock_engine_{name}_count{before} {total}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative_and_only_used_classes_are_shown() {
        let mut report = Report { engine: "sw", ..Report::default() };
        let class = &mut report.counters.classes[Class::Rsa2048 as usize];
        (class.ops, class.batches) = (12, 2);
        (class.fill[3], class.fill[7]) = (1, 1);
        (report.counters.turns[5], report.counters.turns[9], report.counters.turns_ns) = (3, 1, 2_000_000);
        let mut page = String::new();
        render(&mut page, &report);
        for line in [
            "penstock_engine_info{engine=\"sw\"} 1",
            "penstock_engine_operations_total{class=\"rsa2048\"} 12",
            "penstock_engine_batch_operations_bucket{class=\"rsa2048\",le=\"3\"} 0",
            "penstock_engine_batch_operations_bucket{class=\"rsa2048\",le=\"4\"} 1",
            "penstock_engine_batch_operations_bucket{class=\"rsa2048\",le=\"+Inf\"} 2",
            "penstock_engine_batch_operations_sum{class=\"rsa2048\"} 12",
            "penstock_engine_wait_seconds_bucket{class=\"rsa2048\",le=\"1e-6\"} 0",
            "penstock_engine_turn_seconds_bucket{le=\"0.00025\"} 0",
            "penstock_engine_turn_seconds_bucket{le=\"0.0003\"} 3",
            "penstock_engine_turn_seconds_bucket{le=\"+Inf\"} 4",
            "penstock_engine_turn_seconds_sum 0.002000000",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(!page.contains("x25519"));
    }
}
