//! Regular expressions: linear in time, whatever the pattern and the input.

mod ends;

use crate::{
    keyword::Problem,
    turn::{self, cost},
};
use ends::Ends;
use regex::bytes;
use regex_automata::{Input, hybrid::dfa::DFA, meta, util::syntax};
use regex_syntax::hir::{Class, Hir, HirKind};
use std::{
    array,
    ops::Range,
    sync::{Arc, OnceLock},
};

/// A compiled regular expression on bytes.
///
/// HAProxy uses PCRE where it is built with it. Here the engine never backtracks, so that no request can make a match
/// slow. The syntax is the same but for what needs backtracking (back-references, look-around, atomic groups, possessive
/// repetition), which is refused by name; leftmost-first preference, greedy and lazy repetition are as in PCRE. `\d`,
/// `\w`, `\s` and `.` mean bytes of ASCII, as in PCRE without its UTF mode; `$` matches only at the very end, where PCRE
/// also matches before a final line feed.
#[derive(Clone, Debug)]
pub struct Regex(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    regex: bytes::Regex,
    /// The states that its counted repetitions unfold to, where those are many: see [`Regex::charge`].
    unfolded: usize,
    ignore_case: bool,
    /// For long texts in which all matches are replaced: where they end, and what their groups are. Made when first needed.
    ends: OnceLock<Option<DFA>>,
    grouping: OnceLock<Option<meta::Regex>>,
}

/// In a text up to this long all matches are found by as many searches, each of which may go to its end.
const SHORT: usize = 256;

/// Where the groups of a match are, the whole of it first.
type Groups = [Option<Range<usize>>; 10];

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is not supported or malformed, by name.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Regex, Problem> {
        bytes::RegexBuilder::new(&translate(pattern))
            .case_insensitive(ignore_case)
            .unicode(false)
            .size_limit(4 << 20)
            .build()
            .map(|regex| {
                let unfolded = unfolded(regex.as_str());
                Regex(Arc::new(Compiled {
                    regex,
                    unfolded,
                    ignore_case,
                    ends: OnceLock::new(),
                    grouping: OnceLock::new(),
                }))
            })
            .map_err(|error| Problem {
                at: 0..pattern.len(),
                message: format!("the regular expression `{pattern}` {}", reason(pattern, &error)),
                hint: advice(pattern),
            })
    }
    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.charge(text.len());
        self.0.regex.is_match(text)
    }
    /// Spends what a search in a text of that length costs. An automaton of some hundred states that may all be live at once, as
    /// in `a[ab]{255}c`, is not made deterministic: each byte is then looked at by each state (measured: 20 to 90 ms for 13 KB
    /// and 256 states).
    fn charge(&self, len: usize) {
        let states = (len.saturating_mul(self.0.unfolded) / cost::REGEX_STATES).min(u32::MAX as usize / 2);
        turn::spend(cost::REGEX + (len / cost::REGEX_BYTES) as u32 + states as u32);
    }
    /// Appends `text` with the first match, or all of them, replaced. `\0` to `\9` in the replacement are groups; returns
    /// whether anything matched.
    pub fn replace(&self, text: &[u8], by: &[u8], all: bool, out: &mut Vec<u8>) -> bool {
        let (before, long) = (out.len(), all && text.len() > SHORT);
        match long.then(|| self.replace_long(text, by, out)).flatten() {
            Some(found) => found,
            None => {
                out.truncate(before);
                self.replace_short(text, by, all, out)
            }
        }
    }
    /// For each match all that follows it may be looked at.
    fn replace_short(&self, text: &[u8], by: &[u8], all: bool, out: &mut Vec<u8>) -> bool {
        let plain = !by.contains(&b'\\');
        let search = |at, groups: &mut Groups| {
            self.charge(text.len() - at);
            // Where a match is costs a tenth of what its groups cost.
            let Some(whole) = self.0.regex.find_at(text, at) else { return Some(false) };
            groups[0] = Some(whole.range());
            if let Some(found) = (!plain).then(|| self.0.regex.captures_at(text, whole.start())).flatten() {
                *groups = array::from_fn(|group| found.get(group).map(|part| part.range()));
            }
            Some(true)
        };
        substitute(text, by, all, out, search).unwrap_or(false)
    }
    /// All matches, in time that grows with the text; `None` where the automaton for that cannot be had.
    fn replace_long(&self, text: &[u8], by: &[u8], out: &mut Vec<u8>) -> Option<bool> {
        let inner = &*self.0;
        let dfa = inner.ends.get_or_init(|| ends::compile(inner.regex.as_str(), inner.ignore_case)).as_ref()?;
        let grouping = inner.grouping.get_or_init(|| grouping(inner.regex.as_str(), inner.ignore_case)).as_ref()?;
        let (mut ends, mut found) = (Ends::new(dfa, text), grouping.create_captures());
        let search = |at, groups: &mut Groups| {
            let before = ends.steps;
            let end = ends.next(at).ok()?;
            let span = end.map_or(0, |end| end - at);
            self.charge(ends.steps - before + span);
            let Some(end) = end else { return Some(false) };
            // Its context counts, though no more than the match is searched.
            grouping.search_captures(&Input::new(text).range(at..end), &mut found);
            *groups = array::from_fn(|group| found.get_group(group).map(|part| part.range()));
            groups[0].is_some().then_some(true)
        };
        substitute(text, by, true, out, search)
    }
    /// Appends the replacement for the first match in `text`, without what stands around it.
    pub fn rewrite(&self, text: &[u8], by: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(found) = self.0.regex.captures(text) else { return false };
        expand(by, text, &array::from_fn(|group| found.get(group).map(|part| part.range())), out);
        true
    }
}

