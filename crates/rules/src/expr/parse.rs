//! Compiles sample expressions: looks their words up in the tables of fetches and converters, and checks that they fit together.

use super::{Expr, Step};
use crate::{
    conv::{self, TokenKeyArg},
    fetch, hint,
    keyword::{Arg, ArgKind, ArgSpec, Args as _, Support},
    link::{Linker, Scope},
    problem::Problem,
    regexes::Regex,
    value::Type,
};
use std::ops::Range;

/// Converters whose results are meaningless if truncated.
const WHOLE: &[&str] = &["base64", "json", "ub64enc"];

impl Linker<'_> {
    /// Compiles the expression that starts at `at` in `text`; returns it and where it ends.
    ///
    /// # Errors
    ///
    /// If it cannot be parsed, or its parts do not fit together.
    pub fn expression_in(&mut self, text: &str, at: usize, scope: Scope) -> Result<(Expr, usize), Problem> {
        let name = word_at(text, at);
        let fetch = text[name.clone()].to_owned();
        self.expression_of(text, name, &fetch, scope)
    }

    /// Like [`Linker::expression_in`], but the word at `name` stands for the fetch `word` (`path_beg` for `path`).
    pub(crate) fn expression_of(
        &mut self,
        text: &str,
        name: Range<usize>,
        word: &str,
        scope: Scope,
    ) -> Result<(Expr, usize), Problem> {
        let Some(spec) = fetch::find(word, scope.place) else {
            return Err(Problem::new(name, format!("unknown sample fetch '{word}'")).hint(
                hint::nearest(word, fetch::names()).or_else(|| {
                    conv::find(word).map(|_| format!("'{word}' is a converter: it follows a fetch and a comma"))
                }),
            ));
        };
        let run = match spec.support {
            Support::Yes(run) => run,
            Support::No(reason) => {
                return Err(Problem::new(name, format!("the fetch '{word}' is not supported: {reason}")));
            }
        };
        let place = self.place(scope);
        if !spec.places.meets(place) {
            return Err(Problem::new(
                name,
                format!(
                    "the fetch '{word}' is available in: {}; not here ({})",
                    spec.places.describe(),
                    place.describe()
                ),
            ));
        }
        self.reads_requests |= spec.name.starts_with("req.body");
        self.reads_responses |= matches!(spec.name, "res.body" | "res.body_len" | "res.body_size" | "res.len");
        let (mut args, mut end) = self.arguments_in(text, name.clone(), spec.args, scope)?;
        if spec.name == "env" {
            // The environment is read once, like HAProxy does.
            let name = args.bytes(0).and_then(|name| std::str::from_utf8(name).ok());
            let variable = name.and_then(|name| self.config.environment.get(name));
            args = vec![variable.map_or(Arg::None, |value| Arg::Bytes(value.as_bytes().into()))];
        }
        let mut expr = Expr {
            run,
            args: args.into(),
            steps: Box::default(),
            output: spec.output,
            changes: spec.changes,
            fetch: spec.name,
            places: spec.places,
        };
        let mut steps = Vec::new();
        while text.as_bytes().get(end) == Some(&b',') {
            let name = word_at(text, end + 1);
            let word = &text[name.clone()];
            if word.is_empty() && text.as_bytes().get(name.end).is_none_or(|&next| next == b',') {
                // A comma with nothing after it is ignored.
                end = name.end;
                continue;
            }
            let Some(spec) = conv::find(word) else {
                return Err(Problem::new(name, format!("unknown converter '{word}'")).hint(
                    hint::nearest(word, conv::names()).or_else(|| {
                        fetch::find(word, scope.place).map(|_| format!("'{word}' is a fetch: it comes first"))
                    }),
                ));
            };
            let run = match spec.support {
                Support::Yes(run) => run,
                Support::No(reason) => {
                    return Err(Problem::new(name, format!("the converter '{word}' is not supported: {reason}")));
                }
            };
            if !expr.output.casts_to(spec.input) {
                return Err(Problem::new(
                    name,
                    format!(
                        "the converter '{word}' takes {}, but what comes before it gives {}",
                        spec.input, expr.output
                    ),
                ));
            }
            let (args, after) = self.arguments_in(text, name, spec.args, scope)?;
            end = after;
            expr.output = spec.output;
            let whole = WHOLE.contains(&spec.name);
            steps.push(Step { input: spec.input, run, args: args.into(), whole });
        }
        expr.steps = steps.into();
        Ok((expr, end))
    }

    /// Parses the arguments of the keyword at `name`, if it has any.
    fn arguments_in(
        &mut self,
        text: &str,
        name: Range<usize>,
        specs: &[ArgSpec],
        scope: Scope,
    ) -> Result<(Vec<Arg>, usize), Problem> {
        let (raw, end) = split_arguments(text, name.end)?;
        let word = &text[name.clone()];
        if let Some((_, at)) = raw.get(specs.len()) {
            // `fetch()` has one empty argument, which counts as none.
            if !(specs.is_empty() && raw.len() == 1 && at.is_empty()) {
                let takes = match specs.len() {
                    0 => "no argument".to_owned(),
                    1 => "one argument".to_owned(),
                    n => format!("at most {n} arguments"),
                };
                return Err(Problem::new(at.clone(), format!("'{word}' takes {takes}"))
                    .hint("quotes protect a comma inside an argument".to_owned()));
            }
        }
        let mut args = Vec::with_capacity(specs.len());
        for (place, spec) in specs.iter().enumerate() {
            let given = raw.get(place).map(|(value, at)| (value.as_str(), at.clone()));
            args.push(match (spec.kind, given) {
                // Only for `regsub`: case sensitivity is given two arguments later.
                (ArgKind::Regex, Some((pattern, at))) => {
                    let ignore_case = raw.get(place + 2).is_some_and(|(flags, _)| flags.contains('i'));
                    Arg::Regex(Regex::new(pattern, ignore_case).map_err(|problem| Problem { at, ..problem })?)
                }
                (_, given) => self.argument(word, place, spec, given, name.clone(), scope)?,
            });
            if let [.., algorithm, Arg::TokenKey(TokenKeyArg::Given(file, key))] = &mut args[..]
                && let Some((_, at)) = raw.get(place)
            {
                let algorithm = if let Arg::Word(algorithm) = algorithm { Some(*algorithm) } else { None };
                *key = self.public_key(file, at.clone(), algorithm);
            }
        }
        if let Some((_, kind @ (Type::Addr | Type::Int))) = conv::map_kind(word)
            && let (Some(default), Some((text, at))) = (args.bytes(1), raw.get(1))
            && crate::patterns::typed(text.as_bytes(), kind).is_err()
        {
            let (default, what) =
                (String::from_utf8_lossy(default), if kind == Type::Int { "a number" } else { "an address" });
            return Err(Problem::new(at.clone(), format!("the default '{default}' of '{word}' is not {what}")));
        }
        while matches!(args.last(), Some(Arg::None)) {
            args.pop();
        }
        if let Some(message) = at_odds(word, &args) {
            return Err(Problem::new(name, message));
        }
        Ok((args, end))
    }
}

