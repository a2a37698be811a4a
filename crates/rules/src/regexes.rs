//! Regular expressions: linear in time, whatever the pattern and the input.

mod class;
mod ends;
mod pcre;
mod wide;

use crate::{
    problem::Problem,
    turn::{self, cost},
};
use ends::Ends;
use pcre::{End, translate};
use regex::bytes;
use regex_automata::{Input, hybrid::dfa::DFA, meta, util::syntax};
use regex_syntax::hir::{Class, Hir, HirKind};
use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};
use wide::Wide;

/// A compiled regular expression on bytes.
///
/// HAProxy uses PCRE2 if built with it. The engine here never backtracks, and what a byte of a text may cost is bounded. The
/// syntax is the same except for what needs backtracking (back-references, look-around, atomic groups, possessive
/// quantifiers), which is refused by name; leftmost-first preference, greedy and lazy repetition are as in PCRE2. `\d`,
/// `\w`, `\s` and `.` match bytes, as in PCRE2 without its UTF mode.
///
/// `$` and `\Z` match at the end and before a line feed that is last. The engine cannot look ahead, so a text that ends
/// with a line feed is searched twice: as it is and without it. Where the place of a match matters, it is searched by another
/// form of the expression, in which `$` consumes the line feed, of which matches and groups are then freed. All other
/// texts are searched by a form in which `$` is the end.
#[derive(Clone, Debug)]
pub struct Regex(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    form: Form,
    /// The number of states that the counted repetitions expand to, if there are many: see [`Regex::charge`].
    unfolded: usize,
    /// What then tells whether there is a match at all.
    wide: Option<Wide>,
    /// If the pattern has `$` or `\Z`, what texts that end with a line feed need.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    pattern: Box<str>,
    /// Whether the pattern also has `\z`, which does not match before a line feed.
    has_very_end: bool,
    /// The form for places, built when first needed.
    form: OnceLock<Option<Box<Form>>>,
}

/// An expression in the syntax of the library, and its groups.
#[derive(Debug)]
struct Form {
    regex: bytes::Regex,
    ignore_case: bool,
    groups: [usize; 10],
    passed: Vec<usize>,
    /// Finds where matches end, and what their groups are, to replace all matches in long texts. Built when first
    /// needed.
    ends: OnceLock<Option<DFA>>,
    grouping: OnceLock<Option<meta::Regex>>,
}

/// The most states of an expression for which only the library can tell whether it matches, state by state.
const UNFOLDED_MAX: usize = 1000;

/// The most bytes times states in which the place of a match is looked for: some 100 ms.
const STEPS_MAX: usize = 5_000_000;

/// In a text up to this length, each match is found by a search of its own, even if each goes to the end.
const SHORT: usize = 256;

