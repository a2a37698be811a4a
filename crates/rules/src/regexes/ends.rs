//! Finds where the matches of an expression end in a text, in time proportional to the text rather than to its square.
//!
//! An expression such as `(a.*?b)|a` may look at everything that follows before it is certain that a match ends at its
//! first byte, and clients choose the text. But a search that reaches a state of the automaton at a position where an
//! earlier search was in the same state will have the same result: no longer match. So each search records where it
//! went in vain, and stops where another did.

use regex_automata::{
    Input,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson,
    util::syntax,
};
use std::collections::HashSet;

/// The distance between positions at which a search checks whether an earlier one was there.
const STRIDE: usize = 64;
/// Most positions recorded; an expression with more states is searched without this.
const VAIN_MAX: usize = 1 << 16;

/// Compiles a pattern that the `regex` crate has accepted.
pub(super) fn compile(pattern: &str, ignore_case: bool) -> Option<DFA> {
    DFA::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case))
        .thompson(thompson::Config::new().utf8(false))
        .build(pattern)
        .ok()
}

/// One text, and what the searches in it have recorded.
pub(super) struct Ends<'t> {
    dfa: &'t DFA,
    cache: Cache,
    text: &'t [u8],
    /// Positions and states from which no match ends later.
    vain: HashSet<(usize, LazyStateID)>,
    /// How many times the automaton had renumbered its states when `vain` was started.
    clears: usize,
    /// Bytes processed by all searches.
    pub steps: usize,
}

impl<'t> Ends<'t> {
    pub fn new(dfa: &'t DFA, text: &'t [u8]) -> Self {
        Ends { dfa, cache: dfa.create_cache(), text, vain: HashSet::new(), clears: 0, steps: 0 }
    }
    /// The end of the first match that starts at `from` or later; of several that start at the same place, the
    /// preferred one.
    ///
    /// # Errors
    ///
    /// If the automaton gives up.
    pub fn next(&mut self, from: usize) -> Result<Option<usize>, ()> {
        let Ends { dfa, cache, text, vain, clears, steps } = self;
        let mut state = dfa.start_state_forward(cache, &Input::new(text).range(from..)).map_err(drop)?;
        let mut end = None;
        // Positions visited since the last end was found.
        let mut trail = Vec::new();
        for at in from..=text.len() {
            if at % STRIDE == 0 {
                if cache.clear_count() != *clears {
                    *clears = cache.clear_count();
                    vain.clear();
                    trail.clear();
                }
                if vain.contains(&(at, state)) {
                    break;
                }
                trail.push((at, state));
            }
            *steps += 1;
            let next = match text.get(at) {
                Some(byte) => dfa.next_state(cache, state, *byte),
                None => dfa.next_eoi_state(cache, state),
            };
            state = next.map_err(drop)?;
            // The automaton reports a match one byte late.
            if state.is_match() {
                end = Some(at);
                trail.clear();
            } else if state.is_dead() {
                break;
            } else if state.is_quit() {
                return Err(());
            }
        }
        if vain.len() < VAIN_MAX {
            vain.extend(trail);
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regexes::Regex;

    #[test]
    fn each_byte_is_looked_at_a_bounded_number_of_times() {
        for (pattern, text) in [
            ("(a.*?b)|(a)", vec![b'a'; 14_000]),
            ("a(.*b)?", vec![b'a'; 14_000]),
            ("x[^y]*y|x", b"xz".repeat(7_000)),
            (r"\w+\s*=|\w", b"ab cd ".repeat(2_300)),
        ] {
            let dfa = compile(pattern, false).unwrap();
            let mut ends = Ends::new(&dfa, &text);
            let (mut at, mut matches) = (0, 0);
            while let Some(end) = ends.next(at).unwrap() {
                assert!(end > at);
                (at, matches) = (end, matches + 1);
            }
            assert!(matches > 4_000, "{pattern}: {matches}");
            assert!(ends.steps < 3 * STRIDE * text.len(), "{pattern}: {} steps", ends.steps);
        }
    }

    #[test]
    fn long_texts_are_replaced_as_short_ones_are() {
        let mut dice = 1_u32;
        let mut throw = move |sides: u32| {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (dice >> 16) % sides
        };
        for pattern in
            ["(a.*?b)|(a)", "x*", "(a)$|(a)", r"\b(a)", "(a*)(b)?", "(b+?)(c|$)", "^(a)|(b)", r"(a|b)+\B", ""]
        {
            for len in 0..60 {
                let text: Vec<u8> = (0..len).map(|_| b"abbc x\n"[throw(7) as usize]).collect();
                let (regex, by) = (Regex::new(pattern, false).unwrap(), br"<\0|\1|\2>");
                let (mut plain, mut long) = (Vec::new(), Vec::new());
                let found = regex.replace_short(&text, by, true, &mut plain);
                assert_eq!(regex.replace_long(&text, by, &mut long), Some(found), "{pattern}");
                assert_eq!(long.escape_ascii().to_string(), plain.escape_ascii().to_string(), "{pattern}");
            }
        }
    }
}
