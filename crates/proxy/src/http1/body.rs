//! HTTP/1 bodies, for both clients and servers: framing is removed on the way in and added on the way out.

use crate::{
    connection::stream::{Fill, Stream},
    exchange::ends::{Body, End, Fault},
    worker::{
        buffer::{Buffer, Buffers, FRONT},
        turn,
    },
};
use penstock_http::{BodyReader, Error, Fields, Framing, LetterCase, Limits, Step, write_last_chunk};
use std::{
    io,
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// The size of a head in logs and statistics; see [`Fields::weight`].
pub(crate) fn weight(start_line: usize, fields: &Fields) -> u64 {
    fields.weight(start_line)
}

/// The length of `HTTP/1.1`.
pub(crate) const VERSION: usize = 8;

/// The size of the end of a chunked body in logs and statistics: its trailers, and one byte.
fn trailer_weight(fields: &Fields) -> u64 {
    (fields.text_len() + 1) as u64
}

/// A body being received.
pub(crate) enum Inbound {
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    Chunked(Box<BodyReader>),
    UntilClose,
}

impl Inbound {
    pub fn new(framing: Framing, limits: Limits) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Inbound::Ended,
            Framing::Length(left) => Inbound::Length(left),
            Framing::Chunked => Inbound::Chunked(Box::new(BodyReader::new(framing, limits))),
            Framing::UntilClose | Framing::Tunnel => Inbound::UntilClose,
        }
    }
    pub fn is_ended(&self) -> bool {
        match self {
            Inbound::Ended => true,
            Inbound::Chunked(reader) => reader.is_ended(),
            Inbound::Length(_) | Inbound::UntilClose => false,
        }
    }
    /// Checks that the bytes read together with the head start a valid body.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub fn check(&self, input: Option<&Buffer>) -> Result<(), Error> {
        let (Inbound::Chunked(reader), Some(input)) = (self, input) else { return Ok(()) };
        let (mut reader, mut rest) = (reader.clone(), input.data());
        while let Step::Data(n) | Step::Framing(n) | Step::Skip(n) = reader.step(rest)? {
            rest = &rest[n..];
        }
        Ok(())
    }
    pub fn trailers(&self) -> Option<&Fields> {
        match self {
            Inbound::Chunked(reader) => Some(reader.trailers()).filter(|fields| !fields.is_empty()),
            _ => None,
        }
    }
    /// The size of the body's end in logs and statistics, once it has been received; see [`weight`].
    pub fn end_weight(&self) -> u64 {
        match self {
            Inbound::Chunked(reader) => trailer_weight(reader.trailers()),
            _ => 0,
        }
    }
    /// Skips the part of the body that `input` holds; returns its size in logs and statistics.
    pub fn skip(&mut self, input: &mut Option<Buffer>, buffers: &Buffers) -> u64 {
        let Some(raw) = input else { return 0 };
        let mut skipped = 0;
        match self {
            Inbound::Ended => {}
            Inbound::UntilClose => raw.clear(),
            Inbound::Length(left) => {
                let taken = raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                raw.consume(taken);
                skipped = taken as u64;
                *left -= skipped;
                if *left == 0 {
                    *self = Inbound::Ended;
                }
            }
            Inbound::Chunked(reader) => {
                // An invalid body has no end, so nothing after it is skipped.
                while let Ok(step @ (Step::Data(n) | Step::Framing(n) | Step::Skip(n))) = reader.step(raw.data()) {
                    if matches!(step, Step::Data(_)) {
                        skipped += n as u64;
                    }
                    raw.consume(n);
                }
                if reader.is_ended() {
                    skipped += trailer_weight(reader.trailers());
                }
            }
        }
        give_if_empty(input, buffers);
        skipped
    }
    /// Moves payload to `buffer`: first from `input` (bytes read together with the head), then from `stream`.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        input: &mut Option<Buffer>,
        buffers: &Buffers,
        buffer: &mut Buffer,
    ) -> Poll<Result<Body, Fault>> {
        match self {
            Inbound::Ended => Poll::Ready(Ok(Body::End)),
            Inbound::Length(left) => {
                let limit = usize::try_from(*left).unwrap_or(usize::MAX);
                match ready!(poll_plain(cx, stream, input, buffers, buffer, limit))? {
                    Fill::End => Poll::Ready(Err(Fault::Closed)),
                    Fill::Full => Poll::Ready(Ok(Body::Full)),
                    Fill::Bytes(got) => {
                        *left -= got.get() as u64;
                        if *left > 0 {
                            return Poll::Ready(Ok(Body::More(got)));
                        }
                        *self = Inbound::Ended;
                        Poll::Ready(Ok(Body::End))
                    }
                }
            }
            Inbound::UntilClose => match ready!(poll_plain(cx, stream, input, buffers, buffer, usize::MAX))? {
                Fill::Bytes(got) => Poll::Ready(Ok(Body::More(got))),
                Fill::Full => Poll::Ready(Ok(Body::Full)),
                Fill::End => {
                    *self = Inbound::Ended;
                    Poll::Ready(Ok(Body::End))
                }
            },
            Inbound::Chunked(reader) => poll_chunks(reader, cx, stream, input, buffers, buffer),
        }
    }
}

