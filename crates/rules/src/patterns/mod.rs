//! Patterns, which samples are compared with by one of the manual's matching methods (section 7.1).
//!
//! A [`Reference`] is a list or map that rules and operators name; a [`Reading`] is how one rule reads it. Short lists
//! are compared one by one; long ones are hashed by the lengths that occur, or built into an automaton, so that a list
//! of a hundred thousand entries costs about as much as one of ten.

mod comparison;
mod contents;
mod entry;
mod file;
mod ints;
mod ips;
mod parts;
mod reference;
mod regs;
mod sequence;
mod set;
#[cfg(test)]
mod tests;
mod texts;
mod trie;

pub use comparison::{Comparison, Method};
pub use entry::Entry;
pub use reference::{ChangeError, Match, Reading, Reference, Summary, View, Which};
pub(crate) use {
    file::{parse_list, parse_map},
    ips::{parse_mask4, parse_mask6},
    reference::typed,
    texts::parse_hex,
};
