//! A check as a list of steps: connect, send, expect.

use super::{Outcome, Verdict};
use penstock_rules::{Context, Expr, LogFormat, Regex, Rules};

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
    Send(Text),
    /// Sends an HTTP request.
    Request(Request),
    /// Waits for an answer and judges it.
    Expect(Expect),
    /// `set-var`, `set-var-fmt`, `unset-var`.
    Set(Rules),
    /// Nothing: a comment of its own.
    Comment,
}

impl Action {
    /// It has to do with the server: comments and variables do not.
    pub fn acts(&self) -> bool {
        !matches!(self, Action::Comment | Action::Set(_))
    }
}

/// `connect`.
#[derive(Clone, Debug, Default)]
pub struct Connect {
    /// Not written: the connection every check begins with.
    pub implicit: bool,
    /// `port`.
    pub port: Option<u16>,
    /// `port` as an expression, which is that number once it is reached.
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
    /// `linger`: the connection is closed in good order, not reset.
    pub linger: bool,
    /// `default` or implicit: what the server's line says holds too.
    pub as_server: bool,
}

/// Bytes that are sent or looked for, which samples may be part of.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// What is written.
    pub format: LogFormat,
    /// It is the bytes in hexadecimal.
    pub hexadecimal: bool,
}

impl Text {
    /// These bytes.
    pub fn bytes(bytes: &[u8]) -> Text {
        Text { format: LogFormat::literal(bytes), hexadecimal: false }
    }

    /// The bytes; `None` where they are no hexadecimal number.
    pub fn render(&self, ctx: &Context<'_>) -> Option<Vec<u8>> {
        let written = self.format.to_bytes(ctx);
        if self.hexadecimal { hex(&written) } else { Some(written) }
    }
}

/// Bytes from an even number of hexadecimal digits.
pub fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

/// What the server is told of itself.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The value of `X-Haproxy-Server-State`, for `send-state`.
    pub state: String,
    /// It is down: a 404 does not bring it up.
    pub down: bool,
}

/// `http-check send`, or what `option httpchk` says.
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
    /// As it goes over the wire; names of headers in lower case. `state` is for `send-state`.
    pub fn render(&self, ctx: &Context<'_>, state: Option<&str>) -> Vec<u8> {
        let mut out = format!("{} ", self.method).into_bytes();
        self.uri.render(ctx, &mut out);
        out.extend_from_slice(format!(" {}\r\n", self.version).as_bytes());
        let latest = self.version.eq_ignore_ascii_case("HTTP/1.1");
        let mut close = latest;
        for (name, value) in &self.headers {
            let (name, value) = (name.to_ascii_lowercase(), value.to_bytes(ctx));
            match name.as_str() {
                // The body decides.
                "content-length" | "transfer-encoding" => continue,
                "connection" => {
                    // What goes without saying is not said.
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
        // RFC 9110, 8.6: these methods mean nothing by a body, others say that theirs is empty.
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
    /// What is looked for.
    pub pattern: Pattern,
    /// `!`.
    pub inverse: bool,
    /// `min-recv`: fewer bytes are not judged, and with as many an absence is final. Without it more may always come.
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
    /// Nothing but a pattern.
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

/// Reads a protocol's answer: `None` while bytes are missing.
pub type Judge = fn(&[u8]) -> Option<Result<Outcome, Outcome>>;

/// What an `expect` looks for.
#[derive(Debug)]
pub enum Pattern {
    /// `string`, `binary`: these bytes anywhere; in HTTP, in the body.
    Bytes {
        /// The bytes.
        text: Text,
        /// `string`, `binary`, or the one of them that is a log format.
        name: &'static str,
    },
    /// `rstring`, `rbinary`; in HTTP, in the body.
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
    /// A fixed protocol's answer.
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
    /// What to compare with at this moment.
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

/// A [`Match`] whose text is known.
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
