//! A log line for each command that changes something: who, where, with which rights, the command, and its result.

use penstock_admin::command::Piece;
use penstock_control::{Request, Severity};

/// Follows a command that changes something.
pub struct Audit {
    changes: &'static str,
    command: String,
    level: &'static str,
    /// Whether the command failed, and the first error, else the first sentence.
    result: Option<(bool, String)>,
}

impl Audit {
    /// An audit of a command, if it changes something.
    pub fn of(request: &Request) -> Option<Audit> {
        let changes = request.changes?;
        Some(Audit { changes, command: request.told.clone(), level: request.level.word(), result: None })
    }

    /// Looks at a piece of the answer.
    pub fn piece(&mut self, piece: &Piece) {
        let Piece::Say(severity, sentence) = piece else { return };
        let is_error = *severity as u8 <= Severity::Error as u8;
        if self.result.as_ref().is_none_or(|(was_error, _)| is_error && !was_error) {
            self.result = Some((is_error, sentence.clone()));
        }
    }

    /// The log line. `left` says that the client left before the answer was complete.
    pub fn line(self, who: &str, socket: &str, left: bool) -> String {
        let result = match (&self.result, left) {
            (Some((true, sentence)), _) => format!("refused: {}", sentence.trim_end()),
            (_, true) => "the client left before it was answered".into(),
            (Some((false, sentence)), false) if !sentence.trim().is_empty() => sentence.trim().into(),
            _ => "done".into(),
        };
        let [who, socket, command, result] = [who, socket, &self.command, &result].map(quoted);
        let (level, changes) = (self.level, self.changes);
        format!(
            "command by={who} socket={socket} level={level} changes=\"{changes}\" command={command} result={result}"
        )
    }
}

/// Quotes text, escapes characters that are not printable, and limits the length.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 512;
    let mut out = String::from("\"");
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            out.push_str("...");
            break;
        }
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_control::{Command, Level, Process};

    fn audit(told: &str) -> Audit {
        let request = Request {
            command: Command::Process(Process::Version { json: false }),
            changes: Some("server state"),
            told: told.into(),
            level: Level::Admin,
            words: Vec::new(),
            payload: None,
        };
        Audit::of(&request).unwrap()
    }

    #[test]
    fn a_line_tells_who_did_what_and_what_came_of_it() {
        let line = audit("set server be/a state drain").line("pid 7 uid 0", "unix@/run/s", false);
        assert_eq!(
            line,
            "command by=\"pid 7 uid 0\" socket=\"unix@/run/s\" level=admin changes=\"server state\" \
             command=\"set server be/a state drain\" result=\"done\""
        );
        let mut refused = audit("x");
        refused.piece(&Piece::Say(Severity::Info, "Committing".into()));
        refused.piece(&Piece::Say(Severity::Error, "No such server.\n".into()));
        assert!(refused.line("", "", true).ends_with("result=\"refused: No such server.\""));
    }

    #[test]
    fn no_client_writes_lines_of_its_own() {
        let line = audit("a\nb\" c\u{1b}").line("", "", true);
        assert!(line.contains(r#"command="a\nb\" c\u{1b}""#), "{line}");
        assert!(audit(&"x".repeat(10_000)).line("", "", false).len() < 800);
    }
}
