//! A body that is compressed on its way: between its source and the buffer from which it is sent.

use super::ends::{Body, Fault, Source};
use crate::worker::{buffer::Buffer, state::Worker, turn};
use penstock_compression::{Encoded, Encoder, EncoderCall, EncoderEnded, Paused};
use penstock_config::model::{CompressionAlgorithm, ProxyId};
use penstock_engine::hw::{PIECE_MAX, PieceId};
use penstock_http::Error;
use std::{
    rc::Rc,
    task::{Context, Poll, ready},
};

/// The encoding of one body.
pub(crate) struct Encoding {
    work: Work,
    worker: Rc<Worker>,
    /// What was read and not encoded yet.
    input: Option<Buffer>,
    /// What the encoder handed out when the reader took nothing.
    spilt: Vec<u8>,
    stage: Step,
    /// How many bytes the encoder has taken since the last flush.
    unflushed: usize,
    algorithm: CompressionAlgorithm,
    /// The piece that is at the device, and its length: the beginning of what was read.
    away: Option<(PieceId, usize)>,
    /// Whether what was read is to be encoded here, up to a flush: a device is not to have it, or did not do it.
    here: bool,
    /// How the source failed: reported once what it sent before has been handed out.
    fault: Option<Fault>,
    /// The frontend and backend whose counters count the body, by places in the configuration. `None` for a request.
    counted: Option<(ProxyId, Option<ProxyId>)>,
}

