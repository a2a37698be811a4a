//! MQTT 3.1, 3.1.1 and 5.0: the first packet of a client, CONNECT, and that of a server, CONNACK. Sections are those of OASIS's standard of 5.0.

use super::spec::{ConvSpec, conv};
use crate::{
    keyword::{
        Arg,
        ArgKind::{MqttField, MqttPacket},
        Args as _, arg,
    },
    value::{
        Type::{Bin, Bool, Str},
        Value,
    },
};
use std::borrow::Cow;

/// The packets that can be read (2.1.2): their types are 1 and 2.
const PACKETS: [&str; 2] = ["CONNECT", "CONNACK"];
const CONNECT: usize = 0;
const CONNACK: usize = 1;

/// The fields that have names, and whether each packet has them.
const FIELDS: [(&str, [bool; 2]); 10] = [
    ("flags", [true, true]),
    ("protocol_version", [true, true]),
    ("reason_code", [false, true]),
    ("protocol_name", [true, false]),
    ("keepalive", [true, false]),
    ("client_identifier", [true, false]),
    ("will_topic", [true, false]),
    ("will_payload", [true, false]),
    ("username", [true, false]),
    ("password", [true, false]),
];
const FLAGS: usize = 0;
const VERSION: usize = 1;
const REASON: usize = 2;
const PROTOCOL: usize = 3;
const KEEPALIVE: usize = 4;
const CLIENT: usize = 5;
const WILL_TOPIC: usize = 6;
const WILL_PAYLOAD: usize = 7;
const USERNAME: usize = 8;
const PASSWORD: usize = 9;

/// What a property holds (2.2.2.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// 0 or 1.
    Switch,
    Two,
    TwoAboveZero,
    Four,
    FourAboveZero,
    Text,
    TextNotEmpty,
    /// A name and a value; there may be any number of them.
    Pair,
}
use Holds::{Four, FourAboveZero, Pair, Switch, Text, TextNotEmpty, Two, TwoAboveZero};

type Properties = &'static [(u8, Holds)];

/// Of CONNECT (3.1.2.11).
const OF_CONNECT: Properties = &[
    (17, Four),
    (21, Text),
    (22, Text),
    (23, Switch),
    (25, Switch),
    (33, TwoAboveZero),
    (34, Two),
    (38, Pair),
    (39, FourAboveZero),
];
/// Of the will in CONNECT (3.1.3.2).
const OF_WILL: Properties = &[(1, Switch), (2, Four), (3, Text), (8, Text), (9, Text), (24, Four), (38, Pair)];
/// Of CONNACK (3.2.2.3).
const OF_CONNACK: Properties = &[
    (17, Four),
    (18, TextNotEmpty),
    (19, Two),
    (21, Text),
    (22, Text),
    (26, Text),
    (28, Text),
    (31, Text),
    (33, TwoAboveZero),
    (34, Two),
    (36, Switch),
    (37, Switch),
    (38, Pair),
    (39, FourAboveZero),
    (40, Switch),
    (41, Switch),
    (42, Switch),
];
const AUTHENTICATION_METHOD: u8 = 21;
const AUTHENTICATION_DATA: u8 = 22;

/// Bits of CONNECT's flags (3.1.2.3).
const RESERVED: u8 = 1;
const WILL: u8 = 1 << 2;
const WILL_QOS: u8 = 3 << 3;
const WILL_RETAIN: u8 = 1 << 5;
const WITH_PASSWORD: u8 = 1 << 6;
const WITH_USERNAME: u8 = 1 << 7;

pub(super) const TABLE: &[ConvSpec] = &[
    conv(
        "mqtt_field_value",
        &[arg("packet", MqttPacket), arg("field", MqttField)],
        Bin,
        Str,
        "A field of an MQTT packet by its name, or a property of MQTT 5.0 by its number.",
        |_, value, args| {
            let packet = Packet::read(value.bytes()?)?.ok()?;
            if args.word(0)? != packet.kind {
                return None;
            }
            let found = match args.get(1)? {
                Arg::Word(field) => packet.fields[*field],
                Arg::Int(property) => packet.property(u8::try_from(*property).ok()?),
                _ => None,
            };
            match found? {
                Content::Number(n) => Some(Value::string(n.to_string())),
                Content::Bytes(bytes) => (!bytes.is_empty()).then(|| Value::Str(Cow::Owned(bytes.to_vec()))),
            }
        },
    ),
    conv(
        "mqtt_is_valid",
        &[],
        Bin,
        Bool,
        "Whether it is a CONNECT or CONNACK packet of MQTT; nothing while it is incomplete.",
        |_, value, _| Packet::read(value.bytes()?).map(|packet| Value::Bool(packet.is_ok())),
    ),
];

