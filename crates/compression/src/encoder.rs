//! The encoders, behind one interface: as much of the input as there is room for the output.

use crate::{
    blocks,
    deflate::{Message, Stream},
};
use penstock_config::model::CompressionAlgorithm;

/// An encoder, between and during messages.
pub struct Encoder {
    algorithm: CompressionAlgorithm,
    kind: Kind,
    /// The level it was made for.
    level: u32,
}

enum Kind {
    Identity,
    Deflate(Box<Stream>),
    Blocks(blocks::Stream),
}

/// A message that no encoder works on at present.
pub struct Paused {
    algorithm: CompressionAlgorithm,
    message: Option<Message>,
}

impl Paused {
    /// The algorithm of the encoder that may continue it.
    pub fn algorithm(&self) -> CompressionAlgorithm {
        self.algorithm
    }

    /// As [`Encoder::join`].
    pub fn join(&mut self, input: &[u8]) -> &'static [u8] {
        self.message.as_mut().map_or(&[], |message| message.join(input))
    }
}

/// What a call of [`Encoder::run`] is to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderCall {
    /// Takes input; what it becomes may be handed out later.
    Continue,
    /// Also hands out all that was put in so far.
    Flush,
    /// Also ends the message.
    Finish,
}

/// The result of a call of [`Encoder::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// How many bytes of the input it took.
    pub consumed: usize,
    /// How many bytes of the output it wrote.
    pub produced: usize,
    /// Whether the operation is complete. Otherwise it goes on with the same operation, the rest of the input, and more room.
    pub complete: bool,
}

/// The encoder can take no more, since its message has ended or its state is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderEnded;

/// The minimum room for [`Encoder::run`]. With less, the five bytes that mark a flush could fill it again and again.
const ROOM_MIN: usize = 16;

impl Encoder {
    /// An encoder for one message after another, at a level from 1 to 9.
    pub fn new(algorithm: CompressionAlgorithm, level: u32) -> Encoder {
        let kind = match algorithm {
            CompressionAlgorithm::Identity => Kind::Identity,
            CompressionAlgorithm::Gzip | CompressionAlgorithm::Deflate | CompressionAlgorithm::RawDeflate => {
                Kind::Deflate(Box::new(Stream::new(algorithm, level)))
            }
            CompressionAlgorithm::Brotli | CompressionAlgorithm::Zstd => {
                Kind::Blocks(blocks::Stream::new(algorithm, level))
            }
        };
        Encoder { algorithm, kind, level }
    }

    /// The algorithm.
    pub fn algorithm(&self) -> CompressionAlgorithm {
        self.algorithm
    }
    /// The current level; 0 if nothing is compressed.
    pub fn level(&self) -> u32 {
        match &self.kind {
            Kind::Identity => 0,
            Kind::Deflate(stream) => stream.level,
            Kind::Blocks(stream) => stream.level,
        }
    }

    /// The most memory that an encoder of this kind takes, in bytes.
    pub fn memory(algorithm: CompressionAlgorithm) -> usize {
        match algorithm {
            CompressionAlgorithm::Identity => 0,
            CompressionAlgorithm::Gzip | CompressionAlgorithm::Deflate | CompressionAlgorithm::RawDeflate => {
                DEFLATE_MEMORY
            }
            CompressionAlgorithm::Brotli => BROTLI_MEMORY,
            CompressionAlgorithm::Zstd => ZSTD_MEMORY,
        }
    }

    /// Whether an encoder of this kind may leave its message to another one, with [`Encoder::pause`].
    pub fn may_pause(algorithm: CompressionAlgorithm) -> bool {
        !matches!(algorithm, CompressionAlgorithm::Brotli | CompressionAlgorithm::Zstd)
    }

    /// The cost of compressing a kibibyte at the current level, in microseconds on a server of 2020, rounded up.
    pub fn cost_us_per_kib(&self) -> u32 {
        match &self.kind {
            Kind::Identity => 1,
            Kind::Deflate(stream) => DEFLATE_US_PER_KIB[stream.level_at_work().min(9) as usize],
            Kind::Blocks(stream) if self.algorithm == CompressionAlgorithm::Brotli => {
                BROTLI_US_PER_KIB[stream.level.min(4) as usize]
            }
            Kind::Blocks(stream) => ZSTD_US_PER_KIB[stream.level.min(9) as usize],
        }
    }

