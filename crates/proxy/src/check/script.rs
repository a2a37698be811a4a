//! A check as a list of steps: connect, send, expect.

use super::{Outcome, Verdict};
use regex::bytes::Regex;

/// What a server is asked. Immutable, one for all servers of a backend.
#[derive(Debug, Default)]
pub struct Script {
    /// The steps in order; the first that acts is a connection.
    pub steps: Vec<Step>,
    /// How results are worded.
    pub kind: Kind,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
}

/// How results are worded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A connection, or one of the fixed protocols: errors name no step.
    #[default]
    Plain,
    /// `tcp-check`: errors name their step.
    Tcp,
    /// `httpchk`.
    Http,
}

/// One step.
#[derive(Debug)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// `comment`, which errors from here on quote.
    pub comment: Option<String>,
}

/// What a step does.
#[derive(Debug)]
pub enum Action {
    /// Opens a connection, in place of the one before.
    Connect(Connect),
    /// Sends bytes.
    Send(Template),
    /// Sends an HTTP request.
    Request(Request),
    /// Waits for an answer and judges it.
    Expect(Expect),
    /// Nothing: a comment of its own.
    Comment,
}

/// `connect`.
#[derive(Clone, Debug, Default)]
pub struct Connect {
    /// Not written: the connection every check begins with.
    pub implicit: bool,
    /// `port`.
    pub port: Option<u16>,
    /// `addr`.
    pub addr: Option<std::net::IpAddr>,
    /// `ssl`.
    pub ssl: bool,
    /// `sni`.
    pub sni: Option<String>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `default` or implicit: what the server's line says holds too.
    pub as_server: bool,
}

/// Bytes with names to fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(pub Vec<Piece>);

/// A piece of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Bytes(Vec<u8>),
    /// `%[srv_name]`.
    ServerName,
    /// `%[be_name]`.
    BackendName,
}

/// What templates are filled with.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The server.
    pub server: String,
    /// Its backend.
    pub backend: String,
    /// The value of `X-Haproxy-Server-State`, for `send-state`.
    pub state: String,
    /// It is down: a 404 does not bring it up.
    pub down: bool,
}

impl Template {
    /// Bytes without names.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Template {
        Template(vec![Piece::Bytes(bytes.into())])
    }

    /// Filled in.
    pub fn render(&self, names: &Names, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::ServerName => out.extend_from_slice(names.server.as_bytes()),
                Piece::BackendName => out.extend_from_slice(names.backend.as_bytes()),
            }
        }
    }
}

/// `http-check send`, or what `option httpchk` says.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Request {
    pub method: String,
    pub uri: Template,
    pub version: String,
    pub headers: Vec<(String, Template)>,
    pub body: Template,
}

impl Request {
    /// As it goes over the wire; names of headers in lower case.
    pub fn render(&self, names: &Names, send_state: bool) -> Vec<u8> {
        let mut out = format!("{} ", self.method).into_bytes();
        self.uri.render(names, &mut out);
        out.extend_from_slice(format!(" {}\r\n", self.version).as_bytes());
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{}: ", name.to_ascii_lowercase()).as_bytes());
            value.render(names, &mut out);
            out.extend_from_slice(b"\r\n");
        }
        if send_state {
            out.extend_from_slice(format!("x-haproxy-server-state: {}\r\n", names.state).as_bytes());
        }
        let mut body = Vec::new();
        self.body.render(names, &mut body);
        if !body.is_empty() {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        if self.version.eq_ignore_ascii_case("HTTP/1.1") {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.append(&mut body);
        out
    }
}

/// `expect`.
#[derive(Debug)]
pub struct Expect {
    /// What is looked for.
    pub pattern: Pattern,
    /// `!`.
    pub inverse: bool,
    /// `min-recv`: do not judge fewer bytes.
    pub min_recv: usize,
    /// `ok-status`.
    pub ok_status: Option<Verdict>,
    /// `error-status`.
    pub error_status: Option<Verdict>,
    /// `tout-status`.
    pub timeout_status: Option<Verdict>,
    /// `on-success`.
    pub on_success: Option<Template>,
    /// `on-error`.
    pub on_error: Option<Template>,
}

impl Expect {
    /// Nothing but a pattern.
    pub fn new(pattern: Pattern) -> Expect {
        Expect {
            pattern,
            inverse: false,
            min_recv: 0,
            ok_status: None,
            error_status: None,
            timeout_status: None,
            on_success: None,
            on_error: None,
        }
    }
}

/// Reads a protocol's answer: `None` while bytes are missing.
pub type Judge = fn(&[u8]) -> Option<Result<Outcome, Outcome>>;

/// What an `expect` looks for.
#[derive(Debug)]
pub enum Pattern {
    /// `string`, `binary`: these bytes anywhere; the words of the configuration for messages.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// `string` or `binary`.
        name: &'static str,
    },
    /// `rstring`, `rbinary`.
    Regex {
        /// The expression.
        regex: Regex,
        /// It is matched against the bytes written in hexadecimal, in capitals.
        hexadecimal: bool,
    },
    /// `status`: ranges.
    Status(Vec<(u16, u16)>),
    /// `rstatus`.
    StatusRegex(Regex),
    /// `hdr`, `fhdr`.
    Header {
        /// Values are taken whole, not split at commas.
        full: bool,
        /// The name.
        name: Match,
        /// The value, if one is wanted.
        value: Option<Match>,
    },
    /// `string` in the body of a response.
    BodyBytes(Vec<u8>),
    /// `rstring` in the body of a response.
    BodyRegex(Regex),
    /// A fixed protocol's answer.
    Protocol(Judge),
}

/// How a header's name or value is compared.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Match {
    Is(Vec<u8>),
    Begins(Vec<u8>),
    Ends(Vec<u8>),
    Has(Vec<u8>),
    Regex(Regex),
}

impl Match {
    /// Whether `text` matches.
    pub fn matches(&self, text: &[u8], ignore_case: bool) -> bool {
        let same = |a: &[u8], b: &[u8]| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
        match self {
            Match::Is(want) => same(text, want),
            Match::Begins(want) => text.len() >= want.len() && same(&text[..want.len()], want),
            Match::Ends(want) => text.len() >= want.len() && same(&text[text.len() - want.len()..], want),
            Match::Has(want) => want.is_empty() || text.windows(want.len()).any(|part| same(part, want)),
            Match::Regex(regex) => regex.is_match(text),
        }
    }
}
