//! What a check found, in HAProxy's words.

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
}

/// What a result does to a server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Neutral,
    /// One step down.
    Failed,
    /// One step up.
    Passed,
    /// One step up, but it takes no new clients.
    Conditional,
}

impl Verdict {
    /// As statistics write it.
    pub fn short(self) -> &'static str {
        self.row().0
    }

    /// As logs write it.
    pub fn description(self) -> &'static str {
        self.row().1
    }

    /// What it does.
    pub fn effect(self) -> Effect {
        match self {
            Verdict::Initializing => Effect::Neutral,
            Verdict::L4Ok | Verdict::L6Ok | Verdict::L7Ok => Effect::Passed,
            Verdict::L7Conditional => Effect::Conditional,
            _ => Effect::Failed,
        }
    }

    /// It was decided on data, so that a code goes with it.
    pub fn has_code(self) -> bool {
        matches!(self, Verdict::L7Ok | Verdict::L7Conditional | Verdict::L7Status)
    }

    /// The one that `ok-status` and its like name.
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
        }
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result.
    pub verdict: Verdict,
    /// A status or another protocol's code, where the result was decided on data.
    pub code: Option<u32>,
    /// What the server or the system said.
    pub info: String,
}

impl Outcome {
    /// A result, with a code of 0 where one belongs.
    pub fn new(verdict: Verdict, info: impl Into<String>) -> Outcome {
        Outcome { verdict, code: verdict.has_code().then_some(0), info: info.into() }
    }

    /// With its code, where one belongs.
    #[must_use]
    pub fn code(self, code: u32) -> Outcome {
        let code = self.verdict.has_code().then_some(code);
        Outcome { code, ..self }
    }
}
