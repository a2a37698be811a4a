//! Reads expressions as PCRE2 does, and writes them in the syntax of the `regex` crate.
//!
//! The two agree on most of what people write, and differ in what looks alike: `a++`, `[a&&b]`, `(?R)` and `\v` mean
//! something else to the crate. So nothing is passed on as it stands: each part is read by PCRE2's manual
//! (pcre2pattern(3), without its UTF mode, as HAProxy uses it), and what cannot be said in the crate's syntax is refused.

use super::class::{self, Bytes};
use penstock_config::byte_of;

/// An expression in the crate's syntax.
#[derive(Debug)]
pub(super) struct Translated {
    pub text: String,
    /// Whether it asks somewhere for the end of the text or the line feed there (`$`, `\Z`), and for the very end (`\z`).
    pub end: bool,
    pub very_end: bool,
    /// The groups here that the groups 0 to 9 of the pattern are; of those it does not have, `usize::MAX`.
    pub groups: [usize; 10],
    /// The groups that hold the line feed that `$` has passed.
    pub passed: Vec<usize>,
}

/// What `$` and `\Z` become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// The very end, for texts that do not end with a line feed.
    Only,
    /// The end and a line feed in front of it, which is consumed, since nothing here looks ahead; a group holds it.
    OrLineFeed,
}

/// Translates a pattern.
///
/// # Errors
///
/// What cannot be had, or is wrong, as the end of a sentence that begins with "the regular expression".
pub(super) fn translate(pattern: &str, end: End) -> Result<Translated, String> {
    let mut translation = Translation {
        rest: pattern,
        whole: pattern,
        flags: Flags::default(),
        open: Vec::new(),
        last: Last::Nothing,
        end,
        groups: 0,
        out: Translated {
            text: String::with_capacity(pattern.len() + 8),
            end: false,
            very_end: false,
            groups: [usize::MAX; 10],
            passed: Vec::new(),
        },
    };
    translation.out.groups[0] = 0;
    translation.all()?;
    Ok(translation.out)
}

/// The flags that decide how what follows is read.
#[derive(Clone, Copy, Default)]
struct Flags {
    /// `m`: `$` also matches before any line feed.
    lines: bool,
    /// `x`: blanks and comments are left out.
    spaced: bool,
}

/// What was read last, which decides whether a quantifier may follow.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Nothing,
    Item,
    Quantifier,
}

struct Translation<'p> {
    whole: &'p str,
    rest: &'p str,
    flags: Flags,
    /// The flags outside of each group that is open.
    open: Vec<Flags>,
    last: Last,
    end: End,
    /// The groups of the pattern so far.
    groups: usize,
    out: Translated,
}

pub(super) fn needs_backtracking(name: &str) -> String {
    format!("uses {name}, which needs backtracking and is not supported")
}

fn unsupported(name: &str) -> String {
    format!("uses {name}, which is not supported")
}

fn wrong(what: &str) -> String {
    format!("cannot be read: {what}")
}

/// Appends a byte, so that the crate takes it for itself.
fn put_byte(out: &mut String, byte: u8) {
    match byte {
        0x21..=0x7e => {
            if r"\.+*?()|[]{}^$#&-~".contains(char::from(byte)) {
                out.push('\\');
            }
            out.push(char::from(byte));
        }
        _ => out.push_str(&format!("\\x{byte:02x}")),
    }
}

/// The bytes that a character of a pattern stands for.
fn bytes_of(c: char, buffer: &mut [u8; 4]) -> &[u8] {
    match byte_of(c) {
        Some(byte) => {
            buffer[0] = byte;
            &buffer[..1]
        }
        None => c.encode_utf8(buffer).as_bytes(),
    }
}

