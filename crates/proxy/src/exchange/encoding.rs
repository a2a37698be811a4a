//! A body that is compressed on its way: between its source and the buffer from which it is sent.

use super::ends::{Body, Fault, Source};
use crate::{
    servers::private::Own,
    worker::{buffer::Buffer, state::Worker, turn},
};
use penstock_compression::{Encoder, EncoderCall};
use penstock_config::model::ProxyId;
use penstock_http::Error;
use std::{
    rc::Rc,
    task::{Context, Poll, ready},
};

/// The encoding of one body.
pub(crate) struct Encoding {
    /// The encoder; `None` only while the encoding is dropped.
    encoder: Option<Encoder>,
    worker: Rc<Worker>,
    own: Rc<Own>,
    /// What was read and not encoded yet.
    input: Option<Buffer>,
    stage: Step,
    /// How many bytes the encoder has taken since the last flush.
    unflushed: usize,
    /// How the source failed: reported once what it sent before has been handed out.
    fault: Option<Fault>,
    /// The frontend and backend whose counters count the body, by places in the configuration. `None` for a request.
    counted: Option<(ProxyId, Option<ProxyId>)>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// More is read.
    Reading,
    /// All that was read is handed out.
    Flushing,
    /// The source has ended.
    Ending,
    /// All has been handed out.
    Ended,
}

/// Room that an encoder needs at least, and more than any buffer has when it is empty.
const ROOM_MIN: usize = 16;

/// How long the encoder may work before the turn's budget is looked at again: half a turn.
const SLICE_US: usize = 125;

/// How much is compressed before the level follows the load again, if the source never pauses.
const ADJUST_EACH: usize = 64 << 10;

