//! The frames that begin and end a connection: lists of names and values.

use crate::{
    AgentData, AgentStatus,
    data::{UINT32, take_bytes, write_bytes},
    frame::{FIN, FRAME_SIZE_MIN, Frame, HAPROXY_DISCONNECT, HAPROXY_HELLO},
};
use penstock_peers::varint;

/// The one version that is spoken.
const VERSION: (u32, u32) = (2, 0);

/// What our hello says.
#[derive(Clone, Debug)]
pub(crate) struct Greeting<'a> {
    pub max_frame_size: u32,
    pub capabilities: &'a str,
    pub engine_id: Option<&'a str>,
    pub is_check: bool,
}

/// Appends HAPROXY-HELLO.
pub(crate) fn write_hello(hello: &Greeting<'_>, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    item("supported-versions", AgentData::Text(b"2.0"), &mut payload);
    write_bytes(b"max-frame-size", &mut payload);
    payload.push(UINT32);
    varint::write(hello.max_frame_size.into(), &mut payload);
    item("capabilities", AgentData::Text(hello.capabilities.as_bytes()), &mut payload);
    if let Some(id) = hello.engine_id {
        item("engine-id", AgentData::Text(id.as_bytes()), &mut payload);
    }
    if hello.is_check {
        item("healthcheck", AgentData::Bool(true), &mut payload);
    }
    control(HAPROXY_HELLO, &payload, out);
}

/// Appends HAPROXY-DISCONNECT.
pub(crate) fn write_disconnect(status: AgentStatus, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    write_bytes(b"status-code", &mut payload);
    payload.push(UINT32);
    varint::write(status.0.into(), &mut payload);
    item("message", AgentData::Text(status.to_string().as_bytes()), &mut payload);
    control(HAPROXY_DISCONNECT, &payload, out);
}

fn item(name: &str, value: AgentData<'_>, payload: &mut Vec<u8>) {
    write_bytes(name.as_bytes(), payload);
    value.write(payload);
}

fn control(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    Frame { kind, flags: FIN, stream: 0, frame: 0, payload }.write(out);
}

/// What AGENT-HELLO says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentHello {
    pub max_frame_size: u32,
    pub pipelining: bool,
    pub is_async: bool,
    pub fragmentation: bool,
}

