//! Rates of the last minutes, each as a line of bars.

use crate::{
    rates::Rates,
    sample::Sample,
    view::{Line, number},
};
use std::collections::VecDeque;

/// Rates since the view was opened, newest last.
#[derive(Clone, Debug, Default)]
pub struct Trail([VecDeque<f64>; 3]);

/// How many values of each rate are kept: as many as the widest terminal shows.
const KEPT: usize = 400;
const NAMES: [&str; 3] = ["requests/s", "handshakes/s", "errors/s"];
/// Width of the name before the bars and the highest value after them.
const AROUND: usize = 30;

impl Trail {
    /// Adds the rates between two samples taken this many seconds apart.
    pub fn push(&mut self, before: &Sample, now: &Sample, seconds: f64) {
        let rates = Rates { before, now, between: seconds.max(0.001) };
        let values = [
            rates.rate("haproxy_process_requests_total", &[]),
            rates.rate("haproxy_process_ssl_cache_lookups_total", &[]),
            errors(&rates),
        ];
        for (line, value) in self.0.iter_mut().zip(values) {
            if line.len() >= KEPT {
                line.pop_front();
            }
            line.push_back(value);
        }
    }

    /// A line of bars for each rate, once there is more than one value.
    pub(crate) fn lines(&self, width: usize) -> Vec<Line> {
        let room = width.saturating_sub(AROUND).min(KEPT);
        let line = |(name, values): (&str, &VecDeque<f64>)| {
            let shown = values.iter().skip(values.len().saturating_sub(room));
            let most = shown.clone().copied().fold(0.0, f64::max);
            let bars: String = shown.map(|value| bar(*value, most)).collect();
            Line::plain(format!("{name:<13}{bars} most {}", number(most)))
        };
        if self.0[0].len() < 2 || room == 0 {
            return Vec::new();
        }
        NAMES.into_iter().zip(&self.0).map(line).collect()
    }
}

/// A value as a bar of one character; `most` has the full height of a line.
pub(crate) fn bar(value: f64, most: f64) -> char {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = if most > 0.0 { (value / most * 8.0).ceil() as usize } else { 0 };
    HEIGHTS[height.min(8)]
}

/// The rate of errors as the tables count them, plus responses of 500 and above.
fn errors(rates: &Rates<'_>) -> f64 {
    let all = |metric: &str, code: Option<&str>| -> f64 {
        let series = rates.now.all(metric).iter().filter(|series| code.is_none_or(|code| series.label("code") == code));
        let rate = |series: &crate::sample::Series| {
            let labels: Vec<(&str, &str)> =
                series.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            rates.rate(metric, &labels)
        };
        series.map(rate).sum()
    };
    all("haproxy_frontend_request_errors_total", None)
        + all("haproxy_backend_connection_errors_total", None)
        + all("haproxy_backend_response_errors_total", None)
        + all("haproxy_frontend_http_responses_total", Some("5xx"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Looks;

    fn sample(requests: u32, failures: u32) -> Sample {
        Sample::parse(&format!(
            "haproxy_process_requests_total {requests}\nhaproxy_frontend_http_responses_total{{proxy=\"a\",code=\"5xx\"}} {failures}\n\
             haproxy_frontend_http_responses_total{{proxy=\"b\",code=\"2xx\"}} 7\n"
        ))
    }

    #[test]
    fn each_interval_is_a_bar_and_the_oldest_make_room() {
        let mut trail = Trail::default();
        trail.push(&sample(0, 0), &sample(40, 1), 2.0);
        assert!(trail.lines(80).is_empty(), "one value is no line");
        trail.push(&sample(40, 1), &sample(200, 1), 2.0);
        let shown = |trail: &Trail, width| -> Vec<String> {
            let looks = Looks { width, height: 0, styled: false };
            trail.lines(width).iter().map(|line| line.show(looks)).collect()
        };
        assert_eq!(
            shown(&trail, 80),
            ["requests/s   ▂█ most 80", "handshakes/s    most 0", "errors/s     █  most 0.5"]
        );
        (0..1000).for_each(|_| trail.push(&sample(0, 0), &sample(1, 0), 1.0));
        assert!(trail.0.iter().all(|line| line.len() == KEPT));
        assert!(shown(&trail, 80).iter().all(|line| line.chars().count() <= 80));
    }
}