/// Who works on the message.
enum Work {
    Encoder(Encoder),
    /// Nobody: a peer is waited for, and the encoder serves others meanwhile.
    Paused(Paused),
    /// Nobody any more.
    Done,
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

/// How many bytes the encoder hands out at a time when the reader takes nothing.
const SPILL: usize = 4096;

/// How long the encoder may work before the turn's budget is looked at again: half a turn.
const SLICE_US: usize = 125;

/// The cost of verifying a kibibyte that a device has compressed: of decompressing and comparing it.
const VERIFY_US_PER_KIB: u32 = 3;

/// The cost of giving a piece to a device, and of taking it back: two copies, and the wiping of the memory between them.
const DEVICE_US: u32 = 6;

/// What a device does is no level of ours; it counts as compressed.
const DEVICE_LEVEL: u32 = 1;

/// How much is compressed before the level follows the load again, if the source never pauses.
const ADJUST_EACH: usize = 64 << 10;

impl Encoding {
    pub fn new(encoder: Encoder, worker: &Rc<Worker>, counted: Option<(ProxyId, Option<ProxyId>)>) -> Encoding {
        Encoding {
            algorithm: encoder.algorithm(),
            work: Work::Encoder(encoder),
            worker: worker.clone(),
            input: None,
            spilt: Vec::new(),
            stage: Step::Reading,
            unflushed: 0,
            away: None,
            here: false,
            fault: None,
            counted,
        }
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
            if !self.spilt.is_empty() {
                let taken = buffer.append(&self.spilt);
                self.spilt.drain(..taken);
                if self.spilt.is_empty() && self.spilt.capacity() > SPILL {
                    self.spilt = Vec::new();
                }
            }
            if self.stage == Step::Ended && self.spilt.is_empty() {
                return Poll::Ready(Ok(Body::End));
            }
            if buffer.room() < ROOM_MIN {
                return Poll::Ready(Ok(Body::grown(buffer, had)));
            }
            if turn::is_spent() {
                if buffer.len() > had {
                    return Poll::Ready(Ok(Body::grown(buffer, had)));
                }
                self.rest(cx);
                ready!(turn::poll_proceed(cx));
            }
            if let Some((id, len)) = self.away {
                match self.worker.compressor.poll_answer(id, cx) {
                    Poll::Ready(blocks) => {
                        self.away = None;
                        self.came_back(blocks, len);
                        continue;
                    }
                    Poll::Pending if buffer.len() > had => return Poll::Ready(Ok(Body::grown(buffer, had))),
                    Poll::Pending => {
                        self.pause();
                        return Poll::Pending;
                    }
                }
            }
            if self.may_go_away() && self.gather(cx, source)? {
                continue;
            }
            if self.stage == Step::Reading && self.input.is_none() {
                if self.fault.is_none() {
                    match self.poll_read(cx, source) {
                        Poll::Ready(Ok(())) => continue,
                        Poll::Ready(Err(fault)) => self.fault = Some(fault),
                        Poll::Pending if self.unflushed == 0 => {
                            if buffer.len() > had {
                                return Poll::Ready(Ok(Body::grown(buffer, had)));
                            }
                            // Clients that send slowly keep no encoder. Servers do, unless there are many: pieces that refer to what
                            // came before become smaller.
                            if self.counted.is_none() || self.worker.encoders.are_scarce() {
                                self.pause();
                            }
                            return Poll::Pending;
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
            if let Err(fault) = self.encode(buffer) {
                return Poll::Ready(Err(fault));
            }
        }
    }
    /// Whether a device may have the next piece: nothing that was encoded here is held back.
    fn may_go_away(&self) -> bool {
        !self.here
            && self.unflushed == 0
            && self.fault.is_none()
            && matches!(self.stage, Step::Reading | Step::Ending)
            && Encoder::may_join(self.algorithm)
            && self.worker.compressor.is_there()
    }
    /// Reads more of a piece, or gives it to the device. Returns whether it did either; if not, what there is is encoded here.
    fn gather(&mut self, cx: &mut Context<'_>, source: &mut dyn Source) -> Result<bool, Fault> {
        let has_room = self.input.as_ref().is_none_or(|input| input.len() < PIECE_MAX && input.room() >= ROOM_MIN);
        if self.stage == Step::Reading && has_room {
            let input = self.worker.buffers.hold_grown(&mut self.input, PIECE_MAX)?;
            let read = source.poll_body(cx, input);
            let is_empty = input.is_empty();
            if is_empty {
                self.give_input();
            }
            match read {
                Poll::Ready(Ok(Body::More(_))) => return Ok(true),
                Poll::Ready(Ok(Body::Full)) if is_empty => return Err(Fault::Invalid(Error::TooLarge)),
                Poll::Ready(Ok(Body::End)) => self.stage = Step::Ending,
                Poll::Ready(Err(fault)) => self.fault = Some(fault),
                Poll::Ready(Ok(Body::Full)) | Poll::Pending => {}
            }
        }
        let Some(input) = &self.input else { return Ok(false) };
        let piece = &input.data()[..input.len().min(PIECE_MAX)];
        let compressing = &self.worker.shared.compressing;
        let may = !compressing.has_limits() || !compressing.is_overloaded(self.worker.now_ms());
        let len = piece.len();
        self.away = may.then(|| self.worker.compressor.submit(piece)).flatten().map(|id| (id, len));
        self.here = self.away.is_none();
        if self.away.is_some() {
            turn::spend(DEVICE_US * 10);
        }
        Ok(self.away.is_some())
    }
    /// Hands out what the device has made of a piece, if that is right; otherwise the piece is encoded here.
    fn came_back(&mut self, blocks: Option<Vec<u8>>, len: usize) {
        let Some(input) = &mut self.input else { return };
        let piece = &input.data()[..len];
        let compressor = &self.worker.compressor;
        let right = blocks.and_then(|mut blocks| {
            turn::spend(VERIFY_US_PER_KIB * 10 * (1 + len as u32 / 1024));
            let is_right = self.worker.verifier.borrow_mut().verify(&mut blocks, piece);
            if is_right {
                compressor.was_right(len)
            } else {
                compressor.was_wrong()
            }
            is_right.then_some(blocks)
        });
        let Some(blocks) = right else {
            self.here = true;
            return;
        };
        let header = match &mut self.work {
            Work::Encoder(encoder) => encoder.join(piece),
            Work::Paused(paused) => paused.join(piece),
            Work::Done => &[],
        };
        self.spilt.extend_from_slice(header);
        self.spilt.extend_from_slice(&blocks);
        input.consume(len);
        if input.is_empty() {
            self.give_input();
        }
        self.count(DEVICE_LEVEL, len as u64, (header.len() + blocks.len()) as u64);
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
    /// Encodes into what `buffer` has room for.
    fn encode(&mut self, buffer: &mut Buffer) -> Result<(), Fault> {
        let progress = self.run(buffer.vacant(), false)?;
        buffer.filled(progress.produced);
        Ok(())
    }
    /// Lends the encoder to others, since the reader takes nothing for now, or the turn is over and others have none. What the encoder
    /// holds back is handed out before.
    pub fn rest(&mut self, cx: &mut Context<'_>) {
        if !self.may_pause() {
            return;
        }
        if self.away.is_some() {
            self.pause();
            return;
        }
        if turn::is_spent() && !self.worker.encoders.are_scarce() {
            // The next turn has time for it, if it is still of use.
            turn::go_behind(cx);
            return;
        }
        while self.unflushed > 0 || self.stage == Step::Ending {
            turn::round();
            let mut spilt = std::mem::take(&mut self.spilt);
            let had = spilt.len();
            spilt.resize(had + SPILL, 0);
            let ran = self.run(&mut spilt[had..], true);
            spilt.truncate(had + ran.as_ref().map_or(0, |progress| progress.produced));
            self.spilt = spilt;
            match ran {
                Ok(progress) if progress.complete => break,
                Ok(_) => {}
                // The next call of `poll_body` fails in the same way.
                Err(_) => return,
            }
        }
        self.spilt.shrink_to_fit();
        self.pause();
    }
    fn may_pause(&self) -> bool {
        matches!(&self.work, Work::Encoder(encoder) if self.worker.encoders.may_pause(encoder.algorithm()))
    }
    /// Lends the encoder to others until there is something to encode.
    fn pause(&mut self) {
        if !self.may_pause() {
            return;
        }
        if let Some(input) = &mut self.input {
            self.worker.buffers.shrink(input);
        }
        self.work = match std::mem::replace(&mut self.work, Work::Done) {
            Work::Encoder(encoder) => Work::Paused(self.worker.encoders.pause(encoder)),
            other => other,
        };
    }
    /// Runs the encoder once; with `flushes`, all that it takes is handed out.
    fn run(&mut self, output: &mut [u8], flushes: bool) -> Result<Encoded, Fault> {
        self.work = match std::mem::replace(&mut self.work, Work::Done) {
            Work::Paused(message) => Work::Encoder(self.worker.encoders.resume(message)?),
            other => other,
        };
        let Work::Encoder(encoder) = &mut self.work else { return Err(Fault::Closed) };
        let cost_us = encoder.cost_us_per_kib();
        let input = self.input.as_ref().map_or(&[][..], Buffer::data);
        let slice = &input[..input.len().min((SLICE_US << 10) / cost_us as usize)];
        let operation = match self.stage {
            Step::Flushing => EncoderCall::Flush,
            Step::Ending if slice.len() == input.len() => EncoderCall::Finish,
            _ if flushes => EncoderCall::Flush,
            _ => EncoderCall::Continue,
        };
        let level = encoder.level();
        let progress = encoder.run(slice, output, operation).map_err(|EncoderEnded| Fault::Closed)?;
        turn::spend(cost_us * 10 * (1 + progress.consumed as u32 / 1024));
        self.unflushed += progress.consumed;
        if let Some(input) = &mut self.input {
            input.consume(progress.consumed);
            if input.is_empty() {
                self.give_input();
            }
        }
        self.count(level, progress.consumed as u64, progress.produced as u64);
        if Encoder::may_join(self.algorithm) {
            self.worker.compressor.was_here(progress.consumed);
        }
        if progress.complete {
            self.completed(operation);
        }
        Ok(progress)
    }
    fn give_input(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.buffers.give(input);
        }
    }
    fn give_encoder(&mut self) {
        if let Work::Encoder(encoder) = std::mem::replace(&mut self.work, Work::Done) {
            self.worker.encoders.give(encoder);
        }
    }
    /// Goes on after a complete operation.
    fn completed(&mut self, operation: EncoderCall) {
        let compressing = &self.worker.shared.compressing;
        match operation {
            EncoderCall::Finish => {
                self.stage = Step::Ended;
                self.give_encoder();
                if let Some((frontend, backend)) = self.counted {
                    let counters = self.worker.counters();
                    counters.frontend(frontend).compressed_responses.inc();
                    backend.into_iter().for_each(|backend| counters.backend(backend).compressed_responses.inc());
                }
            }
            EncoderCall::Flush => {
                self.unflushed = 0;
                self.here &= self.input.is_some();
                if self.stage == Step::Flushing {
                    self.stage = Step::Reading;
                }
                if let Work::Encoder(encoder) = &mut self.work
                    && compressing.has_limits()
                {
                    encoder.adjust(!compressing.is_overloaded(self.worker.now_ms()));
                }
            }
            EncoderCall::Continue if self.here && self.input.is_none() && self.stage == Step::Reading => {
                // The device may have what follows, which is then to refer to nothing before it.
                self.stage = Step::Flushing;
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
        if let Some((id, _)) = self.away.take() {
            self.worker.compressor.forget(id);
        }
        self.give_input();
        self.give_encoder();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzDecoder;
    use penstock_config::model::CompressionAlgorithm;
    use penstock_http::Fields;
    use std::{io::Write, task::Waker};

    /// Has this many lines of text at once, and then nothing for now, or the end.
    struct Lines(u32, bool);

    impl Source for Lines {
        fn poll_body(&mut self, _: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
            let had = buffer.len();
            while buffer.room() >= 8 && self.0 > 0 {
                self.0 -= 1;
                buffer.append(format!("{:07}\n", self.0.wrapping_mul(2_654_435_761) % 10_000_000).as_bytes());
            }
            match (buffer.len() > had, self.1) {
                (true, _) => Poll::Ready(Ok(Body::grown(buffer, had))),
                (false, true) => Poll::Ready(Ok(Body::End)),
                (false, false) => Poll::Pending,
            }
        }
        fn trailers(&self) -> Option<&Fields> {
            None
        }
    }

    const MANY: usize = 40;

    fn encodings(counted: Option<(ProxyId, Option<ProxyId>)>) -> (Rc<Worker>, Vec<Encoding>) {
        let worker = crate::model::worker("frontend f\n mode http\n bind 127.0.0.1:1\n timeout client 1s\n");
        let new = || {
            let encoder = worker.encoders.take(CompressionAlgorithm::Gzip).expect("there is memory");
            Encoding::new(encoder, &worker, counted)
        };
        let all = (0..MANY).map(|_| new()).collect();
        (worker, all)
    }

    /// Reads until a buffer is full or there is nothing for now.
    fn read(encoding: &mut Encoding, source: &mut Lines, out: &mut Vec<u8>) -> Poll<Body> {
        penstock_rules::turn::begin(1 << 30);
        let cx = &mut Context::from_waker(Waker::noop());
        let mut buffer = encoding.worker.buffers.take_anyway();
        let polled = encoding.poll_body(cx, source, &mut buffer);
        out.extend_from_slice(buffer.data());
        encoding.worker.buffers.give(buffer);
        polled.map(|body| body.expect("it does not fail"))
    }

    #[test]
    fn readers_that_take_nothing_hold_no_encoder_and_lose_nothing() {
        let (worker, mut all) = encodings(Some((ProxyId::default(), None)));
        let mut read_so_far: Vec<_> = all.iter().map(|_| (Lines(40_000, true), Vec::new())).collect();
        for _ in 0..1000 {
            for (encoding, (source, out)) in all.iter_mut().zip(&mut read_so_far) {
                let _ = read(encoding, source, out);
                encoding.rest(&mut Context::from_waker(Waker::noop()));
            }
            assert_eq!(worker.encoders.in_use(), 0);
            let held = all.iter().map(|encoding| encoding.spilt.capacity()).max();
            assert!(held <= Some(40 << 10), "{held:?}");
        }
        for (_, out) in &read_so_far {
            let mut decoder = GzDecoder::new(Vec::new());
            decoder.write_all(out).and_then(|()| decoder.try_finish()).expect("it is whole");
            assert_eq!(decoder.get_ref().len(), 8 * 40_000);
        }
    }

    #[test]
    fn of_many_that_wait_for_their_source_some_hold_an_encoder() {
        for (counted, most) in [(None, 0), (Some((ProxyId::default(), None)), 16)] {
            let (worker, mut all) = encodings(counted);
            assert_eq!(worker.encoders.in_use(), MANY);
            for encoding in &mut all {
                let mut source = Lines(10, false);
                while read(encoding, &mut source, &mut Vec::new()).is_ready() {}
            }
            assert_eq!(worker.encoders.in_use(), most);
        }
    }
}
