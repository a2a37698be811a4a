//! Whether an expression of very many states matches, all states at a time.
//!
//! Nested counted repetitions, as in `(a{1,100}){1,60}b`, expand to thousands of states that may all be live at once. The
//! library then goes through them one by one for each byte; here they are bits of words. The automaton is Glushkov's: a
//! state is a place in the expression where a byte is read, and a step leads from each live state to those that may follow
//! it. Most follow in the order of their numbers, which is one shift; the rest are jumps from any of some states to all of
//! others.

use regex_syntax::hir::{Class, Hir, HirKind, Look};
use std::ops::Range;

/// The most states of an expression.
const STATES: usize = 1 << 15;

/// The most words that a byte may cost, which bounds a search of 16 KiB to some 50 ms.
const WORDS: usize = 4096;

/// The most states that the jumps of an automaton name while it is made.
const NAMED: usize = 1 << 20;

/// The automaton of an expression.
#[derive(Debug)]
pub(super) struct Wide {
    /// Whether a match may begin and end only where the text does.
    at_start: bool,
    at_end: bool,
    /// Whether nothing at all matches.
    empty: bool,
    /// The group of bytes that each byte is in; all states treat those of a group alike.
    groups: [u8; 256],
    /// For each group, the states that read one of its bytes.
    reading: Vec<Vec<u64>>,
    first: Vec<u64>,
    last: Vec<u64>,
    /// The states that the one with the next number may follow.
    stepping: Vec<u64>,
    jumps: Vec<Jump>,
    /// How many words a byte costs.
    cost: usize,
}

/// From each of some states to each of others.
#[derive(Debug)]
struct Jump {
    from: Part,
    to: Part,
}

/// The part of a set of states in which there are any.
#[derive(Debug)]
struct Part {
    at: usize,
    words: Vec<u64>,
}

impl Part {
    fn of(states: &[u32]) -> Part {
        let word = |state: &u32| *state as usize / 64;
        let (at, end) = (states.iter().map(word).min().unwrap_or(0), states.iter().map(word).max().unwrap_or(0));
        let mut words = vec![0; end + 1 - at];
        states.iter().for_each(|state| words[word(state) - at] |= 1 << (state % 64));
        Part { at, words }
    }

    fn range(&self) -> Range<usize> {
        self.at..self.at + self.words.len()
    }
}

/// What is known of a part of an expression: whether it matches nothing at all, and which of its states may come first
/// and last.
struct Piece {
    nullable: bool,
    first: Vec<u32>,
    last: Vec<u32>,
}

/// An automaton that is being made.
#[derive(Default)]
struct Making {
    /// The bytes that each state reads.
    reads: Vec<[u64; 4]>,
    steps: Vec<u32>,
    jumps: Vec<(Vec<u32>, Vec<u32>)>,
    /// How many states those name.
    named: usize,
}

impl Wide {
    /// The automaton of an expression; `None` if it looks at what is around it elsewhere than at its very start and end, or
    /// is too large.
    pub(super) fn new(hir: &Hir) -> Option<Wide> {
        let mut parts = match hir.kind() {
            HirKind::Concat(parts) => &parts[..],
            _ => std::slice::from_ref(hir),
        };
        let at_start = matches!(parts.first().map(Hir::kind), Some(HirKind::Look(Look::Start)));
        parts = &parts[usize::from(at_start)..];
        let at_end = matches!(parts.last().map(Hir::kind), Some(HirKind::Look(Look::End)));
        parts = &parts[..parts.len() - usize::from(at_end)];
        let mut making = Making::default();
        let whole = making.all(parts.iter())?;
        let states = making.reads.len();
        let set = |states_of: &[u32]| {
            let mut words = vec![0_u64; states.div_ceil(64)];
            states_of.iter().for_each(|state| words[*state as usize / 64] |= 1 << (state % 64));
            words
        };
        let jumps: Vec<Jump> =
            making.jumps.iter().map(|(from, to)| Jump { from: Part::of(from), to: Part::of(to) }).collect();
        let cost = 3 * states.div_ceil(64)
            + jumps.iter().map(|jump| 2 + jump.from.words.len() + jump.to.words.len()).sum::<usize>();
        if cost > WORDS {
            return None;
        }
        let (groups, reading) = grouped(&making.reads);
        Some(Wide {
            at_start,
            at_end,
            empty: whole.nullable,
            groups,
            reading,
            first: set(&whole.first),
            last: set(&whole.last),
            stepping: set(&making.steps),
            jumps,
            cost,
        })
    }