    /// Encodes as much of `input` as `output` has room for. `output` must have room for at least 16 bytes.
    ///
    /// # Errors
    ///
    /// If the message has ended already, or `output` is too small.
    pub fn run(&mut self, input: &[u8], output: &mut [u8], operation: EncoderCall) -> Result<Encoded, EncoderEnded> {
        if output.len() < ROOM_MIN {
            return Err(EncoderEnded);
        }
        match &mut self.kind {
            Kind::Identity => {
                let n = input.len().min(output.len());
                output[..n].copy_from_slice(&input[..n]);
                Ok(Encoded { consumed: n, produced: n, complete: n == input.len() })
            }
            Kind::Deflate(stream) => stream.run(input, output, operation),
            Kind::Blocks(stream) => stream.run(input, output, operation),
        }
    }

    /// Whether pieces of a message may be compressed by somebody else, as blocks of Deflate.
    pub fn may_join(algorithm: CompressionAlgorithm) -> bool {
        use CompressionAlgorithm::{Deflate, Gzip, RawDeflate};
        matches!(algorithm, Gzip | Deflate | RawDeflate)
    }

    /// Counts a piece of the message that somebody else has compressed and [`Verifier::verify`](crate::Verifier::verify) has accepted:
    /// at the beginning, or right after a complete [`EncoderCall::Flush`] or another such piece. Returns what is to be handed out
    /// before it. Only where [`Encoder::may_join`] says so.
    pub fn join(&mut self, input: &[u8]) -> &'static [u8] {
        match &mut self.kind {
            Kind::Deflate(stream) => stream.join(input),
            Kind::Identity | Kind::Blocks(_) => &[],
        }
    }

    /// Makes the rest of a message more or less compressed, where the algorithm allows it: only right after a complete
    /// [`EncoderCall::Flush`]. The level ranges from 0, which compresses nothing, to the one the encoder was made for.
    pub fn adjust(&mut self, up: bool) {
        let Kind::Deflate(stream) = &mut self.kind else { return };
        let wanted = if up { (stream.level + 1).min(self.level) } else { stream.level.saturating_sub(1) };
        if wanted != stream.level {
            stream.restart(wanted);
        }
    }

    /// Leaves a message, right after a complete [`EncoderCall::Flush`], for [`Encoder::resume`]. This encoder is then ready for another.
    /// Only where [`Encoder::may_pause`] says so.
    pub fn pause(&mut self) -> Paused {
        let message = match &mut self.kind {
            Kind::Identity | Kind::Blocks(_) => None,
            Kind::Deflate(stream) => Some(stream.reset(self.level)),
        };
        Paused { algorithm: self.algorithm, message }
    }

    /// Continues a message of the same algorithm, before anything was put into this encoder. What follows refers to nothing that
    /// came before the pause.
    pub fn resume(&mut self, paused: Paused) {
        if let (Kind::Deflate(stream), Some(message)) = (&mut self.kind, paused.message) {
            stream.resume(message);
        }
    }

    /// The encoder, ready for another message, if it has ended its last one. One that was left in the middle is not used again: zlib-rs
    /// 0.6 keeps an open block of level 1 over a reset, and the next message would lack the bits that open its own.
    pub fn recycle(mut self) -> Option<Encoder> {
        self.kind = match self.kind {
            Kind::Identity => Kind::Identity,
            Kind::Deflate(mut stream) => {
                if !stream.is_complete() {
                    return None;
                }
                stream.reset(self.level);
                Kind::Deflate(stream)
            }
            Kind::Blocks(stream) => Kind::Blocks(stream.recycle()?),
        };
        Some(self)
    }
}

/// The window, the hash chains and the output of zlib-rs: 336 KiB, measured in November 2026 with forty of them in use.
const DEFLATE_MEMORY: usize = 340 << 10;

