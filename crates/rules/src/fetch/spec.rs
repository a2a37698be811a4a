//! A row of the tables of fetches.

use super::counters::Counter;
use crate::{
    context::Context,
    keyword::{Arg, ArgSpec, Places, Support},
    sample::{Cursor, Fetched},
    value::Type,
};

/// A fetch with one value.
pub type FetchFn = for<'c> fn(&'c Context<'_>, &'c [Arg]) -> Fetched<'c>;
/// A fetch with several values, one after another.
pub type EachFn = for<'c> fn(&'c Context<'_>, &'c [Arg], &mut Cursor) -> Fetched<'c>;

/// Whether a sample may still change.
pub type ChangeFn = fn(&Context<'_>, &[Arg]) -> bool;

/// How a fetch runs.
#[derive(Clone, Copy, Debug)]
pub enum FetchRun {
    /// The fetch has one value.
    One(FetchFn),
    /// The fetch may have several values (fields, cookies, parameters).
    Each(EachFn),
    /// The fetch reads a counter in a stick table.
    Counter(Counter),
}

/// A row of the table of fetches.
#[derive(Clone, Copy, Debug)]
pub struct FetchSpec {
    /// The fetch's name.
    pub name: &'static str,
    /// The fetch's arguments.
    pub args: &'static [ArgSpec],
    /// The type of its sample.
    pub output: Type,
    /// The places in which the fetch can be evaluated.
    pub places: Places,
    /// What the fetch returns, in one line.
    pub doc: &'static str,
    /// Whether the sample may still change before rules have to decide, so that a failed test is not final.
    pub changes: ChangeFn,
    /// Whether the fetch is implemented.
    pub support: Support<FetchRun>,
}

pub(super) const fn one(
    name: &'static str,
    args: &'static [ArgSpec],
    output: Type,
    places: Places,
    doc: &'static str,
    run: FetchFn,
) -> FetchSpec {
    FetchSpec { name, args, output, places, doc, changes: never, support: Support::Yes(FetchRun::One(run)) }
}

pub(super) const fn each(
    name: &'static str,
    args: &'static [ArgSpec],
    output: Type,
    places: Places,
    doc: &'static str,
    run: EachFn,
) -> FetchSpec {
    FetchSpec { name, args, output, places, doc, changes: never, support: Support::Yes(FetchRun::Each(run)) }
}

pub(super) const fn refused(name: &'static str, output: Type, doc: &'static str, why: &'static str) -> FetchSpec {
    FetchSpec { name, args: &[], output, places: Places::ALWAYS, doc, changes: never, support: Support::No(why) }
}

/// The sample is final. This is the default; fetches that wait for bytes report that themselves.
pub(crate) fn never(_: &Context<'_>, _: &[Arg]) -> bool {
    false
}

/// The sample may change each time, until the rules have to decide.
pub(super) fn while_waiting(ctx: &Context<'_>, _: &[Arg]) -> bool {
    !(ctx.input.complete || ctx.output.complete)
}

impl FetchSpec {
    pub(super) const fn changing(self, changes: ChangeFn) -> FetchSpec {
        FetchSpec { changes, ..self }
    }
}
