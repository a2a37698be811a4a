//! Metrics of caches whose requests wait for each other, which HAProxy does not have.

use penstock_proxy::Collapses;
use std::fmt::Write as _;

type Metric = (&'static str, &'static str, &'static str, fn(&Collapses) -> u64);

const METRICS: &[Metric] = &[
    ("collapsed_total", "counter", "Requests answered with the response to another one", |of| of.collapsed),
    ("fetching", "gauge", "Responses that are being fetched and may be waited for", |of| of.fetching),
    ("waiting", "gauge", "Requests that wait for the response to another one", |of| of.waiting),
];

/// Writes the metrics, if a cache has `collapse`.
pub(crate) fn render(out: &mut String, caches: &[(String, Collapses)]) {
    for (name, kind, help, value) in METRICS.iter().filter(|_| !caches.is_empty()) {
        let _ = write!(out, "# HELP penstock_cache_{name} {help}\n# TYPE penstock_cache_{name} {kind}\n");
        for (cache, of) in caches {
            let _ = writeln!(out, "penstock_cache_{name}{{cache=\"{cache}\"}} {}", value(of));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_that_collapses_has_a_line_of_each_metric() {
        let mut out = String::new();
        render(&mut out, &[]);
        assert_eq!(out, "");
        let of = |collapsed| Collapses { collapsed, fetching: 2, waiting: 3 };
        render(&mut out, &[("one".into(), of(1)), ("two".into(), of(7))]);
        for line in ["collapsed_total{cache=\"one\"} 1", "fetching{cache=\"one\"} 2", "waiting{cache=\"two\"} 3"] {
            assert!(out.contains(&format!("penstock_cache_{line}\n")), "{out}");
        }
        assert_eq!(out.lines().filter(|line| !line.starts_with('#')).count(), 2 * METRICS.len());
    }
}
