//! From two samples to the lines of a screen.

use crate::{engine, rates::Rates, sample::Sample};

/// How the view is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The number of columns; longer lines are cut.
    pub width: usize,
    /// The number of lines; what does not fit is left out at the end. 0 for all.
    pub height: usize,
    /// Whether to use the terminal's own styles.
    pub styled: bool,
}

/// A line and its style.
pub(crate) struct Line {
    text: String,
    style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Title,
    Head,
    Bad,
}

impl Line {
    pub fn plain(text: impl Into<String>) -> Line {
        Line { text: text.into(), style: Style::Plain }
    }
    pub fn title(text: impl Into<String>) -> Line {
        Line { text: text.into(), style: Style::Title }
    }
    pub fn head(text: impl Into<String>) -> Line {
        Line { text: text.into(), style: Style::Head }
    }
    pub fn bad(text: impl Into<String>) -> Line {
        Line { text: text.into(), style: Style::Bad }
    }

    fn show(&self, looks: Looks) -> String {
        let mut text: String = self.text.chars().take(looks.width).collect();
        if !looks.styled {
            return text.trim_end().to_owned();
        }
        let (on, off) = match self.style {
            Style::Plain => return text,
            Style::Title => ("\x1b[1m", "\x1b[0m"),
            Style::Head => ("\x1b[7m", "\x1b[0m"),
            Style::Bad => ("\x1b[1;31m", "\x1b[0m"),
        };
        if self.style == Style::Head {
            text.extend(std::iter::repeat_n(' ', looks.width.saturating_sub(text.chars().count())));
        }
        format!("{on}{text}{off}")
    }
}

/// The lines of a screen: what `now` is, and what has happened in the seconds since `before`.
pub fn frame(title: &str, before: &Sample, now: &Sample, seconds: f64, looks: Looks) -> Vec<String> {
    let rates = Rates { before, now, between: seconds.max(0.001) };
    let mut lines = vec![Line::title(format!("penstock top  {title}"))];
    lines.extend(process(&rates));
    lines.push(Line::plain(""));
    lines.extend(engine::lines(&rates));
    lines.push(Line::plain(""));
    lines.extend(proxies(&rates));
    let height = if looks.height == 0 { lines.len() } else { looks.height };
    lines.iter().take(height).map(|line| line.show(looks)).collect()
}

fn process(rates: &Rates<'_>) -> Vec<Line> {
    let gauge = |name: &str| rates.gauge(&format!("haproxy_process_{name}"), &[]).unwrap_or(0.0);
    let rate = |name: &str| rates.rate(&format!("haproxy_process_{name}"), &[]);
    let (done, fresh) = (rate("ssl_cache_lookups_total"), rate("ssl_cache_misses_total"));
    let resumed = if done > 0.0 { 100.0 * (done - fresh).max(0.0) / done } else { 0.0 };
    vec![Line::plain(format!(
        "up {}   threads {}   connections {} of {}, {}/s   requests {}/s   TLS {}/s, {resumed:.0} % resumed",
        span(gauge("uptime_seconds")),
        number(gauge("nbthread")),
        number(gauge("current_connections")),
        number(gauge("max_connections")),
        number(rate("connections_total")),
        number(rate("requests_total")),
        number(done),
    ))]
}

/// A column of the table of proxies: its heading, and what each kind shows.
type Cell = fn(&Rates<'_>, Kind, &[(&str, &str)]) -> Option<f64>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Frontend,
    Backend,
    Server,
}

impl Kind {
    fn metric(self, name: &str) -> String {
        let kind = match self {
            Kind::Frontend => "frontend",
            Kind::Backend => "backend",
            Kind::Server => "server",
        };
        format!("haproxy_{kind}_{name}")
    }
}

const CELLS: [(&str, Cell); 11] = [
    ("queue", |r, k, l| r.gauge(&k.metric("current_queue"), l)),
    ("sess", |r, k, l| r.gauge(&k.metric("current_sessions"), l)),
    ("sess/s", |r, k, l| known(r, k, "sessions_total", l)),
    ("req/s", |r, k, l| known(r, k, if k == Kind::Server { "loadbalanced_total" } else { "http_requests_total" }, l)),
    ("in B/s", |r, k, l| known(r, k, "bytes_in_total", l)),
    ("out B/s", |r, k, l| known(r, k, "bytes_out_total", l)),
    ("2xx/s", |r, k, l| status(r, k, "2xx", l)),
    ("3xx/s", |r, k, l| status(r, k, "3xx", l)),
    ("4xx/s", |r, k, l| status(r, k, "4xx", l)),
    ("5xx/s", |r, k, l| status(r, k, "5xx", l)),
    ("err/s", |r, k, l| match k {
        Kind::Frontend => known(r, k, "request_errors_total", l),
        _ => Some(known(r, k, "connection_errors_total", l)? + known(r, k, "response_errors_total", l)?),
    }),
];

