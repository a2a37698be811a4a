//! Moves bodies from one end of an exchange to the other, in a buffer that grows with the flow and exists only while it
//! holds bytes.

use super::{
    encoding::Encoding,
    ends::{Body, End, Fault, Sink, Source},
    throttle::{Throttle, Throttled},
};
use crate::{
    inspect::{Replay, Replayed},
    process::memory::NoMemory,
    tap::Copying,
    worker::{
        buffer::{Buffer, Buffers},
        turn,
    },
};
use penstock_http::Error;
use penstock_rules::By;
use std::{
    io,
    task::{Context, Poll},
};

/// One direction of an exchange.
#[derive(Default)]
pub(crate) struct Flow {
    buffer: Option<Buffer>,
    /// How large the buffer had grown that was given back while its sink waited.
    grown: usize,
    /// Whether the sink may hold a head that is not sent yet.
    head_due: bool,
    /// Whether the sink is still sending what it was last given, even if it has emptied the buffer; nothing may be
    /// appended until then.
    sending: bool,
    /// Whether the source has ended.
    read: bool,
    /// Whether the sink has taken everything.
    pub done: bool,
    /// The end it waits for, while it is not done.
    pub waits_for: Waits,
    /// Whether something was moved since this was last cleared.
    pub moved: bool,
    /// Whether its end is no message's, and not sent as bytes.
    is_stream: bool,
    /// The body as read so far, to be sent again to another server.
    kept: Option<Box<Beginning>>,
    /// Whoever gets a copy of what is read.
    copying: Option<Box<Copying>>,
    /// What comes before the source's own bytes, or in their place.
    replay: Option<Replay>,
    /// Trailers of the source are not sent.
    drops_trailers: bool,
    /// Compresses what is read.
    encoding: Option<Box<Encoding>>,
    /// Holds it back.
    throttle: Option<Box<Throttle>>,
}

/// The beginning of a body.
struct Beginning {
    bytes: Vec<u8>,
    /// A body that is longer is not kept.
    limit: usize,
}

/// The end that a direction waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Neither yet.
    #[default]
    Nothing,
    Source,
    Sink,
}

/// The end of a direction that failed.
#[derive(Debug)]
pub(crate) enum Broken {
    Source(Fault),
    Sink(io::Error),
    /// Neither: there is no memory for what they exchange.
    Memory(NoMemory),
}

impl Broken {
    /// Who broke a direction from the client, or from the server.
    pub fn by(&self, from_client: bool) -> By {
        match self {
            Broken::Memory(NoMemory) => By::Exhaustion,
            Broken::Source(_) if from_client => By::Client,
            Broken::Sink(_) if !from_client => By::Client,
            Broken::Source(_) | Broken::Sink(_) => By::Server,
        }
    }
}

