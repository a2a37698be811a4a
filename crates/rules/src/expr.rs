//! Sample expressions: `fetch(args),converter(args),...`, compiled and evaluated.

use crate::{
    context::Context,
    conv::{self, ConvFn},
    fetch::{self, ChangeFn, FetchRun},
    hint,
    keyword::{Arg, ArgKind, ArgSpec, Args as _, Places, Problem, Support},
    link::{Linker, Scope},
    regexes::Regex,
    value::{Type, Value},
};
use std::ops::Range;

/// Why there is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none, and more bytes will not change that.
    Absent,
    /// More bytes may produce one.
    NotYet,
}

/// A sample, or why there is none.
pub type Fetched<'c> = Result<Value<'c>, Missing>;

/// The position of an evaluation that goes through all values of a field.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Whether all values are wanted one after another, rather than only the last.
    pub iterating: bool,
    /// How many values have been returned.
    pub given: usize,
    /// Where the next value may start; its meaning depends on the fetch.
    pub position: usize,
    /// Whether there may be another value.
    pub more: bool,
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expr {
    run: FetchRun,
    args: Box<[Arg]>,
    steps: Box<[Step]>,
    output: Type,
    changes: ChangeFn,
    /// The name of the fetch, for logs and diagnostics.
    pub fetch: &'static str,
    /// Where the fetch may be evaluated.
    pub places: Places,
}

/// A converter in an expression.
#[derive(Clone, Debug)]
struct Step {
    input: Type,
    run: ConvFn,
    args: Box<[Arg]>,
    /// Whether a result that is too long is dropped, rather than truncated.
    whole: bool,
}

impl Step {
    /// Truncates a result to `tune.bufsize`, like HAProxy, whose converters write to a buffer: so clients cannot make
    /// rules expand a header to megabytes, and a variable that is appended to cannot grow for ever.
    fn bound<'c>(&self, value: Value<'c>, ctx: &Context<'_>) -> Option<Value<'c>> {
        let length = value.bytes().map_or(0, <[u8]>::len);
        if length <= SHORT {
            return Some(value);
        }
        // HAProxy's text is followed by a NUL.
        let most = ctx.world.head_bytes() - 1;
        if length <= most {
            return Some(value);
        }
        (!self.whole).then(|| value.cut(most))
    }
}

/// Results up to this length are not compared with the limit, since no buffer is smaller.
const SHORT: usize = 1_024;

/// Converters whose results are meaningless if truncated.
const WHOLE: &[&str] = &["base64", "json", "ub64enc"];

impl Expr {
    /// The declared type of its result.
    pub fn output(&self) -> Type {
        self.output
    }

    /// Whether it has converters after the fetch.
    pub fn has_converters(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether the sample may still change before the rules have to decide.
    pub(crate) fn may_change(&self, ctx: &Context<'_>) -> bool {
        (self.changes)(ctx, &self.args)
    }

    /// Evaluates it. If a field occurs several times, this is the last value.
    ///
    /// # Errors
    ///
    /// See [`Missing`].
    pub fn eval<'c>(&'c self, ctx: &'c Context<'_>) -> Fetched<'c> {
        self.step(ctx, &mut Cursor::default())
    }

    /// Passes each value to `f` until it returns true; returns whether it did.
    ///
    /// # Errors
    ///
    /// If there is no value at all.
    pub fn any<'c>(&'c self, ctx: &'c Context<'_>, mut f: impl FnMut(&Value<'c>) -> bool) -> Result<bool, Missing> {
        let mut cursor = Cursor { iterating: true, ..Cursor::default() };
        let mut seen = Err(Missing::Absent);
        loop {
            cursor.more = false;
            match self.step(ctx, &mut cursor) {
                Ok(value) => {
                    if f(&value) {
                        return Ok(true);
                    }
                    seen = Ok(false);
                }
                Err(Missing::NotYet) => return Err(Missing::NotYet),
                // As in HAProxy, no more values are tried after one for which a converter has no result: a rule with
                // `map_str` that permits known values must not be given one guess after another.
                Err(Missing::Absent) => return seen,
            }
            if !cursor.more {
                return seen;
            }
        }
    }

    fn step<'c>(&'c self, ctx: &'c Context<'_>, cursor: &mut Cursor) -> Fetched<'c> {
        let mut value = match self.run {
            FetchRun::One(run) => run(ctx, &self.args)?,
            FetchRun::Each(run) => run(ctx, &self.args, cursor)?,
            FetchRun::Counter(counter) => counter.fetch(ctx, &self.args)?,
        };
        for step in &self.steps {
            let converted = value.cast(step.input).and_then(|value| step.run.run(ctx, value, &step.args));
            value = converted.and_then(|value| step.bound(value, ctx)).ok_or(Missing::Absent)?;
        }
        Ok(value)
    }
}

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
            return Err(Problem::new(name, format!("unknown sample fetch `{word}`")).hint(
                hint::nearest(word, fetch::names()).or_else(|| {
                    conv::find(word).map(|_| format!("`{word}` is a converter: it follows a fetch and a comma"))
                }),
            ));
        };
        let run = match spec.support {
            Support::Yes(run) => run,
            Support::No(reason) => {
                return Err(Problem::new(name, format!("the fetch `{word}` is not supported: {reason}")));
            }
        };
        if !spec.places.meets(scope.place) {
            return Err(Problem::new(
                name,
                format!(
                    "the fetch `{word}` is available in: {}; not here ({})",
                    spec.places.describe(),
                    scope.place.describe()
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
                return Err(Problem::new(name, format!("unknown converter `{word}`")).hint(
                    hint::nearest(word, conv::names()).or_else(|| {
                        fetch::find(word, scope.place).map(|_| format!("`{word}` is a fetch: it comes first"))
                    }),
                ));
            };
            let run = match spec.support {
                Support::Yes(run) => run,
                Support::No(reason) => {
                    return Err(Problem::new(name, format!("the converter `{word}` is not supported: {reason}")));
                }
            };
            if !expr.output.casts_to(spec.input) {
                return Err(Problem::new(
                    name,
                    format!(
                        "the converter `{word}` takes {}, but what comes before it gives {}",
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
                return Err(Problem::new(at.clone(), format!("`{word}` takes {takes}"))
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
        }
        if let Some((_, Type::Addr)) = conv::map_kind(word)
            && let (Some(default), Some((text, at))) = (args.bytes(1), raw.get(1))
            && crate::patterns::typed(text.as_bytes(), Type::Addr).is_err()
        {
            let default = String::from_utf8_lossy(default);
            return Err(Problem::new(at.clone(), format!("the default `{default}` of `{word}` is not an address")));
        }
        while matches!(args.last(), Some(Arg::None)) {
            args.pop();
        }
        Ok((args, end))
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
    let message = if quote.is_some() { "a quote is not closed" } else { "`)` is missing" };
    Err(Problem::new(at..text.len(), message))
}