/// The place of a packet in [`PACKETS`], by its name or its type.
pub(crate) fn packet_named(text: &str) -> Option<usize> {
    PACKETS.iter().enumerate().position(|(at, name)| name.eq_ignore_ascii_case(text) || text == (at + 1).to_string())
}

/// A field by its name, or a property by its number.
pub(crate) fn field_named(text: &str) -> Option<Arg> {
    let named = FIELDS.iter().position(|(name, _)| name.eq_ignore_ascii_case(text)).map(Arg::Word);
    named.or_else(|| text.parse::<u8>().ok().map(|property| Arg::Int(property.into())))
}

/// Whether a packet can have a field.
pub(crate) fn has_field(packet: usize, field: &Arg) -> bool {
    match field {
        Arg::Word(field) => FIELDS[*field].1[packet],
        Arg::Int(property) => {
            let of: &[Properties] = if packet == CONNECT { &[OF_CONNECT, OF_WILL] } else { &[OF_CONNACK] };
            of.iter().any(|table| table.iter().any(|(id, _)| i64::from(*id) == *property))
        }
        _ => false,
    }
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u32),
    Bytes(&'a [u8]),
}

/// A packet of which all has been read.
struct Packet<'a> {
    kind: usize,
    /// In the order of [`FIELDS`].
    fields: [Option<Content<'a>>; 10],
    /// What it says of each table of properties that it may have.
    properties: Vec<(Properties, Vec<(u8, Content<'a>)>)>,
}

/// It is no packet, or breaks a rule of the standard.
struct Invalid;

impl<'a> Packet<'a> {
    /// The first packet; `None` if its end has not come.
    fn read(bytes: &'a [u8]) -> Option<Result<Packet<'a>, Invalid>> {
        let (&first, rest) = bytes.split_first().filter(|_| bytes.len() > 1)?;
        let kind = usize::from(first >> 4);
        // 2.1.3, also for the packets of which nothing else is read: PUBREL, SUBSCRIBE and UNSUBSCRIBE have a 2. As in
        // HAProxy a PUBLISH, whose low bits have a meaning, is none at all.
        let flags = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
        if matches!(kind, 0 | 3) || first & 0xf != flags {
            return Some(Err(Invalid));
        }
        let mut reader = Reader(rest);
        let length = match reader.variable() {
            Ok(length) => length as usize,
            Err(Invalid) if rest.len() < 4 => return None,
            Err(Invalid) => return Some(Err(Invalid)),
        };
        let body = reader.0.get(..length)?;
        let mut packet = Packet { kind: kind - 1, fields: [None; 10], properties: Vec::new() };
        let mut reader = Reader(body);
        let read = match kind - 1 {
            CONNECT => packet.connect(&mut reader),
            CONNACK => packet.connack(&mut reader),
            _ => Err(Invalid),
        };
        Some(read.and(if reader.0.is_empty() { Ok(packet) } else { Err(Invalid) }))
    }

    /// 3.1.
    fn connect(&mut self, reader: &mut Reader<'a>) -> Result<(), Invalid> {
        let protocol = reader.text()?;
        let version = reader.byte()?;
        let flags = reader.byte()?;
        let known = protocol.eq_ignore_ascii_case(b"MQTT") || protocol.eq_ignore_ascii_case(b"MQIsdp");
        let lone_qos = flags & (WILL | WILL_QOS | WILL_RETAIN) == WILL_QOS;
        if !known || !(3..=5).contains(&version) || flags & RESERVED != 0 || lone_qos {
            return Err(Invalid);
        }
        self.fields[PROTOCOL] = Some(Content::Bytes(protocol));
        self.fields[VERSION] = Some(Content::Number(version.into()));
        self.fields[FLAGS] = Some(Content::Number(flags.into()));
        self.fields[KEEPALIVE] = Some(Content::Number(reader.two()?));
        if version == 5 {
            self.properties.push((OF_CONNECT, reader.properties(OF_CONNECT)?));
            // 3.1.2.11.10.
            let says = |id| matches!(self.property(id), Some(Content::Bytes(bytes)) if !bytes.is_empty());
            if says(AUTHENTICATION_DATA) && !says(AUTHENTICATION_METHOD) {
                return Err(Invalid);
            }
        }
        self.fields[CLIENT] = Some(Content::Bytes(reader.text()?));
        if version == 5 && flags & WILL != 0 {
            self.properties.push((OF_WILL, reader.properties(OF_WILL)?));
        }
        for (bit, field) in
            [(WILL, WILL_TOPIC), (WILL, WILL_PAYLOAD), (WITH_USERNAME, USERNAME), (WITH_PASSWORD, PASSWORD)]
        {
            if flags & bit != 0 {
                self.fields[field] = Some(Content::Bytes(reader.text()?));
            }
        }
        Ok(())
    }

    /// 3.2. What is longer than two bytes is of 5.0.
    fn connack(&mut self, reader: &mut Reader<'a>) -> Result<(), Invalid> {
        let version = if reader.0.len() == 2 { 4 } else { 5 };
        let flags = reader.byte()?;
        if flags & 0xfe != 0 {
            return Err(Invalid);
        }
        self.fields[FLAGS] = Some(Content::Number(flags.into()));
        self.fields[VERSION] = Some(Content::Number(version));
        self.fields[REASON] = Some(Content::Number(reader.byte()?.into()));
        if version == 5 {
            self.properties.push((OF_CONNACK, reader.properties(OF_CONNACK)?));
        }
        Ok(())
    }

    /// A property; a number that is not given is 0.
    fn property(&self, id: u8) -> Option<Content<'a>> {
        let (table, given) = self.properties.iter().find(|(table, _)| table.iter().any(|(known, _)| *known == id))?;
        let found = given.iter().find(|(known, _)| *known == id).map(|(_, content)| *content);
        found.or_else(|| {
            let (_, holds) = table.iter().find(|(known, _)| *known == id)?;
            (!matches!(holds, Text | TextNotEmpty | Pair)).then_some(Content::Number(0))
        })
    }
}

/// What is left of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Invalid)?;
        self.0 = rest;
        Ok(taken)
    }
    fn number(&mut self, length: usize) -> Result<u32, Invalid> {
        Ok(self.take(length)?.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
    }
    fn byte(&mut self) -> Result<u8, Invalid> {
        Ok(self.take(1)?[0])
    }
    fn two(&mut self) -> Result<u32, Invalid> {
        self.number(2)
    }
    /// 1.5.4.
    fn text(&mut self) -> Result<&'a [u8], Invalid> {
        let length = self.two()?;
        self.take(length as usize)
    }
    /// 1.5.5: at most four bytes.
    fn variable(&mut self) -> Result<u32, Invalid> {
        let mut number = 0;
        for place in 0..4 {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Invalid)
    }
    /// 2.2.2: properties, each at most once.
    fn properties(&mut self, known: Properties) -> Result<Vec<(u8, Content<'a>)>, Invalid> {
        let length = self.variable()?;
        let mut inner = Reader(self.take(length as usize)?);
        let mut found: Vec<(u8, Content<'a>)> = Vec::new();
        while !inner.0.is_empty() {
            let id = inner.byte()?;
            let (_, holds) = known.iter().find(|(known, _)| *known == id).ok_or(Invalid)?;
            let content = match holds {
                Switch => Content::Number(inner.number(1)?),
                Two | TwoAboveZero => Content::Number(inner.number(2)?),
                Four | FourAboveZero => Content::Number(inner.number(4)?),
                Text | TextNotEmpty => Content::Bytes(inner.text()?),
                Pair => {
                    inner.text()?;
                    inner.text()?;
                    continue;
                }
            };
            let fits = match (holds, content) {
                (Switch, Content::Number(n)) => n < 2,
                (TwoAboveZero | FourAboveZero, Content::Number(n)) => n > 0,
                (TextNotEmpty, Content::Bytes(bytes)) => !bytes.is_empty(),
                _ => true,
            };
            if !fits || found.iter().any(|(earlier, _)| *earlier == id) {
                return Err(Invalid);
            }
            found.push((id, content));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_and_every_byte_that_is_wrong_ends() {
        let packet = b"\x10\x1c\x00\x04MQTT\x05\xc2\x00\x3c\x05\x11\x00\x00\x00\x0a\x00\x02id\x00\x01u\x00\x03pwd";
        assert!(Packet::read(packet).is_some_and(|packet| packet.is_ok()));
        for cut in 0..packet.len() {
            assert!(Packet::read(&packet[..cut]).is_none(), "{cut}");
            for byte in 0..=255 {
                let mut wrong = packet.to_vec();
                wrong[cut] = byte;
                let _ = Packet::read(&wrong);
            }
        }
    }
}
