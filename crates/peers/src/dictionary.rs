//! Names that a session has sent before are sent as numbers. Each direction has 128 of them.

use crate::{Flaw, varint};
use std::sync::Arc;

/// The numbers that there are, as in HAProxy.
const ENTRIES: usize = 128;
/// Longest name.
const NAME_MAX: usize = 1024;

/// Names that were sent, each with when it was last used.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    names: Vec<(Arc<str>, u64)>,
    uses: u64,
}

impl Sent {
    /// Appends a name: its number, and the text if the peer does not have it.
    pub fn write(&mut self, name: Option<&Arc<str>>, out: &mut Vec<u8>) {
        let Some(name) = name.filter(|name| name.len() <= NAME_MAX) else { return out.push(0) };
        self.uses += 1;
        let mut content = Vec::new();
        if let Some(at) = self.names.iter().position(|(known, _)| known == name) {
            self.names[at].1 = self.uses;
            varint::write(at as u64 + 1, &mut content);
        } else {
            let at = if self.names.len() < ENTRIES {
                self.names.push((name.clone(), self.uses));
                self.names.len() - 1
            } else {
                let oldest = self.names.iter().enumerate().min_by_key(|(_, (_, used))| *used).map_or(0, |(at, _)| at);
                self.names[oldest] = (name.clone(), self.uses);
                oldest
            };
            varint::write(at as u64 + 1, &mut content);
            varint::write(name.len() as u64, &mut content);
            content.extend_from_slice(name.as_bytes());
        }
        varint::write(content.len() as u64, out);
        out.extend_from_slice(&content);
    }

    /// The names, by number from 0.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.names.iter().enumerate().map(|(at, (name, _))| (at, &**name))
    }
}

/// Names that were received.
#[derive(Debug, Default)]
pub(crate) struct Received(Vec<Option<Arc<str>>>);

impl Received {
    /// Takes a name off `input`.
    ///
    /// # Errors
    ///
    /// If its length or its number is invalid.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Arc<str>>, Flaw> {
        let length = varint::take(input)?;
        if length == 0 {
            return Ok(None);
        }
        let mut content = varint::bytes(input, length)?;
        let number = varint::take(&mut content)?;
        if !(1..=ENTRIES as u64).contains(&number) {
            return Err(Flaw::Dictionary);
        }
        let at = number as usize - 1;
        if content.is_empty() {
            return self.0.get(at).cloned().flatten().map(Some).ok_or(Flaw::Dictionary);
        }
        let length = varint::take(&mut content)?;
        if !(1..=NAME_MAX as u64).contains(&length) {
            return Err(Flaw::Dictionary);
        }
        let text = std::str::from_utf8(varint::bytes(&mut content, length)?).map_err(|_| Flaw::Dictionary)?;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        let name: Arc<str> = text.into();
        self.0[at] = Some(name.clone());
        Ok(Some(name))
    }

    /// The names, by number from 0.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().enumerate().filter_map(|(at, name)| Some((at, name.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_sent_once_and_then_by_its_number() {
        let (mut sent, mut received) = (Sent::default(), Received::default());
        let mut out = Vec::new();
        for _ in 0..2 {
            sent.write(Some(&"s1".into()), &mut out);
        }
        sent.write(None, &mut out);
        assert_eq!(out, [4, 1, 2, b's', b'1', 1, 1, 0], "as recorded from HAProxy");
        let mut input = &out[..];
        let mut read = || received.read(&mut input).unwrap().as_deref().map(str::to_owned);
        assert_eq!([read(), read(), read()], [Some("s1".into()), Some("s1".into()), None]);
    }

    #[test]
    fn more_names_than_numbers_are_sent_again_and_never_confused() {
        let (mut sent, mut received) = (Sent::default(), Received::default());
        for round in 0..3 {
            for number in 0..200 {
                let name: Arc<str> = format!("server-{}", number * (round + 1) % 200).into();
                let mut out = Vec::new();
                sent.write(Some(&name), &mut out);
                assert_eq!(received.read(&mut &out[..]), Ok(Some(name)));
            }
        }
        assert_eq!((sent.names.len(), received.0.len()), (ENTRIES, ENTRIES));
    }

    #[test]
    fn numbers_and_lengths_that_lie_are_refused() {
        for wrong in [&[1, 0][..], &[2, 0xf0, 0], &[1, 7], &[3, 1, 200, b'x'], &[4, 1, 0, 0, 0], &[4, 1, 2, 0xff, 0xff]]
        {
            assert!(Received::default().read(&mut &wrong[..]).is_err(), "{wrong:?}");
        }
    }
}