impl Flow {
    /// A direction whose sink has been given a head.
    pub fn new() -> Self {
        Flow { head_due: true, ..Flow::default() }
    }
    /// The same between byte streams.
    pub fn streaming(self) -> Self {
        Flow { is_stream: true, ..self }
    }
    /// Ends it as if the source had: nothing more is awaited from there.
    pub fn end(&mut self) {
        self.read = true;
    }
    /// Sends no trailers: services that inspect a message do not see them.
    pub fn drop_trailers(&mut self) {
        self.drops_trailers = true;
    }
    /// Whether its sink has sent the head that it was given.
    pub fn has_sent_head(&self) -> bool {
        !self.head_due
    }
    /// Keeps a copy of the body, as long as it has no more than `limit` bytes.
    pub fn keep(&mut self, limit: usize) {
        self.kept = Some(Box::new(Beginning { bytes: Vec::new(), limit }));
        if let Some(buffer) = &self.buffer {
            remember(&mut self.kept, buffer.data());
        }
    }
    /// Whether everything that was read has been kept.
    pub fn keeps_all(&self) -> bool {
        self.kept.is_some()
    }
    /// The kept bytes as a buffer to preload another flow with, and whether they are the whole body.
    pub fn again(&mut self, buffers: &Buffers) -> Option<(Buffer, bool)> {
        let kept = self.kept.take()?;
        let mut buffer = buffers.take_anyway();
        buffer.append(&kept.bytes);
        Some((buffer, self.read))
    }
    /// What the source delivered before it failed and the sink has not taken.
    pub fn take_rest(&mut self) -> Buffer {
        self.buffer.take().unwrap_or_else(Buffer::none)
    }
    /// Moves what can be moved now; ready once the whole body has been sent.
    ///
    /// Every iteration moves bytes, sends a head that was due, or is the last.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        buffers: &Buffers,
    ) -> Poll<Result<(), Broken>> {
        while !self.done {
            turn::round();
            if self.read {
                self.buffer.get_or_insert_with(Buffer::none);
            }
            let buffer = match buffers.hold_grown(&mut self.buffer, self.grown.min(sink.buffer_max())) {
                Ok(buffer) => buffer,
                Err(missing) => return Poll::Ready(Err(Broken::Memory(missing))),
            };
            if buffer.is_empty() && !self.read && !self.sending {
                let mut replayed;
                let source: &mut dyn Source = match &mut self.replay {
                    None => &mut *source,
                    Some(replay) => {
                        replayed = Replayed { replay, source: &mut *source };
                        &mut replayed
                    }
                };
                let mut throttled;
                let source: &mut dyn Source = match &mut self.throttle {
                    None => source,
                    Some(throttle) => {
                        throttled = Throttled { throttle, source };
                        &mut throttled
                    }
                };
                let read = match &mut self.encoding {
                    None => source.poll_body(cx, buffer),
                    Some(encoding) => encoding.poll_body(cx, source, buffer),
                };
                match read {
                    Poll::Pending if self.head_due => {}
                    Poll::Pending => {
                        self.give_back(buffers);
                        let is_held = self.throttle.as_ref().is_some_and(|throttle| throttle.holds());
                        self.waits_for = if is_held { Waits::Nothing } else { Waits::Source };
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(Body::More(_))) => {}
                    // The buffer is empty and has room; a source that says otherwise would be polled for ever.
                    Poll::Ready(Ok(Body::Full)) => {
                        self.give_back(buffers);
                        return Poll::Ready(Err(Broken::Source(Fault::Invalid(Error::TooLarge))));
                    }
                    Poll::Ready(Ok(Body::End)) => self.read = true,
                    Poll::Ready(Err(Fault::Memory(missing))) => return Poll::Ready(Err(Broken::Memory(missing))),
                    Poll::Ready(Err(fault)) => return Poll::Ready(Err(Broken::Source(fault))),
                }
                remember(&mut self.kept, buffer.data());
                if let Some(copying) = &self.copying {
                    copying.data(buffer.data());
                    if self.read {
                        copying.end(source.trailers().filter(|_| !self.drops_trailers));
                    }
                }
            }
            let (full, had) = (buffer.is_full(), buffer.len());
            let end = self.read.then(|| End { trailers: source.trailers().filter(|_| !self.drops_trailers) });
            self.sending = true;
            match sink.poll_send(cx, buffer, end) {
                Poll::Pending => {
                    self.waits_for = Waits::Sink;
                    // The wait may be long, so the buffer is made as small as possible.
                    if buffer.is_empty() {
                        // What it held is encrypted or framed below, and not copied twice.
                        self.grown = buffer.capacity();
                        self.give_back(buffers);
                    } else if sink.may_refill() {
                        buffers.shrink(buffer);
                    }
                    if let Some(encoding) = &mut self.encoding {
                        encoding.rest(cx);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(e)) => {
                    self.give_back(buffers);
                    return Poll::Ready(Err(Broken::Sink(e)));
                }
                Poll::Ready(Ok(())) => {
                    self.moved |= had > 0 || !self.is_stream;
                    (self.head_due, self.sending) = (false, false);
                    self.done = self.read;
                    if buffers.is_shrunk(buffer) {
                        self.give_back(buffers);
                    } else if full && !self.done && buffer.capacity() < sink.buffer_max() {
                        // What only filled the system's buffers would be kept in addition if the peer takes nothing: it has to have taken as
                        // much as the new buffer holds, of this message or earlier ones.
                        if sink.taken() >= 2 * buffer.capacity() as u64 {
                            buffer.clear();
                            buffers.grow(buffer);
                        }
                    }
                }
            }
        }
        self.give_back(buffers);
        Poll::Ready(Ok(()))
    }
    /// Starts with payload that was read in advance (`option http-buffer-request`), if there is any.
    pub fn preload(&mut self, buffer: Option<Buffer>, complete: bool) {
        self.buffer = buffer;
        self.read = complete;
    }
    /// Starts with a body that was kept for services.
    pub fn replay(&mut self, replay: Replay) {
        self.replay = Some(replay);
    }
    /// Has a copy made of what is read, and of what was read in advance.
    pub fn copy(&mut self, copying: Option<Box<Copying>>) {
        if let Some(copying) = &copying {
            copying.data(self.buffer.as_ref().map_or(&[], Buffer::data));
            if self.read {
                copying.end(None);
            }
        }
        self.copying = copying;
    }
    /// Compresses what is read from now on.
    pub fn encode(&mut self, encoding: Option<Box<Encoding>>) {
        self.encoding = encoding;
    }
    /// Reads no faster than this allows.
    pub fn throttle(&mut self, throttle: Option<Box<Throttle>>) {
        self.throttle = throttle;
    }
    /// The encoding, for another flow that continues this one.
    pub fn take_encoding(&mut self) -> Option<Box<Encoding>> {
        self.encoding.take()
    }
    /// Returns the buffer to the worker.
    pub fn give_back(&mut self, buffers: &Buffers) {
        if let Some(buffer) = self.buffer.take() {
            buffers.give(buffer);
        }
    }
}