    /// How many words a search in a text of this length goes through.
    pub(super) fn cost(&self, len: usize) -> usize {
        self.cost.saturating_mul(len)
    }

    /// Whether the expression matches anywhere in `text`.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        if self.empty && (!self.at_start || !self.at_end || text.is_empty()) {
            return true;
        }
        let mut live = vec![0_u64; self.first.len()];
        let mut next = live.clone();
        for (at, &byte) in text.iter().enumerate() {
            let mut carried = 0;
            for ((next, live), stepping) in next.iter_mut().zip(&live).zip(&self.stepping) {
                let from = live & stepping;
                *next = from << 1 | carried;
                carried = from >> 63;
            }
            for jump in &self.jumps {
                let mut pairs = live[jump.from.range()].iter().zip(&jump.from.words);
                if pairs.any(|(live, from)| live & from != 0) {
                    next[jump.to.range()].iter_mut().zip(&jump.to.words).for_each(|(next, to)| *next |= to);
                }
            }
            if at == 0 || !self.at_start {
                next.iter_mut().zip(&self.first).for_each(|(next, first)| *next |= first);
            }
            let reading = &self.reading[usize::from(self.groups[usize::from(byte)])];
            next.iter_mut().zip(reading).for_each(|(next, reading)| *next &= reading);
            std::mem::swap(&mut live, &mut next);
            let may_end = !self.at_end || at + 1 == text.len();
            if may_end && live.iter().zip(&self.last).any(|(live, last)| live & last != 0) {
                return true;
            }
        }
        false
    }
}

/// The groups of bytes that all states treat alike, and which states read each.
fn grouped(reads: &[[u64; 4]]) -> ([u8; 256], Vec<Vec<u64>>) {
    let (mut groups, mut reading) = ([0; 256], Vec::<Vec<u64>>::new());
    for byte in 0..256 {
        let mut set = vec![0_u64; reads.len().div_ceil(64)];
        for (state, reads) in reads.iter().enumerate() {
            set[state / 64] |= (reads[byte / 64] >> (byte % 64) & 1) << (state % 64);
        }
        let known = reading.iter().position(|known| *known == set).unwrap_or_else(|| {
            reading.push(set);
            reading.len() - 1
        });
        groups[byte] = known as u8;
    }
    (groups, reading)
}

impl Making {
    fn piece(&mut self, hir: &Hir) -> Option<Piece> {
        match hir.kind() {
            HirKind::Empty => Some(Piece::empty()),
            HirKind::Look(_) => None,
            HirKind::Literal(text) => {
                let mut whole = Piece::empty();
                for &byte in &*text.0 {
                    let read = self.reads_one(std::iter::once(byte..=byte))?;
                    whole = self.joined(whole, read)?;
                }
                Some(whole)
            }
            HirKind::Class(Class::Bytes(class)) => {
                self.reads_one(class.ranges().iter().map(|range| range.start()..=range.end()))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges =
                    class.ranges().iter().map(|range| (u8::try_from(range.start()), u8::try_from(range.end())));
                let ranges: Option<Vec<_>> =
                    ranges.map(|(start, end)| Some(start.ok()?..=end.ok().filter(u8::is_ascii)?)).collect();
                self.reads_one(ranges?.into_iter())
            }
            HirKind::Capture(group) => self.piece(&group.sub),
            HirKind::Concat(parts) => self.all(parts.iter()),
            HirKind::Alternation(parts) => {
                let mut whole = Piece { nullable: false, ..Piece::empty() };
                for part in parts {
                    let piece = self.piece(part)?;
                    whole.nullable |= piece.nullable;
                    whole.first.extend(piece.first);
                    whole.last.extend(piece.last);
                }
                Some(whole)
            }
            HirKind::Repetition(times) => {
                // What may be left out is made from its end, so that each copy is followed by those that may follow it.
                let mut whole = Piece::empty();
                let once = |making: &mut Making| making.piece(&times.sub);
                match times.max {
                    None => {
                        for _ in 1..times.min {
                            let piece = once(self)?;
                            whole = self.joined(whole, piece)?;
                        }
                        let mut piece = once(self)?;
                        self.follows(&piece.last, &piece.first)?;
                        piece.nullable |= times.min == 0;
                        whole = self.joined(whole, piece)?;
                    }
                    Some(max) => {
                        let mut copies = Vec::new();
                        for _ in 0..max {
                            copies.push(once(self)?);
                        }
                        for (at, piece) in copies.into_iter().enumerate().rev() {
                            whole = self.joined(piece, whole)?;
                            whole.nullable |= at as u32 >= times.min;
                        }
                    }
                }
                Some(whole)
            }
        }
    }