/// A text that grew longer than this by substitutions grows no further: no message is as long, and every match of a short
/// text may be replaced by a long one.
const LONGEST: usize = 1 << 20;

/// Appends `text` with matches replaced, as `search` finds them: from a place on, whether there is one, and where its groups are.
/// `None` where it gives up.
fn substitute(
    text: &[u8],
    by: &[u8],
    all: bool,
    out: &mut Vec<u8>,
    mut search: impl FnMut(usize, &mut Groups) -> Option<bool>,
) -> Option<bool> {
    let (mut at, mut found) = (0, false);
    let mut groups = Groups::default();
    while at <= text.len() && search(at, &mut groups)? {
        found = true;
        let whole = groups[0].clone()?;
        out.extend_from_slice(&text[at..whole.start]);
        expand(by, text, &groups, out);
        at = whole.end;
        if !all {
            break;
        }
        if out.len() > LONGEST {
            // Whoever asked for it has no use for so much.
            return Some(found);
        }
        if whole.is_empty() {
            // It takes a byte along, or the search would stand still.
            out.extend_from_slice(text.get(at..=at).unwrap_or_default());
            at += 1;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Some(found)
}

/// The same expression in a form that can be searched in a part of a text, with the rest for its context.
fn grouping(pattern: &str, ignore_case: bool) -> Option<meta::Regex> {
    meta::Regex::builder()
        .configure(meta::Config::new().utf8_empty(false))
        .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case))
        .build(pattern)
        .ok()
}

/// `\1` stands for a group, `\\` for a backslash, `\xHH` for a byte; a backslash before anything else is dropped.
fn expand(by: &[u8], text: &[u8], groups: &Groups, out: &mut Vec<u8>) {
    let mut rest = by;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&next, tail)) = rest.split_first() else { return };
        rest = tail;
        match next {
            b'0'..=b'9' => {
                if let Some(group) = &groups[usize::from(next - b'0')] {
                    out.extend_from_slice(&text[group.clone()]);
                }
            }
            b'x' => {
                let digit = |at: usize| rest.get(at).and_then(|&d| char::from(d).to_digit(16));
                if let (Some(high), Some(low)) = (digit(0), digit(1)) {
                    out.push((high * 16 + low) as u8);
                    rest = &rest[2..];
                } else {
                    out.push(b'x');
                }
            }
            other => out.push(other),
        }
    }
}

/// PCRE takes a backslash before any character that is not alphanumeric as that character; the crate does so only for
/// some. And PCRE takes a `{` that begins no repetition as itself.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, next)) if !next.is_ascii_alphanumeric() && next.is_ascii() => {
                    if regex_syntax_meta(next) {
                        out.push('\\');
                    }
                    out.push(next);
                }
                Some((_, 'h')) => out.push_str("[ \\t]"),
                Some((_, 'Z')) => out.push_str("\\z"),
                Some((_, next)) => out.extend(['\\', next]),
                None => out.push('\\'),
            },
            '{' if !begins_repetition(&pattern[at + 1..]) => out.push_str("\\{"),
            c => match penstock_config::byte_of(c) {
                // Part of no character: the byte itself is meant.
                Some(byte) => out.extend(format!("\\x{byte:02x}").chars()),
                None => out.push(c),
            },
        }
    }
    out
}

