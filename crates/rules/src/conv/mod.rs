//! Converters: one table for each kind (section 7.3.1 of the manual).

mod codec;
mod digests;
mod maps;
mod numbers;
mod special;
mod text;

pub(crate) use codec::hex_of;
pub(crate) use maps::map_kind;

use crate::{
    context::Context,
    fetch::Lookup,
    keyword::{Arg, ArgSpec, Args as _, Support},
    value::{Type, Value},
};
use std::{collections::HashMap, sync::LazyLock};

/// A converter's function. `None` if there is no result.
pub type ConvertFn = for<'c> fn(&'c Context<'_>, Value<'c>, &'c [Arg]) -> Option<Value<'c>>;

/// How a converter runs.
#[derive(Clone, Copy, Debug)]
pub enum ConvFn {
    /// It calls a function.
    Plain(ConvertFn),
    /// It looks the sample up in a stick table.
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
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [ArgSpec],
    /// The type it accepts.
    pub input: Type,
    /// The type it returns; [`Type::Any`] if that is only known when it runs.
    pub output: Type,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Whether it is implemented.
    pub support: Support<ConvFn>,
}

const fn conv(
    name: &'static str,
    args: &'static [ArgSpec],
    input: Type,
    output: Type,
    doc: &'static str,
    run: ConvertFn,
) -> ConvSpec {
    ConvSpec { name, args, input, output, doc, support: Support::Yes(ConvFn::Plain(run)) }
}

const fn refused(name: &'static str, input: Type, output: Type, doc: &'static str, why: &'static str) -> ConvSpec {
    ConvSpec { name, args: &[], input, output, doc, support: Support::No(why) }
}

/// Kinds of converters and their tables.
pub fn sections() -> &'static [(&'static str, &'static [ConvSpec])] {
    static SECTIONS: LazyLock<Vec<(&str, &[ConvSpec])>> = LazyLock::new(|| {
        vec![
            ("Numbers", numbers::TABLE),
            ("Text", text::TABLE),
            ("Encodings", codec::TABLE),
            ("Hashes", digests::TABLE),
            ("Maps", maps::table()),
            ("Stick tables", tables()),
            ("Others", special::TABLE),
        ]
    });
    &SECTIONS
}

fn tables() -> &'static [ConvSpec] {
    static TABLE: LazyLock<Vec<ConvSpec>> = LazyLock::new(|| {
        let lookups = crate::fetch::lookups().map(|(name, args, output, doc, lookup)| ConvSpec {
            name,
            args,
            input: Type::Any,
            output,
            doc,
            support: Support::Yes(ConvFn::Lookup(lookup)),
        });
        lookups.chain([special::IN_TABLE]).collect()
    });
    &TABLE
}

static BY_NAME: LazyLock<HashMap<&'static str, &'static ConvSpec>> =
    LazyLock::new(|| sections().iter().flat_map(|(_, table)| *table).map(|spec| (spec.name, spec)).collect());

/// A converter by name.
pub fn find(name: &str) -> Option<&'static ConvSpec> {
    BY_NAME.get(name).copied()
}

/// All names, for hints.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().copied()
}

/// An argument that is a number, or a variable holding one.
fn int_arg(ctx: &Context<'_>, args: &[Arg], at: usize) -> Option<i64> {
    match args.get(at)? {
        Arg::Int(n) => Some(*n),
        Arg::Var(var) => ctx.var(var)?.to_int(),
        _ => None,
    }
}

/// An argument that is text, or a variable holding text.
fn bytes_arg<'c>(ctx: &'c Context<'_>, args: &'c [Arg], at: usize) -> Option<std::borrow::Cow<'c, [u8]>> {
    match args.get(at)? {
        Arg::Var(var) => match ctx.var(var)? {
            Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => Some(bytes),
            other => Some(other.to_text().into()),
        },
        _ => args.bytes(at).map(Into::into),
    }
}