/// The rate of a counter, where it exists.
fn known(rates: &Rates<'_>, kind: Kind, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let metric = kind.metric(name);
    rates.gauge(&metric, labels).map(|_| rates.rate(&metric, labels))
}

fn status(rates: &Rates<'_>, kind: Kind, class: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = labels.iter().copied().chain([("code", class)]).collect();
    known(rates, kind, "http_responses_total", &labels)
}

fn proxies(rates: &Rates<'_>) -> Vec<Line> {
    let cells = |text: &dyn Fn(&(&str, Cell)) -> String| -> String {
        CELLS.iter().map(|cell| format!("{:>8}", text(cell))).collect()
    };
    let mut lines = vec![Line::head(format!("{:<24} {:<6}{}", "PROXY / SERVER", "STATE", cells(&|c| c.0.into())))];
    let mut row = |kind: Kind, name: &str, labels: &[(&str, &str)]| {
        let state = rates
            .now
            .all(&kind.metric("status"))
            .iter()
            .find(|series| labels.iter().all(|(name, value)| series.label(name) == *value) && series.value == 1.0);
        let state = state.map_or("", |series| series.label("state"));
        let shown = |(_, cell): &(&str, Cell)| cell(rates, kind, labels).map_or_else(String::new, number);
        let text = format!("{name:<24.24} {state:<6}{}", cells(&shown));
        lines.push(if state == "DOWN" { Line::bad(text) } else { Line::plain(text) });
    };
    for series in rates.now.all("haproxy_frontend_sessions_total") {
        let proxy = series.label("proxy");
        row(Kind::Frontend, &format!("> {proxy}"), &[("proxy", proxy)]);
    }
    for series in rates.now.all("haproxy_backend_sessions_total") {
        let proxy = series.label("proxy");
        row(Kind::Backend, &format!("< {proxy}"), &[("proxy", proxy)]);
        for series in rates.now.all("haproxy_server_sessions_total").iter().filter(|s| s.label("proxy") == proxy) {
            let server = series.label("server");
            row(Kind::Server, &format!("  {server}"), &[("proxy", proxy), ("server", server)]);
        }
    }
    lines
}

/// Three or four digits and a unit.
pub(crate) fn number(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    match scaled {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{v:.0}{unit}"),
        v => format!("{v:.1}{unit}"),
    }
}

/// A time in its two largest units.
fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Looks = Looks { width: 130, height: 0, styled: false };

    fn sample(requests: u32) -> Sample {
        Sample::parse(&format!(
            "haproxy_process_uptime_seconds 3725\n\
             haproxy_process_nbthread 2\n\
             haproxy_process_current_connections 12\n\
             haproxy_frontend_status{{proxy=\"web\",state=\"UP\"}} 1\n\
             haproxy_frontend_current_sessions{{proxy=\"web\"}} 7\n\
             haproxy_frontend_sessions_total{{proxy=\"web\"}} {requests}\n\
             haproxy_frontend_http_requests_total{{proxy=\"web\"}} {requests}\n\
             haproxy_frontend_http_responses_total{{proxy=\"web\",code=\"2xx\"}} {requests}\n\
             haproxy_backend_status{{proxy=\"app\",state=\"DOWN\"}} 0\n\
             haproxy_backend_status{{proxy=\"app\",state=\"UP\"}} 1\n\
             haproxy_backend_sessions_total{{proxy=\"app\"}} {requests}\n\
             haproxy_server_status{{proxy=\"app\",server=\"s1\",state=\"DOWN\"}} 1\n\
             haproxy_server_sessions_total{{proxy=\"app\",server=\"s1\"}} 3\n"
        ))
    }

    #[test]
    fn proxies_and_their_servers_are_rows_with_rates() {
        let lines = frame("http://x", &sample(1000), &sample(13_000), 2.0, PLAIN);
        assert!(lines[1].starts_with("up 1 h 2 min   threads 2   connections 12 of"), "{}", lines[1]);
        let row = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{lines:#?}"));
        assert_eq!(
            row("> web").split_whitespace().collect::<Vec<_>>(),
            [">", "web", "UP", "7", "6000", "6000", "6000"]
        );
        assert!(row("< app").contains("UP") && row("  s1").contains("DOWN"));
    }

    #[test]
    fn lines_are_cut_to_the_terminal_and_styled_after_that() {
        let looks = Looks { width: 20, height: 4, styled: true };
        let lines = frame("http://a-long-address/metrics", &sample(1), &sample(1), 1.0, looks);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "\x1b[1mpenstock top  http:/\x1b[0m");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.5, "0.5"), (999.4, "999"), (9999.0, "9999"), (12_345.0, "12.3k"), (5e9, "5G")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!([30.0, 90.0, 7260.0, 90_000.0].map(span), ["30 s", "1 min 30 s", "2 h 1 min", "1 d 1 h"]);
    }
}
