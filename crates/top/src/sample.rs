//! The metrics of a process at one moment, parsed from the part of Prometheus's text format (version 0.0.4) that is used here.

use std::collections::HashMap;

/// One reading of all metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    series: HashMap<String, Vec<Series>>,
}

/// One line: a metric with its labels and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Series {
    /// The value of a label; empty if there is no such label.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

impl Sample {
    /// Parses the lines that are series; ignores all others, such as comments.
    pub fn parse(text: &str) -> Sample {
        let mut sample = Sample::default();
        for (name, series) in text.lines().filter_map(line) {
            sample.series.entry(name.to_owned()).or_default().push(series);
        }
        sample
    }

    /// Whether the sample contains none of the metrics that are used here.
    pub fn is_empty(&self) -> bool {
        !self.series.keys().any(|name| name.starts_with("haproxy_") || name.starts_with("penstock_"))
    }

    /// All series of a metric, in their order.
    pub(crate) fn all(&self, metric: &str) -> &[Series] {
        self.series.get(metric).map_or(&[], Vec::as_slice)
    }

    /// The value of the series that has these labels, and possibly more.
    pub(crate) fn value(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |series: &&Series| labels.iter().all(|(name, value)| series.label(name) == *value);
        self.all(metric).iter().find(fits).map(|series| series.value)
    }
}

fn line(line: &str) -> Option<(&str, Series)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = labels(rest)?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, Vec::new(), rest)
        }
    };
    // A timestamp may follow the value; penstock writes none.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, Series { labels, value }))
}

/// Parses `name="value",...}`. A value may contain anything, with its quotes escaped.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        text = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read_with_their_labels_and_the_rest_is_passed_over() {
        let sample = Sample::parse(
            "# HELP x y\n\
             haproxy_frontend_http_requests_total{proxy=\"we\\\"b, } \\\\\"} 12\n\
             penstock_engine_waiting 3\n\
             penstock_engine_bucket{class=\"rsa2048\",le=\"+Inf\"} 1e3 1700000000\n\
             broken{a=\"b 1\n\
             nothing\n",
        );
        assert_eq!(sample.all("haproxy_frontend_http_requests_total")[0].label("proxy"), "we\"b, } \\");
        assert_eq!(sample.value("penstock_engine_waiting", &[]), Some(3.0));
        assert_eq!(sample.value("penstock_engine_bucket", &[("le", "+Inf"), ("class", "rsa2048")]), Some(1000.0));
        assert_eq!(sample.value("penstock_engine_bucket", &[("class", "rsa4096")]), None);
        assert!(sample.all("broken").is_empty() && !sample.is_empty() && Sample::parse("go_gc 1\n").is_empty());
    }
}
