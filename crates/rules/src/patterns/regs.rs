//! Lists of regular expressions, of which the first match is wanted.
//!
//! A short list is tried one by one. In a long one, each expression is indexed by a few bytes that every match must
//! contain, and only those are tried whose bytes occur in the text: 400,000 of them cost about as much as ten.
//! Expressions are compiled when first tried, since most of a long list never are; until then only their syntax is
//! checked.

use super::{
    entry::{Entry, FEW, Live, is_overdue},
    sequence::Sequence,
};
use crate::{
    problem::Problem,
    regexes::{Regex, required_texts},
    turn::{self, cost},
};
use penstock_config::text_of;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// Compiled expressions cached per list, each some ten KiB including what a search needs. A client that finds texts for
/// more than this causes recompilation, which still takes less time than trying them all.
const KEPT: usize = 8192;

/// Lengths of the parts by which expressions are indexed. The longest that fits is used.
const PARTS: [usize; 3] = [8, 4, 2];

/// A list of regular expressions: most are in an index, and recent additions are tried one by one after it.
#[derive(Clone, Debug)]
pub(super) struct RegSet {
    ignore_case: bool,
    base: Option<Arc<Base>>,
    recent: Sequence<Arc<Known>>,
    kept: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Base {
    list: Vec<Arc<Known>>,
    /// The indices in `list` of expressions without a known part, in order.
    always: Vec<u32>,
    index: Index,
}

#[derive(Debug)]
struct Known {
    id: u64,
    text: Box<str>,
    regex: OnceLock<Regex>,
    /// Texts of which every match contains at least one.
    required: Option<Vec<Vec<u8>>>,
}

impl RegSet {
    pub(super) fn new(ignore_case: bool) -> RegSet {
        RegSet { ignore_case, base: None, recent: Sequence::default(), kept: Arc::default() }
    }

    /// Appends an expression.
    ///
    /// # Errors
    ///
    /// If it is invalid or too large.
    pub(super) fn insert(&mut self, entry: &Entry) -> Result<(), Problem> {
        let text = text_of(entry.key());
        // A part of one byte would occur in most texts. For the other check: only compiling shows whether an expression
        // is too large.
        let required = required_texts(&text)?;
        let required = required.filter(|texts| texts.iter().all(|text| text.len() >= PARTS[PARTS.len() - 1]));
        let regex = OnceLock::new();
        if required.is_none() || may_be_large(&text) || self.recent.len() < FEW && self.base.is_none() {
            // It was empty, so this succeeds.
            let _ = regex.set(Regex::new(&text, self.ignore_case)?);
        }
        let known = Known { id: entry.id(), text: text.into(), regex, required };
        self.recent.put(entry.id(), Arc::new(known));
        Ok(())
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        // If it is in the index, its number tells that it has been removed.
        self.recent.remove(entry.id());
    }

    /// Whether [`RegSet::settle`] pays for a list of `live` entries.
    pub(super) fn is_overdue(&self, live: usize) -> bool {
        is_overdue(self.base.as_ref().map_or(0, |base| base.list.len()), self.recent.len(), live)
    }

    /// Rebuilds the index with all expressions, if enough are outside it.
    pub(super) fn settle(&mut self, entries: &Sequence<Arc<Entry>>) {
        let indexed = self.base.as_ref().map_or(&[][..], |base| &base.list);
        if !self.is_overdue(entries.len()) {
            return;
        }
        let mut list: Vec<_> = indexed.iter().filter(|known| entries.get(known.id).is_some()).cloned().collect();
        self.recent.visit(0, &mut |_, known| {
            list.push(Arc::clone(known));
            true
        });
        let unknown = |known: &Known| known.required.is_none();
        let always = (0..).zip(&list).filter(|(_, known)| unknown(known)).map(|(at, _)| at).collect();
        let index = Index::new(&list);
        self.base = Some(Arc::new(Base { list, always, index }));
        self.recent = Sequence::default();
    }

    /// Applies `f` to the first expression that matches, and to its entry.
    pub(super) fn first<'s, R>(
        &'s self,
        text: &[u8],
        live: Live<'_, 's>,
        f: impl FnOnce(&Regex, &'s Arc<Entry>) -> R,
    ) -> Option<R> {
        let mut spare = None;
        let mut found: Option<(&Arc<Known>, &'s Arc<Entry>)> = None;
        let mut matches = |known: &'s Arc<Known>| {
            if !self.regex(known, &mut spare).is_some_and(|regex| regex.is_match(text)) {
                return false;
            }
            found = live(known.id).map(|entry| (known, entry));
            found.is_some()
        };
        let in_base = self.base.as_ref().is_some_and(|base| base.candidates(text).any(&mut matches));
        if !in_base {
            self.recent.visit(0, &mut |_, known| !matches(known));
        }
        let (known, entry) = found?;
        Some(f(self.regex(known, &mut spare)?, entry))
    }

