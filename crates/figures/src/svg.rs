//! Lines and bars, drawn for light and dark pages alike: the page's variables give the colours.

use crate::escaped;
use std::fmt::Write;

/// One line or one colour of bars.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points (x, y), x rising.
    pub points: Vec<(f64, f64)>,
    /// The lowest and highest y that was seen at each point; empty where that is not known.
    pub spread: Vec<(f64, f64)>,
}

/// How far apart values stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By the difference of the values, from zero.
    Linear,
    /// By the ratio of the values.
    Logarithmic,
}

/// One direction of a figure.
pub struct Axis<'a> {
    /// What the axis shows, with the unit.
    pub label: &'a str,
    /// The scale.
    pub scale: Scale,
    /// Formats a value of the axis.
    pub format: &'a dyn Fn(f64) -> String,
}

/// A level worth a line of its own.
pub struct Mark {
    /// The level, on the y axis.
    pub y: f64,
    /// The level's name.
    pub name: String,
}

/// What is drawn.
pub struct Figure<'a> {
    /// The title, for readers who cannot see the figure.
    pub title: &'a str,
    /// The axis to the right.
    pub x: Axis<'a>,
    /// The axis upwards.
    pub y: Axis<'a>,
    /// Lines, or colours of bars.
    pub series: &'a [Series],
    /// Levels.
    pub marks: &'a [Mark],
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// The width of a letter, generously: in the figure's own size, and in small.
const LETTER: f64 = 6.2;
const SMALL_LETTER: f64 = 4.4;
/// The number of colours before they repeat.
pub(crate) const COLOURS: usize = 8;

/// The size of every figure.
pub(crate) fn size() -> (f64, f64) {
    (WIDTH, HEIGHT)
}

/// A round number at or above `value`, whose fifth part is round as well.
pub fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0];
    steps.into_iter().map(|s| s * power).find(|s| *s >= value * 0.999_999).unwrap_or(10.0 * power)
}

/// The range of an axis's values.
struct Span {
    least: f64,
    most: f64,
    scale: Scale,
}

impl Span {
    fn new(values: impl Iterator<Item = f64>, scale: Scale, round: bool) -> Span {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let (least, most) = usable.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
        match scale {
            Scale::Linear => {
                let most = if round { round_up(most) } else { most.max(f64::MIN_POSITIVE) };
                Span { least: 0.0, most, scale }
            }
            Scale::Logarithmic if !least.is_finite() => Span { least: 1.0, most: 10.0, scale },
            // A little air on both sides, and never a span of nothing.
            Scale::Logarithmic => Span { least: least / 1.15, most: most * 1.25, scale },
        }
    }

    /// The place of a value on the axis, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value / self.most,
            Scale::Logarithmic => {
                (value.max(self.least) / self.least).log10() / (self.most / self.least).log10().max(f64::MIN_POSITIVE)
            }
        }
    }

    /// 1, 2 and 5 of each power of ten; only 1, where that would be many.
    fn decades(&self) -> Vec<f64> {
        let powers = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
        let steps: &[f64] = if (self.most / self.least).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|value| *value >= self.least && *value <= self.most).collect()
    }
}

