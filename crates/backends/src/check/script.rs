//! A check as a list of steps: connect, send, expect.

use super::{Outcome, Verdict};
use penstock_rules::{Context, Expr, LogFormat, Regex, Rules};

/// The script of a check. Immutable, and shared by all servers of a backend.
#[derive(Debug, Default)]
pub struct Script {
    /// The steps in order; the first one that acts is a connection.
    pub steps: Vec<Step>,
    /// The wording of results.
    pub kind: Kind,
    /// `http-check disable-on-404`.
    pub disable_on_404: bool,
    /// `http-check send-state`.
    pub send_state: bool,
}

/// The wording of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A connection, or one of the fixed protocols: errors do not name a step.
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
    /// The action to carry out.
    pub action: Action,
    /// `comment`, which errors from here on quote.
    pub comment: Option<String>,
}

/// The action of a step.
#[derive(Debug)]
pub enum Action {
    /// Opens a connection, replacing the previous one.
    Connect(Connect),
    /// Sends bytes.
    Send(Text),
    /// Sends an HTTP request.
    Request(Request),
    /// Waits for an answer and judges it.
    Expect(Expect),
    /// `set-var`, `set-var-fmt`, `unset-var`.
    Set(Rules),
    /// Nothing: a comment on its own.
    Comment,
}

impl Action {
    /// Whether the action involves the server; comments and variables do not.
    pub fn acts(&self) -> bool {
        !matches!(self, Action::Comment | Action::Set(_))
    }
}

/// `connect`.
#[derive(Clone, Debug, Default)]
pub struct Connect {
    /// Whether this step is not in the configuration, but is the connection that every check starts with.
    pub implicit: bool,
    /// `port`.
    pub port: Option<u16>,
    /// `port` as an expression, evaluated when the step is reached.
    pub port_from: Option<Expr>,
    /// `addr`.
    pub addr: Option<std::net::IpAddr>,
    /// `ssl`.
    pub ssl: bool,
    /// `sni`.
    pub sni: Option<String>,
    /// `alpn`.
    pub alpn: Option<Vec<String>>,
    /// `send-proxy`.
    pub send_proxy: bool,
    /// `linger`: the connection is closed in an orderly way rather than reset.
    pub linger: bool,
    /// Whether the settings of the server's line apply too: with `default`, or if implicit.
    pub as_server: bool,
}

/// Bytes to be sent or looked for, which may contain samples.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// The text as a format.
    pub format: LogFormat,
    /// Whether the text is in hexadecimal.
    pub hexadecimal: bool,
}

impl Text {
    /// A constant text.
    pub fn bytes(bytes: &[u8]) -> Text {
        Text { format: LogFormat::literal(bytes), hexadecimal: false }
    }

    /// The bytes; `None` if they are not valid hexadecimal.
    pub fn render(&self, ctx: &Context<'_>) -> Option<Vec<u8>> {
        let written = self.format.to_bytes(ctx);
        if self.hexadecimal { hex(&written) } else { Some(written) }
    }
}

/// Decodes an even number of hexadecimal digits.
pub fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

/// The state of a server as `http-check send-state` reports it to it.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The value of `X-Haproxy-Server-State`, for `send-state`.
    pub state: String,
    /// Whether the server is down: then a 404 does not bring it up.
    pub down: bool,
}

/// `http-check send`, or the request of `option httpchk`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Request {
    pub method: String,
    pub uri: LogFormat,
    pub version: String,
    pub headers: Vec<(String, LogFormat)>,
    pub body: LogFormat,
}

