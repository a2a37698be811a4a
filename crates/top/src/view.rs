//! Renders two samples as the lines of a screen.

use crate::{
    choices::{Choices, HELP},
    engine,
    rates::Rates,
    sample::Sample,
    table,
    trail::Trail,
};

/// The size and style in which the view is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The number of columns; longer lines are cut.
    pub width: usize,
    /// The number of lines; lines at the end that do not fit are left out. 0 for no limit.
    pub height: usize,
    /// Whether to use the terminal's text styles.
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

    pub(crate) fn show(&self, looks: Looks) -> String {
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

/// The lines of a screen: the state in `now`, the rates in the `seconds` since `before`, and in `trail` those of earlier minutes.
pub fn frame(
    title: &str,
    (before, now): (&Sample, &Sample),
    seconds: f64,
    looks: Looks,
    choices: &Choices,
    trail: &Trail,
) -> Vec<String> {
    let rates = Rates { before, now, between: seconds.max(0.001) };
    let mut lines = vec![Line::title(format!("penstock top  {title}"))];
    if choices.help {
        lines.push(Line::plain(""));
        lines.extend(HELP.iter().map(|line| Line::plain(*line)));
    } else {
        lines.extend(process(&rates, looks.width));
        lines.extend(trail.lines(looks.width));
        lines.push(Line::plain(""));
        if !choices.no_engine {
            lines.extend(engine::lines(&rates, looks.width));
            lines.push(Line::plain(""));
        }
        lines.extend(table::proxies(&rates, choices, looks.width));
    }
    if looks.height == 0 {
        return lines.iter().map(|line| line.show(looks)).collect();
    }
    // The first and the last line do not scroll.
    let room = looks.height.saturating_sub(2);
    let most = (lines.len() - 1).saturating_sub(room);
    let rest = lines.iter().skip(1 + choices.scrolled.min(most)).take(room);
    let mut shown: Vec<String> = lines.iter().take(1).chain(rest).map(|line| line.show(looks)).collect();
    if looks.height > 1 {
        shown.resize(looks.height - 1, String::new());
        shown.push(Line::head(choices.status(looks.width)).show(looks));
    }
    shown
}

/// The facts about the process, in as few lines as they fit in.
fn process(rates: &Rates<'_>, width: usize) -> Vec<Line> {
    let gauge = |name: &str| rates.gauge(&format!("haproxy_process_{name}"), &[]).unwrap_or(0.0);
    let rate = |name: &str| rates.rate(&format!("haproxy_process_{name}"), &[]);
    let (done, fresh) = (rate("ssl_cache_lookups_total"), rate("ssl_cache_misses_total"));
    let resumed = if done > 0.0 { 100.0 * (done - fresh).max(0.0) / done } else { 0.0 };
    let busy = rates.gauge("haproxy_process_idle_time_percent", &[]);
    let busy = busy.map_or(String::new(), |idle| format!("   busy {} %", number(100.0 - idle)));
    let parts = [
        format!("up {}   threads {}{busy}", span(gauge("uptime_seconds")), number(gauge("nbthread"))),
        format!(
            "connections {} of {}, {}/s",
            number(gauge("current_connections")),
            number(gauge("max_connections")),
            number(rate("connections_total")),
        ),
        format!("requests {}/s   TLS {}/s, {resumed:.0} % resumed", number(rate("requests_total")), number(done)),
    ];
    wrapped(&parts, width)
}

/// Joins parts into as few lines as possible.
pub(crate) fn wrapped(parts: &[String], width: usize) -> Vec<Line> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + part.chars().count() <= width => {
                line.push_str("   ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines.into_iter().map(Line::plain).collect()
}

/// Formats a number with three or four digits and a unit.
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

/// Formats a duration in its two largest units.
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

    const PLAIN: Looks = Looks { width: 140, height: 0, styled: false };

    fn shown(before: &Sample, now: &Sample, looks: Looks, keys: &str) -> Vec<String> {
        let mut choices = Choices::default();
        assert!(keys.chars().all(|key| choices.press(crate::Key::Char(key))));
        frame("http://x", (before, now), 2.0, looks, &choices, &Trail::default())
    }

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
        let lines = shown(&sample(1000), &sample(13_000), PLAIN, "");
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
        let lines = shown(&sample(1), &sample(1), looks, "");
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "\x1b[1mpenstock top  http:/\x1b[0m");
        assert_eq!(lines[3], "\x1b[7m? help  q quit      \x1b[0m");
    }

    #[test]
    fn every_heading_of_a_table_is_whole_at_every_width() {
        for width in 40..=220 {
            let looks = Looks { width, ..PLAIN };
            let lines = shown(&sample(1000), &sample(13_000), looks, "");
            let head = lines.iter().find(|line| line.starts_with("PROXY / SERVER")).unwrap();
            let known = (0..table::columns()).map(table::heading).collect::<Vec<_>>().join(" ");
            for word in head.split_whitespace().skip(4) {
                assert!(known.contains(word) || word == "ms" || word == "B/s", "{word} in {head}");
            }
            let row = lines.iter().find(|line| line.starts_with("> web")).unwrap();
            assert!(row.contains("6000") && head.contains("req/s"), "{width}: {head}\n{row}");
        }
        let wide = shown(&sample(1000), &sample(13_000), Looks { width: 140, ..PLAIN }, "");
        let head = wide.iter().find(|line| line.starts_with("PROXY / SERVER")).unwrap();
        assert!((0..table::columns()).all(|column| head.contains(table::heading(column))), "{head}");
    }

    #[test]
    fn keys_choose_what_is_shown() {
        let rows = |keys: &str| -> Vec<String> {
            let lines = shown(&sample(1000), &sample(13_000), PLAIN, keys);
            let at = lines.iter().position(|line| line.starts_with("PROXY / SERVER")).unwrap();
            lines[at + 1..].iter().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(rows(""), ["> web", "< app", "s1 DOWN"]);
        assert_eq!(rows("p"), ["> web", "< app"]);
        assert_eq!(rows("/s1"), ["s1 DOWN"]);
        assert_eq!(rows("n"), ["> web"]);
        assert_eq!(rows("nn"), ["< app", "s1 DOWN"]);
        assert_eq!(rows("nnn").len(), 3, "behind the last come all again");
        // Sorted by sessions per second, then in reverse order.
        assert_eq!(rows("sss"), ["> web", "< app", "app/s1 DOWN"]);
        assert_eq!(rows("sssr"), ["app/s1 DOWN", "< app", "> web"]);
        let help = shown(&sample(1), &sample(1), PLAIN, "?");
        assert!(help.iter().any(|line| line.starts_with("space")) && !help.iter().any(|line| line.contains("web")));
        assert!(
            !shown(&sample(1), &sample(1), PLAIN, "e")
                .iter()
                .any(|line| line.contains("ENGINE") || line.contains("engine"))
        );
    }

    #[test]
    fn what_does_not_fit_is_scrolled_to_and_the_keys_stay() {
        let looks = Looks { height: 5, ..PLAIN };
        let all = shown(&sample(1), &sample(1), PLAIN, "");
        let lines = shown(&sample(1), &sample(1), looks, &"j".repeat(100));
        assert_eq!(lines[1..4], all[all.len() - 3..]);
        assert!(lines[0].starts_with("penstock top") && lines[4].starts_with("? help"), "{lines:#?}");
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