/// At quality 4, the highest that is used: 1.33 MiB, measured in November 2026 by counting what it allocates.
const BROTLI_MEMORY: usize = 1400 << 10;

/// At level 3, which has two tables: 1145 KiB by its own account; the other levels take a little less.
const ZSTD_MEMORY: usize = 1152 << 10;

/// By level; measured in November 2026 on HTML that shrinks to an eighth, with a margin.
const DEFLATE_US_PER_KIB: [u32; 10] = [1, 6, 8, 10, 12, 14, 18, 24, 32, 44];

/// Likewise, by quality.
const BROTLI_US_PER_KIB: [u32; 5] = [1, 15, 20, 22, 28];

/// Likewise, by level.
const ZSTD_US_PER_KIB: [u32; 10] = [1, 6, 6, 7, 10, 14, 18, 20, 22, 24];

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
    use ruzstd::decoding::StreamingDecoder;
    use std::io::Read;
    use zstd_safe::{InBuffer, OutBuffer};

    const ALL: [CompressionAlgorithm; 6] = [
        CompressionAlgorithm::Identity,
        CompressionAlgorithm::Gzip,
        CompressionAlgorithm::Deflate,
        CompressionAlgorithm::RawDeflate,
        CompressionAlgorithm::Brotli,
        CompressionAlgorithm::Zstd,
    ];

    /// What can be decoded, and whether that is a whole message, with the right checksum.
    fn decode(algorithm: CompressionAlgorithm, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let read = match algorithm {
            CompressionAlgorithm::Identity => (&mut &*bytes).read_to_end(&mut out),
            CompressionAlgorithm::Gzip => GzDecoder::new(bytes).read_to_end(&mut out),
            CompressionAlgorithm::Deflate => ZlibDecoder::new(bytes).read_to_end(&mut out),
            CompressionAlgorithm::RawDeflate => DeflateDecoder::new(bytes).read_to_end(&mut out),
            CompressionAlgorithm::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
            CompressionAlgorithm::Zstd => return decode_zstd(bytes),
        };
        let whole = read.is_ok();
        (out, whole)
    }

    /// By two decoders, of which only one hands out what it has of a message that is not whole.
    fn decode_zstd(bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let whole = StreamingDecoder::new(bytes).is_ok_and(|mut decoder| decoder.read_to_end(&mut out).is_ok());
        if whole {
            return (out, true);
        }
        let (mut decoder, mut input, mut part) = (zstd_safe::DCtx::create(), InBuffer::around(bytes), vec![0; 1 << 20]);
        let mut output = OutBuffer::around(&mut part[..]);
        while input.pos() < bytes.len() {
            decoder.decompress_stream(&mut output, &mut input).unwrap();
        }
        let written = output.pos();
        part.truncate(written);
        (part, false)
    }

    fn decoded(algorithm: CompressionAlgorithm, bytes: &[u8]) -> Vec<u8> {
        decode(algorithm, bytes).0
    }

    fn text(len: usize) -> Vec<u8> {
        (0_u32..)
            .flat_map(|n| format!("line {} of some text\n", n.wrapping_mul(2_654_435_761) >> 20).into_bytes())
            .take(len)
            .collect()
    }

    /// Encodes with `room` bytes of output and `step` bytes of input at a time, flushing after every `flush_each` steps.
    fn encode(encoder: &mut Encoder, input: &[u8], room: usize, step: usize, flush_each: usize) -> Vec<u8> {
        let (mut out, mut buffer) = (Vec::new(), vec![0; room]);
        let mut run = |input: &[u8], operation| {
            let mut rest = input;
            for _ in 0..100_000 {
                let progress = encoder.run(rest, &mut buffer, operation).unwrap();
                out.extend_from_slice(&buffer[..progress.produced]);
                rest = &rest[progress.consumed..];
                if progress.complete {
                    return out.len();
                }
            }
            panic!("it does not end");
        };
        for (index, piece) in input.chunks(step).enumerate() {
            run(piece, EncoderCall::Continue);
            if index % flush_each == flush_each - 1 {
                run(b"", EncoderCall::Flush);
            }
        }
        run(b"", EncoderCall::Finish);
        out
    }

    #[test]
    fn what_is_encoded_is_decoded_whatever_the_pieces() {
        for algorithm in ALL {
            for level in [1, 2, 6, 9] {
                let mut encoder = Encoder::new(algorithm, level);
                for (len, room, step, flush_each) in
                    [(0, 16, 1, 1), (1, 16, 1, 1), (500, 16, 7, 3), (5000, 24, 100, 1), (200_000, 16384, 16384, 100)]
                {
                    let input = text(len);
                    let out = encode(&mut encoder, &input, room, step, flush_each);
                    assert!(decoded(algorithm, &out) == input, "{algorithm:?} {level} {len} {room}");
                    if len == 200_000 && algorithm != CompressionAlgorithm::Identity {
                        assert!(out.len() < len / 2, "{} of {len}", out.len());
                    }
                    encoder = match encoder.recycle() {
                        Some(encoder) => encoder,
                        None if algorithm == CompressionAlgorithm::Brotli => Encoder::new(algorithm, level),
                        None => panic!("it has ended its message"),
                    };
                }
            }
        }
    }

    /// Encodes the input and flushes, through a buffer.
    fn flush(encoder: &mut Encoder, mut input: &[u8], buffer: &mut [u8], out: &mut Vec<u8>) {
        loop {
            let progress = encoder.run(input, buffer, EncoderCall::Flush).unwrap();
            out.extend_from_slice(&buffer[..progress.produced]);
            input = &input[progress.consumed..];
            if progress.complete {
                return;
            }
        }
    }

    #[test]
    fn after_a_flush_everything_can_be_decoded() {
        for algorithm in ALL {
            let mut encoder = Encoder::new(algorithm, 1);
            let (input, mut out, mut buffer) = (text(3000), Vec::new(), [0; 20]);
            flush(&mut encoder, &input, &mut buffer, &mut out);
            assert!(decoded(algorithm, &out) == input, "{algorithm:?}");
        }
    }

    #[test]
    fn encoders_that_see_their_whole_message_hand_out_each_block() {
        for algorithm in ALL.into_iter().filter(|algorithm| !Encoder::may_pause(*algorithm)) {
            for level in 1..=9 {
                let mut encoder = Encoder::new(algorithm, level);
                let (input, mut out, mut buffer) = (text(64 << 10), Vec::new(), vec![0; 1 << 17]);
                for piece in input.chunks(5000) {
                    let progress = encoder.run(piece, &mut buffer, EncoderCall::Continue).unwrap();
                    assert!(progress.complete && progress.consumed == piece.len());
                    out.extend_from_slice(&buffer[..progress.produced]);
                }
                assert!(decoded(algorithm, &out) == input, "{algorithm:?} {level}");
                let progress = encoder.run(b"", &mut buffer, EncoderCall::Finish).unwrap();
                assert!(progress.complete);
                assert_eq!(encoder.run(b"more", &mut buffer, EncoderCall::Continue), Err(EncoderEnded));
            }
        }
    }

    #[test]
    fn what_is_known_to_be_small_says_its_length_in_zstd() {
        let mut encoder = Encoder::new(CompressionAlgorithm::Zstd, 1);
        let (input, mut out) = (text(500), vec![0; 1000]);
        let progress = encoder.run(&input, &mut out, EncoderCall::Finish).unwrap();
        assert!(progress.complete && progress.produced < 250, "{progress:?}");
        // The magic number, a descriptor that says that there is no window but the content, and the length less 256.
        assert_eq!(out[..7], [0x28, 0xb5, 0x2f, 0xfd, 0x60, 244, 0]);
    }

    #[test]
    fn a_zstd_encoder_that_was_left_in_the_middle_starts_anew() {
        for operation in [EncoderCall::Continue, EncoderCall::Flush] {
            let mut encoder = Encoder::new(CompressionAlgorithm::Zstd, 3);
            encoder.run(&text(40_000), &mut [0; 100], operation).unwrap();
            let mut encoder = encoder.recycle().expect("it can be reset");
            let input = text(100_000);
            let out = encode(&mut encoder, &input, 64, 999, 7);
            assert!(decode(CompressionAlgorithm::Zstd, &out) == (input, true), "{operation:?}");
        }
    }

    #[test]
    fn an_encoder_that_was_left_in_the_middle_is_not_used_again() {
        for algorithm in [CompressionAlgorithm::Gzip, CompressionAlgorithm::Deflate, CompressionAlgorithm::RawDeflate] {
            for level in 1..=9 {
                for operation in [EncoderCall::Continue, EncoderCall::Flush] {
                    let mut encoder = Encoder::new(algorithm, level);
                    encoder.run(&text(40_000), &mut [0; 16384], operation).unwrap();
                    assert!(encoder.recycle().is_none(), "{algorithm:?} {level} {operation:?}");
                }
                let mut encoder = Encoder::new(algorithm, level);
                while !encoder.run(b"", &mut [0; 16], EncoderCall::Finish).unwrap().complete {}
                assert!(encoder.recycle().is_some(), "{algorithm:?} {level}");
                assert!(Encoder::new(algorithm, level).recycle().is_none(), "{algorithm:?} {level}");
            }
        }
    }

    #[test]
    fn the_level_can_be_lowered_to_nothing_and_raised_again_between_flushes() {
        let mut encoder = Encoder::new(CompressionAlgorithm::Gzip, 3);
        let (input, mut out, mut buffer) = (text(60_000), Vec::new(), vec![0; 1 << 16]);
        let mut levels = Vec::new();
        for (index, piece) in input.chunks(6000).enumerate() {
            flush(&mut encoder, piece, &mut buffer, &mut out);
            encoder.adjust(index >= 5);
            levels.push(encoder.level());
        }
        let progress = encoder.run(b"", &mut buffer, EncoderCall::Finish).unwrap();
        out.extend_from_slice(&buffer[..progress.produced]);
        assert_eq!(levels, [2, 1, 0, 0, 0, 1, 2, 3, 3, 3]);
        assert!(decoded(CompressionAlgorithm::Gzip, &out) == input);
        assert_eq!(encoder.recycle().map(|encoder| encoder.level()), Some(3));
    }

    #[test]
    fn a_message_that_pauses_is_continued_by_any_encoder() {
        for algorithm in ALL.into_iter().filter(|algorithm| Encoder::may_pause(*algorithm)) {
            for level in 1..=9 {
                let mut encoders = [Encoder::new(algorithm, level), Encoder::new(algorithm, level)];
                // Two messages, which change encoders at each pause.
                let inputs = [text(30_000), text(70_000)];
                let (mut out, mut buffer) = ([Vec::new(), Vec::new()], vec![0; 100]);
                let mut paused: [Option<Paused>; 2] = [None, None];
                for step in 0..10 {
                    for message in 0..2 {
                        let encoder = &mut encoders[(message + step) % 2];
                        paused[message].take().into_iter().for_each(|paused| encoder.resume(paused));
                        let piece = inputs[message].chunks(inputs[message].len() / 10).nth(step).unwrap();
                        // Nothing at all may have been put in when a message pauses.
                        if step > 0 {
                            flush(encoder, piece, &mut buffer, &mut out[message]);
                        }
                        paused[message] = Some(encoder.pause());
                    }
                }
                for message in 0..2 {
                    let encoder = &mut encoders[message];
                    encoder.resume(paused[message].take().unwrap());
                    let progress = encoder.run(b"", &mut buffer, EncoderCall::Finish).unwrap();
                    assert!(progress.complete);
                    out[message].extend_from_slice(&buffer[..progress.produced]);
                    let expected = &inputs[message][inputs[message].len() / 10..];
                    let (found, whole) = decode(algorithm, &out[message]);
                    assert!(found == expected && whole, "{algorithm:?} {level} {message}");
                }
            }
        }
    }

    /// Pieces, calls and rooms at random, from printed seeds; what a flush hands out is compared each time.
    #[test]
    fn what_is_encoded_in_any_pieces_is_decoded() {
        for seed in 1..=120_u64 {
            let (algorithm, mut state) = (ALL[seed as usize % ALL.len()], seed);
            let mut below = |bound: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % bound
            };
            let mut encoder = Encoder::new(algorithm, 1 + below(9) as u32);
            let (mut input, mut out, mut put) = (text(below(90_000)), Vec::new(), 0);
            if below(3) == 0 {
                input.extend(noise(below(600_000)));
                input.extend(text(below(90_000)));
            }
            let mut buffer = vec![0; ROOM_MIN + [1, 100, 20_000][below(3)]];
            loop {
                let piece = &input[put..][..below(40_000).min(input.len() - put)];
                put += piece.len();
                let operation = match below(4) {
                    _ if put == input.len() => EncoderCall::Finish,
                    0 => EncoderCall::Flush,
                    _ => EncoderCall::Continue,
                };
                let mut rest = piece;
                loop {
                    let progress = encoder.run(rest, &mut buffer, operation).unwrap();
                    out.extend_from_slice(&buffer[..progress.produced]);
                    rest = &rest[progress.consumed..];
                    if progress.complete {
                        break;
                    }
                }
                assert!(rest.is_empty());
                let (found, whole) = decode(algorithm, &out);
                match operation {
                    EncoderCall::Continue => assert!(input.starts_with(&found), "seed {seed}"),
                    EncoderCall::Flush => assert!(found == input[..put], "seed {seed}"),
                    EncoderCall::Finish => {
                        assert!(found == input && whole, "seed {seed}");
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn encoders_of_zstd_take_no_more_memory_than_is_counted() {
        for level in 1..=9 {
            let mut encoder = Encoder::new(CompressionAlgorithm::Zstd, level);
            encode(&mut encoder, &text(600_000), 16384, 16384, 100);
            let Kind::Blocks(stream) = &encoder.kind else { panic!("of another kind") };
            let memory = stream.memory().expect("it says so");
            assert!((ZSTD_MEMORY / 8..=ZSTD_MEMORY).contains(&memory), "level {level}: {memory}");
        }
    }

    /// Bytes that nothing makes smaller.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 22_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..len).map(|_| byte()).collect()
    }

    #[test]
    fn what_does_not_shrink_is_stored_and_what_does_again_is_compressed() {
        for algorithm in [CompressionAlgorithm::Gzip, CompressionAlgorithm::Deflate, CompressionAlgorithm::RawDeflate] {
            for level in 1..=9 {
                for (room, step) in [(16384, 16384), (1 << 20, 1 << 20), (700, 3000), (16, 200_000)] {
                    let mut encoder = Encoder::new(algorithm, level);
                    let noise = noise(1 << 20);
                    let out = encode(&mut encoder, &noise, room, step, 1000);
                    assert!(decode(algorithm, &out) == (noise, true), "{algorithm:?} {level} {room} {step}");
                    assert!(out.len() < (1 << 20) * 102 / 100, "{algorithm:?} {level} {room} {step}: {}", out.len());
                }
                let mut encoder = Encoder::new(algorithm, level);
                let input = [text(300_000), noise(700_000), text(1 << 20)].concat();
                let out = encode(&mut encoder, &input, 16384, 16384, 1000);
                assert!(decode(algorithm, &out) == (input, true), "{algorithm:?} {level}");
                assert!(out.len() < 1_250_000, "{algorithm:?} {level}: {}", out.len());
                assert!(encoder.recycle().is_some_and(|encoder| encoder.level() == level), "{algorithm:?} {level}");
            }
        }
    }

    #[test]
    fn too_little_room_is_an_error_and_not_an_endless_loop() {
        let mut encoder = Encoder::new(CompressionAlgorithm::Gzip, 1);
        assert_eq!(encoder.run(b"x", &mut [0; 15], EncoderCall::Flush), Err(EncoderEnded));
    }
}
