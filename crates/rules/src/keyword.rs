//! What the tables of fetches, converters and actions have in common: arguments, places and support.

use crate::{
    context::Decide,
    conv::TokenKeyArg,
    facts::ServerRef,
    patterns::Reading,
    regexes::Regex,
    table::StickTable,
    userlist::Userlist,
    value::Value,
    vars::{Condition, VarRef},
};
use penstock_config::model::ProxyId;
use std::{net::Ipv4Addr, net::Ipv6Addr, sync::Arc};

/// The kind of an argument of a fetch or a converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A signed number.
    Int,
    /// Text; quotes protect commas and parentheses.
    Str,
    /// A number other than 0.
    NonZero,
    /// One of these numbers, both ends included.
    Range(i64, i64),
    /// Text that is not empty.
    Word,
    /// Text made of these characters only.
    Within(&'static str),
    /// A number, or the name of a variable that holds one.
    IntOrVar,
    /// A number that is not below this one, or the name of a variable that holds a number.
    FromOrVar(i64),
    /// Bytes in base64, or the name of a variable that holds base64.
    Base64OrVar,
    /// The name of a variable.
    Var,
    /// A condition on an assignment.
    VarCondition,
    /// An even number of hexadecimal digits.
    Hex,
    /// `true`, `false`, `1`, `0`.
    Bool,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An IPv4 mask, as an address or a length.
    Mask4,
    /// An IPv6 mask, as an address or a length.
    Mask6,
    /// A regular expression.
    Regex,
    /// The name of a backend; the current one if none is given.
    Backend,
    /// The name of a frontend; the current one if none is given.
    Frontend,
    /// `backend/server`, or a server of the current backend.
    Server,
    /// The name of a proxy that has a stick table; the current one if none is given.
    Table,
    /// The name of an ACL, perhaps behind `!`.
    Acl,
    /// The name of a userlist.
    Userlist,
    /// A map file.
    Map,
    /// The type of a field of the PROXY header: a number, or its name.
    Tlv,
    /// The name of a message digest, in one of OpenSSL's spellings.
    Digest,
    /// The name of an algorithm that signs tokens, or of a variable that holds one.
    TokenAlgorithm,
    /// A secret or the file of a public key, or the name of a variable that holds one.
    TokenKey,
    /// The numbers of a field and of those around it, separated by dots.
    FieldNumber,
    /// The number of a tag of a FIX message, or its name.
    FixTag,
    /// The type of an MQTT packet: a number, or its name.
    MqttPacket,
    /// A field of an MQTT packet: its name, or the number of a property.
    MqttField,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl ArgKind {
    /// Whether an empty argument is valid.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, ArgKind::Str | ArgKind::Word | ArgKind::Within(_))
    }

    /// A description for the manual.
    pub fn describe(self) -> String {
        match self {
            ArgKind::Int => "integer".into(),
            ArgKind::Str => "string".into(),
            ArgKind::NonZero => "integer other than 0".into(),
            ArgKind::Range(low, high) if high == i64::MAX => format!("integer from {low} on"),
            ArgKind::Range(low, high) => format!("integer from {low} to {high}"),
            ArgKind::Word => "non-empty string".into(),
            ArgKind::Within(letters) => format!("letters of '{letters}'"),
            ArgKind::IntOrVar => "integer or variable".into(),
            ArgKind::FromOrVar(least) => format!("integer from {least} on, or variable"),
            ArgKind::Base64OrVar => "base64 or variable".into(),
            ArgKind::Var => "variable".into(),
            ArgKind::VarCondition => "condition".into(),
            ArgKind::Hex => "hexadecimal digits".into(),
            ArgKind::Bool => "boolean".into(),
            ArgKind::Ipv4 => "IPv4 address".into(),
            ArgKind::Ipv6 => "IPv6 address".into(),
            ArgKind::Mask4 => "IPv4 mask".into(),
            ArgKind::Mask6 => "IPv6 mask".into(),
            ArgKind::Regex => "regular expression".into(),
            ArgKind::Backend => "backend".into(),
            ArgKind::Frontend => "frontend".into(),
            ArgKind::Server => "[backend/]server".into(),
            ArgKind::Table => "stick table".into(),
            ArgKind::Acl => "[!]ACL".into(),
            ArgKind::Userlist => "userlist".into(),
            ArgKind::Map => "map file".into(),
            ArgKind::Tlv => "number or name of a type".into(),
            ArgKind::Digest => crate::conv::DIGESTS.join("|"),
            ArgKind::TokenAlgorithm => format!("{}|variable", crate::conv::ALGORITHMS.join("|")),
            ArgKind::TokenKey => "secret, file or variable".into(),
            ArgKind::FieldNumber => "numbers separated by dots".into(),
            ArgKind::FixTag => "number or name of a tag".into(),
            ArgKind::MqttPacket => "connect|connack|1|2".into(),
            ArgKind::MqttField => "name of a field or number of a property".into(),
            ArgKind::OneOf(words) => words.join("|"),
        }
    }
}

