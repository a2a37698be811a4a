//! Lists of regular expressions, of which the first that matches is wanted.
//!
//! A short list is tried one by one. In a long one each expression is known by a few bytes that everything it matches must
//! hold, and only those are tried whose bytes a text has: 400,000 of them cost about as much as ten. They are compiled when
//! first tried, since most of a long list never are; what is read of them before is their syntax.

use super::Pattern;
use crate::{
    keyword::Problem,
    regexes::{Regex, required_texts},
    turn::{self, cost},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// Lists up to this long are tried one by one.
const FEW: usize = 16;

/// Compiled expressions that are kept of one list, each some ten KiB with what a search needs. A client who finds texts for
/// more has the rest compiled again each time, which takes less than trying all.
const KEPT: usize = 8192;

/// Lengths of the parts that expressions are known by. The longest that fits is taken.
const PARTS: [usize; 3] = [8, 4, 2];

/// A list of regular expressions.
#[derive(Clone, Debug)]
pub struct RegSet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    list: Vec<Entry>,
    /// Those that no part is known of, in order.
    always: Vec<u32>,
    index: Index,
    kept: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    ignore_case: bool,
    regex: OnceLock<Regex>,
}

impl RegSet {
    pub(super) fn new(patterns: &[Pattern]) -> Result<RegSet, (usize, Problem)> {
        let few = patterns.len() <= FEW;
        let mut list = Vec::with_capacity(patterns.len());
        let mut texts = Vec::new();
        for (at, Pattern { text, ignore_case }) in patterns.iter().enumerate() {
            let entry = Entry { text: text.as_str().into(), ignore_case: *ignore_case, regex: OnceLock::new() };
            let required = if few { None } else { required_texts(text).map_err(|problem| (at, problem))? };
            // A part of one byte would be found in most texts. And only compiling tells that an expression is too large.
            let known = required.filter(|texts| texts.iter().all(|text| text.len() >= PARTS[PARTS.len() - 1]));
            if known.is_none() || may_be_large(text) {
                let regex = Regex::new(text, *ignore_case).map_err(|problem| (at, problem))?;
                // It was empty.
                let _ = entry.regex.set(regex);
            }
            list.push(entry);
            texts.push(known);
        }
        let always = (0..).zip(&texts).filter(|(_, known)| known.is_none()).map(|(at, _)| at).collect();
        let index = Index::new(&texts);
        Ok(RegSet(Arc::new(Inner { list, always, index, kept: AtomicUsize::new(0) })))
    }

    /// The place of the first expression that matches.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.first(text, |_, at| at)
    }

    /// What `f` makes of the first expression that matches, and of its place.
    pub(super) fn first<T>(&self, text: &[u8], f: impl FnOnce(&Regex, u32) -> T) -> Option<T> {
        let inner = &*self.0;
        let mut found = inner.index.find(text).into_iter().peekable();
        let mut always = inner.always.iter().copied().peekable();
        let mut spare = None;
        loop {
            let at = match (found.peek(), always.peek()) {
                (Some(one), Some(other)) if one < other => found.next(),
                (_, Some(_)) => always.next(),
                (_, None) => found.next(),
            }?;
            turn::spend(cost::REGEX + (text.len() / cost::REGEX_BYTES) as u32);
            if let Some(regex) = inner.regex(at, &mut spare).filter(|regex| regex.is_match(text)) {
                return Some(f(regex, at));
            }
        }
    }
}

/// Whether its size once compiled is not simply that of its text: a repetition by number, or much of it.
fn may_be_large(text: &str) -> bool {
    text.contains('{') || text.len() > 512
}

impl Inner {
    /// An expression; one that is not kept is put in `spare`.
    fn regex<'s>(&'s self, at: u32, spare: &'s mut Option<Regex>) -> Option<&'s Regex> {
        let entry = self.list.get(at as usize)?;
        if let Some(regex) = entry.regex.get() {
            return Some(regex);
        }
        // Its syntax was read, and it is small.
        let regex = Regex::new(&entry.text, entry.ignore_case).ok()?;
        if self.kept.fetch_add(1, Ordering::Relaxed) < KEPT {
            // Another worker may have been faster.
            return Some(entry.regex.get_or_init(|| regex));
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Some(spare.insert(regex))
    }
}

/// Which expressions a text may match, by its parts. Letters have no case here.
#[derive(Debug, Default)]
struct Index {
    /// Hashes of parts with the place of the expression, in order.
    parts: Vec<(u64, u32)>,
    /// Which hashes occur, by their upper bits: nearly all parts of a text are told apart here.
    seen: Vec<u64>,
    shift: u32,
    /// Which lengths occur.
    lengths: Vec<usize>,
}

impl Index {
    /// `texts` are, for each expression, those of which a match holds at least one.
    fn new(texts: &[Option<Vec<Vec<u8>>>]) -> Index {
        let all = || (0_u32..).zip(texts).flat_map(|(at, texts)| texts.iter().flatten().map(move |text| (at, text)));
        let windows: usize = all().map(|(_, text)| text.len()).sum();
        if windows == 0 {
            return Index::default();
        }
        // How often parts occur, counted roughly: the rarest part of a text tells most.
        let bits = windows.next_power_of_two().clamp(1 << 10, 1 << 22).trailing_zeros();
        let mut counts = vec![0_u16; 1 << bits];
        for (_, text) in all() {
            for part in text.windows(length(text)) {
                let count = &mut counts[(hash(part) >> (64 - bits)) as usize];
                *count = count.saturating_add(1);
            }
        }
        let count = |part: &&[u8]| counts[(hash(part) >> (64 - bits)) as usize];
        let mut parts: Vec<(u64, u32)> = all()
            .filter_map(|(at, text)| text.windows(length(text)).min_by_key(count).map(|part| (hash(part), at)))
            .collect();
        parts.sort_unstable();
        parts.dedup();
        let bits = (parts.len() * 16).next_power_of_two().max(64).trailing_zeros();
        let mut index = Index { seen: vec![0; 1 << (bits - 6)], shift: 64 - bits, ..Index::default() };
        for (hash, _) in &parts {
            let bit = hash >> index.shift;
            index.seen[(bit >> 6) as usize] |= 1 << (bit & 63);
        }
        index.lengths = PARTS.into_iter().filter(|&part| all().any(|(_, text)| length(text) == part)).collect();
        index.parts = parts;
        index
    }

