//! Bodies over HTTP/1, the half that clients and servers have in common: framing is taken off what comes in and put on
//! what goes out.

use crate::{
    buffer::{Buffer, Buffers},
    message::{Body, End, Fault},
    stream::Stream,
};
use penstock_http::{BodyReader, Error, Fields, Framing, Known, Limits, Step, write_last_chunk};
use std::{
    io,
    task::{Context, Poll, ready},
};

/// How many bytes a head counts for in logs and statistics (`%B`, `%U`, `bin`, `bout`). HAProxy counts messages in its own
/// form, not as they are on the wire: twenty bytes and the parts of the start line, names and values (`connection:
/// close` and `keep-alive` are not kept), and one byte for the end.
pub(crate) fn weight(start_line: usize, fields: &Fields) -> u64 {
    let kept = |value: &[u8]| !(value.eq_ignore_ascii_case(b"close") || value.eq_ignore_ascii_case(b"keep-alive"));
    let dropped = fields.all_known(Known::Connection).filter(|value| !kept(value));
    let dropped: usize = dropped.map(|value| Known::Connection.name().len() + value.len()).sum();
    (20 + start_line + fields.text_len() - dropped + 1) as u64
}

/// The length of `HTTP/1.1`.
pub(crate) const VERSION: usize = 8;

/// What the end of a chunked body counts for: its trailers, and one byte.
fn trailer_weight(fields: &Fields) -> u64 {
    (fields.text_len() + 1) as u64
}

/// A body on its way in.
pub(crate) enum Inbound {
    Ended,
    /// So many bytes still.
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
    pub fn trailers(&self) -> Option<&Fields> {
        match self {
            Inbound::Chunked(reader) => Some(reader.trailers()).filter(|fields| !fields.is_empty()),
            _ => None,
        }
    }
    /// What the end of the body counts for, once it is there; see [`weight`].
    pub fn end_weight(&self) -> u64 {
        match self {
            Inbound::Chunked(reader) => trailer_weight(reader.trailers()),
            _ => 0,
        }
    }
    /// Moves payload from `input` (what was read together with the head) and from `stream` to `buffer`.
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
                let got = match take_input(input, buffers, buffer, limit) {
                    0 => ready!(stream.poll_fill(cx, buffer, limit))?,
                    n => n,
                };
                if got == 0 {
                    return Poll::Ready(Err(Fault::Closed));
                }
                *left -= got as u64;
                if *left > 0 {
                    return Poll::Ready(Ok(Body::More));
                }
                *self = Inbound::Ended;
                Poll::Ready(Ok(Body::End))
            }
            Inbound::UntilClose => {
                let got = match take_input(input, buffers, buffer, usize::MAX) {
                    0 => ready!(stream.poll_fill(cx, buffer, usize::MAX))?,
                    n => n,
                };
                if got > 0 {
                    return Poll::Ready(Ok(Body::More));
                }
                *self = Inbound::Ended;
                Poll::Ready(Ok(Body::End))
            }
            Inbound::Chunked(reader) => poll_chunks(reader, cx, stream, input, buffers, buffer),
        }
    }
}

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
        let raw = input.get_or_insert_with(|| buffers.take());
        // The reader is only shown what there is room for: what it has stepped over is gone.
        let room = buffer.room();
        if room == 0 {
            return Poll::Ready(Ok(Body::More));
        }
        match reader.step(&raw.data()[..raw.len().min(room)])? {
            Step::Data(n) => {
                buffer.append(&raw.data()[..n]);
                raw.consume(n);
            }
            Step::Framing(n) | Step::Skip(n) => raw.consume(n),
            Step::End => {
                give_if_empty(input, buffers);
                return Poll::Ready(Ok(Body::End));
            }
            Step::NeedMore if raw.len() > room => return Poll::Ready(Ok(Body::More)),
            Step::NeedMore => {
                raw.compact();
                if raw.is_full() {
                    return Poll::Ready(Err(Fault::Invalid(Error::TooLarge)));
                }
                match stream.poll_fill(cx, raw, usize::MAX) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(Fault::Closed)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                    Poll::Pending => {
                        give_if_empty(input, buffers);
                        return if buffer.len() > had { Poll::Ready(Ok(Body::More)) } else { Poll::Pending };
                    }
                }
            }
        }
    }
}

