//! Lines about the life of the process, in HAProxy's form: `[NOTICE]   (PID) : TEXT`.

use std::{fmt::Display, io::Write};

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// For those who follow what happens.
    Notice,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Alert,
}

impl Weight {
    fn label(self) -> &'static str {
        match self {
            Weight::Notice => "[NOTICE]",
            Weight::Warning => "[WARNING]",
            Weight::Alert => "[ALERT]",
        }
    }
}

/// A line of this process. What it tells of is one line, whatever stands in it.
pub fn line(weight: Weight, text: impl Display) -> String {
    let text = text.to_string().replace(char::is_control, " ");
    format!("{:<11}({}) : {text}\n", weight.label(), std::process::id())
}

/// Puts it on standard error; a reader that has gone does not matter.
pub fn show(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Says what happens.
pub fn notice(text: impl Display) {
    show(&line(Weight::Notice, text));
}

/// Says what is not as it should be.
pub fn warning(text: impl Display) {
    show(&line(Weight::Warning, text));
}

/// Says what failed.
pub fn alert(text: impl Display) {
    show(&line(Weight::Alert, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_haproxys_columns() {
        let own = std::process::id();
        assert_eq!(line(Weight::Notice, "a\nb"), format!("[NOTICE]   ({own}) : a b\n"));
        assert_eq!(line(Weight::Notice, "a"), format!("[NOTICE]   ({own}) : a\n"));
        assert_eq!(line(Weight::Warning, "a"), format!("[WARNING]  ({own}) : a\n"));
        assert_eq!(line(Weight::Alert, "a"), format!("[ALERT]    ({own}) : a\n"));
    }
}
