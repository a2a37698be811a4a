//! The nearest known word, for a diagnostic's hint.

/// `did you mean ...?`, where one of the known words is close enough to be a slip.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let limit = (word.len() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate, limit), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// Insertions, deletions, replacements and swaps of neighbours between two words; anything past `limit` is `limit + 1`.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let differs = usize::from(!a[i].eq_ignore_ascii_case(&b[j]));
            let mut best = (last[j] + differs).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_does_not() {
        let known = ["path_beg", "path_end", "hdr", "set-header"];
        assert_eq!(nearest("path_bge", known), Some("did you mean `path_beg`?".into()));
        assert_eq!(nearest("set_header", known), Some("did you mean `set-header`?".into()));
        assert_eq!(nearest("frobnicate", known), None);
    }
}