    /// In order, each once.
    fn find(&self, text: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        if self.parts.is_empty() {
            return found;
        }
        let folded = text.to_ascii_lowercase();
        for &length in &self.lengths {
            for part in folded.windows(length) {
                let hash = hash(part);
                let bit = hash >> self.shift;
                if self.seen[(bit >> 6) as usize] >> (bit & 63) & 1 == 1 {
                    let from = self.parts.partition_point(|&(known, _)| known < hash);
                    let same = self.parts[from..].iter().take_while(|&&(known, _)| known == hash);
                    found.extend(same.map(|&(_, at)| at));
                }
            }
        }
        turn::spend((text.len() / 64) as u32);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// How long a part of a text this long is taken.
fn length(text: &[u8]) -> usize {
    PARTS.into_iter().find(|&part| part <= text.len()).unwrap_or(text.len().max(1))
}

/// Of at most eight bytes; upper bits are as good as any.
fn hash(part: &[u8]) -> u64 {
    let word = part.iter().fold(part.len() as u64, |word, &byte| word.rotate_left(8) ^ u64::from(byte));
    let mixed = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(patterns: impl IntoIterator<Item = String>, ignore_case: bool) -> RegSet {
        let patterns: Vec<_> = patterns.into_iter().map(|text| Pattern { text, ignore_case }).collect();
        RegSet::new(&patterns).unwrap()
    }

    fn compiled(set: &RegSet) -> usize {
        set.0.list.iter().filter(|entry| entry.regex.get().is_some()).count()
    }

    #[test]
    fn a_long_list_finds_what_a_short_one_does() {
        let patterns = [
            "^/static/",
            "\\.(png|jpe?g)$",
            "[0-9]+x[0-9]+",
            "^/a$",
            "(foo|bar)baz",
            "^$",
            "x*",
            "(?i)MiXed",
            "a\\.b",
            "q[uU]x",
        ];
        let texts: [&[u8]; 12] = [
            b"/static/x",
            b"/x.png",
            b"/x.JPEG",
            b"12x3",
            b"/a",
            b"/ab",
            b"barbaz",
            b"",
            b"zzmixEDzz",
            b"a.b",
            b"axb",
            b"qUx",
        ];
        for ignore_case in [false, true] {
            for skip in 0..patterns.len() {
                let short: Vec<String> = patterns[skip..].iter().map(|text| (*text).to_owned()).collect();
                let long = short.iter().cloned().chain((0..500).map(|n| format!("^/never/{n}/seen$")));
                let (long, short) = (set(long, ignore_case), set(short, ignore_case));
                for text in texts {
                    let found = |set: &RegSet| set.find(text);
                    assert_eq!(found(&long), found(&short), "{:?} from {skip}", String::from_utf8_lossy(text));
                }
            }
        }
    }

    #[test]
    fn of_a_long_list_only_what_may_match_is_compiled_and_tried() {
        let list = set((0..20_000).map(|n| format!("^/path/{n:06}/[a-z]+$")), false);
        assert_eq!(compiled(&list), 0);
        turn::begin(1_000);
        assert_eq!(list.find(b"/path/012345/x"), Some(12_345));
        assert_eq!(list.find(b"/path/012345/7"), None);
        assert!(list.find(b"/other").is_none());
        assert!(!turn::end(), "some were tried, not thousands");
        assert!(compiled(&list) < 50, "{}", compiled(&list));
    }

    #[test]
    fn a_long_list_names_the_first_that_is_none() {
        let mut patterns: Vec<_> =
            (0..100).map(|n| Pattern { text: format!("pattern{n}"), ignore_case: false }).collect();
        for (wrong, word) in [("(open", "cannot be read"), ("(?=ahead)x", "look-ahead"), ("a{1000}{1000}", "too large")]
        {
            patterns[70].text = wrong.to_owned();
            let (at, problem) = RegSet::new(&patterns).unwrap_err();
            assert!(at == 70 && problem.message.contains(word), "{}", problem.message);
        }
    }
}
