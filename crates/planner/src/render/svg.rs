//! Figures: lines and bars, drawn for light and dark pages alike (the page's variables give the colours).

use super::number::whole;
use std::fmt::Write;

/// One line or one colour of bars.
pub(crate) struct Series {
    pub name: String,
    /// (x, y), x rising.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;

/// A round number at or above `value`, whose fifth part is round as well.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0];
    steps.into_iter().map(|s| s * power).find(|s| *s >= value * 0.999_999).unwrap_or(10.0 * power)
}

struct Frame {
    most: (f64, f64),
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.most.0 * (WIDTH - LEFT - RIGHT)
    }
    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.most.1 * (HEIGHT - TOP - BOTTOM)
    }

    fn open(&self, out: &mut String, title: &str, labels: (&str, &str), format: &dyn Fn(f64) -> String) {
        let _ =
            write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\"><g class=\"grid\">");
        for tick in 0..=5 {
            let value = self.most.1 * f64::from(tick) / 5.0;
            let y = self.y(value);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                format(value)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text></g>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            labels.0,
            (TOP + HEIGHT - BOTTOM) / 2.0,
            labels.1
        );
    }

    fn tick(&self, out: &mut String, x: f64, text: &str) {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            HEIGHT - BOTTOM + 18.0
        );
    }
}

fn legend(out: &mut String, series: &[Series]) {
    out.push_str("<p class=\"legend\">");
    for (at, series) in series.iter().enumerate() {
        let _ = write!(out, "<span><i class=\"c{}\"></i>{}</span>", at % 6, series.name);
    }
    out.push_str("</p>");
}

/// Lines with a point at each value.
pub(crate) fn lines(title: &str, labels: (&str, &str), series: &[Series], format: &dyn Fn(f64) -> String) -> String {
    let all = || series.iter().flat_map(|s| &s.points);
    let most = (all().map(|p| p.0).fold(0.0, f64::max), all().map(|p| p.1).fold(0.0, f64::max));
    let frame = Frame { most: (most.0.max(f64::MIN_POSITIVE), round_up(most.1)) };
    let mut out = String::new();
    frame.open(&mut out, title, labels, format);
    let steps = if most.0 <= 26.0 { 2.0 } else { round_up(most.0 / 6.0) };
    let mut tick = steps;
    while tick <= most.0 + 1e-9 {
        frame.tick(&mut out, frame.x(tick), &whole(tick));
        tick += steps;
    }
    for (at, series) in series.iter().enumerate() {
        let path: Vec<String> =
            series.points.iter().map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y))).collect();
        let class = at % 6;
        let _ = write!(out, "<polyline class=\"l{class}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in &series.points {
            let _ = write!(
                out,
                "<circle class=\"c{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\"><title>{}: {} at {}</title></circle>",
                frame.x(*x),
                frame.y(*y),
                series.name,
                format(*y),
                whole(*x)
            );
        }
    }
    out.push_str("</svg>");
    legend(&mut out, series);
    out
}

/// Bars side by side: `groups` names the places, and x of a point is the number of its group.
pub(crate) fn bars(
    title: &str,
    labels: (&str, &str),
    groups: &[String],
    series: &[Series],
    format: &dyn Fn(f64) -> String,
) -> String {
    let most = series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(0.0, f64::max);
    let frame = Frame { most: (groups.len().max(1) as f64, round_up(most)) };
    let mut out = String::new();
    frame.open(&mut out, title, labels, format);
    let slot = frame.x(1.0) - frame.x(0.0);
    let width = slot * 0.76 / series.len().max(1) as f64;
    for (at, group) in groups.iter().enumerate() {
        frame.tick(&mut out, frame.x(at as f64 + 0.5), group);
    }
    for (at, series) in series.iter().enumerate() {
        for (group, value) in &series.points {
            let x = frame.x(*group) + slot * 0.12 + width * at as f64;
            let y = frame.y(*value);
            let _ = write!(
                out,
                "<rect class=\"c{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}: {}</title></rect>\
                 <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                at % 6,
                width * 0.92,
                HEIGHT - BOTTOM - y,
                series.name,
                format(*value),
                x + width * 0.46,
                y - 4.0,
                format(*value)
            );
        }
    }
    out.push_str("</svg>");
    legend(&mut out, series);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 0.9, 18.0, 26.0, 1_440_000.0].map(round_up), [1.0, 1.0, 20.0, 30.0, 1_500_000.0]);
        assert_eq!(round_up(f64::NAN), 1.0);
    }

    #[test]
    fn no_points_no_nan() {
        let empty = [Series { name: "a".into(), points: vec![] }];
        let drawn = lines("t", ("x", "y"), &empty, &whole) + &bars("t", ("x", "y"), &[], &empty, &whole);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
