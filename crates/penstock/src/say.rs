//! Messages about the life of the process, in HAProxy's form: `[NOTICE]   (PID) : TEXT`.

use std::{fmt::Display, io::Write};

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// An event.
    Notice,
    /// Something is wrong.
    Warning,
    /// Something has failed.
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

/// A message as one line, whatever it contains.
pub fn line(weight: Weight, text: impl Display) -> String {
    let text = text.to_string().replace(char::is_control, " ");
    format!("{:<11}({}) : {text}\n", weight.label(), std::process::id())
}

/// Writes it to standard error; if there is no reader, that does not matter.
pub fn show(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Reports an event.
pub fn notice(text: impl Display) {
    show(&line(Weight::Notice, text));
}

/// Reports that something is wrong.
pub fn warning(text: impl Display) {
    show(&line(Weight::Warning, text));
}

/// Reports a failure.
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
