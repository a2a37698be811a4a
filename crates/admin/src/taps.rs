//! Metrics of services in mode tap, which HAProxy does not have.

use penstock_proxy::{TapState, TapView};
use std::fmt::Write as _;

type Metric = (&'static str, &'static str, &'static str, fn(&TapView) -> u64);

const METRICS: &[Metric] = &[
    ("penstock_tap_up", "gauge", "Whether somebody reads the copy", |tap| u64::from(tap.state == TapState::Writing)),
    ("penstock_tap_copied_total", "counter", "Connections and exchanges whose copy has begun", |tap| tap.begun),
    ("penstock_tap_missed_total", "counter", "Connections and exchanges that were not copied", |tap| tap.missed),
    ("penstock_tap_packets_total", "counter", "Packets written", |tap| tap.packets),
    ("penstock_tap_bytes_total", "counter", "Bytes of traffic written", |tap| tap.written),
    ("penstock_tap_dropped_bytes_total", "counter", "Bytes of traffic missing in the copy", |tap| tap.dropped),
    ("penstock_tap_waiting_bytes", "gauge", "Bytes of memory that wait to be written", |tap| tap.used),
];

/// Writes the metrics, if there are taps.
pub(crate) fn render(out: &mut String, taps: &[TapView]) {
    if taps.is_empty() {
        return;
    }
    for (name, kind, help, value) in METRICS {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for tap in taps {
            let _ = writeln!(out, "{name}{{service=\"{}\"}} {}", tap.name, value(tap));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tap_has_a_line_of_each_metric() {
        let tap = TapView {
            name: "copy".into(),
            target: "file /copy".into(),
            state: TapState::Writing,
            begun: 1,
            missed: 2,
            packets: 3,
            written: 4,
            dropped: 5,
            opened: 6,
            failed: 7,
            used: 8,
            limit: 9,
        };
        let mut out = String::new();
        render(&mut out, &[]);
        assert_eq!(out, "");
        render(&mut out, &[tap]);
        for line in
            ["_up{service=\"copy\"} 1", "_bytes_total{service=\"copy\"} 4", "_dropped_bytes_total{service=\"copy\"} 5"]
        {
            assert!(out.contains(&format!("penstock_tap{line}\n")), "{out}");
        }
        assert_eq!(out.lines().filter(|line| !line.starts_with('#')).count(), METRICS.len());
    }
}
