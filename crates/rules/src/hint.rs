//! The nearest known word, for a diagnostic's hint.

use penstock_config::units;

/// `did you mean ...?`, if one of the known words is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    units::nearest(word, known).map(|near| format!("did you mean '{near}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_does_not() {
        let known = ["path_beg", "path_end", "hdr", "set-header"];
        assert_eq!(nearest("path_bge", known), Some("did you mean 'path_beg'?".into()));
        assert_eq!(nearest("set_header", known), Some("did you mean 'set-header'?".into()));
        assert_eq!(nearest("frobnicate", known), None);
    }
}
