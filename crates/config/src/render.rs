//! Formats diagnostics for people: the position, the line with the word underlined, and what to do.

use crate::{
    diagnostic::{Diagnostic, Diagnostics, Severity},
    model::Source,
    span::Span,
};
use std::fmt::Write;

/// Most characters of a line that are shown; of a longer one, the part around the word.
const WIDTH: usize = 140;

const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[1;34m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const GREEN: &str = "\x1b[1;32m";
const PLAIN: &str = "\x1b[0m";

impl Diagnostics {
    /// All findings of at least this severity, one after another.
    pub fn render(&self, files: &[Source], least: Severity, colour: bool) -> String {
        let lines: Vec<Vec<&str>> = files.iter().map(|file| file.text.split('\n').collect()).collect();
        let shown = self.list.iter().filter(|d| d.severity >= least);
        let quoted = |span: Span| lines.get(span.file.0 as usize)?.get(span.line.checked_sub(1)? as usize).copied();
        shown.map(|d| d.render_quoting(files, quoted, colour)).collect::<Vec<_>>().join("\n")
    }
}

impl Diagnostic {
    /// Formats the finding in the style of rustc; `colour` adds ANSI colours.
    pub fn render(&self, files: &[Source], colour: bool) -> String {
        let quoted = |span: Span| {
            let text = &files.get(span.file.0 as usize)?.text;
            text.split('\n').nth(span.line.checked_sub(1)? as usize)
        };
        self.render_quoting(files, quoted, colour)
    }

    fn render_quoting<'s>(
        &self,
        files: &'s [Source],
        quoted: impl Fn(Span) -> Option<&'s str>,
        colour: bool,
    ) -> String {
        let paint = |code: &'static str| if colour { code } else { "" };
        let (label, code) = match self.severity {
            Severity::Error => ("error", RED),
            Severity::Warning => ("warning", YELLOW),
            Severity::Notice => ("notice", GREEN),
        };
        let (bold, blue, plain) = (paint(BOLD), paint(BLUE), paint(PLAIN));
        let message = printable(&self.message);
        let mut out = format!("{}{label}{plain}{bold}: {message}{plain}\n", paint(code));
        let mut margin = String::new();
        if let Some(span) = self.span
            && let Some(source) = files.get(span.file.0 as usize)
        {
            let quote = Quote::new(quoted(span).unwrap_or_default(), span);
            margin = " ".repeat(span.line.to_string().len());
            let name = printable(&source.name);
            let (line, column) = (span.line, quote.column);
            // Writing to a String does not fail.
            let _ = writeln!(out, "{margin}{blue}-->{plain} {name}:{line}:{column}");
            let _ = writeln!(out, "{margin} {blue}|{plain}");
            let _ = writeln!(out, "{blue}{line} |{plain} {}", quote.text);
            let (before, under) = (" ".repeat(quote.before), "^".repeat(quote.length));
            let _ = writeln!(out, "{margin} {blue}|{plain} {before}{}{under}{plain}", paint(code));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "{margin} {blue}={plain} {bold}hint:{plain} {}", printable(hint));
        }
        out
    }
}

/// The line of a span, as shown.
struct Quote {
    /// The column of the word, in characters from 1.
    column: usize,
    text: String,
    /// The number of characters of `text` before the word, and in the word.
    before: usize,
    length: usize,
}

impl Quote {
    fn new(line: &str, span: Span) -> Quote {
        let line = line.trim_end_matches('\r');
        // Spans are made from words, so they are on character boundaries; one past the end marks a missing word.
        let start = boundary(line, span.start as usize);
        let end = boundary(line, span.end as usize).max(start);
        let column = line[..start].chars().count() + 1;
        let (shown, mut before) = (printable(line), printable(&line[..start]).chars().count());
        let mut length = printable(&line[start..end]).chars().count().max(1);
        let characters: Vec<char> = shown.chars().collect();
        if characters.len() <= WIDTH {
            return Quote { column, text: shown, before, length };
        }
        length = length.min(WIDTH / 2);
        let from = before.saturating_sub(WIDTH / 3);
        let part: String = characters[from..characters.len().min(from + WIDTH)].iter().collect();
        let (head, tail) =
            (if from > 0 { "..." } else { "" }, if from + WIDTH < characters.len() { "..." } else { "" });
        before = before - from + head.len();
        Quote { column, text: format!("{head}{part}{tail}"), before, length }
    }
}

fn boundary(line: &str, at: usize) -> usize {
    let mut at = at.min(line.len());
    while !line.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Makes text safe for a terminal, which a configuration must not control: control characters are shown as symbols,
/// tabs as four spaces.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("    "),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::FileId;

    fn shown(text: &str, start: u32, end: u32) -> String {
        let files = [Source::new("a.cfg", text.as_bytes())];
        let span = Span { file: FileId(0), line: 1, start, end };
        let diagnostic =
            Diagnostic { severity: Severity::Error, span: Some(span), message: "no".into(), hint: Some("try".into()) };
        diagnostic.render(&files, false)
    }

    #[test]
    fn the_word_is_underlined_where_it_stands() {
        assert_eq!(
            shown("\tmode htp\n", 6, 9),
            "error: no\n --> a.cfg:1:7\n  |\n1 |     mode htp\n  |          ^^^\n  = hint: try\n"
        );
        assert_eq!(shown("é mode\n", 3, 7), "error: no\n --> a.cfg:1:3\n  |\n1 | é mode\n  |   ^^^^\n  = hint: try\n");
        assert_eq!(shown("mode\n", 4, 5), "error: no\n --> a.cfg:1:5\n  |\n1 | mode\n  |     ^\n  = hint: try\n");
    }

    #[test]
    fn a_long_line_is_cut_around_the_word_and_escapes_are_shown() {
        let long = format!("{}\x1b[31mWORD{}", "a ".repeat(400), " b".repeat(400));
        let text = shown(&long, 805, 809);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[4].find('^').expect("underlined");
        assert_eq!(&lines[3][at..at + 4], "WORD");
        assert!(lines[3].len() < 200 && !text.contains('\x1b'));
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        let finding = Diagnostic { severity: Severity::Notice, span: None, message: "m".into(), hint: None };
        assert_eq!(finding.render(&[], false), "notice: m\n");
        assert!(finding.render(&[], true).contains("\x1b[1;32mnotice"));
    }
}
