//! What legitimately differs between two runs of one scenario is given a name before they are compared.

use std::sync::LazyLock;

use regex::Regex;

use crate::Failure;

static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rule = |pattern: &str, name: &'static str| (Regex::new(pattern).expect("a constant pattern"), name);
    vec![
        rule(
            r"<(\d+)>(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|1 \d{4}-\S+ \S+) (?:\S+ )?(?:haproxy|penstock)(?:\[\d+\]:| \d+)",
            "<$1>DATE proxy[PID]:",
        ),
        rule(r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\.\d{3}| [+-]\d{4})\]", "[TIME]"),
        rule(r"(127\.0\.0\.\d+|::1|::ffff:127\.0\.0\.\d+):\d{4,5}\b", "$1:PORT"),
        rule(r"(?i)^([<a-z#0-9]*[<>] date): .*", "$1: DATE"),
        rule(r"\b(curl|nghttp2)/\d+(\.\d+)+", "$1/VERSION"),
        // Versions of openssl differ in blanks.
        rule(r"\b(CN|C|O) = ", "$1="),
        rule(r"(TCP4 \S+ \S+) \d+ \d+($|\\r\\n)", "$1 PORT PORT$2"),
        rule(r"(family 11 \S+ \S+) \d+ \d+", "$1 PORT PORT"),
        rule(r"(, check duration:) \d+ms", "$1 MS"),
    ]
});

/// `0/0/0/1/1`, `+12`, `-1`: the first such word of a log line is its timers. Their sizes vary, which of them are -1
/// does not.
static TIMERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(^|[ ,=])(\+?-?\d+(?:/\+?-?\d+){2,4})( |$)").expect("a constant pattern"));

static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(-1|\d+)").expect("a constant pattern"));

/// A scenario's own `PATTERN => REPLACEMENT` lines.
pub struct Masks(Vec<(Regex, String)>);

impl Masks {
    /// Reads the lines of `[mask]` sections.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        text.lines()
            .filter(|l| !l.trim().is_empty())
            .map(|line| {
                let (pattern, to) = line.split_once(" => ").ok_or_else(|| format!("a mask without ` => `: {line}"))?;
                Ok((Regex::new(pattern).map_err(|e| e.to_string())?, to.to_owned()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Applies them to each line; one of which nothing is left goes.
    pub fn apply_all(&self, lines: impl Iterator<Item = String>) -> Vec<String> {
        lines.map(|l| self.apply(&l)).filter(|l| !l.is_empty()).collect()
    }

    fn apply(&self, line: &str) -> String {
        self.0.iter().fold(line.to_owned(), |line, (pattern, to)| pattern.replace_all(&line, to.as_str()).into_owned())
    }
}

/// Gives names to what varies in any line. `known` are the run's own strings and their names.
pub fn line(line: &str, known: &[(String, String)]) -> String {
    let mut line = line.to_owned();
    for (text, name) in known {
        line = line.replace(text, name);
    }
    for (pattern, name) in RULES.iter() {
        line = pattern.replace_all(&line, *name).into_owned();
    }
    line
}

/// The same for a log line, whose timers vary too.
pub fn log_line(text: &str, known: &[(String, String)]) -> String {
    let text = line(text, known);
    TIMERS
        .replace(&text, |found: &regex::Captures<'_>| {
            let timers = NUMBER
                .replace_all(&found[2], |n: &regex::Captures<'_>| if &n[1] == "-1" { "-1" } else { "#" }.to_owned());
            format!("{}{timers}{}", &found[1], &found[3])
        })
        .into_owned()
}

/// Whether `text` matches a pattern in which `*` stands for anything.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_keeps_what_must_be_equal() {
        let known = [("127.0.0.1:40001".to_owned(), "{{bind http}}".to_owned())];
        let raw = "<134>Nov 21 09:08:07 haproxy[12]: 127.0.0.1:50000 [21/Nov/2026:09:08:07.123] f b/s 0/0/1/-1/12 200 80 - - \
                   ---- 1/1/0/0/0 0/0 \"GET http://127.0.0.1:40001/ HTTP/1.1\"";
        assert_eq!(
            log_line(raw, &known),
            "<134>DATE proxy[PID]: 127.0.0.1:PORT [TIME] f b/s #/#/#/-1/# 200 80 - - ---- 1/1/0/0/0 0/0 \
             \"GET http://{{bind http}}/ HTTP/1.1\""
        );
    }

    #[test]
    fn stars_match_anything_in_order() {
        assert!(matches("a*c*", "abcd"));
        assert!(matches("abc", "abc"));
        assert!(!matches("a*c", "acb"));
        assert!(!matches("abc", "abcd"));
        assert!(!matches("*ab*ab", "ab"));
    }
}
