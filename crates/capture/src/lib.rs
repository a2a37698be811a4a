//! What was decrypted, as packets: TCP segments in IPv4 or IPv6, and the formats of files and streams that hold them.
//!
//! A [`CopiedConversation`] says which [`CopiedSegment`]s a connection consists of, [`packets`] makes packets of each, and a
//! [`CaptureFormat`] writes them down.

#![forbid(unsafe_code)]

mod conversation;
mod format;
mod packet;

pub use conversation::{CopiedConversation, CopiedSegment, Endpoints, SegmentEvent, Speaker};
pub use format::CaptureFormat;
pub use packet::{PACKET_LEAST, PACKET_MAX, packets, split};
