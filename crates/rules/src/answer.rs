//! What a condition comes to.

/// The result of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The condition does not hold.
    No,
    /// The condition depends on bytes that have not arrived.
    NotYet,
    /// The condition holds.
    Yes,
}

impl Answer {
    /// Whether it holds already.
    pub(crate) fn is_yes(self) -> bool {
        self == Answer::Yes
    }
    pub(crate) fn negated(self, negate: bool) -> Answer {
        match self {
            Answer::No if negate => Answer::Yes,
            Answer::Yes if negate => Answer::No,
            same => same,
        }
    }
}