impl Translation<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn skip(&mut self, text: &str) -> bool {
        self.rest.strip_prefix(text).map(|rest| self.rest = rest).is_some()
    }

    fn put(&mut self, text: &str) {
        self.out.text.push_str(text);
        self.last = Last::Item;
    }

    fn literal(&mut self, c: char) {
        for byte in bytes_of(c, &mut [0; 4]) {
            put_byte(&mut self.out.text, *byte);
        }
        self.last = Last::Item;
    }

    fn set(&mut self, bytes: &Bytes) {
        bytes.put(&mut self.out.text);
        self.last = Last::Item;
    }

    /// What matches nothing, and cannot be repeated.
    fn assertion(&mut self, text: &str) {
        self.put(text);
        self.last = Last::Nothing;
    }

    fn all(&mut self) -> Result<(), String> {
        while let Some(c) = self.take() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                ')' => {
                    self.flags = self.open.pop().ok_or_else(|| wrong("unopened group"))?;
                    self.put(")");
                }
                '|' => self.assertion("|"),
                '^' => self.assertion("^"),
                '$' if self.flags.lines => self.assertion("$"),
                '$' => self.end_of_text(),
                '.' => self.put("."),
                '*' | '+' | '?' => self.quantifier(c.encode_utf8(&mut [0; 4]))?,
                '{' => match counts(self.rest) {
                    Some((counts, rest)) => {
                        self.rest = rest;
                        self.quantifier(&counts)?;
                    }
                    None => self.literal('{'),
                },
                '#' if self.flags.spaced => {
                    self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
                }
                c if self.flags.spaced && (c.is_ascii_whitespace() || c == '\x0b') => {}
                c => self.literal(c),
            }
        }
        match self.open.is_empty() {
            true => Ok(()),
            false => Err(wrong("unclosed group")),
        }
    }

    fn quantifier(&mut self, text: &str) -> Result<(), String> {
        if self.last != Last::Item {
            return Err(wrong("a quantifier does not follow a repeatable item"));
        }
        self.out.text.push_str(text);
        if self.skip("+") {
            return Err(needs_backtracking("a possessive quantifier"));
        }
        if self.skip("?") {
            self.out.text.push('?');
        }
        self.last = Last::Quantifier;
        Ok(())
    }

    fn end_of_text(&mut self) {
        self.out.end = true;
        if self.end == End::Only {
            return self.assertion("\\z");
        }
        self.assertion("(?:(\\n)?\\z)");
        let passed = self.groups + self.out.passed.len() + 1;
        self.out.passed.push(passed);
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.take() else { return Err(wrong("a backslash at its end")) };
        match c {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => self.put(&format!("\\{c}")),
            'b' | 'B' | 'A' => self.assertion(&format!("\\{c}")),
            'z' => {
                self.out.very_end = true;
                self.assertion("\\z");
            }
            'Z' => self.end_of_text(),
            'G' if self.out.text.is_empty() => self.assertion("\\A"),
            'G' => return Err(unsupported("\\G elsewhere than at its start")),
            'K' => return Err(unsupported("\\K")),
            'X' | 'p' | 'P' => return Err(unsupported(&format!("\\{c}"))),
            'C' => self.put("[\\x00-\\xff]"),
            'N' if self.rest.starts_with('{') && counts(&self.rest[1..]).is_none() => {
                return Err(unsupported("\\N{...}"));
            }
            'N' => self.put("[^\\n]"),
            // PCRE2 does not try it otherwise where it has taken both bytes of a line end.
            'R' => self.put("(?:\\r\\n|[\\n\\x0b\\f\\r\\x85])"),
            'k' => return Err(needs_backtracking("a back-reference")),
            'g' if self.rest.starts_with(['<', '\'']) => return Err(needs_backtracking("recursion")),
            'g' => return Err(needs_backtracking("a back-reference")),
            '1'..='9' => {
                let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let number: String = [c].into_iter().chain(self.rest[..digits].chars()).collect();
                // With fewer groups than that, it is a byte in octal.
                let groups = self.whole.matches('(').count();
                if number.len() == 1 || c > '7' || number.parse::<usize>().is_ok_and(|number| number <= groups) {
                    return Err(needs_backtracking("a back-reference"));
                }
                let byte = class::octal(c, &mut self.rest)?;
                put_byte(&mut self.out.text, byte);
                self.last = Last::Item;
            }
            'E' => {}
            'Q' => {
                let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                text.chars().for_each(|c| self.literal(c));
            }
            c => match class::escaped(c, &mut self.rest)? {
                class::Escaped::Byte(byte) => {
                    put_byte(&mut self.out.text, byte);
                    self.last = Last::Item;
                }
                class::Escaped::Set(bytes) => self.set(&bytes),
                class::Escaped::Character(c) => self.literal(c),
            },
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let text = self.rest;
        if let Some(known) = text.strip_prefix([':', '.', '='])
            && known.split_once(']').is_some_and(|(name, _)| name.ends_with(&text[..1]) && name.len() > 1)
        {
            return Err(wrong("names of classes are supported only within a class"));
        }
        let negated = self.skip("^");
        let bytes = class::class(&mut self.rest)?;
        self.out.text.push_str(if negated { "[^" } else { "[" });
        bytes.put_ranges(&mut self.out.text);
        self.put("]");
        Ok(())
    }

    /// What follows an opening parenthesis.
    fn group(&mut self) -> Result<(), String> {
        if self.skip("*") {
            return Err(unsupported("a verb, (*...)"));
        }
        if !self.skip("?") {
            self.opens("(", true);
            return Ok(());
        }
        for (syntax, name) in REFUSED {
            if self.rest.starts_with(syntax) {
                return Err(needs_backtracking(name));
            }
        }
        let number = self.rest.trim_start_matches(['+', '-']);
        if number.len() + 1 >= self.rest.len() && number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(needs_backtracking("recursion"));
        }
        if self.skip("#") {
            let (_, rest) = self.rest.split_once(')').ok_or_else(|| wrong("a comment without its end"))?;
            self.rest = rest;
            return Ok(());
        }
        if self.skip("|") {
            return Err(unsupported("(?|, which numbers the groups of each alternative alike"));
        }
        if self.skip("C") {
            return Err(unsupported("a callout"));
        }
        if self.skip("P<") || self.skip("<") {
            return self.named('>');
        }
        if self.skip("'") {
            return self.named('\'');
        }
        self.flags()
    }

    fn opens(&mut self, text: &str, captures: bool) {
        self.open.push(self.flags);
        self.assertion(text);
        if captures {
            self.groups += 1;
            if let Some(group) = self.out.groups.get_mut(self.groups) {
                *group = self.groups + self.out.passed.len();
            }
        }
    }

    fn named(&mut self, end: char) -> Result<(), String> {
        let (name, rest) = self.rest.split_once(end).ok_or_else(|| wrong("a group's name without its end"))?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            return Err(wrong("a group's name has letters, digits and '_', and does not begin with a digit"));
        }
        self.rest = rest;
        self.opens(&format!("(?P<{name}>"), true);
        Ok(())
    }

    /// `(?i)`, `(?i-m:`, `(?^s:` and their like.
    fn flags(&mut self) -> Result<(), String> {
        let mut flags = self.flags;
        let (mut on, mut off, mut is_off) = (String::new(), String::new(), false);
        if self.skip("^") {
            flags = Flags::default();
            off.push_str("ims");
        }
        loop {
            match self.take() {
                Some('-') if !is_off => is_off = true,
                Some('x') if self.rest.starts_with('x') => return Err(unsupported("the flag xx")),
                Some('x') => flags.spaced = !is_off,
                Some(c @ ('i' | 'm' | 's' | 'U')) => {
                    if c == 'm' {
                        flags.lines = !is_off;
                    }
                    on.retain(|known| known != c);
                    off.retain(|known| known != c);
                    if is_off { off.push(c) } else { on.push(c) }
                }
                Some(c @ (':' | ')')) => {
                    let off = if off.is_empty() { off } else { format!("-{off}") };
                    if c == ':' {
                        self.opens(&format!("(?{on}{off}:"), false);
                    } else if !(on.is_empty() && off.is_empty()) {
                        self.assertion(&format!("(?{on}{off})"));
                    }
                    self.flags = flags;
                    if c == ')' {
                        self.last = Last::Nothing;
                    }
                    return Ok(());
                }
                Some(c) => return Err(unsupported(&format!("the flag {c:?} of '(?'"))),
                None => return Err(wrong("'(?' at its end")),
            }
        }
    }
}

