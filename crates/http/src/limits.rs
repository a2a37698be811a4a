//! How much of a message is taken before it is refused.

use crate::error::Error;

/// Bounds and leniencies for one parse. The defaults are HAProxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the first byte of the start line to the end of the head: `tune.bufsize` less `tune.maxrewrite`.
    pub head_bytes: usize,
    /// `tune.http.maxhdr`: one more than the field lines in a head or a trailer section, because HAProxy, whose setting it
    /// is, counts the end as one.
    pub fields: usize,
    /// `option accept-invalid-http-request` or `-response`: takes what is ugly but cannot change where a message ends.
    pub lenient: bool,
}

impl Limits {
    /// Checks whether another line may follow this many field lines.
    ///
    /// # Errors
    /// If it would be one too many.
    pub fn admit_field(&self, lines: usize) -> Result<(), Error> {
        if lines + 1 >= self.fields { Err(Error::TooManyFields) } else { Ok(()) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_bytes: 16384 - 1024, fields: 101, lenient: false }
    }
}
