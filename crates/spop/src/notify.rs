//! The payload of a NOTIFY frame: a list of messages.

use crate::{AgentData, data::write_bytes};

/// The most arguments of a message: their number is one byte.
pub const ARGUMENTS_MAX: usize = u8::MAX as usize;

/// A payload being written.
#[derive(Clone, Debug, Default)]
pub struct NotifyPayload(Vec<u8>);

impl NotifyPayload {
    /// Begins a message that has this many arguments, at most [`ARGUMENTS_MAX`].
    pub fn message(&mut self, name: &str, arguments: usize) {
        write_bytes(name.as_bytes(), &mut self.0);
        self.0.push(u8::try_from(arguments).expect("whoever names the messages counts their arguments"));
    }

    /// Appends an argument of the message; the name may be empty.
    pub fn argument(&mut self, name: &str, value: AgentData<'_>) {
        write_bytes(name.as_bytes(), &mut self.0);
        value.write(&mut self.0);
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_haproxy_2_6_sends() {
        // Recorded from HAProxy 2.6.12 for `args x=path` of a message 'm1', with the path '/r'.
        let mut payload = NotifyPayload::default();
        assert!(payload.is_empty());
        payload.message("m1", 1);
        payload.argument("x", AgentData::Text(b"/r"));
        assert_eq!(payload.len(), 10);
        assert_eq!(payload.into_bytes(), b"\x02m1\x01\x01x\x08\x02/r");
    }
}
