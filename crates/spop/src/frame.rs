//! Frames: a length in four bytes, a type, flags, the numbers of a stream and of a frame in it, and a payload.

use crate::{AgentStatus, data::take_number};
use penstock_peers::varint;

/// The bytes of a frame's length, which count neither towards it nor towards the greatest frame size.
pub const FRAME_PREFIX: usize = 4;
/// The smallest size of frames that both sides must support (3.2).
pub const FRAME_SIZE_MIN: u32 = 256;

/// This is the last fragment of its payload.
pub(crate) const FIN: u32 = 1;

/// The types of frames.
pub(crate) const UNSET: u8 = 0;
pub(crate) const HAPROXY_HELLO: u8 = 1;
pub(crate) const HAPROXY_DISCONNECT: u8 = 2;
pub(crate) const NOTIFY: u8 = 3;
pub(crate) const AGENT_HELLO: u8 = 101;
pub(crate) const AGENT_DISCONNECT: u8 = 102;
pub(crate) const ACK: u8 = 103;

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: u8,
    pub flags: u32,
    pub stream: u64,
    pub frame: u64,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes a frame off the front of `input`; `None` while it is incomplete. A length beyond `max` is refused at once.
    pub fn read(input: &mut &'a [u8], max: u32) -> Result<Option<Frame<'a>>, AgentStatus> {
        let Some((length, rest)) = input.split_first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        if length > max {
            return Err(AgentStatus::TOO_BIG);
        }
        let Some((content, rest)) = rest.split_at_checked(length as usize) else { return Ok(None) };
        *input = rest;
        Frame::parse(content).map(Some).ok_or(AgentStatus::INVALID)
    }

    fn parse(mut content: &'a [u8]) -> Option<Frame<'a>> {
        let kind = *content.split_off_first()?;
        let flags = u32::from_be_bytes(*content.split_off(..4)?.first_chunk()?);
        let (stream, frame) = (take_number(&mut content)?, take_number(&mut content)?);
        Some(Frame { kind, flags, stream, frame, payload: content })
    }

    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend([0; FRAME_PREFIX]);
        out.push(self.kind);
        out.extend(self.flags.to_be_bytes());
        varint::write(self.stream, out);
        varint::write(self.frame, out);
        out.extend_from_slice(self.payload);
        let length = (out.len() - from - FRAME_PREFIX) as u32;
        out[from..from + FRAME_PREFIX].copy_from_slice(&length.to_be_bytes());
    }
}

/// The size of a frame with these numbers, without its payload.
pub(crate) fn overhead(stream: u64, frame: u64) -> usize {
    let mut numbers = Vec::new();
    varint::write(stream, &mut numbers);
    varint::write(frame, &mut numbers);
    1 + 4 + numbers.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_incomplete_until_its_last_byte() {
        let frame = Frame { kind: ACK, flags: FIN, stream: 7, frame: 300, payload: &[9; 500] };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        assert_eq!(bytes.len(), FRAME_PREFIX + overhead(7, 300) + 500);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::read(&mut &bytes[..cut], 16_380), Ok(None), "cut at {cut}");
        }
        bytes.push(1);
        let mut input = &bytes[..];
        assert_eq!(Frame::read(&mut input, 16_380), Ok(Some(frame)));
        assert_eq!(input, [1]);
    }

    #[test]
    fn a_length_that_was_not_agreed_on_is_refused_at_once() {
        assert_eq!(Frame::read(&mut &[0, 0, 1, 1][..], 256), Err(AgentStatus::TOO_BIG));
        assert_eq!(Frame::read(&mut &[0, 0, 1, 0][..], 256), Ok(None));
    }

    #[test]
    fn a_frame_without_all_of_its_numbers_is_invalid() {
        for content in [&[][..], &[103], &[103, 0, 0, 0, 1], &[103, 0, 0, 0, 1, 5], &[103, 0, 0, 0, 1, 0xff, 0x80]] {
            let mut bytes = (content.len() as u32).to_be_bytes().to_vec();
            bytes.extend(content);
            assert_eq!(Frame::read(&mut &bytes[..], 256), Err(AgentStatus::INVALID), "{content:?}");
        }
    }
}