/// Moves up to `limit` bytes of `input` to `buffer`.
fn take_input(input: &mut Option<Buffer>, buffers: &Buffers, buffer: &mut Buffer, limit: usize) -> usize {
    let Some(raw) = input else { return 0 };
    let taken = buffer.append(&raw.data()[..raw.len().min(limit)]);
    raw.consume(taken);
    give_if_empty(input, buffers);
    taken
}

/// Gives an empty buffer back to the worker.
pub(crate) fn give_if_empty(input: &mut Option<Buffer>, buffers: &Buffers) {
    if input.as_ref().is_some_and(Buffer::is_empty) {
        buffers.give(input.take().expect("there is one, and it is empty"));
    }
}

/// A message on its way out: its head, then its body.
#[derive(Default)]
pub(crate) struct Outbound {
    form: Form,
    /// Head bytes not sent yet; small bodies join them.
    head: Vec<u8>,
    head_sent: usize,
    /// The payload in the caller's buffer has its framing on already.
    framed: bool,
    /// What ends the body is in `head`.
    ended: bool,
    /// Bytes handed to the socket.
    pub sent: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// As many bytes as the head said, or until the connection ends.
    #[default]
    Plain,
    Chunked,
}

/// Payload up to this much is copied behind the head, so that both leave in one record and one system call.
const JOIN_MAX: usize = 8192;

/// Hexadecimal digits of the largest buffer, and CRLF.
const CHUNK_HEAD: usize = 8;

impl Outbound {
    /// Starts a message; its head is written by `write`.
    pub fn start(&mut self, buffers: &Buffers, chunked: bool, write: impl FnOnce(&mut Vec<u8>)) {
        if self.head.capacity() == 0 {
            self.head = buffers.take_head();
        }
        write(&mut self.head);
        self.form = if chunked { Form::Chunked } else { Form::Plain };
        (self.framed, self.ended) = (false, false);
    }
    pub fn room(&self) -> (usize, usize) {
        if self.form == Form::Chunked { (CHUNK_HEAD, 2) } else { (0, 0) }
    }
    /// Nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.head.is_empty()
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
        }
        if buffer.is_empty() {
            self.end(buffers, end);
        }
        let before = self.head_sent;
        let result = stream.poll_write_all(cx, &self.head, &mut self.head_sent);
        self.sent += (self.head_sent - before) as u64;
        ready!(result)?;
        let before = buffer.len();
        let result = stream.poll_drain(cx, buffer);
        self.sent += (before - buffer.len()) as u64;
        ready!(result)?;
        self.framed = false;
        self.head.clear();
        self.head_sent = 0;
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
    /// Appends what ends the body to what is sent next.
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
                Some(fields) => write_last_chunk(fields, &mut self.head),
                None => self.head.extend_from_slice(b"0\r\n\r\n"),
            }
        }
    }
}

/// Makes one chunk of what `buffer` holds.
fn frame_chunk(buffer: &mut Buffer) {
    let mut line = [0; CHUNK_HEAD];
    let mut at = CHUNK_HEAD - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut left = buffer.len();
    while left > 0 {
        at -= 1;
        line[at] = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
    buffer.prepend(&line[at..]);
    buffer.append_tail(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_its_size_its_bytes_and_its_end() {
        let buffers = Buffers::new(16384);
        let mut buffer = buffers.take();
        buffer.reserve(CHUNK_HEAD, 2);
        buffer.append(&[b'x'; 300]);
        frame_chunk(&mut buffer);
        assert!(buffer.data().starts_with(b"12c\r\nxxx"));
        assert!(buffer.data().ends_with(b"xxx\r\n"));
        assert_eq!(buffer.len(), 5 + 300 + 2);
    }

    #[test]
    fn the_largest_buffer_has_room_for_its_own_framing() {
        let buffers = Buffers::new(16384);
        let mut buffer = buffers.take();
        for _ in 0..8 {
            buffers.grow(&mut buffer);
        }
        buffer.reserve(CHUNK_HEAD, 2);
        buffer.append(&vec![b'x'; 1 << 20]);
        assert!(buffer.is_full());
        frame_chunk(&mut buffer);
        assert!(buffer.data().starts_with(b"3fff6\r\n"));
    }
}
