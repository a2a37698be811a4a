//! A figure outside of a page: with its own colours and its legend inside.

use crate::{Series, escaped, svg};
use std::fmt::Write;

/// The variables of the page's style, which a file of its own has to bring.
const STYLE: &str = "svg { --ink: #1c2330; --soft: #5c6676; --line: #dfe3ea; --warn: #8f5600; background: #fff; font: 11px system-ui, sans-serif; \
    --s0: #0b62c4; --s1: #d1632a; --s2: #1c8a5a; --s3: #8646b8; --s4: #b3211b; --s5: #5c6676; --s6: #a5811b; --s7: #137c8b; } \
    text { fill: var(--soft); } .grid line { stroke: var(--line); } polyline { fill: none; stroke-width: 2; } \
    text.small { font-size: 8.5px; } text.inside { fill: #fff; } .whisker { stroke: var(--ink); opacity: .55; fill: none; } .mark { stroke: var(--warn); stroke-dasharray: 5 4; }";

/// The file for a figure that `bars` or `lines` drew of these series.
pub fn standalone(drawn: &str, series: &[Series]) -> String {
    let inner = drawn.split_once('>').map_or("", |(_, rest)| rest).split("</svg>").next().unwrap_or_default();
    let (width, height) = svg::size();
    let mut style = STYLE.to_owned();
    for colour in 0..svg::COLOURS {
        // Writing to a String does not fail.
        let _ = write!(style, " .c{colour} {{ fill: var(--s{colour}); }} .l{colour} {{ stroke: var(--s{colour}); }}");
    }
    let mut legend = String::new();
    let mut x = 20.0;
    for (at, series) in series.iter().enumerate() {
        let _ = write!(
            legend,
            "<rect class=\"c{}\" x=\"{x:.0}\" y=\"{}\" width=\"11\" height=\"11\" rx=\"2\"/><text x=\"{:.0}\" y=\"{}\">{}</text>",
            at % svg::COLOURS,
            height + 6.0,
            x + 16.0,
            height + 15.5,
            escaped(&series.name)
        );
        // Six units a letter at this size, generously.
        x += 34.0 + 6.0 * series.name.chars().count() as f64;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" role=\"img\"><style>{style}</style>{inner}{legend}</svg>\n",
        height + 26.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Figure, Scale, bars};

    #[test]
    fn the_legend_and_the_colours_come_along() {
        let series = [Series { name: "a<b".into(), points: vec![(0.0, 1.0)], spread: vec![] }];
        let plain = |value: f64| value.to_string();
        let axis = || Axis { label: "l", scale: Scale::Linear, format: &plain };
        let drawn = bars(&Figure { title: "t", x: axis(), y: axis(), series: &series, marks: &[] }, &["g".into()]);
        let file = standalone(&drawn, &series);
        assert!(
            file.starts_with("<svg xmlns=") && file.ends_with("</svg>\n") && file.matches("<svg").count() == 1,
            "{file}"
        );
        assert!(file.contains(".c0 { fill: var(--s0); }") && file.contains("a&lt;b</text>"), "{file}");
    }
}