/// Reads AGENT-HELLO; frames may have at most `max` bytes.
pub(crate) fn read_hello(payload: &[u8], max: u32) -> Result<AgentHello, AgentStatus> {
    let (mut version, mut size, mut capabilities) = (None, None, None);
    for pair in pairs(payload) {
        match (pair?, &mut version, &mut size, &mut capabilities) {
            ((b"version", AgentData::Text(text)), version, ..) => *version = Some(text),
            ((b"max-frame-size", AgentData::Int(bytes)), _, size, _) => *size = Some(bytes),
            ((b"capabilities", AgentData::Text(text)), .., capabilities) => *capabilities = Some(text),
            ((b"version" | b"max-frame-size" | b"capabilities", _), ..) => return Err(AgentStatus::INVALID),
            _ => {}
        }
    }
    let version = version.ok_or(AgentStatus::NO_VERSION)?;
    if parse_version(version) != Some(VERSION) {
        return Err(AgentStatus::VERSION);
    }
    let size = size.ok_or(AgentStatus::NO_FRAME_SIZE)?;
    let max_frame_size = u32::try_from(size).ok().filter(|size| (FRAME_SIZE_MIN..=max).contains(size));
    let max_frame_size = max_frame_size.ok_or(AgentStatus::FRAME_SIZE)?;
    let mut hello = AgentHello { max_frame_size, ..AgentHello::default() };
    for capability in capabilities.ok_or(AgentStatus::NO_CAPABILITIES)?.split(|byte| *byte == b',') {
        match capability.trim_ascii() {
            b"pipelining" => hello.pipelining = true,
            b"async" => hello.is_async = true,
            b"fragmentation" => hello.fragmentation = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// The status of AGENT-DISCONNECT.
pub(crate) fn read_disconnect(payload: &[u8]) -> AgentStatus {
    let status = pairs(payload).map_while(Result::ok).find_map(|pair| match pair {
        (b"status-code", AgentData::Int(code)) => u32::try_from(code).ok(),
        _ => None,
    });
    status.map_or(AgentStatus::INVALID, AgentStatus)
}

fn pairs(payload: &[u8]) -> impl Iterator<Item = Result<(&[u8], AgentData<'_>), AgentStatus>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let pair = take_bytes(&mut rest).and_then(|name| Some((name, AgentData::take(&mut rest)?)));
        if pair.is_none() {
            rest = &[];
        }
        Some(pair.ok_or(AgentStatus::INVALID))
    })
}

fn parse_version(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(text).ok()?.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[(&str, AgentData<'_>)]) -> Vec<u8> {
        let mut payload = Vec::new();
        items.iter().for_each(|(name, value)| item(name, *value, &mut payload));
        payload
    }

    const VERSION_2: (&str, AgentData<'static>) = ("version", AgentData::Text(b"2.0"));
    const SIZE: (&str, AgentData<'static>) = ("max-frame-size", AgentData::Int(1024));
    const CAPABILITIES: (&str, AgentData<'static>) =
        ("capabilities", AgentData::Text(b"pipelining , async,unknown, fragmentation"));

    #[test]
    fn our_hello_is_haproxy_2_6s() {
        let mut out = Vec::new();
        let engine_id = Some("37e3996b-a55a-4b8e-88f7-21630f96d5b3");
        let capabilities = "pipelining,async";
        write_hello(&Greeting { max_frame_size: 16_380, capabilities, engine_id, is_check: false }, &mut out);
        let expected = b"\x00\x00\x00\x81\x01\x00\x00\x00\x01\x00\x00\
            \x12supported-versions\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\
            \x0ccapabilities\x08\x10pipelining,async\x09engine-id\x08\x2437e3996b-a55a-4b8e-88f7-21630f96d5b3";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn an_agents_hello_says_what_it_can_do() {
        let hello = read_hello(&list(&[VERSION_2, SIZE, CAPABILITIES]), 16_380);
        let all = AgentHello { max_frame_size: 1024, pipelining: true, is_async: true, fragmentation: true };
        assert_eq!(hello, Ok(all));
        let none = read_hello(
            &list(&[("x", AgentData::Null), ("capabilities", AgentData::Text(b"")), SIZE, VERSION_2]),
            16_380,
        );
        assert_eq!(none, Ok(AgentHello { max_frame_size: 1024, ..AgentHello::default() }));
    }

    #[test]
    fn each_mistake_of_a_hello_has_its_status() {
        let size = |bytes| ("max-frame-size", AgentData::Int(bytes));
        let version = |text| ("version", AgentData::Text(text));
        for (items, status) in [
            (&[SIZE, CAPABILITIES][..], AgentStatus::NO_VERSION),
            (&[VERSION_2, CAPABILITIES], AgentStatus::NO_FRAME_SIZE),
            (&[VERSION_2, SIZE], AgentStatus::NO_CAPABILITIES),
            (&[version(b"1.0"), SIZE, CAPABILITIES], AgentStatus::VERSION),
            (&[version(b"2"), SIZE, CAPABILITIES], AgentStatus::VERSION),
            (&[VERSION_2, size(255), CAPABILITIES], AgentStatus::FRAME_SIZE),
            (&[VERSION_2, size(16_381), CAPABILITIES], AgentStatus::FRAME_SIZE),
            (&[VERSION_2, size(-1), CAPABILITIES], AgentStatus::FRAME_SIZE),
            (&[("version", AgentData::Int(2)), SIZE, CAPABILITIES], AgentStatus::INVALID),
        ] {
            assert_eq!(read_hello(&list(items), 16_380), Err(status), "{items:?}");
        }
        let whole = list(&[VERSION_2, SIZE, CAPABILITIES]);
        for cut in 0..whole.len() {
            assert!(read_hello(&whole[..cut], 16_380).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_farewell_without_a_status_is_invalid() {
        assert_eq!(read_disconnect(&list(&[("status-code", AgentData::Int(77))])), AgentStatus(77));
        assert_eq!(read_disconnect(&list(&[("message", AgentData::Text(b"bye"))])), AgentStatus::INVALID);
        assert_eq!(read_disconnect(b"\xff"), AgentStatus::INVALID);
    }
}
