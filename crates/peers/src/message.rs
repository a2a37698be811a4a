//! How messages are framed: a class, a type, and from type 128 a length and that many bytes.

use crate::{Flaw, varint};

/// Longest content of a message: HAProxy's default buffer, into which it reads one.
pub const MESSAGE_MAX: usize = 16_384;

/// Messages that steer a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Control {
    /// Asks for everything.
    Request = 0,
    /// The sender has sent everything, and knew everything.
    Finished = 1,
    /// The sender has sent everything it had, but did not know everything.
    Partial = 2,
    /// The answer to [`Control::Finished`] and [`Control::Partial`].
    Confirm = 3,
    /// Says that there is nothing to say.
    Heartbeat = 4,
}

impl Control {
    const ALL: [Control; 5] =
        [Control::Request, Control::Finished, Control::Partial, Control::Confirm, Control::Heartbeat];

    /// The message.
    pub(crate) fn bytes(self) -> [u8; 2] {
        [0, self as u8]
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Steers the session.
    Control(Control),
    /// The peer found an error.
    Error,
    /// An entry of a table, with its number (`numbered`) and the time it has left (`timed`) or without.
    Update {
        /// Whether the message carries its number; otherwise that is one more than the number of the update before.
        numbered: bool,
        /// Whether the message says how long the entry still lives.
        timed: bool,
        /// The message.
        content: &'a [u8],
    },
    /// The definition of a table, to which the updates that follow belong.
    Define(&'a [u8]),
    /// Names a table that was defined before.
    Switch(&'a [u8]),
    /// Acknowledges updates.
    Acknowledge(&'a [u8]),
    /// Of a later version: to be ignored.
    Unknown,
}

pub(crate) const TABLE: u8 = 10;
pub(crate) const UPDATE: u8 = 128;
const INCREMENTAL: u8 = 129;
pub(crate) const DEFINE: u8 = 130;
const SWITCH: u8 = 131;
pub(crate) const ACKNOWLEDGE: u8 = 132;
pub(crate) const UPDATE_TIMED: u8 = 133;
const INCREMENTAL_TIMED: u8 = 134;

impl<'a> Message<'a> {
    /// Takes a message off the front of `input`; `None` while it is incomplete.
    ///
    /// # Errors
    ///
    /// If it exceeds the length limit of messages.
    pub fn read(input: &mut &'a [u8]) -> Result<Option<Message<'a>>, Flaw> {
        let [class, kind, rest @ ..] = *input else { return Ok(None) };
        if *kind < 128 {
            *input = rest;
            return Ok(Some(match (class, kind) {
                (0, kind) => {
                    Control::ALL.into_iter().find(|c| *c as u8 == *kind).map_or(Message::Unknown, Message::Control)
                }
                (1, _) => Message::Error,
                _ => Message::Unknown,
            }));
        }
        let mut rest = rest;
        let Some(length) = varint::read(&mut rest)? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|&length| length <= MESSAGE_MAX).ok_or(Flaw::Long)?;
        let Some((content, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        *input = rest;
        let update = |numbered, timed| Message::Update { numbered, timed, content };
        Ok(Some(match (*class, *kind) {
            (TABLE, UPDATE) => update(true, false),
            (TABLE, INCREMENTAL) => update(false, false),
            (TABLE, UPDATE_TIMED) => update(true, true),
            (TABLE, INCREMENTAL_TIMED) => update(false, true),
            (TABLE, DEFINE) => Message::Define(content),
            (TABLE, SWITCH) => Message::Switch(content),
            (TABLE, ACKNOWLEDGE) => Message::Acknowledge(content),
            _ => Message::Unknown,
        }))
    }
}

/// Appends a message of the class of tables.
pub(crate) fn write(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    out.extend([TABLE, kind]);
    varint::write(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_incomplete_until_their_last_byte() {
        let mut bytes = Vec::new();
        write(UPDATE, &[7; 300], &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Message::read(&mut &bytes[..cut]), Ok(None), "cut at {cut}");
        }
        let message = Message::Update { numbered: true, timed: false, content: &[7; 300] };
        assert_eq!(Message::read(&mut &bytes[..]), Ok(Some(message)));
    }

    #[test]
    fn a_length_that_no_buffer_holds_is_refused_at_once() {
        let mut bytes = vec![TABLE, UPDATE];
        varint::write(MESSAGE_MAX as u64 + 1, &mut bytes);
        assert_eq!(Message::read(&mut &bytes[..]), Err(Flaw::Long));
        let mut bytes = vec![200, 255];
        varint::write(u64::MAX, &mut bytes);
        assert_eq!(Message::read(&mut &bytes[..]), Err(Flaw::Long), "unknown messages are bounded too");
    }

    #[test]
    fn unknown_messages_are_skipped() {
        let mut input = &[0, 9, 77, 3, 200, 200, 2, 1, 2, 0, 4][..];
        let mut read = || Message::read(&mut input).unwrap();
        assert_eq!([read(), read(), read()], [Some(Message::Unknown); 3]);
        assert_eq!([read(), read()], [Some(Message::Control(Control::Heartbeat)), None]);
    }
}