/// The positions of the groups of a match; the first is the whole match.
type Groups = [Option<Range<usize>>; 10];

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// What is unsupported or malformed, by name.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Regex, Problem> {
        let read = translate(pattern, End::Only).map_err(|reason| unreadable(pattern, reason))?;
        let (end, has_very_end) = (read.end, read.very_end);
        let form = Form::new(read, ignore_case).map_err(|error| unreadable(pattern, reason(&error)))?;
        let (unfolded, wide) = unfolded(form.regex.as_str(), ignore_case);
        if unfolded > UNFOLDED_MAX && wide.is_none() {
            return Err(Problem {
                at: 0..pattern.len(),
                message: format!(
                    "the regular expression '{pattern}' expands to {unfolded} states by its counted repetitions"
                ),
                hint: Some(format!(
                    "each byte of a request would cost a step for each of them; at most {UNFOLDED_MAX} are possible with \
                     look-around assertions or where nearly all may follow each other: write '*' or '+' instead of a count"
                )),
            });
        }
        let ending = end.then(|| Ending { pattern: pattern.into(), has_very_end, form: OnceLock::new() });
        Ok(Regex(Arc::new(Compiled { form, unfolded, wide, ending })))
    }
    /// Whether the expression matches anywhere in `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        match (&self.0.ending, text) {
            (Some(ending), _) if ending.has_very_end && self.0.wide.is_none() => {
                self.charge(text.len());
                self.form(text).regex.is_match(text)
            }
            (Some(_), [before @ .., b'\n']) => self.matches(text) || self.matches(before),
            _ => self.matches(text),
        }
    }
    /// Whether it matches anywhere, if `$` is the very end.
    fn matches(&self, text: &[u8]) -> bool {
        match &self.0.wide {
            Some(wide) => {
                let units = (wide.cost(text.len()) / cost::REGEX_WORDS).min(u32::MAX as usize / 2);
                turn::spend(cost::REGEX + units as u32);
                wide.is_match(text)
            }
            None => {
                self.charge(text.len());
                self.0.form.regex.is_match(text)
            }
        }
    }
    /// The form that finds places in this text.
    fn form(&self, text: &[u8]) -> &Form {
        let inner = &*self.0;
        let Some(ending) = inner.ending.as_ref().filter(|_| text.ends_with(b"\n")) else { return &inner.form };
        let other = ending.form.get_or_init(|| {
            let read = translate(&ending.pattern, End::OrLineFeed).ok()?;
            Form::new(read, inner.form.ignore_case).ok().map(Box::new)
        });
        // The other one is larger by a few states, which it may have been short of.
        other.as_deref().unwrap_or(&inner.form)
    }
    /// Whether it pays, and is possible within bounds, to look for the place of a match. Where that would take too many steps there
    /// is none, as in HAProxy, whose library gives up after some millions.
    fn can_be_found(&self, text: &[u8]) -> bool {
        self.0.wide.is_none() || text.len().saturating_mul(self.0.unfolded) <= STEPS_MAX && self.is_match(text)
    }
    /// Charges the turn for a search in a text of this length. An automaton with some hundred states that may all be
    /// live at once, as in `a[ab]{255}c`, is not made deterministic, so each byte is processed for each state
    /// (measured: 20 to 90 ms for 13 KB and 256 states).
    fn charge(&self, len: usize) {
        let states = (len.saturating_mul(self.0.unfolded) / cost::REGEX_STATES).min(u32::MAX as usize / 2);
        turn::spend(cost::REGEX + (len / cost::REGEX_BYTES) as u32 + states as u32);
    }
    /// Appends `text` with the first match, or all of them, replaced. `\0` to `\9` in the replacement are groups.
    /// Returns whether anything matched.
    pub fn replace(&self, text: &[u8], by: &[u8], all: bool, out: &mut Vec<u8>) -> bool {
        if !self.can_be_found(text) {
            out.extend_from_slice(text);
            return false;
        }
        let (before, long) = (out.len(), all && text.len() > SHORT);
        match long.then(|| self.replace_long(text, by, out)).flatten() {
            Some(found) => found,
            None => {
                out.truncate(before);
                self.replace_short(text, by, all, out)
            }
        }
    }
    /// Each match may cost a search of everything that follows.
    fn replace_short(&self, text: &[u8], by: &[u8], all: bool, out: &mut Vec<u8>) -> bool {
        let (form, plain) = (self.form(text), !by.contains(&b'\\'));
        let search = |at, groups: &mut Groups| {
            self.charge(text.len() - at);
            // Finding a match costs a tenth of finding its groups.
            let Some(whole) = form.regex.find_at(text, at) else { return Some(false) };
            groups[0] = Some(whole.range());
            let is_whole = plain && (form.passed.is_empty() || whole.end() < text.len());
            if let Some(found) = (!is_whole).then(|| form.regex.captures_at(text, whole.start())).flatten() {
                *groups = form.groups(text, |group| found.get(group).map(|part| part.range()));
            }
            Some(true)
        };
        substitute(text, by, all, out, search).unwrap_or(false)
    }
    /// Finds all matches, in time proportional to the text; `None` if the automaton for that could not be built.
    fn replace_long(&self, text: &[u8], by: &[u8], out: &mut Vec<u8>) -> Option<bool> {
        let form = self.form(text);
        let dfa = form.ends.get_or_init(|| ends::compile(form.regex.as_str(), form.ignore_case)).as_ref()?;
        let grouping = form.grouping.get_or_init(|| grouping(form.regex.as_str(), form.ignore_case)).as_ref()?;
        let (mut ends, mut found) = (Ends::new(dfa, text), grouping.create_captures());
        let search = |at, groups: &mut Groups| {
            let before = ends.steps;
            let end = ends.next(at).ok()?;
            let span = end.map_or(0, |end| end - at);
            let steps = ends.steps - before + span;
            self.charge(steps);
            turn::spend_on_bytes(steps, cost::REGEX_LONG_BYTES);
            let Some(end) = end else { return Some(false) };
            // The surrounding text serves as context, though only the match is searched.
            grouping.search_captures(&Input::new(text).range(at..end), &mut found);
            *groups = form.groups(text, |group| found.get_group(group).map(|part| part.range()));
            groups[0].is_some().then_some(true)
        };
        substitute(text, by, true, out, search)
    }
    /// Appends the replacement for the first match in `text`, without the text around it.
    pub fn rewrite(&self, text: &[u8], by: &[u8], out: &mut Vec<u8>) -> bool {
        self.rewrite_with(text, || by, out)
    }
    /// The same, with a replacement that is only made if there is a match.
    pub fn rewrite_with<B: AsRef<[u8]>>(&self, text: &[u8], by: impl FnOnce() -> B, out: &mut Vec<u8>) -> bool {
        if !self.can_be_found(text) {
            return false;
        }
        self.charge(text.len());
        let form = self.form(text);
        let Some(found) = form.regex.captures(text) else { return false };
        let groups = form.groups(text, |group| found.get(group).map(|part| part.range()));
        expand(by().as_ref(), text, &groups, out);
        true
    }
}

