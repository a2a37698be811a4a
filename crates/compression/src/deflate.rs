//! Deflate (RFC 1951), bare or inside gzip (RFC 1952) or zlib (RFC 1950).
//!
//! The wrappers are written here, so that the stream inside can start anew at any flush: zlib-rs changes its level only at a
//! start. What turns out not to shrink, such as a picture, goes through as it is for a while, in stored blocks.

use crate::encoder::{Encoded, EncoderCall, EncoderEnded};
use penstock_config::model::CompressionAlgorithm;
use zlib_rs::{Deflate, DeflateFlush, Status, adler32::adler32, crc32::crc32};

/// The window, as a power of two: 32 KiB, the largest.
const WINDOW_BITS: u8 = 15;

/// What is around the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    None,
    Zlib,
    Gzip,
}

/// Magic, method, no flags, no time, no hint about the level, Unix.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

/// A window of 32 KiB, no dictionary, and the bits that make it a multiple of 31.
const ZLIB_HEADER: &[u8] = &[0x78, 0x01];

/// An encoder.
pub(crate) struct Stream {
    inner: Deflate,
    /// Of `inner`: 0 while it stores.
    inner_level: u32,
    message: Message,
    /// The level.
    pub level: u32,
    course: Course,
}

/// What is done with the input, since the last flush at which that was considered.
#[derive(Clone, Copy)]
enum Course {
    /// It is compressed.
    Compress {
        /// How many bytes went in.
        taken: usize,
        /// How many came out.
        given: usize,
        /// How many go in before the gain is looked at.
        look: usize,
    },
    /// It is stored as it is.
    Store {
        /// How many bytes still are.
        left: usize,
    },
}

/// How much of a message is compressed before the gain is looked at for the first time.
const FIRST_LOOK: usize = 64 << 10;

/// As long as there is a gain, how much between two looks.
const NEXT_LOOK: usize = 256 << 10;

/// Without one, how much is stored, and then how much is compressed to see whether that has changed.
const STORED: usize = 256 << 10;
const TRIAL: usize = 16 << 10;

/// What is known of a message outside the stream: all that remains of its past after a flush.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    wrapper: Wrapper,
    /// How many bytes of the header have been handed out.
    begun: usize,
    /// Whether the stream inside has ended.
    ended: bool,
    /// How many bytes of the trailer have been handed out.
    trailed: usize,
    checksum: u32,
    /// The input's length, modulo 2^32 as gzip states it.
    length: u32,
}

impl Stream {
    pub fn new(algorithm: CompressionAlgorithm, level: u32) -> Stream {
        let wrapper = match algorithm {
            CompressionAlgorithm::Gzip => Wrapper::Gzip,
            CompressionAlgorithm::Deflate => Wrapper::Zlib,
            _ => Wrapper::None,
        };
        let inner = Deflate::new(level as i32, false, WINDOW_BITS);
        Stream { inner, inner_level: level, message: Message::new(wrapper), level, course: Course::first() }
    }

    /// The level at which it works now: 0 while it stores what does not shrink.
    pub fn level_at_work(&self) -> u32 {
        self.inner_level
    }

    /// Whether the whole message has been handed out, its trailer too.
    pub fn is_complete(&self) -> bool {
        let message = &self.message;
        message.ended && message.trailed == message.trailer().1
    }

    /// Starts another message; returns the last one, which any stream of this kind may continue if it was flushed.
    pub fn reset(&mut self, level: u32) -> Message {
        self.restart(level);
        let next = Message::new(self.message.wrapper);
        std::mem::replace(&mut self.message, next)
    }

    /// Continues a message that another stream has begun, before anything was put into this one.
    pub fn resume(&mut self, message: Message) {
        self.message = message;
    }

    /// Continues at another level, right after a flush.
    pub fn restart(&mut self, level: u32) {
        self.level = level;
        self.course = Course::first();
        self.begin(level);
    }

    /// Right after a flush, what follows may begin a new stream, whose references reach back no further than its own start.
    fn begin(&mut self, level: u32) {
        self.inner.reset();
        if level != self.inner_level && matches!(self.inner.set_level(level as i32), Ok(Status::Ok)) {
            self.inner_level = level;
        }
    }

    /// All that went in has come out: time to see whether it has shrunk, or whether enough was stored.
    fn reconsider(&mut self) {
        match self.course {
            Course::Compress { taken, given, look } if taken == look => {
                if given > taken - taken / 32 && self.level > 0 {
                    self.course = Course::Store { left: STORED };
                    self.begin(0);
                } else {
                    self.course = Course::Compress { taken: 0, given: 0, look: NEXT_LOOK };
                }
            }
            Course::Store { left: 0 } => {
                self.course = Course::Compress { taken: 0, given: 0, look: TRIAL };
                self.begin(self.level);
            }
            _ => {}
        }
    }

