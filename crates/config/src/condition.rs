//! The expressions of `.if`, `.elif` and the `-cc` command line option (manual section 2.4).

use crate::env::{FEATURES, SPEAKS_HAPROXY, SPEAKS_OPENSSL};

/// The largest depth of nested parentheses: HAProxy's own.
const DEPTH_MAX: usize = 1024;

/// Every predicate, for the hint about a misspelt one.
const PREDICATES: &[&str] = &[
    "defined",
    "feature",
    "streq",
    "strneq",
    "strstr",
    "version_atleast",
    "version_before",
    "openssl_version_atleast",
    "openssl_version_before",
    "ssllib_name_startswith",
    "enabled",
];

/// Why a condition has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCondition {
    /// The byte of the condition at which reading stopped.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
    /// What may stand there instead.
    pub hint: Option<String>,
}

/// Evaluates a condition whose quotes and variables are already resolved. `defined` tells whether an environment variable exists.
///
/// # Errors
/// If it cannot be read: where, and what may stand there.
pub fn evaluate(condition: &str, defined: &dyn Fn(&str) -> bool) -> Result<bool, BadCondition> {
    let mut reader = Reader { text: condition, at: 0, defined, depth: 0 };
    reader.spaces();
    if reader.rest().is_empty() {
        return Ok(false);
    }
    let value = reader.or()?;
    if !reader.rest().is_empty() {
        let c = reader.rest().chars().next().unwrap_or(' ');
        return Err(reader.bad(
            format!("unexpected character '{c}' at the end of the condition"),
            Some("conditions are combined with && and ||".into()),
        ));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    defined: &'a dyn Fn(&str) -> bool,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
            self.spaces();
        }
        found
    }

    fn bad(&self, message: String, hint: Option<String>) -> BadCondition {
        BadCondition { at: self.at, message, hint }
    }

    fn or(&mut self) -> Result<bool, BadCondition> {
        let mut value = self.and()?;
        while self.eat("||") {
            value |= self.and()?;
        }
        Ok(value)
    }

    fn and(&mut self) -> Result<bool, BadCondition> {
        let mut value = self.term()?;
        while self.eat("&&") {
            value &= self.term()?;
        }
        Ok(value)
    }

    fn term(&mut self) -> Result<bool, BadCondition> {
        let mut negated = false;
        while self.eat("!") {
            negated = !negated;
        }
        let start = self.at;
        let value = if self.eat("(") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(self.bad("too many nested parentheses".into(), None));
            }
            let value = self.or()?;
            self.depth -= 1;
            if !self.eat(")") {
                self.at = start;
                return Err(self.bad("this parenthesis is never closed".into(), Some("expected ')'".into())));
            }
            value
        } else if let Some(length) = number(self.rest()) {
            let digits = &self.rest()[..length];
            let value = digits.bytes().any(|c| matches!(c, b'1'..=b'9'));
            self.at += length;
            value
        } else {
            self.predicate()?
        };
        self.spaces();
        Ok(value != negated)
    }

    fn predicate(&mut self) -> Result<bool, BadCondition> {
        let length = self
            .rest()
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest().len());
        let name = &self.rest()[..length];
        // A predicate without arguments has empty ones, but something must tell where its name ends.
        let ended = self.rest()[length..].starts_with(['(', ' ', '\t']) || self.rest().len() == length;
        if !PREDICATES.contains(&name) || !ended {
            let hint = match crate::units::nearest(name, PREDICATES.iter().copied()) {
                Some(known) => format!("did you mean '{known}'?"),
                None => format!("expected a number, '!', '(' or one of {}", PREDICATES.join(", ")),
            };
            let what = if name.is_empty() { self.rest() } else { name };
            return Err(self.bad(format!("'{what}' is not a condition"), Some(hint)));
        }
        self.at += length;
        let arguments = self.arguments(name)?;
        let first = arguments.first().map(String::as_str).unwrap_or_default();
        let second = arguments.get(1).map(String::as_str).unwrap_or_default();
        Ok(match name {
            "defined" => (self.defined)(first),
            "feature" => FEATURES.contains(&first),
            "streq" => first == second,
            "strneq" => first != second,
            "strstr" => first.contains(second),
            "version_atleast" => version(SPEAKS_HAPROXY) >= version(first),
            "version_before" => version(SPEAKS_HAPROXY) < version(first),
            "openssl_version_atleast" => version(SPEAKS_OPENSSL) >= version(first),
            "openssl_version_before" => version(SPEAKS_OPENSSL) < version(first),
            "ssllib_name_startswith" => "AWS-LC".starts_with(first),
            // The polling options that `enabled()` asks about are all the operating system's best here.
            _ => matches!(first, "POLL" | "EPOLL" | "GETADDRINFO" | "REUSEPORT" | "FAST-FORWARD"),
        })
    }

    /// `(a,b)`, where quotes and backslashes protect commas and parentheses.
    fn arguments(&mut self, predicate: &str) -> Result<Vec<String>, BadCondition> {
        let wanted = if matches!(predicate, "streq" | "strneq" | "strstr") { 2 } else { 1 };
        let mut arguments = Vec::new();
        if !self.rest().starts_with('(') {
            return Ok(arguments);
        }
        let open = self.at;
        let (mut argument, mut quote) = (String::new(), None);
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' | '\'' if quote == Some(c) => quote = None,
                '"' | '\'' if quote.is_none() => quote = Some(c),
                '\\' if quote != Some('\'') => match chars.peek() {
                    Some(&(_, next @ ('\\' | '"' | '\'' | ' '))) => {
                        argument.push(next);
                        chars.next();
                    }
                    _ => argument.push(c),
                },
                ',' | ')' if quote.is_none() => {
                    arguments.push(std::mem::take(&mut argument));
                    if arguments.len() > wanted || (c == ',' && arguments.len() == wanted) {
                        self.at = open + i;
                        return Err(self.bad(
                            format!("'{predicate}' takes {wanted} argument{}", if wanted == 1 { "" } else { "s" }),
                            Some("expected ')' here; quote an argument that holds a comma".into()),
                        ));
                    }
                    if c == ')' && arguments.len() < wanted {
                        self.at = open + i;
                        return Err(self.bad(
                            format!("'{predicate}' takes {wanted} arguments"),
                            Some("expected ',' and another one here".into()),
                        ));
                    }
                    if c == ')' {
                        self.at = open + i + 1;
                        return Ok(arguments);
                    }
                }
                c => argument.push(c),
            }
        }
        Err(self.bad(format!("the arguments of '{predicate}' are never closed"), Some("expected ')'".into())))
    }
}

