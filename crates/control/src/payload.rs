//! The lines of a payload, up to the one that ends it.

/// A payload that is being received.
#[derive(Debug)]
pub struct Payload {
    end: Vec<u8>,
    lines: Vec<u8>,
}

impl Payload {
    /// A payload that ends with this line, which may be empty.
    pub fn new(end: Vec<u8>) -> Payload {
        Payload { end, lines: Vec::new() }
    }

    /// Adds a line, given without its end; returns whether it was the last one.
    pub fn line(&mut self, line: &[u8]) -> bool {
        if line.strip_suffix(b"\r").unwrap_or(line) == self.end {
            return true;
        }
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
        false
    }

    /// The length of the line that ends it.
    pub fn end_len(&self) -> usize {
        self.end.len()
    }

    /// Whether a line that begins like this may be the one that ends it.
    pub fn may_end_with(&self, begun: &[u8]) -> bool {
        self.end.starts_with(begun) || begun.strip_suffix(b"\r").is_some_and(|line| line == self.end)
    }

    /// The length so far.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The bytes received.
    pub fn into_bytes(self) -> Vec<u8> {
        self.lines
    }
}