impl Form {
    fn new(read: pcre::Translated, ignore_case: bool) -> Result<Form, regex::Error> {
        let mut builder = bytes::RegexBuilder::new(&read.text);
        let regex = builder.case_insensitive(ignore_case).unicode(false).size_limit(4 << 20).build()?;
        let (ends, grouping) = (OnceLock::new(), OnceLock::new());
        Ok(Form { regex, ignore_case, groups: read.groups, passed: read.passed, ends, grouping })
    }
    /// The groups of the pattern, by those of the form. If `$` has passed the last line feed, none of them has it.
    fn groups(&self, text: &[u8], get: impl Fn(usize) -> Option<Range<usize>>) -> Groups {
        let has_passed = self.passed.iter().any(|&group| get(group).is_some());
        let end = text.len() - usize::from(has_passed);
        self.groups.map(|group| get(group).map(|part| part.start.min(end)..part.end.min(end)))
    }
}

/// The length at which a text stops growing by substitutions: no message is as long, and every match in a short text
/// could be replaced by a long one.
const LONGEST: usize = 1 << 20;

/// Appends `text` with matches replaced. `search` finds the first match from a position on, if any, and its groups.
/// `None` if it gives up.
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
            // No use needs a longer text.
            return Some(found);
        }
        if whole.is_empty() {
            // An empty match moves on by one byte, or the search would not advance.
            out.extend_from_slice(text.get(at..=at).unwrap_or_default());
            at += 1;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Some(found)
}

/// Compiles an expression to a form that can search part of a text, with the rest as its context.
fn grouping(pattern: &str, ignore_case: bool) -> Option<meta::Regex> {
    meta::Regex::builder()
        .configure(meta::Config::new().utf8_empty(false))
        .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case))
        .build(pattern)
        .ok()
}