    fn all<'h>(&mut self, parts: impl Iterator<Item = &'h Hir>) -> Option<Piece> {
        let mut whole = Piece::empty();
        for part in parts {
            let piece = self.piece(part)?;
            whole = self.joined(whole, piece)?;
        }
        Some(whole)
    }

    fn reads_one(&mut self, ranges: impl Iterator<Item = std::ops::RangeInclusive<u8>>) -> Option<Piece> {
        if self.reads.len() == STATES {
            return None;
        }
        let mut bytes = [0; 4];
        ranges.flatten().for_each(|byte| bytes[usize::from(byte) / 64] |= 1 << (byte % 64));
        self.reads.push(bytes);
        let state = vec![self.reads.len() as u32 - 1];
        Some(Piece { nullable: false, first: state.clone(), last: state })
    }

    /// One after the other.
    fn joined(&mut self, mut one: Piece, mut other: Piece) -> Option<Piece> {
        self.follows(&one.last, &other.first)?;
        if one.nullable {
            one.first.append(&mut other.first);
        }
        if other.nullable {
            other.last.append(&mut one.last);
        }
        Some(Piece { nullable: one.nullable && other.nullable, first: one.first, last: other.last })
    }

    fn follows(&mut self, last: &[u32], first: &[u32]) -> Option<()> {
        match (last, first) {
            ([], _) | (_, []) => {}
            ([from], [to]) if from + 1 == *to => self.steps.push(*from),
            _ => {
                self.named += last.len() + first.len();
                if self.named > NAMED {
                    return None;
                }
                self.jumps.push((last.to_vec(), first.to_vec()));
            }
        }
        Some(())
    }
}

impl Piece {
    /// What matches nothing and no more.
    fn empty() -> Piece {
        Piece { nullable: true, first: Vec::new(), last: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wide(pattern: &str) -> Option<Wide> {
        let hir = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).unwrap();
        Wide::new(&hir)
    }

    /// Expressions on a few letters, with everything that may be in one.
    fn expression() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["a", "b", "ab", "[ab]", "[^a]", ".", "c", "(?i:B)", ""]);
        let leaf = leaf.prop_map(|text| format!("(?:{text})"));
        leaf.prop_recursive(4, 24, 3, |inner| {
            let count = prop::sample::select(vec!["?", "*", "+", "{2}", "{0,3}", "{1,4}", "{2,}", "{3,5}?", "{0}"]);
            prop_oneof![
                (inner.clone(), count).prop_map(|(inner, count)| format!("(?:{inner}){count}")),
                prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner, 2..3).prop_map(|parts| format!("({})", parts.join("|"))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn it_finds_what_the_library_finds(
            pattern in expression(), start: bool, end: bool, texts in prop::collection::vec("[abcB]{0,12}", 1..12)
        ) {
            let pattern = format!("{}(?:{pattern}){}", if start { "^" } else { "" }, if end { "$" } else { "" });
            let regex = regex::bytes::RegexBuilder::new(&pattern).unicode(false).build().unwrap();
            let Some(wide) = wide(&pattern) else { return Ok(()) };
            for text in texts {
                prop_assert_eq!(wide.is_match(text.as_bytes()), regex.is_match(text.as_bytes()), "{} on {}", pattern, text);
            }
        }
    }

    #[test]
    fn large_ones_find_what_the_library_finds() {
        for pattern in
            ["(a{1,100}){1,60}b", "([^?&]{1,255}[?&]?){1,30}#", r"^(\w{1,64}\W?){1,20}!$", "[ab]*a[ab]{255}c$"]
        {
            let regex = regex::bytes::RegexBuilder::new(pattern).unicode(false).build().unwrap();
            let wide = wide(pattern).unwrap();
            for len in [0, 1, 63, 64, 65, 300, 700] {
                for (before, behind) in [("", ""), ("", "b"), ("", "#"), ("b", "!"), ("c", "c")] {
                    let text = [before, &"a".repeat(len), behind].concat();
                    assert_eq!(
                        wide.is_match(text.as_bytes()),
                        regex.is_match(text.as_bytes()),
                        "{pattern} {len} {behind}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_it_cannot_tell_or_is_too_large_is_left_alone() {
        for pattern in [r"\ba", "a(^b|c)", "(?m)^a", "([ab]{1,200}){1,200}", "(a?b?c?d?e?f?){1,400}", "(a?){1,4000}"] {
            assert!(wide(pattern).is_none(), "{pattern}");
        }
    }
}
