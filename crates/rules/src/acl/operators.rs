//! `eq`, `ge`, `gt`, `le` and `lt` in front of a number.

use crate::problem::Problem;

/// Writes `gt 5` as the range `6:`. For versions, the last part is incremented.
pub(super) fn range_of(text: &str, operator: Option<&str>, dotted: bool) -> String {
    let step = |by: i64| -> String {
        match (dotted, text.rsplit_once('.')) {
            (true, Some((major, minor))) => match minor.parse::<i64>() {
                Ok(minor) => format!("{major}.{}", minor.saturating_add(by)),
                Err(_) => text.to_owned(),
            },
            _ => text.parse::<i64>().map_or(text.to_owned(), |n| n.saturating_add(by).to_string()),
        }
    };
    match operator {
        Some("ge") => format!("{text}:"),
        Some("gt") => format!("{}:", step(1)),
        Some("le") => format!(":{text}"),
        Some("lt") => format!(":{}", step(-1)),
        _ => text.to_owned(),
    }
}

/// What is wrong with `text` behind `operator`, of which the comparison says `problem`.
pub(super) fn misread(text: &str, operator: Option<&str>, problem: Problem) -> Problem {
    let whole = 0..text.len();
    match operator {
        Some(operator) if text.contains(':') => {
            Problem::new(whole, format!("'{operator}' takes a number, and '{text}' is a range"))
                .hint("write the range alone".to_owned())
        }
        Some(_) => Problem::new(whole, format!("'{text}' is neither a number nor a range")),
        None => Problem { at: whole, ..problem },
    }
}
