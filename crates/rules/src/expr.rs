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
    /// There is none, and there will be none.
    Absent,
    /// More bytes may bring it.
    NotYet,
}

/// A sample, or why there is none.
pub type Fetched<'c> = Result<Value<'c>, Missing>;

/// Where an evaluation that looks at every value of a field stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// All values are wanted one after the other, not just the last.
    pub iterating: bool,
    /// Values already given.
    pub given: usize,
    /// Where the next one may begin; its meaning is the fetch's.
    pub position: usize,
    /// There may be another.
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
    /// Name of the fetch, for logs and diagnostics.
    pub fetch: &'static str,
    /// Where the fetch may be evaluated.
    pub places: Places,
}

/// One converter.
#[derive(Clone, Debug)]
struct Step {
    input: Type,
    run: ConvFn,
    args: Box<[Arg]>,
    /// A result that is too long is none at all, instead of its beginning.
    whole: bool,
}

impl Step {
    /// As in HAProxy, whose converters write to a buffer, a result is no longer than `tune.bufsize`: a client cannot have
    /// rules make megabytes of a header, nor a variable that is added to grow for ever.
    fn bound<'c>(&self, value: Value<'c>, ctx: &Context<'_>) -> Option<Value<'c>> {
        let length = value.bytes().map_or(0, <[u8]>::len);
        if length <= SHORT {
            return Some(value);
        }
        // HAProxy's text has a NUL behind it.
        let most = ctx.world.head_bytes() - 1;
        if length <= most {
            return Some(value);
        }
        (!self.whole).then(|| value.cut(most))
    }
}

/// What needs no look at the limit: no buffer is smaller.
const SHORT: usize = 1_024;

/// Converters whose results mean nothing cut off.
const WHOLE: &[&str] = &["base64", "json", "ub64enc"];

impl Expr {
    /// The declared type of its result.
    pub fn output(&self) -> Type {
        self.output
    }

    /// Whether it is a bare fetch.
    pub fn has_converters(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether its sample may be another one before the rules have to decide.
    pub(crate) fn may_change(&self, ctx: &Context<'_>) -> bool {
        (self.changes)(ctx, &self.args)
    }

    /// Its sample. Of a field that occurs several times, the last value.
    ///
    /// # Errors
    /// See [`Missing`].
    pub fn eval<'c>(&'c self, ctx: &'c Context<'_>) -> Fetched<'c> {
        self.step(ctx, &mut Cursor::default())
    }

    /// Gives every value to `f` until it says true; returns whether it did.
    ///
    /// # Errors
    /// When there is no value at all.
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
                // As in HAProxy, a value that a converter makes nothing of is the last one: `map_str` in a rule that lets
                // through what it knows must not be tried with one guess after the other.
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
    /// Compiles the expression that `text` begins with at `at`; returns it and where it ends.
    ///
    /// # Errors
    /// What cannot be read or does not fit together.
    pub fn expression_in(&mut self, text: &str, at: usize, scope: Scope) -> Result<(Expr, usize), Problem> {
        let name = word_at(text, at);
        let fetch = text[name.clone()].to_owned();
        self.expression_of(text, name, &fetch, scope)
    }

    /// The same, where the word at `name` stands for the fetch `word` (`path_beg` for `path`).
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
            // The environment is read once, as HAProxy does.
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
                // A comma with nothing after it changes nothing.
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

    /// Reads the arguments of the keyword at `name`, which may have none.
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
            // `fetch()` has one empty argument, which is none.
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
                // `regsub` alone: whether case matters is said two arguments later.
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
            return Err(Problem::new(at.clone(), format!("the default `{default}` of `{word}` is no address")));
        }
        while matches!(args.last(), Some(Arg::None)) {
            args.pop();
        }
        Ok((args, end))
    }
}

/// A keyword's name from `at` on.
pub(crate) fn word_at(text: &str, at: usize) -> Range<usize> {
    let len = text[at..]
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b':'))
        .count();
    at..at + len
}

/// An argument with its quotes and escapes resolved, and where it stands.
type Raw = (String, Range<usize>);

/// Splits `(a,"b,c",d)` at `at`. Outside single quotes a backslash protects a quote, a backslash or a space, and makes
/// the usual control characters; before anything else it is itself. Unquoted spaces stay.
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