struct Frame<'a> {
    figure: &'a Figure<'a>,
    x: Span,
    y: Span,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn open(&self, out: &mut String) {
        let figure = self.figure;
        let title = escaped(figure.title);
        // Writing to a String does not fail.
        let _ =
            write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\"><g class=\"grid\">");
        let ticks = match self.y.scale {
            Scale::Linear => (0..=5).map(|tick| self.y.most * f64::from(tick) / 5.0).collect(),
            Scale::Logarithmic => self.y.decades(),
        };
        for value in ticks {
            let y = self.y(value);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                (figure.y.format)(value)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text></g>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            escaped(figure.x.label),
            (TOP + HEIGHT - BOTTOM) / 2.0,
            escaped(figure.y.label)
        );
        for mark in figure.marks.iter().filter(|mark| mark.y <= self.y.most) {
            let y = self.y(mark.y);
            let _ = write!(
                out,
                "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                WIDTH - RIGHT - 4.0,
                y - 4.0,
                escaped(&mark.name)
            );
        }
    }

    fn tick(&self, out: &mut String, x: f64, text: &str) {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 18.0,
            escaped(text)
        );
    }

    /// The names of groups of bars, in as many lines as their places are narrow. Where two do not do, all are in small letters.
    fn names(&self, out: &mut String, groups: &[String], slot: f64) {
        let room = slot - LETTER;
        let has_room = |text: &String| {
            let lines = wrapped(text, (room / LETTER) as usize);
            lines.len() < 3 && lines.iter().all(|line| line.chars().count() as f64 * LETTER <= room)
        };
        let (class, letter, first, next) = match groups.iter().all(has_room) {
            true => ("tick", LETTER, 16.0, 12.0),
            false => ("tick small", SMALL_LETTER, 12.0, 9.5),
        };
        for (at, group) in groups.iter().enumerate() {
            let x = self.x(at as f64 + 0.5);
            for (line, text) in wrapped(group, (room / letter) as usize).iter().enumerate() {
                let (y, text) = (HEIGHT - BOTTOM + first + next * line as f64, escaped(text));
                let _ =
                    write!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
            }
        }
    }

    /// A thin line from the lowest to the highest that was seen.
    fn whisker(&self, out: &mut String, x: f64, spread: Option<&(f64, f64)>) {
        let Some((low, high)) = spread.filter(|(low, high)| high > low) else { return };
        let (low, high) = (self.y(*low), self.y(*high));
        let (left, right) = (x - 3.0, x + 3.0);
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{left:.1} {high:.1}H{right:.1}M{x:.1} {high:.1}V{low:.1}M{left:.1} {low:.1}H{right:.1}\"/>"
        );
    }

    fn close(&self, out: &mut String) {
        out.push_str("</svg><p class=\"legend\">");
        for (at, series) in self.figure.series.iter().enumerate() {
            let _ = write!(out, "<span><i class=\"c{}\"></i>{}</span>", at % COLOURS, escaped(&series.name));
        }
        out.push_str("</p>");
    }
}

fn heights<'a>(figure: &'a Figure) -> impl Iterator<Item = f64> + 'a {
    let spreads = figure.series.iter().flat_map(|s| s.spread.iter().flat_map(|(low, high)| [*low, *high]));
    figure.series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).chain(spreads)
}

/// Lines with a point at each value.
pub fn lines(figure: &Figure) -> String {
    let xs = || figure.series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let frame = Frame {
        figure,
        x: Span::new(xs(), figure.x.scale, false),
        y: Span::new(heights(figure), figure.y.scale, true),
    };
    let mut out = String::new();
    frame.open(&mut out);
    match figure.x.scale {
        Scale::Linear => {
            let most = frame.x.most;
            let step = if (4.0..=26.0).contains(&most) { 2.0 } else { round_up(most / 6.0) };
            // A span of nothing has no ticks.
            for at in 1..=(most / step + 1e-9).min(30.0) as u32 {
                let value = step * f64::from(at);
                frame.tick(&mut out, frame.x(value), &(figure.x.format)(value));
            }
        }
        // What was measured stands at its own value: counts of cores and clients are powers of two, mostly.
        Scale::Logarithmic => {
            let mut values: Vec<f64> = xs().filter(|v| *v > 0.0).collect();
            values.sort_by(f64::total_cmp);
            let mut last = f64::NEG_INFINITY;
            for value in values {
                let x = frame.x(value);
                if x - last >= 34.0 {
                    frame.tick(&mut out, x, &(figure.x.format)(value));
                    last = x;
                }
            }
        }
    }
    for (at, series) in figure.series.iter().enumerate() {
        let path: Vec<String> =
            series.points.iter().map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y))).collect();
        let class = at % COLOURS;
        let _ = write!(out, "<polyline class=\"l{class}\" points=\"{}\"/>", path.join(" "));
        for (place, (x, y)) in series.points.iter().enumerate() {
            frame.whisker(&mut out, frame.x(*x), series.spread.get(place));
            let _ = write!(
                out,
                "<circle class=\"c{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\"><title>{}: {} at {}</title></circle>",
                frame.x(*x),
                frame.y(*y),
                escaped(&series.name),
                (figure.y.format)(*y),
                (figure.x.format)(*x)
            );
        }
    }
    frame.close(&mut out);
    out
}

