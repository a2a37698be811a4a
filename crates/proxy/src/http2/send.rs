//! What both sides of an HTTP/2 exchange have in common: sending DATA within the peer's windows, receiving trailers,
//! and translating errors.

use super::{
    convert::{read_trailers, write_fields},
    guard::Signals,
};
use crate::{
    exchange::ends::{End, Fault},
    worker::{buffer::Buffer, turn},
};
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use penstock_http::{Fields, Limits};
use std::{
    io,
    task::{Context, Poll, ready},
};

/// Sends payload as the peer's windows allow; ready once none is left, with whether that ended the stream.
pub(super) fn poll_send_body(
    stream: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    buffer: &mut Buffer,
    end: Option<End<'_>>,
    sent: &mut u64,
    signals: &Signals,
) -> Poll<io::Result<bool>> {
    while !buffer.is_empty() {
        turn::round();
        // Checked first, since a reserved part of the connection's window is unavailable to other streams.
        ready!(signals.outlet.poll_room(cx))?;
        stream.reserve_capacity(buffer.len());
        let room = match stream.capacity() {
            0 => match ready!(stream.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(e)) => return Poll::Ready(Err(io_error(e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            room => room,
        };
        let len = room.min(buffer.len());
        if len == 0 {
            continue;
        }
        signals.outlet.loan.take(len)?;
        let last = len == buffer.len() && end.is_some_and(|end| end.trailers.is_none());
        stream.send_data(Bytes::copy_from_slice(&buffer.data()[..len]), last).map_err(io_error)?;
        buffer.consume(len);
        signals.data_sent(len, buffer.len());
        *sent += len as u64;
        if last {
            return Poll::Ready(Ok(true));
        }
    }
    let Some(end) = end else { return Poll::Ready(Ok(false)) };
    match end.trailers.map(|fields| write_fields(fields, |_| false)) {
        Some(Ok(trailers)) if !trailers.is_empty() => stream.send_trailers(trailers).map_err(io_error)?,
        _ => stream.send_data(Bytes::new(), true).map_err(io_error)?,
    }
    Poll::Ready(Ok(true))
}

/// The trailers of a body that has been received completely; `None` if there are none.
pub(super) fn poll_trailers(
    inbound: &mut RecvStream,
    limits: &Limits,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Fields>, Fault>> {
    let map = ready!(inbound.poll_trailers(cx)).map_err(fault)?;
    Poll::Ready(Ok(map.as_ref().map(|map| read_trailers(map, limits)).transpose()?))
}

/// Translates h2's error of a stream for an end of an exchange.
pub(super) fn fault(error: h2::Error) -> Fault {
    if error.is_io() { Fault::Io(io_error(error)) } else { Fault::Closed }
}

/// Translates h2's error of a stream to an I/O error.
pub(super) fn io_error(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
        false => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}
