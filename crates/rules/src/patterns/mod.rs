//! Patterns, which samples are compared with by one of the manual's matching methods (section 7.1).
//!
//! A [`Reference`] is a list or map that rules and operators name; a [`Reading`] is how one rule reads it. Short lists
//! are compared one by one; long ones are hashed by the lengths that occur, or built into an automaton, so that a list
//! of a hundred thousand entries costs about as much as one of ten.

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

pub use entry::Entry;
pub use reference::{ChangeError, Match, Reading, Reference, Summary, View, Which};
pub use set::Comparison;
pub(crate) use {
    file::{parse_list, parse_map},
    ips::{parse_mask4, parse_mask6},
    reference::typed,
    texts::parse_hex,
};

use crate::value::Type;

/// The matching methods of `-m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The sample exists.
    Found,
    /// It is true.
    Bool,
    /// A number or a range.
    Int,
    /// An address or a network.
    Ip,
    /// Bytes, in hexadecimal.
    Bin,
    /// The length of text.
    Len,
    /// The whole text.
    Str,
    /// Part of the text.
    Sub,
    /// A regular expression.
    Reg,
    /// The start of the text.
    Beg,
    /// The end of the text.
    End,
    /// A part between slashes.
    Dir,
    /// A part between dots, slashes or colons.
    Dom,
    /// A method of HTTP: how `method` compares when `-m` does not say. `-i` concerns only those that HAProxy has no number for.
    Meth,
}

impl Method {
    /// All methods by the manual's names.
    pub const NAMES: &'static [(&'static str, Method)] = &[
        ("found", Method::Found),
        ("bool", Method::Bool),
        ("int", Method::Int),
        ("ip", Method::Ip),
        ("bin", Method::Bin),
        ("len", Method::Len),
        ("str", Method::Str),
        ("sub", Method::Sub),
        ("reg", Method::Reg),
        ("beg", Method::Beg),
        ("end", Method::End),
        ("dir", Method::Dir),
        ("dom", Method::Dom),
    ];

    /// Finds a method by name.
    pub fn parse(name: &str) -> Option<Method> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }
    /// The manual's name; `meth` has none there, and is no word for `-m`.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, method)| *method == self).map_or("meth", |(name, _)| name)
    }
    /// The default method for a type.
    pub fn of_type(kind: Type) -> Option<Method> {
        match kind {
            Type::Bool => Some(Method::Bool),
            Type::Int => Some(Method::Int),
            Type::Addr | Type::Ipv4 | Type::Ipv6 => Some(Method::Ip),
            Type::Str => Some(Method::Str),
            Type::Method => Some(Method::Meth),
            Type::Bin | Type::Any => None,
        }
    }
    /// Whether a sample of this type can be compared by this method.
    pub fn takes(self, kind: Type) -> bool {
        match self {
            Method::Found => true,
            Method::Bool | Method::Int => kind.casts_to(Type::Int),
            Method::Ip => kind.casts_to(Type::Addr),
            Method::Bin => kind.casts_to(Type::Bin),
            _ => kind.casts_to(Type::Str),
        }
    }
    /// Whether the method compares with patterns.
    pub fn wants_patterns(self) -> bool {
        !matches!(self, Method::Found | Method::Bool)
    }
}
