//! A flame graph: boxes as wide as their share of the time, each upon its caller.

use crate::{escaped, number::percent};
use std::fmt::Write;

/// A function in a stack, and what it called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flame {
    /// The whole name, for the reader who points at the box.
    pub name: String,
    /// The part of the name that distinguishes it.
    pub label: String,
    /// The share of the whole, which is 1.
    pub share: f64,
    /// The colour's number in the legend.
    pub colour: usize,
    /// The functions that this one called.
    pub above: Vec<Flame>,
}

const WIDTH: f64 = 1160.0;
const ROW: f64 = 17.0;
/// The narrowest box: narrower ones only make towers that cannot be read.
const LEAST: f64 = 2.5;
/// The width of a letter at the size of the text, generously.
const LETTER: f64 = 6.7;

/// Draws a flame graph, with a legend for the colours.
pub fn flames(title: &str, roots: &[Flame], legend: &[&str]) -> String {
    let rows = roots.iter().map(depth).max().unwrap_or(0).max(1) as f64;
    let mut out = format!(
        "<div class=\"scroll\"><svg class=\"flames\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        rows * ROW,
        escaped(title)
    );
    stand_beside_each_other(&mut out, roots, 0.0, rows * ROW);
    out.push_str("</svg></div><p class=\"legend\">");
    for (at, name) in legend.iter().enumerate() {
        // Writing to a String does not fail.
        let _ = write!(out, "<span><i class=\"f{at}\"></i>{}</span>", escaped(name));
    }
    out.push_str("</p>");
    out
}

fn is_seen(flame: &Flame) -> bool {
    flame.share * WIDTH >= LEAST
}

fn depth(flame: &Flame) -> usize {
    if is_seen(flame) { 1 + flame.above.iter().map(depth).max().unwrap_or(0) } else { 0 }
}

fn stand_beside_each_other(out: &mut String, flames: &[Flame], mut x: f64, floor: f64) {
    let top = floor - ROW;
    for flame in flames.iter().filter(|flame| is_seen(flame)) {
        let width = flame.share * WIDTH;
        let _ = write!(
            out,
            "<g><title>{}: {}</title><rect class=\"f{}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>",
            escaped(&flame.name),
            percent(flame.share),
            flame.colour,
            (width - 0.6).max(0.4),
            ROW - 1.0,
        );
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            let whole = flame.label.chars().count() <= letters;
            let shown: String = if whole {
                flame.label.clone()
            } else {
                flame.label.chars().take(letters - 1).chain(['…']).collect()
            };
            let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 3.0, top + 12.0, escaped(&shown));
        }
        out.push_str("</g>");
        stand_beside_each_other(out, &flame.above, x, top);
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(name: &str, share: f64, above: Vec<Flame>) -> Flame {
        Flame { name: name.into(), label: name.into(), share, colour: 0, above }
    }

    #[test]
    fn callees_stand_on_their_callers_and_no_wider() {
        let roots = [flame("main", 1.0, vec![flame("<sign>", 0.75, vec![]), flame("send", 0.25, vec![])])];
        let drawn = flames("t", &roots, &["program"]);
        assert!(drawn.contains("viewBox=\"0 0 1160 34\""), "{drawn}");
        assert!(
            drawn.contains("&lt;sign&gt;: 75 %</title><rect class=\"f0\" x=\"0.0\" y=\"0.0\" width=\"869.4\""),
            "{drawn}"
        );
        assert!(drawn.contains("send: 25 %</title><rect class=\"f0\" x=\"870.0\""), "{drawn}");
    }

    #[test]
    fn what_is_too_narrow_is_left_out_and_what_is_narrow_is_cut() {
        let roots = [flame("a_long_function", 0.05, vec![flame("x", 0.0001, vec![])])];
        let drawn = flames("t", &roots, &[]);
        assert!(drawn.contains(">a_long…</text>") && drawn.matches("<rect").count() == 1, "{drawn}");
        assert!(!flames("t", &[], &[]).contains("NaN"));
    }
}