    /// As `Encoder::join`.
    pub fn join(&mut self, input: &[u8]) -> &'static [u8] {
        // What follows must not refer to what came before the piece.
        self.inner.reset();
        self.message.join(input)
    }

    /// As `Encoder::run`, with room for the bytes that mark a flush.
    ///
    /// # Errors
    /// If the message has ended already.
    pub fn run(&mut self, input: &[u8], output: &mut [u8], operation: EncoderCall) -> Result<Encoded, EncoderEnded> {
        let message = &mut self.message;
        let mut produced = copy(message.header(), output);
        message.begun += produced;
        let (mut consumed, mut complete) = (0, false);
        while !self.message.ended && produced < output.len() {
            let (rest, room) = (&input[consumed..], &mut output[produced..]);
            let piece = &rest[..rest.len().min(self.course.left())];
            let flush = match operation {
                // Only what has come out can be compared.
                _ if piece.len() < rest.len() => DeflateFlush::SyncFlush,
                EncoderCall::Continue => DeflateFlush::NoFlush,
                EncoderCall::Flush => DeflateFlush::SyncFlush,
                EncoderCall::Finish => DeflateFlush::Finish,
            };
            let before = (self.inner.total_in(), self.inner.total_out());
            let status = self.inner.compress(piece, room, flush).map_err(|_| EncoderEnded)?;
            let taken = (self.inner.total_in() - before.0) as usize;
            let given = (self.inner.total_out() - before.1) as usize;
            // With room left, nothing was held back.
            let drained = given < room.len();
            self.message.sum(&rest[..taken]);
            self.message.ended = status == Status::StreamEnd;
            self.course.add(taken, given);
            consumed += taken;
            produced += given;
            if matches!(flush, DeflateFlush::SyncFlush) && taken == piece.len() && drained {
                self.reconsider();
            }
            if piece.len() == rest.len() {
                complete = match operation {
                    EncoderCall::Continue => taken == piece.len(),
                    EncoderCall::Flush => taken == piece.len() && drained,
                    EncoderCall::Finish => false,
                };
                break;
            }
        }
        let message = &mut self.message;
        if message.ended {
            let (trailer, length) = message.trailer();
            let trailer = &trailer[message.trailed..length];
            let n = copy(trailer, &mut output[produced..]);
            complete = n == trailer.len();
            message.trailed += n;
            produced += n;
        }
        Ok(Encoded { consumed, produced, complete })
    }
}

impl Course {
    /// That of a new message.
    fn first() -> Course {
        Course::Compress { taken: 0, given: 0, look: FIRST_LOOK }
    }

    fn add(&mut self, input: usize, output: usize) {
        match self {
            Course::Compress { taken, given, .. } => {
                *taken += input;
                *given += output;
            }
            Course::Store { left } => *left -= input,
        }
    }

    /// How much goes in before another one may be better.
    fn left(self) -> usize {
        match self {
            Course::Compress { taken, look, .. } => look - taken,
            Course::Store { left } => left,
        }
    }
}

impl Message {
    fn new(wrapper: Wrapper) -> Message {
        let checksum = u32::from(wrapper == Wrapper::Zlib);
        Message { wrapper, begun: 0, ended: false, trailed: 0, checksum, length: 0 }
    }

    /// What is left of the header.
    fn header(&self) -> &'static [u8] {
        let header = match self.wrapper {
            Wrapper::None => &[],
            Wrapper::Zlib => ZLIB_HEADER,
            Wrapper::Gzip => GZIP_HEADER,
        };
        &header[self.begun..]
    }

    /// Counts a piece that somebody else has compressed; returns what is to be handed out before it.
    pub fn join(&mut self, input: &[u8]) -> &'static [u8] {
        let header = self.header();
        self.begun += header.len();
        self.sum(input);
        header
    }

    fn sum(&mut self, bytes: &[u8]) {
        match self.wrapper {
            Wrapper::None => return,
            Wrapper::Zlib => self.checksum = adler32(self.checksum, bytes),
            Wrapper::Gzip => self.checksum = crc32(self.checksum, bytes),
        }
        self.length = self.length.wrapping_add(bytes.len() as u32);
    }

    /// The trailer, and its length.
    fn trailer(&self) -> ([u8; 8], usize) {
        let mut trailer = [0; 8];
        match self.wrapper {
            Wrapper::None => (trailer, 0),
            Wrapper::Zlib => {
                trailer[..4].copy_from_slice(&self.checksum.to_be_bytes());
                (trailer, 4)
            }
            Wrapper::Gzip => {
                trailer[..4].copy_from_slice(&self.checksum.to_le_bytes());
                trailer[4..].copy_from_slice(&self.length.to_le_bytes());
                (trailer, 8)
            }
        }
    }
}

/// Copies as much as there is room for; returns how much.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let n = from.len().min(to.len());
    to[..n].copy_from_slice(&from[..n]);
    n
}
