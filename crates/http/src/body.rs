//! Walking a body: what of the bytes at hand is payload, what is framing, and where it ends.

use memchr::memchr;
use std::num::NonZeroUsize;

use crate::error::Error;
use crate::fields::Fields;
use crate::framing::Framing;
use crate::head::Lines;
use crate::limits::Limits;
use crate::trailers;

/// What the next bytes of the input are. The caller moves past them before it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes of payload.
    Data(usize),
    /// This many bytes of chunk framing, valid and in the plainest form: they and the data between them can go unchanged to a peer
    /// that is also sent chunks. To any other peer they mean nothing.
    Framing(usize),
    /// This many bytes that are not sent on: chunk extensions, the last chunk, trailers.
    Skip(usize),
    /// More bytes are needed.
    NeedMore,
    /// The body has ended; nothing of the input belongs to it. Trailers are in [`BodyReader::trailers`], and a peer that is sent
    /// chunks now gets [`write_last_chunk`].
    End,
}

/// Follows a body from its first byte to its end. It holds no payload: bytes stay in the caller's buffer.
#[derive(Clone, Debug)]
pub struct BodyReader {
    state: State,
    /// Whether the body ends with the connection.
    until_close: bool,
    payload_bytes: u64,
    trailers: Fields,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Payload of a known length, or of one chunk when `chunked`.
    Data {
        left: u64,
        chunked: bool,
    },
    /// A chunk's size line.
    Size,
    /// The extensions of a size line.
    Extension {
        left: usize,
        size: u64,
    },
    /// The CRLF behind extensions.
    SizeEnd {
        size: u64,
    },
    /// The CRLF behind a chunk's data.
    DataEnd,
    /// The lines after the last chunk.
    Trailers(Lines),
    Ended,
}

/// Sixteen hexadecimal digits hold 64 bits; HAProxy takes leading zeros without end, which only serve to confuse.
const SIZE_DIGITS_MAX: usize = 16;
/// No sender of ours was ever seen to use extensions; longer ones are the start of an attack (CVE-2023-39326).
const EXTENSION_BYTES_MAX: usize = 1024;

impl BodyReader {
    /// A reader for a body with this framing. A tunnel is read like a body that ends with the connection.
    pub fn new(framing: Framing, limits: Limits) -> BodyReader {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Ended,
            Framing::Length(left) => State::Data { left, chunked: false },
            Framing::Chunked => State::Size,
            Framing::UntilClose | Framing::Tunnel => State::Data { left: u64::MAX, chunked: false },
        };
        BodyReader {
            state,
            until_close: matches!(framing, Framing::UntilClose | Framing::Tunnel),
            payload_bytes: 0,
            trailers: Fields::new(),
            limits,
        }
    }

    /// Says what the next bytes are. `input` starts where the last step ended.
    ///
    /// # Errors
    /// When they are not what the framing asks for. The connection is of no further use.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Error> {
        self.step_within(input, NonZeroUsize::MAX)
    }

    /// Like [`BodyReader::step`], for a caller that can take `room` bytes of payload: [`Step::Data`] never has more. Framing takes
    /// no room, and is stepped over whole.
    ///
    /// # Errors
    /// As [`BodyReader::step`].
    pub fn step_within(&mut self, input: &[u8], room: NonZeroUsize) -> Result<Step, Error> {
        match &mut self.state {
            State::Ended => Ok(Step::End),
            _ if input.is_empty() => Ok(Step::NeedMore),
            State::Data { left, chunked } => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len()).min(room.get());
                self.payload_bytes += len as u64;
                if !self.until_close {
                    *left -= len as u64;
                    if *left == 0 {
                        self.state = if *chunked { State::DataEnd } else { State::Ended };
                    }
                }
                Ok(Step::Data(len))
            }
            State::DataEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Framing(2))
                }
                [b'\r'] => Ok(Step::NeedMore),
                _ => Err(Error::ChunkEnd),
            },
            State::Size => self.size_line(input),
            State::Extension { left, size } => {
                let (left, size) = (*left, *size);
                self.state = State::SizeEnd { size };
                Ok(Step::Skip(left))
            }
            State::SizeEnd { size } => {
                self.state = State::Data { left: *size, chunked: true };
                Ok(Step::Framing(2))
            }
            State::Trailers(_) => self.trailer_lines(input),
        }
    }

    /// `1*HEXDIG [extensions] CRLF`, which has to be here whole. White space is refused wherever an extension does not
    /// start (RFC 9112 section 7.1.1 lets it be only there).
    fn size_line(&mut self, input: &[u8]) -> Result<Step, Error> {
        let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits == 0 || digits > SIZE_DIGITS_MAX {
            return Err(Error::ChunkSize);
        }
        let rest = &input[digits..];
        let extension = match rest {
            [] => return Ok(Step::NeedMore),
            [b'\r', ..] => 0,
            [b';', ..] => {
                let end = memchr(b'\r', rest).unwrap_or(rest.len());
                if end > EXTENSION_BYTES_MAX {
                    return Err(Error::ChunkExtension);
                }
                if !crate::bytes::is_field_value(&rest[..end]) {
                    return Err(Error::ChunkSize);
                }
                end
            }
            _ => return Err(Error::ChunkSize),
        };
        match &rest[extension..] {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(Step::NeedMore),
            _ => return Err(Error::ChunkSize),
        }
        let size = input[..digits].iter().fold(0u64, |size, &digit| size << 4 | u64::from(hex(digit)));
        if size > i64::MAX as u64 {
            // As for lengths: what many parsers read it into has a sign.
            return Err(Error::ChunkSize);
        }
        if size == 0 {
            self.state = State::Trailers(Lines::default());
            return Ok(Step::Skip(digits + extension + 2));
        }
        if extension == 0 {
            self.state = State::Data { left: size, chunked: true };
            return Ok(Step::Framing(digits + 2));
        }
        // The digits are sent on, the extensions are not: three steps for one line.
        self.state = State::Extension { left: extension, size };
        Ok(Step::Framing(digits))
    }

    /// The trailer section, which has to fit in the caller's buffer whole, as a head does.
    fn trailer_lines(&mut self, input: &[u8]) -> Result<Step, Error> {
        let State::Trailers(lines) = &mut self.state else { return Err(Error::ChunkSize) };
        while let Some(line) = lines.next(input, &self.limits, false)? {
            if line.is_empty() {
                let consumed = lines.consumed();
                self.state = State::Ended;
                trailers::keep_honest(&mut self.trailers);
                return Ok(Step::Skip(consumed));
            }
            self.limits.admit_field(self.trailers.len())?;
            self.trailers.push_line(line)?;
        }
        Ok(Step::NeedMore)
    }

    /// The trailers; empty before the end of the body.
    pub fn trailers(&self) -> &Fields {
        &self.trailers
    }

    /// Bytes of payload stepped over.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Whether the body has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Notes that the connection has ended. That is in order where it is the body's end; otherwise the body is cut short, and the
    /// peer that is sent it must see that.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.until_close {
            self.state = State::Ended;
        }
        if self.is_ended() { Ok(()) } else { Err(Error::Truncated) }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Appends the line that comes before a chunk of `len` bytes; after them comes CRLF. Nothing for an empty chunk, which
/// would end the body.
pub fn chunk_head(len: usize, out: &mut Vec<u8>) {
    if len == 0 {
        return;
    }
    let digits = (len.ilog2() / 4 + 1) as usize;
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailer section.
pub fn write_last_chunk(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    trailers.write_to(out);
    out.extend_from_slice(b"\r\n");
}
