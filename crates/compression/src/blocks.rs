//! The encoders that see their whole message: brotli and zstd. Both would gather large blocks and compress each at one go, for
//! longer than a turn; here a block ends with each 16 KiB.
//!
//! Such an encoder cannot leave a message to another one, as those of deflate can: its decoder remembers what came before.

use crate::encoder::{Encoded, EncoderCall, EncoderEnded};
use brotli::enc::{
    StandardAlloc,
    encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct},
};
use penstock_config::model::CompressionAlgorithm;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, zstd_sys::ZSTD_EndDirective};

/// Input after which a block ends. zstd becomes no larger for it on HTML, brotli by 2 %; without it, a call of zstd takes 0.5 ms at
/// level 1 and 4 ms at level 9, one of brotli 4 ms at quality 4 (November 2026).
const BLOCK: usize = 16 << 10;

/// An encoder.
pub(crate) struct Stream {
    inner: Inner,
    /// How much of a block has been put in.
    block: usize,
    pending: Pending,
    /// The level in use.
    pub level: u32,
}

/// What has been asked of the encoder, and is not handed out as a whole yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    /// The block.
    Block,
    /// The end of the message.
    End,
    /// Nothing, for ever: the end has been handed out.
    Ended,
}

enum Inner {
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

/// What an encoder did in one step: how much it took and wrote, and whether that brought about what was asked for.
type Step = (usize, usize, bool);

impl Stream {
    pub fn new(algorithm: CompressionAlgorithm, level: u32) -> Stream {
        let (inner, level) = match algorithm {
            CompressionAlgorithm::Zstd => (Inner::Zstd(zstd(level)), level),
            _ => {
                let quality = level.min(QUALITY_MAX);
                (Inner::Brotli(Box::new(brotli(quality))), quality)
            }
        };
        Stream { inner, block: 0, pending: Pending::Nothing, level }
    }

    /// As `Encoder::run`.
    ///
    /// # Errors
    /// If the message has ended already.
    pub fn run(&mut self, input: &[u8], output: &mut [u8], operation: EncoderCall) -> Result<Encoded, EncoderEnded> {
        let (mut consumed, mut produced) = (0, 0);
        // Each iteration takes input, ends a block or the message, or is the last.
        loop {
            let wanted = match self.pending {
                Pending::Ended => return Err(EncoderEnded),
                Pending::Nothing => None,
                Pending::Block => Some(EncoderCall::Flush),
                Pending::End => Some(EncoderCall::Finish),
            };
            if let Some(wanted) = wanted {
                let (_, wrote, done) = self.inner.step(&[], &mut output[produced..], wanted)?;
                produced += wrote;
                if !done {
                    return Ok(Encoded { consumed, produced, complete: false });
                }
                self.block = 0;
                self.pending = Pending::Nothing;
                if wanted == EncoderCall::Finish {
                    self.pending = Pending::Ended;
                    return Ok(Encoded { consumed, produced, complete: consumed == input.len() });
                }
            }
            let rest = &input[consumed..];
            let piece = &rest[..rest.len().min(BLOCK - self.block)];
            let step = if piece.len() == rest.len() && operation == EncoderCall::Finish {
                EncoderCall::Finish
            } else if self.block + piece.len() == BLOCK || operation == EncoderCall::Flush {
                EncoderCall::Flush
            } else {
                EncoderCall::Continue
            };
            if step != EncoderCall::Finish && piece.is_empty() && self.block == 0 {
                // All has been handed out.
                return Ok(Encoded { consumed, produced, complete: true });
            }
            let (took, wrote, done) = self.inner.step(piece, &mut output[produced..], step)?;
            (consumed, produced, self.block) = (consumed + took, produced + wrote, self.block + took);
            if took < piece.len() {
                return Ok(Encoded { consumed, produced, complete: false });
            }
            match step {
                EncoderCall::Continue => return Ok(Encoded { consumed, produced, complete: true }),
                EncoderCall::Flush if done => self.block = 0,
                EncoderCall::Flush => self.pending = Pending::Block,
                EncoderCall::Finish if done => {
                    self.pending = Pending::Ended;
                    return Ok(Encoded { consumed, produced, complete: true });
                }
                EncoderCall::Finish => self.pending = Pending::End,
            }
        }
    }

    /// What it takes, in bytes, if it can say so.
    #[cfg(test)]
    pub fn memory(&self) -> Option<usize> {
        match &self.inner {
            Inner::Brotli(_) => None,
            Inner::Zstd(encoder) => Some(encoder.sizeof()),
        }
    }

    /// The encoder, ready for another message, if it can be used again. Those of brotli cannot.
    pub fn recycle(mut self) -> Option<Stream> {
        let Inner::Zstd(encoder) = &mut self.inner else { return None };
        encoder.reset(ResetDirective::SessionOnly).ok()?;
        (self.block, self.pending) = (0, Pending::Nothing);
        Some(self)
    }
}

impl Inner {
    fn step(&mut self, input: &[u8], output: &mut [u8], operation: EncoderCall) -> Result<Step, EncoderEnded> {
        match self {
            Inner::Brotli(encoder) => {
                let (mut left, mut took, mut room, mut wrote) = (input.len(), 0, output.len(), 0);
                let wanted = match operation {
                    EncoderCall::Continue => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
                    EncoderCall::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
                    EncoderCall::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
                };
                let ran = encoder.compress_stream(
                    wanted,
                    &mut left,
                    input,
                    &mut took,
                    &mut room,
                    output,
                    &mut wrote,
                    &mut None,
                    &mut |_, _, _, _| (),
                );
                let done = match operation {
                    EncoderCall::Finish => encoder.is_finished(),
                    _ => left == 0 && !encoder.has_more_output(),
                };
                ran.then_some((took, wrote, done)).ok_or(EncoderEnded)
            }
            Inner::Zstd(encoder) => {
                let wanted = match operation {
                    EncoderCall::Continue => ZSTD_EndDirective::ZSTD_e_continue,
                    EncoderCall::Flush => ZSTD_EndDirective::ZSTD_e_flush,
                    EncoderCall::Finish => ZSTD_EndDirective::ZSTD_e_end,
                };
                let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
                let left = encoder.compress_stream2(&mut to, &mut from, wanted).map_err(|_| EncoderEnded)?;
                Ok((from.pos(), to.pos(), left == 0))
            }
        }
    }
}

/// The highest quality of brotli. The next compresses no better with a window of this size, and takes twice the time.
const QUALITY_MAX: u32 = 4;

/// The window of brotli, as a power of two: 256 KiB.
const BROTLI_WINDOW_BITS: u32 = 18;

fn brotli(quality: u32) -> BrotliEncoderStateStruct<StandardAlloc> {
    let mut encoder = BrotliEncoderStateStruct::new(StandardAlloc::default());
    encoder.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, quality);
    encoder.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, BROTLI_WINDOW_BITS);
    encoder
}

/// The window of zstd, as a power of two: 128 KiB, of the 8 MiB that decoders of HTTP have (RFC 9659).
const ZSTD_WINDOW_BITS: u32 = 17;

/// The tables of zstd, as a power of two. Those of its higher levels would take up to 11 MB, for 3 % on HTML.
const ZSTD_TABLE_BITS: u32 = 15;

fn zstd(level: u32) -> CCtx<'static> {
    let mut encoder = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level as i32),
        CParameter::WindowLog(ZSTD_WINDOW_BITS),
        CParameter::HashLog(ZSTD_TABLE_BITS),
        CParameter::ChainLog(ZSTD_TABLE_BITS),
    ] {
        encoder.set_parameter(parameter).expect("within its bounds");
    }
    encoder
}