fn regex_syntax_meta(c: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(c)
}

fn begins_repetition(rest: &str) -> bool {
    let Some(end) = rest.find('}') else { return false };
    let inner = &rest[..end];
    !inner.is_empty()
        && inner.starts_with(|c: char| c.is_ascii_digit())
        && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
}

/// Texts of which everything that `pattern` matches holds at least one, in lower case and whatever the case of a match; `None`
/// where there are none of use.
///
/// # Errors
/// As [`Regex::new`] has them, but for an expression that is too large.
pub(crate) fn required_texts(pattern: &str) -> Result<Option<Vec<Vec<u8>>>, Problem> {
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&translate(pattern));
    match parsed {
        Ok(hir) => Ok(required(&hir)),
        // What exactly is wrong is said by who compiles it.
        Err(_) => Regex::new(pattern, false).map(|_| None),
    }
}

/// The states that counted repetitions add to a pattern's own, if they are many enough to tell.
fn unfolded(pattern: &str) -> usize {
    const MANY: usize = 100;
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern);
    let Ok(hir) = parsed else { return 0 };
    let [once, all] = states(&hir);
    if all - once > MANY { all } else { 0 }
}

/// The states of a pattern with each repetition once, and with as many as are counted.
fn states(hir: &Hir) -> [usize; 2] {
    let sum = |parts: &[Hir]| parts.iter().map(states).fold([0, 0], |[a, b], [c, d]| [a + c, b.saturating_add(d)]);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => [0, 0],
        HirKind::Literal(text) => [text.0.len(); 2],
        HirKind::Class(_) => [1, 1],
        HirKind::Capture(group) => states(&group.sub),
        HirKind::Repetition(times) => {
            let [once, all] = states(&times.sub);
            [once, all.saturating_mul(times.max.unwrap_or(times.min).max(1) as usize)]
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

/// Alternatives that are followed: more of them say less.
const ALTERNATIVES: usize = 16;

fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => None,
        HirKind::Literal(_) | HirKind::Class(_) => fixed(hir).map(|text| vec![text]),
        HirKind::Capture(group) => required(&group.sub),
        HirKind::Repetition(times) if times.min > 0 => required(&times.sub),
        HirKind::Repetition(_) => None,
        HirKind::Concat(parts) => {
            let mut best: Option<Vec<Vec<u8>>> = None;
            let mut consider = |texts: Vec<Vec<u8>>| {
                let shortest = |texts: &[Vec<u8>]| texts.iter().map(Vec::len).min().unwrap_or(0);
                if best.as_ref().is_none_or(|best| shortest(best) < shortest(&texts)) {
                    best = Some(texts);
                }
            };
            let mut run = Vec::new();
            for part in parts {
                if let Some(text) = fixed(part) {
                    run.extend(text);
                } else if !matches!(part.kind(), HirKind::Look(_)) {
                    consider(vec![std::mem::take(&mut run)]);
                    required(part).into_iter().for_each(&mut consider);
                }
            }
            consider(vec![run]);
            best.filter(|texts| texts.iter().all(|text| !text.is_empty()))
        }
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(required(part)?);
            }
            (all.len() <= ALTERNATIVES).then_some(all)
        }
    }
}

/// The text that is all it matches but for case, in lower case.
fn fixed(hir: &Hir) -> Option<Vec<u8>> {
    match hir.kind() {
        HirKind::Literal(text) => Some(text.0.to_ascii_lowercase()),
        HirKind::Class(class) => {
            let bytes: Vec<u8> = match class {
                Class::Bytes(class) => class.ranges().iter().flat_map(|range| range.start()..=range.end()).collect(),
                Class::Unicode(class) => {
                    let ranges = class.ranges().iter().map(|range| (range.start(), range.end()));
                    ranges.flat_map(|(start, end)| start..=end).map(|c| u8::try_from(c).ok()).collect::<Option<_>>()?
                }
            };
            let first = bytes.first()?.to_ascii_lowercase();
            bytes.iter().all(|byte| byte.to_ascii_lowercase() == first).then(|| vec![first])
        }
        HirKind::Capture(group) => fixed(&group.sub),
        HirKind::Concat(parts) => parts.iter().map(fixed).collect::<Option<Vec<_>>>().map(|texts| texts.concat()),
        _ => None,
    }
}