/// What follows `(?` and needs backtracking.
const REFUSED: &[(&str, &str)] = &[
    ("=", "look-ahead"),
    ("!", "negative look-ahead"),
    ("<=", "look-behind"),
    ("<!", "negative look-behind"),
    (">", "an atomic group"),
    ("(", "a conditional group"),
    ("*", "look-ahead"),
    ("<*", "look-behind"),
    ("R", "recursion"),
    ("&", "recursion"),
    ("P>", "recursion"),
    ("P=", "a back-reference"),
];

/// A count of repetitions behind `{`, and what follows it; `None` if the brace stands for itself.
fn counts(rest: &str) -> Option<(String, &str)> {
    let (inner, rest) = rest.split_once('}')?;
    let number = |text: &str| {
        let text = text.trim_matches([' ', '\t']);
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.to_owned())
    };
    let counts = match inner.split_once(',') {
        Some((least, most)) => (number(least)?, Some(number(most)?)),
        None => (number(inner)?, None),
    };
    match counts {
        (least, Some(most)) if least.is_empty() && most.is_empty() => None,
        (least, Some(most)) if least.is_empty() => Some((format!("{{0,{most}}}"), rest)),
        (least, Some(most)) => Some((format!("{{{least},{most}}}"), rest)),
        (least, None) => (!least.is_empty()).then(|| (format!("{{{least}}}"), rest)),
    }
}

