//! The lists that rules are in.

/// A list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `tcp-request connection`.
    TcpConnection,
    /// `tcp-request client-hello`.
    TcpHello,
    /// `tcp-request session`.
    TcpSession,
    /// `tcp-request content`.
    TcpContent,
    /// `tcp-response content`.
    TcpResponse,
    /// `http-request`.
    HttpRequest,
    /// `http-response`.
    HttpResponse,
    /// `http-after-response`.
    HttpAfterResponse,
    /// Steps of health checks that set variables.
    Check,
}

impl Kind {
    /// The kinds that are lists of directives.
    pub const ALL: &'static [Kind] = &[
        Kind::TcpConnection,
        Kind::TcpHello,
        Kind::TcpSession,
        Kind::TcpContent,
        Kind::TcpResponse,
        Kind::HttpRequest,
        Kind::HttpResponse,
        Kind::HttpAfterResponse,
    ];
    /// The name of the directive.
    pub fn name(self) -> &'static str {
        match self {
            Kind::TcpConnection => "tcp-request connection",
            Kind::TcpHello => "tcp-request client-hello",
            Kind::TcpSession => "tcp-request session",
            Kind::TcpContent => "tcp-request content",
            Kind::TcpResponse => "tcp-response content",
            Kind::HttpRequest => "http-request",
            Kind::HttpResponse => "http-response",
            Kind::HttpAfterResponse => "http-after-response",
            Kind::Check => "health check",
        }
    }
    pub(crate) fn bit(self) -> u16 {
        1 << self as u8
    }
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Kind::HttpRequest | Kind::HttpResponse | Kind::HttpAfterResponse)
    }
    pub(crate) fn is_response(self) -> bool {
        matches!(self, Kind::TcpResponse | Kind::HttpResponse | Kind::HttpAfterResponse | Kind::Check)
    }
}
