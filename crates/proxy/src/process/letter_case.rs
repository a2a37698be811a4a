//! Reads the letter case of field names from the configuration and from the file of `h1-case-adjust-file`.

use super::files::read_saved;
use penstock_config::{Diagnostics, model::Global};
use penstock_http::LetterCase;
use std::sync::Arc;

/// The names of `h1-case-adjust` and of the file; mistakes in the file are added to `diagnostics`.
pub(super) fn read(global: &Global, diagnostics: &mut Diagnostics) -> Arc<LetterCase> {
    let mut case = LetterCase::default();
    for (from, to) in &global.h1_case_adjust {
        case.add(from, to);
    }
    let Some(path) = &global.h1_case_adjust_file else { return Arc::new(case) };
    let (name, span) = (path.value.display(), path.span);
    match read_saved(&path.value) {
        Ok(text) => {
            for (number, line) in (1..).zip(text.lines()) {
                if let Err(problem) = add(&mut case, line.trim_matches([' ', '\t'])) {
                    diagnostics.error(span, format!("'{name}', line {number}: {problem}"));
                }
            }
        }
        Err(e) => {
            diagnostics.error(span, format!("'{name}' cannot be read: {e}"));
        }
    }
    Arc::new(case)
}

fn add(case: &mut LetterCase, line: &str) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let Some((from, to)) = line.split_once([' ', '\t']) else {
        return Err(format!("'{line}' is one name: the form in which it is sent is missing"));
    };
    let to = to.trim_start_matches([' ', '\t']);
    if !from.eq_ignore_ascii_case(to) {
        return Err(format!("'{to}' is another name than '{from}'; only the case may differ"));
    }
    match case.add(from, to) {
        true => Ok(()),
        false => Err(format!("the case of '{from}' is given twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_comments_or_mistakes() {
        let mut case = LetterCase::default();
        for line in ["", "# foo Bar", "foo Foo", "bar \t BAR"] {
            assert_eq!(add(&mut case, line), Ok(()), "{line}");
        }
        for line in ["foo FOO", "one", "foo Foo x", "foo bar"] {
            assert!(add(&mut case, line).is_err(), "{line}");
        }
        let mut lines = *b"\nfoo: 1\nbar: 2\n";
        case.apply(&mut lines);
        assert_eq!(lines, *b"\nFoo: 1\nBAR: 2\n");
    }
}
