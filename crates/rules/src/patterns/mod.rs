//! Patterns: what a sample is compared with, by one of the manual's matching methods (section 7.1).
//!
//! A set is compiled once. Short lists are compared one by one; long ones are hashed by the lengths that occur, or put
//! in one automaton, so that a list of a hundred thousand entries costs about as much as one of ten.

mod file;
mod ints;
mod ips;
mod regs;
mod texts;

pub use file::{Entry, PatternFile, parse_list, parse_map};
pub use ints::IntSet;
pub use ips::IpSet;
pub use regs::RegSet;
pub use texts::TextSet;
pub(crate) use {
    file::typed,
    ips::{parse_mask4, parse_mask6},
    texts::parse_hex,
};

use crate::{
    keyword::Problem,
    value::{Type, Value},
};

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
    /// How the text begins.
    Beg,
    /// How the text ends.
    End,
    /// A part between slashes.
    Dir,
    /// A part between dots, slashes or colons.
    Dom,
}

impl Method {
    /// All, by the manual's names.
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

    /// By name.
    pub fn parse(name: &str) -> Option<Method> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }
    /// The manual's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
    /// What applies to a type when no method is named.
    pub fn of_type(kind: Type) -> Option<Method> {
        match kind {
            Type::Bool => Some(Method::Bool),
            Type::Int => Some(Method::Int),
            Type::Addr | Type::Ipv4 | Type::Ipv6 => Some(Method::Ip),
            Type::Str | Type::Method => Some(Method::Str),
            Type::Bin | Type::Any => None,
        }
    }
    /// Whether a sample of a type can be compared by this method.
    pub fn takes(self, kind: Type) -> bool {
        match self {
            Method::Found => true,
            Method::Bool | Method::Int => kind.casts_to(Type::Int),
            Method::Ip => kind.casts_to(Type::Addr),
            Method::Bin => kind.casts_to(Type::Bin),
            _ => kind.casts_to(Type::Str),
        }
    }
    /// Whether it compares with patterns at all.
    pub fn wants_patterns(self) -> bool {
        !matches!(self, Method::Found | Method::Bool)
    }
}

/// A pattern as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Its text.
    pub text: String,
    /// `-i`.
    pub ignore_case: bool,
}

/// Patterns of one method, compiled.
#[derive(Clone, Debug)]
pub enum PatternSet {
    /// See [`Method::Found`].
    Found,
    /// See [`Method::Bool`].
    Bool,
    /// See [`Method::Int`].
    Int(IntSet),
    /// See [`Method::Len`].
    Len(IntSet),
    /// See [`Method::Ip`].
    Ip(IpSet),
    /// Every other way to compare text.
    Text(TextSet),
    /// See [`Method::Reg`].
    Reg(RegSet),
}

impl PatternSet {
    /// Compiles patterns. `dotted` reads `3.1` as a version of TLS.
    ///
    /// # Errors
    /// The place in the list of the first that cannot be read, and why.
    pub fn new(method: Method, patterns: &[Pattern], dotted: bool) -> Result<PatternSet, (usize, Problem)> {
        let each = |f: &mut dyn FnMut(&Pattern, u32) -> Result<(), Problem>| {
            patterns.iter().enumerate().try_for_each(|(at, pattern)| f(pattern, at as u32).map_err(|p| (at, p)))
        };
        Ok(match method {
            Method::Found => PatternSet::Found,
            Method::Bool => PatternSet::Bool,
            Method::Int | Method::Len => {
                let mut set = IntSet::default();
                each(&mut |pattern, at| set.add(&pattern.text, dotted, at))?;
                if method == Method::Int { PatternSet::Int(set) } else { PatternSet::Len(set) }
            }
            Method::Ip => {
                let mut set = IpSet::default();
                each(&mut |pattern, at| set.add(&pattern.text, at))?;
                PatternSet::Ip(set)
            }
            Method::Reg => PatternSet::Reg(RegSet::new(patterns)?),
            text => PatternSet::Text(TextSet::new(text, patterns)?),
        })
    }

    /// The place of the pattern that matches a sample; the first one, or the most specific network or prefix.
    pub fn find(&self, value: &Value<'_>) -> Option<u32> {
        match self {
            PatternSet::Found => Some(0),
            PatternSet::Bool => (value.to_int()? != 0).then_some(0),
            PatternSet::Int(set) => set.find(value.to_int()?),
            PatternSet::Len(set) => with_text(value, |text| set.find(text.len() as i64)),
            PatternSet::Ip(set) => match value {
                Value::Ipv4(ip) => set.find_v4(*ip),
                Value::Ipv6(ip) => set.find_v6(*ip),
                other => match other.borrowed().cast(Type::Addr)? {
                    Value::Ipv4(ip) => set.find_v4(ip),
                    Value::Ipv6(ip) => set.find_v6(ip),
                    _ => None,
                },
            },
            // Numbers and addresses are compared with bytes as the bytes that they are.
            PatternSet::Text(set) if set.is_binary() => set.find(value.borrowed().cast(Type::Bin)?.bytes()?),
            PatternSet::Text(set) => with_text(value, |text| set.find(text)),
            PatternSet::Reg(set) => with_text(value, |text| set.find(text)),
        }
    }
}

/// Lends the text form of a sample, which is only made for numbers and addresses.
fn with_text<T>(value: &Value<'_>, f: impl FnOnce(&[u8]) -> T) -> T {
    match value.bytes() {
        Some(text) => f(text),
        None => f(&value.to_text()),
    }
}
