//! Raw messages, what we make of each, and what HAProxy 2.6 makes of it.

use std::borrow::Cow;

use penstock_http::{
    BodyReader, Error, Framing, Limits, Parse, RequestHead, ResponseHead, Step, request_framing, response_framing,
};

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The message reaches the other side.
    Forwarded,
    /// The client gets this status from the proxy instead.
    Refused(u16),
}

/// A raw message and its fate.
pub struct Probe {
    pub name: &'static str,
    pub raw: Cow<'static, [u8]>,
    pub ours: Fate,
    /// What HAProxy does when it is not the same, and why we do not do it.
    pub differs: Option<(Fate, &'static str)>,
}

pub const F: Fate = Fate::Forwarded;
pub const R: Fate = Fate::Refused(400);
pub const BAD: Fate = Fate::Refused(502);

pub fn same(name: &'static str, raw: &'static [u8], fate: Fate) -> Probe {
    Probe { name, raw: raw.into(), ours: fate, differs: None }
}

pub fn differs(name: &'static str, raw: &'static [u8], ours: Fate, haproxy: Fate, reason: &'static str) -> Probe {
    Probe { name, raw: raw.into(), ours, differs: Some((haproxy, reason)) }
}

/// What we make of a request.
pub fn our_request_fate(raw: &[u8]) -> Result<Fate, &'static str> {
    let mut head = RequestHead::new();
    let whole = (|| {
        let Parse::Complete { consumed } = head.parse(raw, &Limits::default())? else { return Ok(false) };
        walk(request_framing(&mut head)?, &raw[consumed..])
    })();
    match whole {
        Ok(true) => Ok(Fate::Forwarded),
        Ok(false) => Err("incomplete"),
        Err(error) => Ok(Fate::Refused(error.status())),
    }
}

/// What we make of a response to `GET`.
pub fn our_response_fate(raw: &[u8]) -> Result<Fate, &'static str> {
    let mut head = ResponseHead::new();
    let mut at = 0;
    loop {
        match head.parse(&raw[at..], &Limits::default()) {
            Ok(Parse::Complete { consumed }) => at += consumed,
            // The end of the connection before the end of the head.
            Ok(Parse::Partial) | Err(_) => return Ok(Fate::Refused(502)),
        }
        match response_framing(&mut head, b"GET", false) {
            Err(_) => return Ok(Fate::Refused(502)),
            Ok(_) if head.is_interim() => {}
            // What is wrong with the body comes after the head was sent on, and shows as an end before the end.
            Ok(_) => return Ok(Fate::Forwarded),
        }
    }
}

fn walk(framing: Framing, input: &[u8]) -> Result<bool, Error> {
    let mut body = BodyReader::new(framing, Limits::default());
    let mut at = 0;
    loop {
        match body.step(&input[at..])? {
            Step::Data(len) | Step::Framing(len) | Step::Skip(len) => at += len,
            Step::NeedMore => return Ok(false),
            Step::End => return Ok(true),
        }
    }
}

pub mod requests;
pub mod responses;