/// Moves up to `limit` bytes to `buffer` unchanged: from `input` if it holds any, else from `stream`.
fn poll_plain(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    input: &mut Option<Buffer>,
    buffers: &Buffers,
    buffer: &mut Buffer,
    limit: usize,
) -> Poll<io::Result<Fill>> {
    let Some(raw) = input else { return stream.poll_fill(cx, buffer, limit) };
    let taken = buffer.append(&raw.data()[..raw.len().min(limit)]);
    raw.consume(taken);
    give_if_empty(input, buffers);
    Poll::Ready(Ok(NonZeroUsize::new(taken).map_or(Fill::Full, Fill::Bytes)))
}

/// Decodes chunks. Every iteration consumes bytes, reads some, or is the last.
fn poll_chunks(
    reader: &mut BodyReader,
    cx: &mut Context<'_>,
    stream: &mut Stream,
    input: &mut Option<Buffer>,
    buffers: &Buffers,
    buffer: &mut Buffer,
) -> Poll<Result<Body, Fault>> {
    let had = buffer.len();
    loop {
        turn::round();
        let Some(room) = NonZeroUsize::new(buffer.room()) else {
            return Poll::Ready(Ok(Body::grown(buffer, had)));
        };
        let raw = buffers.hold_input(input)?;
        match reader.step_within(raw.data(), room)? {
            Step::Data(n) => {
                buffer.append(&raw.data()[..n]);
                raw.consume(n);
            }
            Step::Framing(n) | Step::Skip(n) => raw.consume(n),
            Step::End => {
                give_if_empty(input, buffers);
                return Poll::Ready(Ok(Body::End));
            }
            Step::NeedMore => {
                raw.compact();
                match stream.poll_fill(cx, raw, usize::MAX) {
                    Poll::Ready(Ok(Fill::Bytes(_))) => {}
                    Poll::Ready(Ok(Fill::End)) => return Poll::Ready(Err(Fault::Closed)),
                    // A size line or a trailer section is longer than a buffer.
                    Poll::Ready(Ok(Fill::Full)) => return Poll::Ready(Err(Fault::Invalid(Error::TooLarge))),
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                    Poll::Pending => {
                        give_if_empty(input, buffers);
                        return match buffer.len() > had {
                            true => Poll::Ready(Ok(Body::grown(buffer, had))),
                            false => Poll::Pending,
                        };
                    }
                }
            }
        }
    }
}

/// Returns an empty buffer to the worker.
pub(crate) fn give_if_empty(input: &mut Option<Buffer>, buffers: &Buffers) {
    if input.as_ref().is_some_and(Buffer::is_empty) {
        buffers.give(input.take().expect("there is one, and it is empty"));
    }
}

/// A message being sent: its head, then its body.
#[derive(Default)]
pub(crate) struct Outbound {
    form: Form,
    /// Bytes of the head that are not sent yet; small bodies are appended to them.
    head: Vec<u8>,
    head_sent: usize,
    /// The payload in the caller's buffer has been framed already.
    framed: bool,
    /// The end of the body is in `head`.
    ended: bool,
    /// Bytes passed to the socket.
    pub sent: u64,
    /// The letter case of the names that the peer is sent, if it depends on that.
    case: Option<Arc<LetterCase>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// As many bytes as the head announced, or everything until the connection ends.
    #[default]
    Plain,
    Chunked,
}

/// Payload up to this size is copied after the head, so that both are sent in one record and one system call.
const JOIN_MAX: usize = 8192;

