//! The outcome of a check, in HAProxy's words.

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The words are below.
pub enum Verdict {
    Initializing,
    Observed,
    SocketError,
    L4Ok,
    L4Timeout,
    L4Connection,
    L6Ok,
    L6Timeout,
    L6Response,
    L7Ok,
    L7Conditional,
    L7Timeout,
    L7Response,
    L7Status,
    Unchanged,
    ProgramPassed,
    ProgramFailed,
    ProgramTimeout,
}

/// The effect of a result on a server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    Neutral,
    /// One step down.
    Failed,
    /// One step up.
    Passed,
    /// One step up, but the server takes no new clients.
    Conditional,
}

impl Verdict {
    /// The short name shown in statistics.
    pub fn short(self) -> &'static str {
        self.row().0
    }

    /// The description shown in logs.
    pub fn description(self) -> &'static str {
        self.row().1
    }

    /// The effect of the result on the server's health.
    pub fn effect(self) -> Effect {
        match self {
            Verdict::Initializing | Verdict::Unchanged => Effect::Neutral,
            Verdict::L4Ok | Verdict::L6Ok | Verdict::L7Ok | Verdict::ProgramPassed => Effect::Passed,
            Verdict::L7Conditional => Effect::Conditional,
            _ => Effect::Failed,
        }
    }

    /// Whether the result was decided on data that came back, so that it has a code.
    pub fn has_code(self) -> bool {
        use Verdict as V;
        let program = matches!(self, V::ProgramPassed | V::ProgramFailed | V::ProgramTimeout);
        program || matches!(self, V::L7Ok | V::L7Conditional | V::L7Status)
    }

    /// The result with the name used in `ok-status` and similar settings.
    pub fn named(name: &str) -> Option<Verdict> {
        const NAMED: [Verdict; 10] = [
            Verdict::L4Ok,
            Verdict::L4Timeout,
            Verdict::L4Connection,
            Verdict::L6Ok,
            Verdict::L6Timeout,
            Verdict::L6Response,
            Verdict::L7Ok,
            Verdict::L7Conditional,
            Verdict::L7Timeout,
            Verdict::L7Response,
        ];
        if name.eq_ignore_ascii_case("L7STS") {
            return Some(Verdict::L7Status);
        }
        NAMED.into_iter().find(|verdict| verdict.short().eq_ignore_ascii_case(name))
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Initializing => ("INI", "Initializing"),
            Verdict::Observed => ("HANA", "Health analyze"),
            Verdict::SocketError => ("SOCKERR", "Socket error"),
            Verdict::L4Ok => ("L4OK", "Layer4 check passed"),
            Verdict::L4Timeout => ("L4TOUT", "Layer4 timeout"),
            Verdict::L4Connection => ("L4CON", "Layer4 connection problem"),
            Verdict::L6Ok => ("L6OK", "Layer6 check passed"),
            Verdict::L6Timeout => ("L6TOUT", "Layer6 timeout"),
            Verdict::L6Response => ("L6RSP", "Layer6 invalid response"),
            Verdict::L7Ok => ("L7OK", "Layer7 check passed"),
            Verdict::L7Conditional => ("L7OKC", "Layer7 check conditionally passed"),
            Verdict::L7Timeout => ("L7TOUT", "Layer7 timeout"),
            Verdict::L7Response => ("L7RSP", "Layer7 invalid response"),
            Verdict::L7Status => ("L7STS", "Layer7 wrong status"),
            Verdict::Unchanged => ("CHECKED", "No status change"),
            Verdict::ProgramPassed => ("PROCOK", "External check passed"),
            Verdict::ProgramFailed => ("PROCERR", "External check error"),
            Verdict::ProgramTimeout => ("PROCTOUT", "External check timeout"),
        }
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result.
    pub verdict: Verdict,
    /// A status, or another protocol's code, if the result was decided on data.
    pub code: Option<u32>,
    /// The text that the server or the system returned.
    pub info: String,
}

/// Text from a server as logs, pages and terminals may show it: control characters, which would move a terminal's cursor or end a
/// line, are replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Outcome {
    /// A result; if it has a code, that is 0.
    pub fn new(verdict: Verdict, info: impl Into<String>) -> Outcome {
        Outcome { verdict, code: verdict.has_code().then_some(0), info: info.into() }
    }

    /// Sets the code, if the result has one.
    #[must_use]
    pub fn code(self, code: u32) -> Outcome {
        let code = self.verdict.has_code().then_some(code);
        Outcome { code, ..self }
    }
}
