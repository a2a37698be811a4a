//! Sample expressions: `fetch(args),converter(args),...`, evaluated. [`parse`] compiles them.

pub(crate) mod parse;

use crate::{
    context::Context,
    conv::ConvFn,
    fetch::{ChangeFn, FetchRun},
    keyword::{Arg, Places},
    sample::{Cursor, Fetched, Missing},
    turn::{self, cost},
    value::{Type, Value},
};

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
    /// The places in which the fetch may be evaluated.
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
pub(crate) const SHORT: usize = 1_024;

impl Expr {
    /// The declared type of its result.
    pub fn output(&self) -> Type {
        self.output
    }

    /// Whether the expression has converters after the fetch.
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
            let length = value.bytes().map_or(0, <[u8]>::len);
            turn::spend(cost::CONVERTER + (length / cost::CONVERTER_BYTES) as u32);
            let converted = value.cast(step.input).and_then(|value| step.run.run(ctx, value, &step.args));
            value = converted.and_then(|value| step.bound(value, ctx)).ok_or(Missing::Absent)?;
        }
        Ok(value)
    }
}
