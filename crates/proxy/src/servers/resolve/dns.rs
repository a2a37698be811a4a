//! DNS messages (RFC 1035): writes a question, and parses addresses out of the answer. Pure and bounded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of addresses asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4: A records.
    V4,
    /// IPv6: AAAA records.
    V6,
}

impl Family {
    /// The number of the record type.
    fn number(self) -> u16 {
        match self {
            Family::V4 => 1,
            Family::V6 => 28,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

/// The answer of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses, in the server's order; empty if the name has none of that family.
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoSuchName,
    /// The server refuses to answer.
    Refused,
    /// Another error, or a truncated answer.
    Failed,
}

/// Most records looked at in one answer, like HAProxy's limit of addresses per name.
const RECORDS_MAX: usize = 100;
/// Most compression pointers followed in one name.
const JUMPS_MAX: usize = 16;

/// Writes a query with EDNS0; `None` if the name is not valid in DNS.
pub fn query(id: u16, name: &str, family: Family, payload: u16) -> Option<Vec<u8>> {
    // Recursion desired; one question, one additional record.
    let mut out = id.to_be_bytes().to_vec();
    out.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return None;
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        out.push(length);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&family.number().to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    // OPT (RFC 6891): the root, type 41, the payload size we accept, no flags, no data.
    out.extend_from_slice(&[0, 0, 41]);
    out.extend_from_slice(&payload.to_be_bytes());
    out.extend_from_slice(&[0; 6]);
    Some(out)
}

/// Parses the answer to `query(id, name, family, ..)`; `None` if the bytes are something else, which is to be ignored.
pub fn answer(bytes: &[u8], id: u16, name: &str, family: Family) -> Option<Answer> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let flags = word(2)?;
    let is_response = flags & 0x8000 != 0;
    if word(0)? != id || !is_response || word(4)? != 1 {
        return None;
    }
    let wanted = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let (asked, at) = read_name(bytes, 12)?;
    if asked != wanted || word(at)? != family.number() || word(at + 2)? != 1 {
        return None;
    }
    match flags & 0x000f {
        0 => {}
        3 => return Some(Answer::NoSuchName),
        5 => return Some(Answer::Refused),
        _ => return Some(Answer::Failed),
    }
    if flags & 0x0200 != 0 {
        return Some(Answer::Failed);
    }
    let records = usize::from(word(6)?).min(RECORDS_MAX);
    Some(addresses(bytes, at + 4, records, wanted, family).map_or(Answer::Failed, Answer::Addresses))
}

/// The addresses at the end of the chain of aliases that starts at `name`; aliases precede what they lead to.
fn addresses(bytes: &[u8], mut at: usize, records: usize, mut name: String, family: Family) -> Option<Vec<IpAddr>> {
    let mut found = Vec::new();
    for _ in 0..records {
        let (owner, rest) = read_name(bytes, at)?;
        let fixed = bytes.get(rest..rest + 10)?;
        let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
        let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let data = bytes.get(rest + 10..rest + 10 + length)?;
        if owner == name {
            match kind {
                5 => name = read_name(bytes, rest + 10)?.0,
                _ if kind != family.number() => {}
                1 => found.push(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?))),
                _ => found.push(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?))),
            }
        }
        at = rest + 10 + length;
    }
    Some(found)
}

/// Reads a name in lower case, and returns where the bytes after it start. Pointers may only lead backwards, and only a
/// limited number of times.
fn read_name(bytes: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut name, mut at, mut after) = (String::new(), start, None);
    let mut jumps = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some((name, after.unwrap_or(at + 1))),
            1..=63 => {
                let label = bytes.get(at + 1..at + 1 + length)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|&c| char::from(c.to_ascii_lowercase())));
                if name.len() > 255 {
                    return None;
                }
                at += 1 + length;
            }
            192.. => {
                let target = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                after.get_or_insert(at + 2);
                jumps += 1;
                if target >= at || jumps > JUMPS_MAX {
                    return None;
                }
                at = target;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A response to our own query: `records` are (owner as bytes, type, data).
    fn response(name: &str, family: Family, flags: u16, records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
        let query = query(7, name, family, 4096).expect("a name that can be asked for");
        let mut out = vec![0, 7];
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        out.extend_from_slice(&query[12..query.len() - 11]);
        for (owner, kind, data) in records {
            out.extend_from_slice(owner);
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 0, 0, 5]);
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    const ITSELF: &[u8] = &[0xc0, 0x0c];

    #[test]
    fn addresses_are_read_in_order() {
        let bytes = response("A.test", Family::V4, 0x8180, &[(ITSELF, 1, &[1, 2, 3, 4]), (ITSELF, 1, &[5, 6, 7, 8])]);
        let want =
            Answer::Addresses(vec!["1.2.3.4".parse().expect("an address"), "5.6.7.8".parse().expect("an address")]);
        assert_eq!(answer(&bytes, 7, "a.test.", Family::V4), Some(want));
    }

    #[test]
    fn an_alias_is_followed_and_strangers_are_not() {
        let alias = b"\x03www\x03far\x00";
        let records: &[(&[u8], u16, &[u8])] =
            &[(ITSELF, 5, alias), (b"\x03www\x03far\x00", 1, &[9, 9, 9, 9]), (b"\x04evil\x00", 1, &[6, 6, 6, 6])];
        let bytes = response("a.test", Family::V4, 0x8180, records);
        let want = Answer::Addresses(vec!["9.9.9.9".parse().expect("an address")]);
        assert_eq!(answer(&bytes, 7, "a.test", Family::V4), Some(want));
    }

    #[test]
    fn errors_are_told_apart_and_other_answers_ignored() {
        let with = |flags| answer(&response("a.test", Family::V6, flags, &[]), 7, "a.test", Family::V6);
        assert_eq!(with(0x8183), Some(Answer::NoSuchName));
        assert_eq!(with(0x8185), Some(Answer::Refused));
        assert_eq!(with(0x8182), Some(Answer::Failed));
        assert_eq!(with(0x8380), Some(Answer::Failed), "cut short");
        assert_eq!(with(0x8180), Some(Answer::Addresses(vec![])));
        let bytes = response("a.test", Family::V6, 0x8180, &[]);
        assert_eq!(answer(&bytes, 8, "a.test", Family::V6), None, "another question's");
        assert_eq!(answer(&bytes, 7, "b.test", Family::V6), None, "another name");
        assert_eq!(answer(&bytes, 7, "a.test", Family::V4), None, "another type");
    }

    #[test]
    fn names_that_cannot_be_asked_for_are_not() {
        assert_eq!(query(1, "a..b", Family::V4, 512), None);
        assert_eq!(query(1, &"x".repeat(64), Family::V4, 512), None);
        assert_eq!(query(1, "", Family::V4, 512), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), keep in 0_usize..40) {
            let mut whole = response("a.test", Family::V4, 0x8180, &[(ITSELF, 1, &[1, 2, 3, 4])]);
            whole.truncate(keep);
            whole.extend(&bytes);
            let _ = answer(&whole, 7, "a.test", Family::V4);
            let _ = answer(&bytes, 7, "a.test", Family::V4);
        }
    }
}