#[cfg(test)]
mod tests {
    use crate::regexes::Regex;

    fn matches(pattern: &str, text: &[u8]) -> bool {
        Regex::new(pattern, false).unwrap_or_else(|problem| panic!("{}", problem.message)).is_match(text)
    }

    fn refused(pattern: &str) -> String {
        Regex::new(pattern, false).map_or_else(|problem| problem.message, |_| format!("{pattern} is accepted"))
    }

    #[test]
    fn the_end_is_before_a_last_line_feed_too() {
        for (pattern, text, wanted) in [
            ("^OK$", "OK\n", true),
            ("^OK$", "OK\n\n", false),
            ("^OK$", "OK\nx", false),
            (r"^OK\Z", "OK\n", true),
            (r"^OK\z", "OK\n", false),
            (r"^OK\z|^NO$", "OK\n", false),
            (r"^OK\z|^NO$", "NO\n", true),
            (r"^OK\z|^NO$", "OK", true),
            (r"^\+PONG.*$", "+PONG\r\n", true),
            ("(?m)^OK$", "OK\nx", true),
            ("(?m:a)^OK$", "OK\nx", false),
            ("^(a{1,200}b?){1,20}$", "aab\n", true),
            ("^(a{1,200}b?){1,20}$", "aabc\n", false),
            ("^[^x]$", "\n", true),
            ("^$", "\n", true),
            (r"^OK[$]", "OK\n", false),
            (r"^OK\$", "OK\n", false),
        ] {
            assert_eq!(matches(pattern, text.as_bytes()), wanted, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn the_last_line_feed_is_no_part_of_the_match() {
        for (pattern, text, by, all, wanted) in [
            ("^(.*)$", "abc\n", r"<\1>", false, "<abc>\n"),
            ("^(a)(?:b$|(c)$)", "ac\n", r"<\1,\2>", false, "<a,c>\n"),
            ("^(a$)()", "a\n", r"<\1,\2>", false, "<a,>\n"),
            ("^a$", "a\n", "x", false, "x\n"),
            ("^([^x]*)$", "ab\n", r"<\1>", false, "<ab\n>"),
            ("^([^x]*?)$", "ab\n", r"<\1>", false, "<ab>\n"),
            ("^(a$|b)(c)?", "b\n", r"<\1\2>", false, "<b>\n"),
            ("b$", "abab\n", "x", true, "abax\n"),
        ] {
            // A long text is searched otherwise than a short one.
            for front in [String::new(), "- ".repeat(400)] {
                let (pattern, text) = (pattern.replacen('^', &format!("^{front}"), 1), [&front, text].concat());
                let mut out = Vec::new();
                assert!(Regex::new(&pattern, false).unwrap().replace(text.as_bytes(), by.as_bytes(), all, &mut out));
                let out = String::from_utf8(out).unwrap();
                assert_eq!(out.replacen(&front, "", 1), wanted, "{pattern}");
            }
        }
        let mut out = Vec::new();
        assert!(Regex::new("^/(a+)$", false).unwrap().rewrite(b"/aa\n", br"\1", &mut out) && out == b"aa");
    }

    #[test]
    fn what_looks_alike_means_what_it_means_in_pcre2() {
        for (pattern, is, is_not) in [
            ("^[a&&b]$", &["&", "a", "b"][..], &["c", ""][..]),
            ("^[a-c--.]$", &["-", ".", "a", "c"], &["/", "d"]),
            ("^[a~~b]$", &["~", "a", "b"], &["c"]),
            ("^[[]$", &["["], &["a", "]"]),
            ("^[a[]$", &["[", "a"], &["]"]),
            ("^[[a]b]$", &["[b]", "ab]"], &["a", "b"]),
            ("^[]a]$", &["]", "a"], &["b"]),
            ("^[^]a]$", &["b"], &["]", "a"]),
            ("^[[:alpha:][:digit:]_-]$", &["a", "Z", "0", "_", "-"], &[":", "["]),
            ("^[[:^alpha:]]$", &["0", "\u{0}"], &["a"]),
            (r"^[\d-]$", &["1", "-"], &["d"]),
            (r"^[\]\[\Q^]\E\x41-\103]$", &["]", "[", "^", "A", "B", "C"], &["D", "Q", "E"]),
            (r"^\v$", &["\n", "\x0b", "\x0c", "\r"], &["v", " ", "\t"]),
            (r"^\V\H\h\N$", &["aa ."], &["\naa.", "a\ta.", "aaaa", "aa \n"]),
            (r"^a\Rb$", &["a\nb", "a\r\nb", "a\rb"], &["ab", "a\n\nb"]),
            (r"^\Qa.*b\E+$", &["a.*b", "a.*bb"], &["axb"]),
            ("^a(?#comment)+b$", &["aab"], &["ab#"]),
            (r"^\cA\e\0\012\o{101}\x41\x4$", &["\u{1}\u{1b}\0\nAA\u{4}"], &[""]),
            (r"\Gb", &["ba"], &["ab"]),
            ("(?x) ^ a [ b ] $ # the end", &["a ", "ab"], &["a"]),
            ("^x{,2}y{z}{ 1, 2 }$", &["xxy{z}", "y{z}}"], &["xxxy{z}"]),
            (r"^a\<b$", &["a<b"], &["a", "ab"]),
            ("^(?<n>a)(?'m'b)(?:c)(?^i:D)$", &["abcd"], &["abce"]),
        ] {
            for text in is {
                assert!(matches(pattern, text.as_bytes()), "{pattern} on {text:?}");
            }
            for text in is_not {
                assert!(!matches(pattern, text.as_bytes()), "{pattern} on {text:?}");
            }
        }
        for (pattern, text) in
            [(r"^\x{e9}$", &b"\xe9"[..]), ("^é$", "é".as_bytes()), ("^[é]+$", "é".as_bytes()), (r"^\v\h$", b"\x85\xa0")]
        {
            assert!(matches(pattern, text), "{pattern}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        for (patterns, name) in [
            (&["a++", "a*+", "a?+", "a{1,3}+", "(a|b)++c"][..], "a possessive quantifier, which needs backtracking"),
            (&["(?R)", "(?1)", "(a)(?-1)", "(?+1)(a)", "(?&n)(?<n>a)", r"(a)\g<1>"], "recursion"),
            (&[r"(a)\1", r"(?<n>a)\k<n>", r"(a)\g1", "(?<n>a)(?P=n)"], "back-reference"),
            (&["(?(1)a|b)"], "a conditional group"),
            (&["a**", "a{2}{3}", "*a", "(+)", "a|?", r"\b+", "^*"], "quantifier does not follow"),
            (&[r"a\Kb"], r"\K"),
            (&[r"a\Gb"], r"\G elsewhere"),
            (&[r"\u0041", r"\U00000041", r"\y", r"\i"], "means nothing"),
            (&["[[:foo:]]"], "POSIX class"),
            (&["[[.a.]]", "[[=a=]]"], "collating elements"),
            (&["[:alpha:]"], "only within a class"),
            (&[r"[\d-z]", r"[a-\d]", "[z-a]"], "range"),
            (&[r"\x{100}", r"[\o{777}]", r"\777"], "above"),
            (&["a)", "(a", "[a", "a\\", "(?", "(?#a"], "cannot be read"),
            (&["(?u)a", "(?xx)a", "(?n)a"], "flag"),
            (&["(*UTF)a"], "verb"),
        ] {
            for pattern in patterns {
                let message = refused(pattern);
                assert!(message.contains(name), "{message}");
            }
        }
    }
}