impl Outbound {
    /// The messages to one peer; `case` is the letter case of the names that it depends on.
    pub fn new(case: Option<Arc<LetterCase>>) -> Self {
        Outbound { case, ..Outbound::default() }
    }
    /// Starts a message, whose head is written by `write`.
    pub fn start(&mut self, buffers: &Buffers, chunked: bool, write: impl FnOnce(&mut Vec<u8>)) {
        if self.head.capacity() == 0 {
            self.head = buffers.take_head();
        }
        let from = self.head.len();
        write(&mut self.head);
        self.adjust_case(from);
        self.form = if chunked { Form::Chunked } else { Form::Plain };
        (self.framed, self.ended) = (false, false);
    }
    /// Sends what follows unchanged: it is no longer HTTP.
    pub fn tunnel(&mut self) {
        (self.form, self.framed, self.ended) = (Form::Plain, false, false);
    }
    /// Whether nothing is waiting to be sent.
    pub fn is_idle(&self) -> bool {
        self.head.is_empty()
    }
    /// Whether nothing is put around the body.
    pub fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        buffers: &Buffers,
        buffer: &mut Buffer,
        end: Option<End<'_>>,
    ) -> Poll<io::Result<()>> {
        if !self.framed && !buffer.is_empty() && self.form == Form::Chunked {
            frame_chunk(buffer);
            self.framed = true;
        }
        if !self.head.is_empty() && self.head_sent == 0 && buffer.len() <= JOIN_MAX {
            self.head.extend_from_slice(buffer.data());
            buffer.clear();
            self.framed = false;
        }
        if buffer.is_empty() {
            self.end(buffers, end);
        }
        let before = self.head_sent;
        let result = stream.poll_write_all(cx, &self.head, &mut self.head_sent);
        self.sent += (self.head_sent - before) as u64;
        ready!(result)?;
        // A client that does not read the body keeps no memory for the head.
        buffers.give_head(std::mem::take(&mut self.head));
        self.head_sent = 0;
        let before = buffer.len();
        let result = stream.poll_drain(cx, buffer);
        self.sent += (before - buffer.len()) as u64;
        ready!(result)?;
        self.framed = false;
        if end.is_some() && !self.ended {
            self.end(buffers, end);
            let result = stream.poll_write_all(cx, &self.head, &mut self.head_sent);
            self.sent += self.head_sent as u64;
            ready!(result)?;
        }
        buffers.give_head(std::mem::take(&mut self.head));
        self.head_sent = 0;
        stream.poll_flush_all(cx)
    }
    /// Gives the names in the lines from byte `from` on the case that the peer depends on.
    fn adjust_case(&mut self, from: usize) {
        if let Some(case) = &self.case {
            case.apply(&mut self.head[from..]);
        }
    }
    /// Appends the end of the body to what is sent next.
    fn end(&mut self, buffers: &Buffers, end: Option<End<'_>>) {
        let Some(End { trailers }) = end else { return };
        if self.ended {
            return;
        }
        self.ended = true;
        if self.form == Form::Chunked {
            if self.head.capacity() == 0 {
                self.head = buffers.take_head();
            }
            match trailers {
                Some(fields) => {
                    let from = self.head.len();
                    write_last_chunk(fields, &mut self.head);
                    self.adjust_case(from);
                }
                None => self.head.extend_from_slice(b"0\r\n\r\n"),
            }
        }
    }
}

/// Turns the contents of `buffer` into one chunk.
fn frame_chunk(buffer: &mut Buffer) {
    let mut line = [0; FRONT];
    let mut at = FRONT - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut left = buffer.len();
    while left > 0 {
        at -= 1;
        line[at] = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
    buffer.surround(&line[at..], b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_its_size_its_bytes_and_its_end() {
        let buffers = Buffers::of(16384);
        let mut buffer = buffers.take_anyway();
        buffer.append(&[b'x'; 300]);
        frame_chunk(&mut buffer);
        assert!(buffer.data().starts_with(b"12c\r\nxxx"));
        assert!(buffer.data().ends_with(b"xxx\r\n"));
        assert_eq!(buffer.len(), 5 + 300 + 2);
    }

    #[test]
    fn the_largest_buffer_has_room_for_its_own_framing() {
        let buffers = Buffers::of(16384);
        let mut buffer = buffers.take_anyway();
        for _ in 0..8 {
            buffers.grow(&mut buffer);
        }
        buffer.append(&vec![b'x'; 1 << 20]);
        assert!(buffer.is_full());
        frame_chunk(&mut buffer);
        assert!(buffer.data().starts_with(b"40000\r\n"));
    }
}