/// What is wrong with arguments that are valid one by one.
fn at_odds(word: &str, args: &[Arg]) -> Option<String> {
    let given = |at: usize| args.get(at).is_some_and(|arg| !matches!(arg, Arg::None));
    match word {
        "add_item" if !given(1) && args.bytes(2).is_none_or(<[u8]>::is_empty) => {
            Some("'add_item' needs a variable or a suffix to add".to_owned())
        }
        "be2hex" if args.bytes(0).is_some_and(|separator| !separator.is_empty()) && !given(1) => {
            Some("'be2hex' needs the size of the chunks between which the separator stands".to_owned())
        }
        "mqtt_field_value" if !args.word(0).zip(args.get(1)).is_some_and(|(of, field)| conv::has_field(of, field)) => {
            Some("'mqtt_field_value' names a field that no such packet has".to_owned())
        }
        word if word.ends_with("payload_lv") && args.int(0).is_some_and(|offset| offset < 0) => {
            Some(format!("'{word}' needs an offset of at least 0"))
        }
        word if word.ends_with("payload_lv") && args.int(1).is_some_and(|length| length == 0) => {
            Some(format!("'{word}' needs a length of at least 1 byte"))
        }
        _ => None,
    }
}

/// The name of the keyword at `at`.
pub(crate) fn word_at(text: &str, at: usize) -> Range<usize> {
    let len = text[at..]
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b':'))
        .count();
    at..at + len
}

/// An argument after its quotes and escapes are resolved, and its position.
type Raw = (String, Range<usize>);

/// Splits `(a,"b,c",d)` at `at`. Outside single quotes a backslash escapes a quote, a backslash or a space, and forms
/// the usual control characters; before anything else it is literal. Unquoted spaces are kept.
fn split_arguments(text: &str, at: usize) -> Result<(Vec<Raw>, usize), Problem> {
    let mut chars = text[at..].char_indices().map(|(offset, c)| (at + offset, c)).peekable();
    if chars.next_if(|(_, c)| *c == '(').is_none() {
        return Ok((Vec::new(), at));
    }
    let mut args = Vec::new();
    let mut value = String::new();
    let mut start = at + 1;
    let mut quote = None;
    while let Some((here, c)) = chars.next() {
        match c {
            '\'' | '"' if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            '\\' if quote != Some('\'') => match chars.peek().map(|(_, next)| *next) {
                Some(next @ ('\\' | '"' | '\'' | ' ')) => {
                    value.push(next);
                    chars.next();
                }
                Some(control @ ('n' | 'r' | 't')) => {
                    value.push(match control {
                        'n' => '\n',
                        'r' => '\r',
                        _ => '\t',
                    });
                    chars.next();
                }
                _ => value.push('\\'),
            },
            ',' if quote.is_none() => {
                args.push((std::mem::take(&mut value), start..here));
                start = here + 1;
            }
            ')' if quote.is_none() => {
                args.push((value, start..here));
                return Ok((args, here + 1));
            }
            c => value.push(c),
        }
    }
    let message = if quote.is_some() { "a quote is not closed" } else { "')' is missing" };
    Err(Problem::new(at..text.len(), message))
}