/// One argument of a keyword.
#[derive(Clone, Copy, Debug)]
pub struct ArgSpec {
    /// The argument's name in the manual.
    pub name: &'static str,
    /// The kind of value that the argument takes.
    pub kind: ArgKind,
    /// Whether the argument may be left out.
    pub optional: bool,
}

/// A required argument.
pub(crate) const fn arg(name: &'static str, kind: ArgKind) -> ArgSpec {
    ArgSpec { name, kind, optional: false }
}

/// An optional argument.
pub(crate) const fn opt(name: &'static str, kind: ArgKind) -> ArgSpec {
    ArgSpec { name, kind, optional: true }
}

/// A resolved argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// Not given.
    None,
    /// A number.
    Int(i64),
    /// Text or bytes.
    Bytes(Box<[u8]>),
    /// See [`ArgKind::Var`].
    Var(VarRef),
    /// See [`ArgKind::VarCondition`].
    Condition(Condition),
    /// A constant sample.
    Value(Value<'static>),
    /// An address.
    Ipv4(Ipv4Addr),
    /// An address.
    Ipv6(Ipv6Addr),
    /// See [`ArgKind::Regex`].
    Regex(Regex),
    /// See [`ArgKind::Backend`] and [`ArgKind::Frontend`].
    Proxy(ProxyId),
    /// See [`ArgKind::Server`].
    Server(ServerRef),
    /// See [`ArgKind::Table`].
    Table(Arc<StickTable>),
    /// See [`ArgKind::Acl`].
    Acl {
        /// The ACL.
        acl: Arc<dyn Decide>,
        /// Whether it must not match.
        negated: bool,
    },
    /// See [`ArgKind::Userlist`].
    Userlist(Arc<Userlist>),
    /// See [`ArgKind::Map`].
    Map(Reading),
    /// See [`ArgKind::TokenKey`].
    TokenKey(TokenKeyArg),
    /// See [`ArgKind::FieldNumber`].
    Numbers(Box<[u32]>),
    /// The index of the word in [`ArgKind::OneOf`], of the digest, or of the algorithm.
    Word(usize),
}

/// Access to compiled arguments. The types are those of the keyword's table; a missing optional argument is `None`.
pub(crate) trait Args {
    fn int(&self, at: usize) -> Option<i64>;
    fn bytes(&self, at: usize) -> Option<&[u8]>;
    fn word(&self, at: usize) -> Option<usize>;
    fn proxy(&self, at: usize) -> Option<ProxyId>;
    fn table(&self, at: usize) -> Option<&Arc<StickTable>>;
    fn var(&self, at: usize) -> Option<&VarRef>;
}

