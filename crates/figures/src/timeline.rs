//! A quantity over time, scaled to the size that the page gives it: lines keep their width, and labels are placed beside it.

use crate::escaped;
use std::fmt::Write;

/// Draws lines through values at equal intervals, on a scale from zero to `most`. A line is interrupted where a value is missing. The area
/// below the first line is filled.
pub fn timeline(title: &str, lines: &[&[Option<f64>]], most: f64) -> String {
    let steps = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let right = steps.saturating_sub(1).max(1);
    let mut out = format!(
        "<svg viewBox=\"0 0 {right} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\"><path class=\"grid\" d=\"M0 0H{right}M0 50H{right}\"/>",
        escaped(title)
    );
    let most = if most > 0.0 { most } else { 1.0 };
    let first = lines.first().copied().unwrap_or_default();
    // Writing to a String does not fail.
    let _ = write!(out, "<path class=\"area\" d=\"{}\"/>", path(first, most, true));
    for (at, line) in lines.iter().enumerate() {
        let _ = write!(out, "<path class=\"line l{at}\" d=\"{}\"/>", path(line, most, false));
    }
    out.push_str("<path class=\"cross\" d=\"\"/></svg>");
    out
}

fn path(values: &[Option<f64>], most: f64, is_area: bool) -> String {
    let mut out = String::new();
    for (at, run) in runs(values) {
        for (x, value) in (at..).zip(run) {
            let y = 100.0 - 100.0 * value / most;
            // A single value becomes a dot: a line of zero length with round ends.
            let _ = match x == at {
                true => write!(out, "M{x} {y:.1}h0"),
                false => write!(out, "L{x} {y:.1}"),
            };
        }
        if is_area {
            let _ = write!(out, "L{} 100L{at} 100Z", at + run_len(values, at) - 1);
        }
    }
    out
}

/// Runs of values without a gap, each with the index of its first value.
fn runs(values: &[Option<f64>]) -> impl Iterator<Item = (usize, impl Iterator<Item = f64> + '_)> + '_ {
    let begins = (0..values.len()).filter(|at| values[*at].is_some() && (*at == 0 || values[at - 1].is_none()));
    begins.map(|at| (at, values[at..].iter().map_while(|value| *value)))
}

fn run_len(values: &[Option<f64>], at: usize) -> usize {
    values[at..].iter().take_while(|value| value.is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_interrupts_the_line_and_a_value_alone_is_a_dot() {
        let values = [Some(0.0), Some(5.0), None, Some(10.0), None];
        let drawn = timeline("a<b", &[&values], 10.0);
        assert!(drawn.contains("<path class=\"line l0\" d=\"M0 100.0h0L1 50.0M3 0.0h0\"/>"), "{drawn}");
        assert!(
            drawn.contains("<path class=\"area\" d=\"M0 100.0h0L1 50.0L1 100L0 100ZM3 0.0h0L3 100L3 100Z\"/>"),
            "{drawn}"
        );
        assert!(drawn.contains("viewBox=\"0 0 4 100\"") && drawn.contains("aria-label=\"a&lt;b\""), "{drawn}");
    }

    #[test]
    fn nothing_known_is_an_empty_figure() {
        let drawn = timeline("t", &[&[None, None], &[]], 0.0) + &timeline("t", &[], 1.0);
        assert!(!drawn.contains("NaN") && drawn.contains("<path class=\"line l1\" d=\"\"/>"), "{drawn}");
    }
}
