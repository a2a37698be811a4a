//! HTTP compression: which coding a client is sent, whether a message is compressed, how its head changes, and the encoders. Pure.
//!
//! The conditions are HAProxy's (manual, `compression`); `tests/scenarios/compression` compares them.

#![forbid(unsafe_code)]

mod blocks;
mod choice;
mod conditions;
mod deflate;
mod encoder;
mod head;
mod joined;
mod settings;

pub use conditions::{Response, may_compress_request, may_compress_response};
pub use encoder::{Encoded, Encoder, EncoderCall, EncoderEnded, Paused};
pub use head::{mark_request, mark_response};
pub use joined::Verifier;
pub use settings::CompressionSettings;
