//! What is wrong, where, what was expected, and the nearest known word.

use crate::span::Span;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Accepted, but without the effect it has in HAProxy.
    Notice,
    /// Works, but probably not as meant. `-dW` makes it an error.
    Warning,
    /// The configuration does not start.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How serious the finding is.
    pub severity: Severity,
    /// Where in the configuration the fault is; `None` when it concerns the whole (a limit, a missing section).
    pub span: Option<Span>,
    /// What was found: one sentence without a full stop.
    pub message: String,
    /// What to write instead, or what was expected.
    pub hint: Option<String>,
}

/// The findings of one reading, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// All findings.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds an error.
    pub fn error(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Error, span.into(), message.into())
    }
    /// Adds a warning.
    pub fn warning(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Warning, span.into(), message.into())
    }
    /// Adds a notice.
    pub fn notice(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Notice, span.into(), message.into())
    }
    /// Whether there are errors, so that the configuration may not start.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }
    fn push(&mut self, severity: Severity, span: Option<Span>, message: String) -> &mut Diagnostic {
        self.list.push(Diagnostic { severity, span, message, hint: None });
        self.list.last_mut().expect("one was pushed on the line above")
    }
}

impl Diagnostic {
    /// Sets the hint: what to write instead.
    pub fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }
}
