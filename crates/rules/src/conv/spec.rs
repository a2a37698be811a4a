//! A row of the tables of converters, and access to their arguments.

use crate::{
    context::Context,
    fetch::Lookup,
    keyword::{Arg, ArgSpec, Args as _, Support},
    value::{Type, Value},
    vars::VarRef,
};

/// A converter's function. `None` if there is no result.
pub type ConvertFn = for<'c> fn(&'c Context<'_>, Value<'c>, &'c [Arg]) -> Option<Value<'c>>;

/// How a converter runs.
#[derive(Clone, Copy, Debug)]
pub enum ConvFn {
    /// The converter calls a function.
    Plain(ConvertFn),
    /// The converter looks the sample up in a stick table.
    Lookup(Lookup),
}

impl ConvFn {
    pub(crate) fn run<'c>(&self, ctx: &'c Context<'_>, value: Value<'c>, args: &'c [Arg]) -> Option<Value<'c>> {
        match self {
            ConvFn::Plain(run) => run(ctx, value, args),
            ConvFn::Lookup(lookup) => lookup.convert(ctx, value, args),
        }
    }
}

/// A row of the table of converters.
#[derive(Clone, Copy, Debug)]
pub struct ConvSpec {
    /// The converter's name.
    pub name: &'static str,
    /// The converter's arguments.
    pub args: &'static [ArgSpec],
    /// The type it accepts.
    pub input: Type,
    /// The type it returns; [`Type::Any`] if that is only known when it runs.
    pub output: Type,
    /// What the converter does, in one line.
    pub doc: &'static str,
    /// Whether the converter is implemented.
    pub support: Support<ConvFn>,
}

pub(super) const fn conv(
    name: &'static str,
    args: &'static [ArgSpec],
    input: Type,
    output: Type,
    doc: &'static str,
    run: ConvertFn,
) -> ConvSpec {
    ConvSpec { name, args, input, output, doc, support: Support::Yes(ConvFn::Plain(run)) }
}

pub(super) const fn refused(
    name: &'static str,
    input: Type,
    output: Type,
    doc: &'static str,
    why: &'static str,
) -> ConvSpec {
    ConvSpec { name, args: &[], input, output, doc, support: Support::No(why) }
}

/// An argument that is a number, or a variable holding one.
pub(super) fn int_arg(ctx: &Context<'_>, args: &[Arg], at: usize) -> Option<i64> {
    match args.get(at)? {
        Arg::Int(n) => Some(*n),
        Arg::Var(var) => ctx.var(var)?.to_int(),
        _ => None,
    }
}

/// An argument that is text, or a variable holding text.
pub(super) fn bytes_arg<'c>(ctx: &'c Context<'_>, args: &'c [Arg], at: usize) -> Option<std::borrow::Cow<'c, [u8]>> {
    match args.get(at)? {
        Arg::Var(var) => bytes_of(ctx, var),
        _ => args.bytes(at).map(Into::into),
    }
}

/// The value of a variable, as text.
pub(super) fn bytes_of<'c>(ctx: &'c Context<'_>, var: &'c VarRef) -> Option<std::borrow::Cow<'c, [u8]>> {
    match ctx.var(var)? {
        Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => Some(bytes),
        other => Some(other.to_text().into()),
    }
}