fn reason(pattern: &str, error: &regex::Error) -> String {
    for (syntax, name) in REFUSED {
        if pattern.contains(syntax) {
            return format!("uses {name}, which needs backtracking and is not supported");
        }
    }
    if back_reference(pattern) {
        return "uses a back-reference, which needs backtracking and is not supported".into();
    }
    match error {
        regex::Error::CompiledTooBig(_) => "is too large once compiled".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("cannot be read: {}", last.trim_start_matches("error: "))
        }
    }
}

const REFUSED: &[(&str, &str)] = &[
    ("(?=", "look-ahead"),
    ("(?!", "negative look-ahead"),
    ("(?<=", "look-behind"),
    ("(?<!", "negative look-behind"),
    ("(?>", "an atomic group"),
    ("(?R", "recursion"),
    ("(?(", "a conditional group"),
    ("\\K", "\\K"),
    ("\\G", "\\G"),
];

fn back_reference(pattern: &str) -> bool {
    pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit() && pair[1] != b'0')
}

fn advice(pattern: &str) -> Option<String> {
    (pattern.contains("(?!") || pattern.contains("(?<!"))
        .then(|| "write the exclusion as an ACL of its own, and negate it with `!`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repetitions_are_paid_for_and_long_alternations_are_not() {
        assert_eq!(unfolded("[ab]*a[ab]{255}c$"), 258);
        assert_eq!(unfolded("(?:[ab]{20}){30}"), 600);
        assert_eq!(unfolded("^/(images|scripts|styles|fonts|downloads|documents)/[a-z]{2,40}/.*$"), 0);
        let regex = Regex::new("[ab]*a[ab]{255}c$", false).unwrap();
        turn::begin(2_500);
        regex.is_match(&[b'a'; 13_000]);
        assert!(turn::end(), "the turn is over");
    }

    #[test]
    fn what_a_match_must_hold_is_known() {
        let texts = |pattern: &str| {
            let texts = required_texts(pattern).unwrap().unwrap_or_default();
            texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect::<Vec<_>>()
        };
        for (pattern, known) in [
            ("^/Path/[0-9]+/x$", &["/path/"][..]),
            ("(?i)^/aBc$", &["/abc"]),
            ("a[bB]c[dx]longer", &["longer"]),
            (r"\.(png|gif)$", &["png", "gif"]),
            ("x*y+(ab)?", &["y"]),
            ("(ab|c*)", &[]),
            ("[0-9]+", &[]),
            ("^$", &[]),
        ] {
            assert_eq!(texts(pattern), known, "{pattern}");
        }
    }

    fn replaced(pattern: &str, text: &str, by: &str, all: bool) -> String {
        let mut out = Vec::new();
        Regex::new(pattern, false).unwrap().replace(text.as_bytes(), by.as_bytes(), all, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_needs_backtracking_is_refused_by_name() {
        for (pattern, name) in [
            ("^(?!/api)", "negative look-ahead"),
            ("(a)\\1", "back-reference"),
            ("(?<=x)y", "look-behind"),
            ("(?>a+)b", "atomic"),
        ] {
            let message = Regex::new(pattern, false).unwrap_err().message;
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn escapes_of_pcre_are_understood() {
        for (pattern, text) in
            [(r"^\/api\/v\d+\-x", "/api/v12-x"), (r"a\@b\:c\'", "a@b:c'"), ("^{a}$", "{a}"), ("^x{2,3}$", "xxx")]
        {
            assert!(Regex::new(pattern, false).unwrap().is_match(text.as_bytes()), "{pattern}");
        }
        assert!(Regex::new("^ABC", true).unwrap().is_match(b"abcd"));
    }

    #[test]
    fn replacements_take_groups() {
        assert_eq!(replaced("(.*):(.*)", "a:b", r"\2-\1", false), "b-a");
        assert_eq!(replaced("a", "banana", "o", true), "bonono");
        assert_eq!(replaced("a", "banana", "o", false), "bonana");
        assert_eq!(replaced("x*", "ab", "-", true), "-a-b-");
        assert_eq!(replaced("(a)$|(a)", "aba", r"<\1|\2>", true), "<|a>b<a|>");
        assert_eq!(replaced("(a.*?b)|(a)", "acaxb aa", r"<\1|\2>", true), "<acaxb|> <|a><|a>");
        assert_eq!(replaced("^(a)|(b)", "aab", r"[\1\2]", true), "[a]a[b]");
    }
}