/// Breaks a text between words into lines of so many letters, or of one word.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Bars side by side: `groups` names the places, and x of a point is the number of its group.
pub fn bars(figure: &Figure, groups: &[String]) -> String {
    let frame = Frame {
        figure,
        x: Span { least: 0.0, most: groups.len().max(1) as f64, scale: Scale::Linear },
        y: Span::new(heights(figure), figure.y.scale, true),
    };
    let mut out = String::new();
    frame.open(&mut out);
    let slot = frame.x(1.0) - frame.x(0.0);
    let width = slot * 0.76 / figure.series.len().max(1) as f64;
    frame.names(&mut out, groups, slot);
    for (at, series) in figure.series.iter().enumerate() {
        for (place, (group, value)) in series.points.iter().enumerate() {
            let x = frame.x(*group) + slot * 0.12 + width * at as f64;
            let y = frame.y(*value);
            let text = (figure.y.format)(*value);
            let _ = write!(
                out,
                "<rect class=\"c{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}: {text}</title></rect>",
                at % COLOURS,
                width * 0.92,
                (HEIGHT - BOTTOM - y).max(0.0),
                escaped(&series.name),
            );
            let spread = series.spread.get(place);
            frame.whisker(&mut out, x + width * 0.46, spread);
            let above = spread.map_or(y, |(_, high)| frame.y(*high).min(y));
            // A narrow bar has no room for its figure upright, and a high one none above itself.
            let length = LETTER * text.len() as f64;
            let turned = width < length;
            let inside = turned && above - 4.0 - length < 0.0;
            let tx = x + width * 0.46 + if turned { 4.0 } else { 0.0 };
            let (class, ty, anchor) = match (turned, inside) {
                (_, true) => (" class=\"inside\"", y + 4.0, "end"),
                (true, false) => ("", above - 4.0, "start"),
                (false, false) => ("", above - 4.0, "middle"),
            };
            let turn = if turned { format!(" transform=\"rotate(-90 {tx:.1} {ty:.1})\"") } else { String::new() };
            let _ =
                write!(out, "<text{class} x=\"{tx:.1}\" y=\"{ty:.1}\" text-anchor=\"{anchor}\"{turn}>{text}</text>");
        }
    }
    frame.close(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_are_broken_between_words() {
        assert_eq!(wrapped("GET: new names, RSA-2048", 9), ["GET: new", "names,", "RSA-2048"]);
        assert_eq!(wrapped("1C1T", 2), ["1C1T"]);
        assert!(wrapped("", 9).is_empty());
    }

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    fn figure<'a>(series: &'a [Series], scale: Scale) -> Figure<'a> {
        let axis = || Axis { label: "l", scale, format: &plain };
        Figure { title: "t", x: axis(), y: axis(), series, marks: &[] }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 0.9, 18.0, 26.0, 1_440_000.0].map(round_up), [1.0, 1.0, 20.0, 30.0, 1_500_000.0]);
        assert_eq!(round_up(f64::NAN), 1.0);
    }

    #[test]
    fn no_points_no_nan() {
        let empty = [Series { name: "a".into(), ..Series::default() }];
        let point = [Series { points: vec![(0.0, 0.0)], ..empty[0].clone() }];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for series in [&empty, &point] {
                let figure = figure(series, scale);
                let drawn = lines(&figure) + &bars(&figure, &[]) + &bars(&figure, &["g".into()]);
                assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            }
        }
    }

    #[test]
    fn a_doubling_is_as_far_everywhere_on_a_logarithmic_axis() {
        let span = Span::new([1.0, 2.0, 4.0].into_iter(), Scale::Logarithmic, true);
        let (a, b, c) = (span.share(1.0), span.share(2.0), span.share(4.0));
        assert!(((b - a) - (c - b)).abs() < 1e-12 && a > 0.0 && c < 1.0);
        assert_eq!(span.decades(), [1.0, 2.0, 5.0]);
    }

    #[test]
    fn the_figure_of_a_high_and_narrow_bar_stands_inside() {
        let series: Vec<_> =
            (0..12).map(|_| Series { points: vec![(0.0, 499.0), (1.0, 200.0)], ..Series::default() }).collect();
        let drawn = bars(&figure(&series, Scale::Linear), &["a".into(), "b".into()]);
        assert_eq!(drawn.matches("<text class=\"inside\"").count(), 12, "{drawn}");
    }

    #[test]
    fn what_was_seen_and_what_is_marked_is_drawn() {
        let series = [Series { name: "<b>".into(), points: vec![(1.0, 5.0)], spread: vec![(4.0, 6.0)] }];
        let marks = [Mark { y: 3.0, name: "peak".into() }];
        let drawn = lines(&Figure { marks: &marks, ..figure(&series, Scale::Linear) });
        assert!(drawn.contains("whisker") && drawn.contains(">peak<") && drawn.contains("&lt;b&gt;"), "{drawn}");
    }
}