impl Encoding {
    /// Starts to encode a body of the client to which `own` belongs.
    pub fn new(
        encoder: Encoder,
        worker: Rc<Worker>,
        own: Rc<Own>,
        counted: Option<(ProxyId, Option<ProxyId>)>,
    ) -> Encoding {
        own.encoder_begins();
        let (input, stage, unflushed, fault) = (None, Step::Reading, 0, None);
        Encoding { encoder: Some(encoder), worker, own, input, stage, unflushed, fault, counted }
    }
    /// Starts with payload that was read in advance; `complete` if that is all.
    pub fn preload(&mut self, input: Option<Buffer>, complete: bool) {
        self.input = input;
        if complete {
            self.stage = Step::Ending;
        }
    }
    /// Appends encoded payload to `buffer`, as [`Source::poll_body`] does with what it reads. What the source has sent is
    /// held back only until the source pauses.
    ///
    /// Every iteration encodes, reads, reaches another stage, or is the last.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut dyn Source,
        buffer: &mut Buffer,
    ) -> Poll<Result<Body, Fault>> {
        let had = buffer.len();
        loop {
            turn::round();
            if self.stage == Step::Ended {
                return Poll::Ready(Ok(Body::End));
            }
            if buffer.room() < ROOM_MIN {
                return Poll::Ready(Ok(Body::grown(buffer, had)));
            }
            if turn::is_spent() {
                if buffer.len() > had {
                    return Poll::Ready(Ok(Body::grown(buffer, had)));
                }
                ready!(turn::poll_proceed(cx));
            }
            if self.stage == Step::Reading && self.input.is_none() {
                if self.fault.is_none() {
                    match self.poll_read(cx, source) {
                        Poll::Ready(Ok(())) => continue,
                        Poll::Ready(Err(fault)) => self.fault = Some(fault),
                        Poll::Pending if self.unflushed == 0 => {
                            return match buffer.len() > had {
                                true => Poll::Ready(Ok(Body::grown(buffer, had))),
                                false => Poll::Pending,
                            };
                        }
                        Poll::Pending => {}
                    }
                }
                if self.unflushed > 0 {
                    self.stage = Step::Flushing;
                } else if let Some(fault) = self.fault.take() {
                    if buffer.len() > had {
                        self.fault = Some(fault);
                        return Poll::Ready(Ok(Body::grown(buffer, had)));
                    }
                    return Poll::Ready(Err(fault));
                }
            }
            if self.encode(buffer).is_err() {
                return Poll::Ready(Err(Fault::Closed));
            }
        }
    }
    /// Reads from the source into an empty input buffer.
    fn poll_read(&mut self, cx: &mut Context<'_>, source: &mut dyn Source) -> Poll<Result<(), Fault>> {
        let mut input = self.worker.buffers.take()?;
        let read = source.poll_body(cx, &mut input);
        if input.is_empty() {
            self.worker.buffers.give(input);
        } else {
            self.input = Some(input);
        }
        match ready!(read)? {
            Body::More(_) => {}
            // The buffer was empty and has room; a source that says otherwise would be polled for ever.
            Body::Full => return Poll::Ready(Err(Fault::Invalid(Error::TooLarge))),
            Body::End => self.stage = Step::Ending,
        }
        Poll::Ready(Ok(()))
    }
    /// Runs the encoder once.
    fn encode(&mut self, buffer: &mut Buffer) -> Result<(), penstock_compression::EncoderEnded> {
        let encoder = self.encoder.as_mut().expect("it is there until the end");
        let cost_us = encoder.cost_us_per_kib();
        let input = self.input.as_ref().map_or(&[][..], Buffer::data);
        let slice = &input[..input.len().min((SLICE_US << 10) / cost_us as usize)];
        let operation = match self.stage {
            Step::Flushing => EncoderCall::Flush,
            Step::Ending if slice.len() == input.len() => EncoderCall::Finish,
            _ => EncoderCall::Continue,
        };
        let level = encoder.level();
        let progress = encoder.run(slice, buffer.vacant(), operation)?;
        buffer.filled(progress.produced);
        turn::spend(cost_us * 10 * (1 + progress.consumed as u32 / 1024));
        self.unflushed += progress.consumed;
        if let Some(input) = &mut self.input {
            input.consume(progress.consumed);
            if input.is_empty() {
                self.give_input();
            }
        }
        self.count(level, progress.consumed as u64, progress.produced as u64);
        if progress.complete {
            self.completed(operation);
        }
        Ok(())
    }
    fn give_input(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.buffers.give(input);
        }
    }
    /// Goes on after a complete operation.
    fn completed(&mut self, operation: EncoderCall) {
        let compressing = &self.worker.shared.compressing;
        match operation {
            EncoderCall::Finish => {
                self.stage = Step::Ended;
                if let Some((frontend, backend)) = self.counted {
                    let counters = self.worker.counters();
                    counters.frontend(frontend).compressed_responses.inc();
                    backend.into_iter().for_each(|backend| counters.backend(backend).compressed_responses.inc());
                }
            }
            EncoderCall::Flush => {
                (self.stage, self.unflushed) = (Step::Reading, 0);
                if compressing.has_limits() {
                    let up = !compressing.is_overloaded(self.worker.now_ms());
                    self.encoder.as_mut().expect("it is there until the end").adjust(up);
                }
            }
            EncoderCall::Continue => {
                if self.unflushed >= ADJUST_EACH && self.stage == Step::Reading && compressing.has_limits() {
                    self.stage = Step::Flushing;
                }
            }
        }
    }
    fn count(&self, level: u32, consumed: u64, produced: u64) {
        if level > 0 {
            self.worker.shared.compressing.count(consumed, produced, self.worker.now_ms());
        }
        let Some((frontend, backend)) = self.counted else { return };
        let counters = self.worker.counters();
        for cells in [Some(counters.frontend(frontend)), backend.map(|backend| counters.backend(backend))] {
            let Some(cells) = cells else { continue };
            if level > 0 {
                cells.compressed_in.add(consumed);
                cells.compressed_out.add(produced);
            } else {
                cells.compression_bypassed.add(consumed);
            }
        }
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        self.give_input();
        if let Some(encoder) = self.encoder.take() {
            self.worker.encoders.give(encoder);
        }
        self.own.encoder_ends();
    }
}
