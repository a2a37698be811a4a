//! What is wrong with a word of the configuration.

/// An error in a word: where it is, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The affected bytes of the word's text.
    pub at: std::ops::Range<usize>,
    /// One sentence without a full stop.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(at: std::ops::Range<usize>, message: impl Into<String>) -> Problem {
        Problem { at, message: message.into(), hint: None }
    }
    pub(crate) fn hint(mut self, hint: impl Into<Option<String>>) -> Problem {
        self.hint = hint.into();
        self
    }
}