    /// The compiled form of an expression; if it is not cached, it is put in `spare`.
    fn regex<'r>(&self, known: &'r Known, spare: &'r mut Option<Regex>) -> Option<&'r Regex> {
        if let Some(regex) = known.regex.get() {
            return Some(regex);
        }
        // Its syntax has been checked, and it is small.
        let regex = Regex::new(&known.text, self.ignore_case).ok()?;
        if self.kept.fetch_add(1, Ordering::Relaxed) < KEPT {
            // Another worker may have been faster.
            return Some(known.regex.get_or_init(|| regex));
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Some(spare.insert(regex))
    }
}

impl Base {
    /// The expressions that may match, in order.
    fn candidates(&self, text: &[u8]) -> impl Iterator<Item = &Arc<Known>> {
        let mut found = self.index.find(text).into_iter().peekable();
        let mut always = self.always.iter().copied().peekable();
        std::iter::from_fn(move || {
            let at = match (found.peek(), always.peek()) {
                (Some(one), Some(other)) if one < other => found.next(),
                (_, Some(_)) => always.next(),
                (_, None) => found.next(),
            }?;
            self.list.get(at as usize)
        })
    }
}

/// Whether an expression's compiled size may be out of proportion to its text: it has counted repetitions, or is long.
fn may_be_large(text: &str) -> bool {
    text.contains('{') || text.len() > 512
}

/// Finds the expressions that a text may match, by its parts, ignoring case.
#[derive(Debug, Default)]
struct Index {
    /// Hashes of parts, with the index of the expression, in order.
    parts: Vec<(u64, u32)>,
    /// A bitmap of the upper bits of the hashes that occur, which rules out nearly all parts of a text.
    seen: Vec<u64>,
    shift: u32,
    /// The lengths that occur.
    lengths: Vec<usize>,
}

impl Index {
    fn new(list: &[Arc<Known>]) -> Index {
        let all = || {
            let texts = list.iter().map(|known| &known.required);
            (0_u32..).zip(texts).flat_map(|(at, texts)| texts.iter().flatten().map(move |text| (at, text)))
        };
        let windows: usize = all().map(|(_, text)| text.len()).sum();
        if windows == 0 {
            return Index::default();
        }
        // A rough count of how often parts occur: the rarest part of an expression is the most selective.
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

    /// The indices of candidates, sorted and without duplicates.
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
        turn::spend_on_bytes(text.len(), cost::REGEX_BYTES);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The length of the part that is used for a text of this length.
fn length(text: &[u8]) -> usize {
    PARTS.into_iter().find(|&part| part <= text.len()).unwrap_or(text.len().max(1))
}

/// The hash of at most eight bytes; its upper bits are as good as any.
fn hash(part: &[u8]) -> u64 {
    let word = part.iter().fold(part.len() as u64, |word, &byte| word.rotate_left(8) ^ u64::from(byte));
    let mixed = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list, and its entries.
    struct List(RegSet, Sequence<Arc<Entry>>);

    impl List {
        fn find(&self, text: &[u8]) -> Option<u64> {
            self.0.first(text, &|id| self.1.get(id), |_, entry| entry.id())
        }
        fn compiled(&self) -> usize {
            let list = self.0.base.iter().flat_map(|base| &base.list);
            list.filter(|known| known.regex.get().is_some()).count()
        }
    }

    fn set(patterns: impl IntoIterator<Item = String>, ignore_case: bool) -> List {
        let (mut set, mut entries) = (RegSet::new(ignore_case), Sequence::default());
        for (id, text) in (0..).zip(patterns) {
            let entry = Entry::new(id, text.as_bytes(), b"");
            set.insert(&entry).unwrap();
            entries.put(id, entry);
        }
        set.settle(&entries);
        List(set, entries)
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
                    assert_eq!(long.find(text), short.find(text), "{:?} from {skip}", String::from_utf8_lossy(text));
                }
            }
        }
    }

    #[test]
    fn of_a_long_list_only_what_may_match_is_compiled_and_tried() {
        let list = set((0..20_000).map(|n| format!("^/path/{n:06}/[a-z]+$")), false);
        assert_eq!(list.compiled(), FEW);
        turn::begin(1_000);
        assert_eq!(list.find(b"/path/012345/x"), Some(12_345));
        assert_eq!(list.find(b"/path/012345/7"), None);
        assert!(list.find(b"/other").is_none());
        assert!(!turn::end(), "some were tried, not thousands");
        assert!(list.compiled() < 50, "{}", list.compiled());
    }

    #[test]
    fn an_expression_that_cannot_be_read_is_not_added() {
        let mut list = set((0..100).map(|n| format!("pattern{n}")), false);
        for (wrong, word) in
            [("(open", "cannot be read"), ("(?=ahead)x", "look-ahead"), ("(a{1000}){1000}", "too large")]
        {
            let problem = list.0.insert(&Entry::new(100, wrong.as_bytes(), b"")).unwrap_err();
            assert!(problem.message.contains(word), "{}", problem.message);
            assert_eq!(list.0.recent.len(), 0);
        }
    }
}
