//! Looks a line's keyword up in a table, and runs its parser.

use crate::{
    args::{Args, Parsed, Reported, expected},
    keyword::{Keyword, Support, Table},
    sections,
    span::{Span, Word},
    surroundings::Surroundings,
};

/// Finds the keyword at the start of `words` in `table`, and runs its parser on the rest. If `allowed` returns another target, the
/// keyword has no effect on this one: its arguments are read into that, so that mistakes in them are found all the same.
pub(crate) fn dispatch<T>(
    table: &'static Table<T>,
    target: &mut T,
    words: &[Word],
    around: &mut Surroundings,
    allowed: impl FnOnce(&mut T, &'static Keyword<T>, Span, &mut Surroundings) -> Parsed<Option<T>>,
) -> Parsed {
    let (prefix, words) = match words[0].text.as_str() {
        "no" | "default" if words.len() > 1 => (Some(&words[0]), &words[1..]),
        _ => (None, words),
    };
    let Some((keyword, count)) = table.find(words) else {
        return Err(unknown(table, words, around));
    };
    let keyword_span = words[0].span.to(words[count - 1].span);
    let span = prefix.unwrap_or(&words[0]).span.to(words[words.len() - 1].span);
    if let Some(prefix) = prefix.filter(|_| !keyword.negatable) {
        around
            .diagnostics
            .error(prefix.span, format!("'{}' cannot stand before '{}'", prefix.text, keyword.name))
            .hint("only options, 'log' and a few settings of 'global' can be negated");
        return Err(Reported);
    }
    if let Support::Refused { why, instead } = keyword.support {
        around.diagnostics.error(keyword_span, format!("'{}' is refused: {why}", keyword.name)).hint(instead);
        return Err(Reported);
    }
    let mut ignored = allowed(target, keyword, keyword_span, around)?;
    let mut args = Args {
        keyword: keyword.name,
        keyword_span,
        verb: &words[count - 1].text,
        span,
        negated: prefix.is_some(),
        words: &words[count..],
        around,
        next: 0,
    };
    if prefix.is_none() {
        arity(keyword, &mut args)?;
    }
    // `default option X` restores the initial value, which is off for most options.
    (keyword.parse)(ignored.as_mut().unwrap_or(target), &mut args)?;
    if let Support::Accepted(why) = keyword.support
        && prefix.is_none()
        && ignored.is_none()
    {
        around.diagnostics.notice(keyword_span, format!("'{}' has no effect: {why}", keyword.name));
    }
    Ok(())
}

fn arity<T>(keyword: &Keyword<T>, args: &mut Args<'_>) -> Parsed {
    let (min, max) = (usize::from(keyword.arity.min), usize::from(keyword.arity.max));
    let name = keyword.name;
    if args.words.len() < min {
        let end = args.end();
        let needs = if min == 1 { "an argument".to_owned() } else { format!("{min} arguments") };
        args.diagnostics().error(end, format!("'{name}' needs {needs}")).hint(format!("{name}: {}", keyword.doc));
        return Err(Reported);
    }
    if args.words.len() > max && keyword.arity.max != u8::MAX {
        let extra = &args.words[max];
        // As in HAProxy, an empty word ends the line: it is what a variable without a value leaves.
        if args.words[max..].iter().all(|word| word.text.is_empty()) {
            args.words = &args.words[..max];
            return Ok(());
        }
        if keyword.spare {
            args.diagnostics()
                .warning(extra.span, format!("'{name}' ignores '{}' and everything after it", extra.text))
                .hint("remove it, or put an argument that contains spaces in quotes");
            args.words = &args.words[..max];
            return Ok(());
        }
        let takes = match max {
            0 => "no argument".to_owned(),
            1 => "one argument".to_owned(),
            n => format!("at most {n} arguments"),
        };
        return args.wrong(
            extra,
            format!("'{name}' takes {takes}, but '{}' follows", extra.text),
            format!("{name}: {}", keyword.doc),
        );
    }
    Ok(())
}

fn unknown<T>(table: &'static Table<T>, words: &[Word], around: &mut Surroundings) -> Reported {
    let first = &words[0];
    let family = table.family(&first.text);
    if !family.is_empty() {
        let usable = family.into_iter().filter(|(_, refused)| !refused).map(|(name, _)| name);
        match words.get(1) {
            Some(second) => {
                let hint = expected(&second.text, usable);
                around
                    .diagnostics
                    .error(second.span, format!("unknown '{}' setting '{}'", first.text, second.text))
                    .hint(hint);
            }
            None => {
                let hint = expected("", usable);
                around.diagnostics.error(first.span, format!("'{}' needs an argument", first.text)).hint(hint);
            }
        }
        return Reported;
    }
    let section = around.section_kind;
    let finding = around.diagnostics.error(first.span, format!("unknown keyword '{}' in '{section}'", first.text));
    let names: Vec<&str> = table.keywords().map(|k| k.name).chain(sections::names()).collect();
    // `timeout` of `timeout client`.
    let first_words = names.iter().filter_map(|name| name.split_once(' ')).map(|(first, _)| first);
    // A keyword of another section is not taken for a misspelt one of this section.
    if let Some(places) = sections::places_of(&first.text) {
        finding.hint(places);
    } else if let Some(near) = crate::units::nearest(&first.text, names.iter().copied().chain(first_words)) {
        finding.hint(format!("did you mean '{near}'?"));
    }
    Reported
}
