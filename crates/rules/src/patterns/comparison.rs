//! How a list is compared with samples.

use crate::value::Type;

/// The matching methods of `-m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The sample exists.
    Found,
    /// The sample is true: as a number, it is not 0.
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

/// How patterns are compared with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The method.
    pub method: Method,
    /// Whether case is ignored: `-i`.
    pub ignore_case: bool,
    /// Whether numbers are TLS versions: `3.1` is 3 × 65536 + 1.
    pub dotted: bool,
    /// `regm`: whether values are templates that are filled with the groups of the expression.
    pub groups: bool,
}

impl Comparison {
    /// A comparison by this method, case sensitive.
    pub fn by(method: Method) -> Comparison {
        Comparison { method, ignore_case: false, dotted: false, groups: false }
    }
    /// The method as HAProxy's runtime API names it.
    pub fn name(self) -> &'static str {
        if self.groups { "regm" } else { self.method.name() }
    }
}