impl Request {
    /// The request as sent, with header names in lower case. `state` is for `send-state`.
    pub fn render(&self, ctx: &Context<'_>, state: Option<&str>) -> Vec<u8> {
        let mut out = format!("{} ", self.method).into_bytes();
        self.uri.render(ctx, &mut out);
        out.extend_from_slice(format!(" {}\r\n", self.version).as_bytes());
        let latest = self.version.eq_ignore_ascii_case("HTTP/1.1");
        let mut close = latest;
        for (name, value) in &self.headers {
            let (name, value) = (name.to_ascii_lowercase(), value.to_bytes(ctx));
            match name.as_str() {
                // The body determines these.
                "content-length" | "transfer-encoding" => continue,
                "connection" => {
                    // This is the default and is not sent.
                    close = false;
                    if value.eq_ignore_ascii_case(if latest { b"keep-alive" } else { b"close" }) {
                        continue;
                    }
                }
                _ => {}
            }
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(state) = state {
            out.extend_from_slice(format!("x-haproxy-server-state: {state}\r\n").as_bytes());
        }
        let mut body = self.body.to_bytes(ctx);
        // RFC 9110, 8.6: a body has no meaning with these methods; others say explicitly that it is empty.
        if !body.is_empty() || !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "DELETE") {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        if close {
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
    /// The pattern.
    pub pattern: Pattern,
    /// `!`: the pattern must not be found.
    pub inverse: bool,
    /// `min-recv`: with fewer bytes nothing is decided, and with this many an absence is final. Without it, more may
    /// always come.
    pub min_recv: Option<usize>,
    /// `ok-status`.
    pub ok_status: Option<Verdict>,
    /// `error-status`.
    pub error_status: Option<Verdict>,
    /// `tout-status`.
    pub timeout_status: Option<Verdict>,
    /// `on-success`.
    pub on_success: Option<LogFormat>,
    /// `on-error`.
    pub on_error: Option<LogFormat>,
    /// `status-code`.
    pub code: Option<Expr>,
}

impl Expect {
    /// An expectation with only a pattern.
    pub fn new(pattern: Pattern) -> Expect {
        Expect {
            pattern,
            inverse: false,
            min_recv: None,
            ok_status: None,
            error_status: None,
            timeout_status: None,
            on_success: None,
            on_error: None,
            code: None,
        }
    }
}

/// Parses a protocol's answer; `None` while bytes are missing.
pub type Judge = fn(&[u8]) -> Option<Result<Outcome, Outcome>>;

/// The pattern of an `expect`.
#[derive(Debug)]
pub enum Pattern {
    /// `string`, `binary`: these bytes anywhere; in HTTP, in the body.
    Bytes {
        /// The bytes.
        text: Text,
        /// `string` or `binary`, or the variant that takes a log format.
        name: &'static str,
    },
    /// `rstring`, `rbinary`; in HTTP, in the body.
    Regex {
        /// The expression.
        regex: Regex,
        /// Whether the expression is matched against the bytes in upper-case hexadecimal.
        hexadecimal: bool,
    },
    /// `status`: ranges.
    Status(Vec<(u16, u16)>),
    /// `rstatus`.
    StatusRegex(Regex),
    /// `hdr`, `fhdr`.
    Header {
        /// Whether values are compared as a whole, not split at commas.
        full: bool,
        /// The name.
        name: Match,
        /// The value, if one is expected.
        value: Option<Match>,
    },
    /// The answer of a fixed protocol.
    Protocol(Judge),
}

/// How a header's name or value is compared.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Match {
    Is(LogFormat),
    Begins(LogFormat),
    Ends(LogFormat),
    Has(LogFormat),
    Regex(Regex),
}

impl Match {
    /// The comparison with its text evaluated now.
    pub fn wanted<'m>(&'m self, ctx: &Context<'_>) -> Wanted<'m> {
        match self {
            Match::Is(text) => Wanted::Is(text.to_bytes(ctx)),
            Match::Begins(text) => Wanted::Begins(text.to_bytes(ctx)),
            Match::Ends(text) => Wanted::Ends(text.to_bytes(ctx)),
            Match::Has(text) => Wanted::Has(text.to_bytes(ctx)),
            Match::Regex(regex) => Wanted::Regex(regex),
        }
    }
}

/// A [`Match`] whose text is evaluated.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Wanted<'m> {
    Is(Vec<u8>),
    Begins(Vec<u8>),
    Ends(Vec<u8>),
    Has(Vec<u8>),
    Regex(&'m Regex),
}

impl Wanted<'_> {
    /// Whether `text` matches.
    pub fn matches(&self, text: &[u8], ignore_case: bool) -> bool {
        let same = |a: &[u8], b: &[u8]| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
        match self {
            Wanted::Is(want) => same(text, want),
            Wanted::Begins(want) => text.len() >= want.len() && same(&text[..want.len()], want),
            Wanted::Ends(want) => text.len() >= want.len() && same(&text[text.len() - want.len()..], want),
            Wanted::Has(want) => want.is_empty() || text.windows(want.len()).any(|part| same(part, want)),
            Wanted::Regex(regex) => regex.is_match(text),
        }
    }
}