impl Args for [Arg] {
    fn int(&self, at: usize) -> Option<i64> {
        match self.get(at)? {
            Arg::Int(n) => Some(*n),
            _ => None,
        }
    }
    fn bytes(&self, at: usize) -> Option<&[u8]> {
        match self.get(at)? {
            Arg::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
    fn word(&self, at: usize) -> Option<usize> {
        match self.get(at)? {
            Arg::Word(n) => Some(*n),
            _ => None,
        }
    }
    fn proxy(&self, at: usize) -> Option<ProxyId> {
        match self.get(at)? {
            Arg::Proxy(proxy) => Some(*proxy),
            _ => None,
        }
    }
    fn table(&self, at: usize) -> Option<&Arc<StickTable>> {
        match self.get(at)? {
            Arg::Table(table) => Some(table),
            _ => None,
        }
    }
    fn var(&self, at: usize) -> Option<&VarRef> {
        match self.get(at)? {
            Arg::Var(var) => Some(var),
            _ => None,
        }
    }
}

/// A set of the points at which something can be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places(pub u16);

impl Places {
    /// `tcp-request connection`.
    pub const CONNECTION: Places = Places(1);
    /// `tcp-request session`: after the handshakes.
    pub const SESSION: Places = Places(1 << 1);
    /// `tcp-request content`, `http-request`, `use_backend`, `use-server`, `balance`, `stick match`.
    pub const REQUEST: Places = Places(1 << 2);
    /// After a server is chosen, before there is a connection to it (`source`, `sni`).
    pub const SERVER: Places = Places(1 << 3);
    /// `tcp-response content`, `http-response`, `http-after-response`, `stick store-response`.
    pub const RESPONSE: Places = Places(1 << 4);
    /// Log lines.
    pub const LOG: Places = Places(1 << 5);
    /// Health checks.
    pub const CHECK: Places = Places(1 << 6);
    /// While the configuration is read (`global` variables).
    pub const CONFIG: Places = Places(1 << 7);
    /// `error-log-format`: the connection failed before it became a session. As in HAProxy, what other log lines may say may stand there too.
    pub const ERROR: Places = Places(1 << 8);
    /// `tcp-request client-hello`: the first bytes of a connection that will be decrypted.
    pub const HELLO: Places = Places(1 << 9);
    /// As `REQUEST`, but only in a section that has servers.
    pub const BACKEND_REQUEST: Places = Places(1 << 10);

    /// Everywhere.
    pub const ALWAYS: Places = Places(0x7ff);
    /// Everywhere in a running process.
    pub const SERVING: Places = Places(0x7ff & !Self::CONFIG.0);
    /// From the accepted connection onwards.
    pub const FROM_CONNECTION: Places = Places(0x7ff & !Self::CONFIG.0);
    /// From the established session onwards, including logs.
    pub const FROM_SESSION: Places =
        Places(Self::SESSION.0 | Self::REQUEST.0 | Self::SERVER.0 | Self::RESPONSE.0 | Self::LOG.0 | Self::ERROR.0);
    /// While the request is available.
    pub const IN_REQUEST: Places = Places(Self::REQUEST.0 | Self::SERVER.0);
    /// While the response is available.
    pub const IN_RESPONSE: Places = Places(Self::RESPONSE.0 | Self::CHECK.0);
    /// From the request to the log line.
    pub const FROM_REQUEST: Places =
        Places(Self::REQUEST.0 | Self::SERVER.0 | Self::RESPONSE.0 | Self::LOG.0 | Self::ERROR.0);
    /// From the connection to the server onwards.
    pub const FROM_SERVER: Places = Places(Self::RESPONSE.0 | Self::LOG.0 | Self::CHECK.0 | Self::ERROR.0);
    /// From the response to the log line.
    pub const FROM_RESPONSE: Places = Places(Self::RESPONSE.0 | Self::LOG.0 | Self::CHECK.0 | Self::ERROR.0);

    /// The union of both.
    #[must_use]
    pub const fn or(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }
    /// Whether the two sets have a place in common.
    pub const fn meets(self, other: Places) -> bool {
        self.0 & other.0 != 0
    }
    /// A description in words.
    pub fn describe(self) -> String {
        if self == Self::ALWAYS {
            return "anywhere".into();
        }
        const NAMES: &[(Places, &str)] = &[
            (Places::CONNECTION, "connection"),
            (Places::HELLO, "client hello"),
            (Places::SESSION, "session"),
            (Places::REQUEST, "request"),
            (Places::BACKEND_REQUEST, "request in a backend"),
            (Places::SERVER, "server"),
            (Places::RESPONSE, "response"),
            (Places::LOG, "log"),
            (Places::CHECK, "check"),
            (Places::CONFIG, "configuration"),
            (Places::ERROR, "error log"),
        ];
        let told = |place: Places| self.meets(place) && !(place == Self::BACKEND_REQUEST && self.meets(Self::REQUEST));
        let names: Vec<&str> = NAMES.iter().filter(|(place, _)| told(*place)).map(|(_, name)| *name).collect();
        names.join(", ")
    }
}

/// Whether a keyword is implemented.
#[derive(Clone, Copy, Debug)]
pub enum Support<F> {
    /// The keyword is implemented, by this function.
    Yes(F),
    /// The keyword is refused; the text says why, and what to write instead.
    No(&'static str),
}

impl<F> Support<F> {
    /// A description for the manual.
    pub fn describe(&self) -> String {
        match self {
            Support::Yes(_) => "yes".into(),
            Support::No(reason) => format!("refused: {reason}"),
        }
    }
}