/// Adds bytes to the kept copy; drops the copy once it exceeds its limit.
fn remember(kept: &mut Option<Box<Beginning>>, read: &[u8]) {
    if let Some(beginning) = kept {
        if beginning.bytes.len() + read.len() <= beginning.limit {
            beginning.bytes.extend_from_slice(read);
        } else {
            *kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_http::Fields;
    use std::task::Waker;

    /// Yields one piece per poll, and is pending between pieces.
    struct Pieces(Vec<&'static [u8]>, bool);
    impl Source for Pieces {
        fn poll_body(&mut self, _: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
            self.1 = !self.1;
            if self.1 {
                return Poll::Pending;
            }
            let had = buffer.len();
            buffer.append(self.0.remove(0));
            Poll::Ready(Ok(if self.0.is_empty() { Body::End } else { Body::grown(buffer, had) }))
        }
        fn trailers(&self) -> Option<&Fields> {
            None
        }
    }
    #[derive(Default)]
    struct Collect(Vec<u8>, usize, bool);
    impl Sink for Collect {
        fn poll_send(
            &mut self,
            _: &mut Context<'_>,
            buffer: &mut Buffer,
            end: Option<End<'_>>,
        ) -> Poll<io::Result<()>> {
            self.0.extend_from_slice(buffer.data());
            buffer.clear();
            self.1 += 1;
            self.2 |= end.is_some();
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_head_leaves_before_a_body_that_is_not_there_yet_and_no_buffer_is_kept_while_waiting() {
        let buffers = Buffers::of(1024);
        let (mut source, mut sink) = (Pieces(vec![b"ab", b"cd"], false), Collect::default());
        let mut flow = Flow::new();
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(flow.poll(cx, &mut source, &mut sink, &buffers).is_pending());
        assert_eq!((sink.0.as_slice(), sink.1, sink.2), (&b"ab"[..], 2, false));
        assert_eq!(flow.waits_for, Waits::Source);
        assert!(flow.buffer.is_none());
        assert!(matches!(flow.poll(cx, &mut source, &mut sink, &buffers), Poll::Ready(Ok(()))));
        assert_eq!((sink.0.as_slice(), sink.2), (&b"abcd"[..], true));
    }

    /// Takes at most three bytes, on every second call; on the first it takes nothing.
    #[derive(Default)]
    struct Reluctant(Vec<u8>, bool);
    impl Sink for Reluctant {
        fn may_refill(&self) -> bool {
            true
        }
        fn poll_send(&mut self, _: &mut Context<'_>, buffer: &mut Buffer, _: Option<End<'_>>) -> Poll<io::Result<()>> {
            self.1 = !self.1;
            if !self.1 {
                let taken = buffer.len().min(3);
                self.0.extend_from_slice(&buffer.data()[..taken]);
                buffer.consume(taken);
            }
            if buffer.is_empty() && !self.1 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    #[test]
    fn a_flow_whose_sink_takes_nothing_holds_what_it_must_and_loses_nothing() {
        let buffers = Buffers::of(1024);
        let (mut source, mut sink) = (Pieces(vec![b"abcdefgh", b"ij"], false), Reluctant::default());
        let mut flow = Flow::new();
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..50 {
            if let Poll::Ready(result) = flow.poll(cx, &mut source, &mut sink, &buffers) {
                assert!(result.is_ok());
                break;
            }
            let held = flow.buffer.as_ref().map_or(0, Buffer::capacity);
            assert!(held <= 8, "{held} bytes are held");
        }
        assert_eq!(sink.0, b"abcdefghij");
    }

    #[test]
    fn a_body_that_is_kept_can_be_sent_again_and_a_long_one_is_not_kept() {
        let buffers = Buffers::of(1024);
        let cx = &mut Context::from_waker(Waker::noop());
        for (limit, kept) in [(4, true), (3, false)] {
            let (mut source, mut sink) = (Pieces(vec![b"ab", b"cd"], false), Collect::default());
            let mut flow = Flow::new();
            flow.keep(limit);
            while flow.poll(cx, &mut source, &mut sink, &buffers).is_pending() {}
            assert_eq!(flow.keeps_all(), kept);
            let again = flow.again(&buffers);
            assert_eq!(
                again.as_ref().map(|(buffer, whole)| (buffer.data(), *whole)),
                kept.then_some((&b"abcd"[..], true))
            );
        }
    }
}
