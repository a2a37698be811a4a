//! The chunked body of an answer. Unlike `penstock_http::BodyReader`, this looks at the extension of the last chunk, which says that
//! the rest of the original body follows.

use crate::error::Error;
use memchr::memchr;

/// A size line or a trailer; services write a few bytes.
const LINE_BYTES_MAX: usize = 1024;
const TRAILERS_MAX: usize = 32;

/// Decodes chunks, from however small pieces.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: State,
    /// The part of a line that has arrived.
    line: Vec<u8>,
    /// `use-original-body` of the last chunk.
    pub original_from: Option<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers(usize),
    Ended,
}

impl Chunks {
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }
    /// Decodes from `input`, passing payload to `take`, until it is used up or the body has ended; returns how much was used.
    ///
    /// # Errors
    ///
    /// If the chunks are invalid, or `take` fails.
    pub fn read(&mut self, input: &[u8], mut take: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<usize, Error> {
        let mut at = 0;
        while at < input.len() && !self.is_ended() {
            let rest = &input[at..];
            if let State::Data(left) = &mut self.state {
                let now = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                take(&rest[..now])?;
                *left -= now as u64;
                if *left == 0 {
                    self.state = State::DataEnd;
                }
                at += now;
                continue;
            }
            let used = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            self.line.extend_from_slice(&rest[..used]);
            at += used;
            if self.line.len() > LINE_BYTES_MAX {
                return Err(Error::Chunk);
            }
            if self.line.last() == Some(&b'\n') {
                let mut line = std::mem::take(&mut self.line);
                self.line(line.strip_suffix(b"\r\n").ok_or(Error::Chunk)?)?;
                line.clear();
                self.line = line;
            }
        }
        Ok(at)
    }
    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.state = match self.state {
            State::DataEnd if line.is_empty() => State::Size,
            State::Size => self.size(line)?,
            State::Trailers(_) if line.is_empty() => State::Ended,
            State::Trailers(seen) if seen < TRAILERS_MAX => State::Trailers(seen + 1),
            _ => return Err(Error::Chunk),
        };
        Ok(())
    }
    fn size(&mut self, line: &[u8]) -> Result<State, Error> {
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let extension = line[digits..].trim_ascii();
        if !(1..=15).contains(&digits) || !matches!(extension, [] | [b';', ..]) {
            return Err(Error::Chunk);
        }
        let text = std::str::from_utf8(&line[..digits]).map_err(|_| Error::Chunk)?;
        let size = u64::from_str_radix(text, 16).map_err(|_| Error::Chunk)?;
        if size > 0 {
            return Ok(State::Data(size));
        }
        for part in extension.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
            if let Some(offset) = part.strip_prefix(b"use-original-body=") {
                let offset = std::str::from_utf8(offset).ok().and_then(|text| text.trim().parse().ok());
                if self.original_from.replace(offset.ok_or(Error::Chunk)?).is_some() {
                    return Err(Error::Chunk);
                }
            }
        }
        Ok(State::Trailers(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str, step: usize) -> Result<(Vec<u8>, Option<u64>, bool), Error> {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        for piece in text.as_bytes().chunks(step) {
            let mut at = 0;
            while at < piece.len() && !chunks.is_ended() {
                at += chunks.read(&piece[at..], |bytes| {
                    body.extend_from_slice(bytes);
                    Ok(())
                })?;
            }
        }
        Ok((body, chunks.original_from, chunks.is_ended()))
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        let text = "5\r\nhello\r\n006 ; x=y\r\n world\r\n0; use-original-body=11\r\nA: b\r\n\r\n";
        for step in 1..=text.len() {
            assert_eq!(decode(text, step), Ok((b"hello world".to_vec(), Some(11), true)), "{step}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long = format!("5;{}\r\n", "a".repeat(2000));
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(100));
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "5\nhello",
            "5\r\nhello!\r\n",
            "5 5\r\nhello\r\n",
            "0; use-original-body=\r\n\r\n",
            "0; use-original-body=-1\r\n\r\n",
            "0; use-original-body=1; use-original-body=2\r\n\r\n",
            "ffffffffffffffffff\r\n",
            &long,
            &trailers,
        ] {
            for step in [1, 3, 10_000] {
                assert_eq!(decode(text, step), Err(Error::Chunk), "{text}");
            }
        }
    }
}