/// Expands a replacement: `\1` stands for a group, `\\` for a backslash, `\xHH` for a byte; a backslash before anything
/// else is dropped.
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

/// Texts of which every match of `pattern` contains at least one, in lower case regardless of the case of a match;
/// `None` if no useful ones are known.
///
/// # Errors
///
/// As for [`Regex::new`], except that an expression may be too large.
pub(crate) fn required_texts(pattern: &str) -> Result<Option<Vec<Vec<u8>>>, Problem> {
    let read = translate(pattern, End::Only).map_err(|reason| unreadable(pattern, reason))?;
    match regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&read.text) {
        Ok(hir) => Ok(required(&hir)),
        // The compiler reports the exact error.
        Err(_) => Regex::new(pattern, false).map(|_| None),
    }
}

/// The number of states of a pattern, if counted repetitions make it large, and what then tells whether it matches.
fn unfolded(pattern: &str, ignore_case: bool) -> (usize, Option<Wide>) {
    const MANY: usize = 100;
    let mut parser = regex_syntax::ParserBuilder::new();
    let parsed = parser.unicode(false).utf8(false).case_insensitive(ignore_case).build().parse(pattern);
    let Ok(hir) = parsed else { return (0, None) };
    let [once, all] = states(&hir);
    if all - once > MANY { (all, Wide::new(&hir)) } else { (0, None) }
}

/// The number of states of a pattern with each repetition counted once, and with each expanded.
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

/// Most alternatives that are followed; with more of them, the result would be less selective.
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

/// The only text that it matches, in lower case, ignoring case.
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

fn unreadable(pattern: &str, reason: String) -> Problem {
    Problem {
        at: 0..pattern.len(),
        message: format!("the regular expression '{pattern}' {reason}"),
        hint: advice(pattern, &reason),
    }
}

fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "is too large once compiled".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("cannot be read: {}", last.trim_start_matches("error: "))
        }
    }
}

fn advice(pattern: &str, reason: &str) -> Option<String> {
    if reason.contains("possessive") {
        return Some(
            "leave out its '+': the meaning is the same unless what follows matches what is repeated, and nothing backtracks here".into(),
        );
    }
    (pattern.contains("(?!") || pattern.contains("(?<!"))
        .then(|| "write the exclusion as an ACL of its own, and negate it with '!'".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repetitions_are_paid_for_and_long_alternations_are_not() {
        let states = |pattern| unfolded(pattern, false).0;
        assert_eq!(states("[ab]*a[ab]{255}c$"), 258);
        assert_eq!(states("(?:[ab]{20}){30}"), 600);
        assert_eq!(states("^/(images|scripts|styles|fonts|downloads|documents)/[a-z]{2,40}/.*$"), 0);
        let regex = Regex::new(r"\b[ab]*a[ab]{255}c$", false).unwrap();
        turn::begin(2_500);
        regex.is_match(&[b'a'; 13_000]);
        assert!(turn::end(), "the turn is over");
    }

    #[test]
    fn no_search_goes_through_more_states_than_is_bounded() {
        let regex = Regex::new("([^?&]{1,255}[?&]?){1,30}#", false).unwrap();
        let text = [&[b'a'; 14_000][..], b"#"].concat();
        assert!(regex.is_match(&text) && !regex.is_match(&text[..14_000]));
        let mut out = Vec::new();
        assert!(!regex.replace(&text, b"x", true, &mut out) && out == text, "its place is not looked for");
        assert!(regex.replace(b"ab#c", b"x", true, &mut Vec::new()), "in a short text it is");
        let refused = Regex::new(r"\b([ab]{1,200}){1,20}\b", false).unwrap_err();
        assert!(refused.message.contains("4000 states"), "{}", refused.message);
        assert!(Regex::new("([^?&]{1,255}B?){1,30}#", true).unwrap().is_match(b"ab#"), "without regard to case");
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