/// The length of the number that `text` begins with, a sign included.
fn number(text: &str) -> Option<usize> {
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - sign);
    (digits > 0).then_some(sign + digits)
}

/// A version as HAProxy orders them: up to four numbers, then `-devN` before the release itself.
fn version(text: &str) -> ([u32; 4], u32) {
    let (numbers, suffix) = text.split_once('-').unwrap_or((text, ""));
    let mut parts = [0; 4];
    for (part, number) in parts.iter_mut().zip(numbers.split('.')) {
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        *part = number[..digits].parse().unwrap_or(0);
    }
    let development = suffix
        .strip_prefix("dev")
        .map_or(u32::MAX, |n| n.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("").parse().unwrap_or(0));
    (parts, development)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(condition: &str) -> bool {
        evaluate(condition, &|name| name == "HOME").unwrap_or_else(|e| panic!("{condition}: {e:?}"))
    }

    #[test]
    fn conditions_have_the_values_of_the_manual() {
        for yes in [
            "1",
            "!0",
            "-1000 && 200",
            "+5",
            "defined(HOME)",
            "defined(HOME) && !defined(XX) || 0",
            "0 && 0 || 1",
            "1 || 1 && 0",
            "(1 || 1) && !(0)",
            "streq(a,a)",
            "streq(\"a,b\",'a,b')",
            "streq(a\\ b,\"a b\")",
            "strneq(a,b)",
            "feature(OPENSSL)",
            "feature(OPENSSL_AWSLC)",
            "feature(ZLIB) || feature(SLZ)",
            "version_atleast(2.4-dev19)",
            "version_atleast(2.6.12)",
            "version_atleast(3.0-dev1)",
            "version_atleast(3.0)",
            "version_before(3.1-dev1)",
            "openssl_version_atleast(1.1.1)",
        ] {
            assert!(truth(yes), "{yes}");
        }
        for no in [
            "",
            "version_before(2.7)",
            "0",
            "00",
            "-0",
            "defined",
            "defined(XX)",
            "(1 || 1) && 0",
            "version_atleast(3.1)",
            "feature(QUIC)",
            "!!0",
        ] {
            assert!(!truth(no), "{no}");
        }
    }

    #[test]
    fn a_bad_condition_says_where() {
        let at = |condition: &str| evaluate(condition, &|_| false).expect_err(condition).at;
        assert_eq!(at("foo"), 0);
        assert_eq!(at("1 2"), 2);
        assert_eq!(at("(1"), 0);
        assert_eq!(at("1 &"), 2);
        assert_eq!(at("streq(a,b c))"), 12);
        assert_eq!(at("feature(FOO,a)"), 11);
        assert_eq!(at("streq(a)"), 7);
        assert_eq!(at("1 && streqq(a,a)"), 5);
        assert!(evaluate(&"(".repeat(100_000), &|_| false).is_err());
    }
}
