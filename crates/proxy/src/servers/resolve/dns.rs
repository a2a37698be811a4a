//! DNS messages (RFC 1035): writes a question, and parses addresses, or the places of a service (RFC 2782), out of the answer. Pure and
//! bounded.

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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The addresses of a host.
    Addresses(Family),
    /// The hosts and ports of a service: SRV records.
    Services,
}

impl Kind {
    /// The number of the record type.
    fn number(self) -> u16 {
        match self {
            Kind::Addresses(family) => family.number(),
            Kind::Services => 33,
        }
    }
}

/// An SRV record, with the addresses of its target that came along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Lower ones come first.
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
    pub port: u16,
    /// The host's name, in lower case.
    pub target: String,
    pub addresses: Vec<IpAddr>,
}

/// What an answer says, in the server's order: of one kind, that which was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    pub addresses: Vec<IpAddr>,
    pub services: Vec<Service>,
}

impl Records {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.services.is_empty()
    }
}

/// The answer of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What was asked for; empty if the name has none of that kind.
    Found(Records),
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
pub fn query(id: u16, name: &str, kind: Kind, payload: u16) -> Option<Vec<u8>> {
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
    out.extend_from_slice(&kind.number().to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    // OPT (RFC 6891): the root, type 41, the payload size we accept, no flags, no data.
    out.extend_from_slice(&[0, 0, 41]);
    out.extend_from_slice(&payload.to_be_bytes());
    out.extend_from_slice(&[0; 6]);
    Some(out)
}

/// Parses the answer to `query(id, name, kind, ..)`; `None` if the bytes are something else, which is to be ignored.
pub fn answer(bytes: &[u8], id: u16, name: &str, kind: Kind) -> Option<Answer> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let flags = word(2)?;
    let is_response = flags & 0x8000 != 0;
    if word(0)? != id || !is_response || word(4)? != 1 {
        return None;
    }
    let wanted = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let (asked, at) = read_name(bytes, 12)?;
    if asked != wanted || word(at)? != kind.number() || word(at + 2)? != 1 {
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
    let counts = [word(6)?, word(8)?, word(10)?];
    let found = match kind {
        Kind::Addresses(family) => addresses(bytes, at + 4, counts[0], wanted, family),
        Kind::Services => services(bytes, at + 4, counts, wanted),
    };
    Some(found.map_or(Answer::Failed, Answer::Found))
}

/// One record of an answer.
struct Record<'a> {
    owner: String,
    kind: u16,
    data: &'a [u8],
    /// Where the data starts, since names in it may point elsewhere.
    at: usize,
}

/// Reads a record, and returns where the next one starts.
fn record(bytes: &[u8], at: usize) -> Option<(Record<'_>, usize)> {
    let (owner, rest) = read_name(bytes, at)?;
    let fixed = bytes.get(rest..rest + 10)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    let (at, length) = (rest + 10, usize::from(u16::from_be_bytes([fixed[8], fixed[9]])));
    Some((Record { owner, kind, data: bytes.get(at..at + length)?, at }, at + length))
}

impl Record<'_> {
    /// The address, if it is a record of one.
    fn address(&self) -> Option<IpAddr> {
        match self.kind {
            1 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(self.data).ok()?))),
            28 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(self.data).ok()?))),
            _ => None,
        }
    }
}

/// The addresses at the end of the chain of aliases that starts at `name`; aliases precede what they lead to.
fn addresses(bytes: &[u8], mut at: usize, count: u16, mut name: String, family: Family) -> Option<Records> {
    let mut found = Records::default();
    for _ in 0..usize::from(count).min(RECORDS_MAX) {
        let (record, next) = record(bytes, at)?;
        if record.owner == name {
            match record.kind {
                5 => name = read_name(bytes, record.at)?.0,
                kind if kind == family.number() => found.addresses.push(record.address()?),
                _ => {}
            }
        }
        at = next;
    }
    Some(found)
}

/// The hosts and ports of a service, which may be an alias of another, with the addresses of the hosts that the message has behind them.
/// A service whose only target is the root is not there.
fn services(bytes: &[u8], mut at: usize, counts: [u16; 3], mut name: String) -> Option<Records> {
    let mut found: Vec<Service> = Vec::new();
    for _ in 0..usize::from(counts[0]).min(RECORDS_MAX) {
        let (record, next) = record(bytes, at)?;
        if record.owner == name && record.kind == 5 {
            name = read_name(bytes, record.at)?.0;
        } else if record.owner == name && record.kind == 33 {
            let &[a, b, c, d, e, f] = record.data.first_chunk()?;
            let [priority, weight, port] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
            let target = read_name(bytes, record.at + 6)?.0;
            if !target.is_empty() {
                found.push(Service { priority, weight, port, target, addresses: Vec::new() });
            }
        }
        at = next;
    }
    // More answers than are looked at end what can be found behind them.
    let behind = if usize::from(counts[0]) > RECORDS_MAX { 0 } else { usize::from(counts[1]) + usize::from(counts[2]) };
    for _ in 0..behind.min(RECORDS_MAX) {
        // What is behind the answer is an addition: the answer is valid without it.
        let Some((record, next)) = record(bytes, at) else { break };
        if let Some(address) = record.address() {
            for service in found.iter_mut().filter(|service| service.target == record.owner) {
                service.addresses.push(address);
            }
        }
        at = next;
    }
    Some(Records { services: found, ..Records::default() })
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

    const A: Kind = Kind::Addresses(Family::V4);
    const AAAA: Kind = Kind::Addresses(Family::V6);

    fn found(addresses: Vec<IpAddr>) -> Answer {
        Answer::Found(Records { addresses, ..Records::default() })
    }

    /// A response to our own query: `records` are (owner as bytes, type, data).
    fn response(name: &str, kind: Kind, flags: u16, records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
        let query = query(7, name, kind, 4096).expect("a name that can be asked for");
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
        let bytes = response("A.test", A, 0x8180, &[(ITSELF, 1, &[1, 2, 3, 4]), (ITSELF, 1, &[5, 6, 7, 8])]);
        let want = found(vec!["1.2.3.4".parse().expect("an address"), "5.6.7.8".parse().expect("an address")]);
        assert_eq!(answer(&bytes, 7, "a.test.", A), Some(want));
    }

    #[test]
    fn an_alias_is_followed_and_strangers_are_not() {
        let alias = b"\x03www\x03far\x00";
        let records: &[(&[u8], u16, &[u8])] =
            &[(ITSELF, 5, alias), (b"\x03www\x03far\x00", 1, &[9, 9, 9, 9]), (b"\x04evil\x00", 1, &[6, 6, 6, 6])];
        let bytes = response("a.test", A, 0x8180, records);
        let want = found(vec!["9.9.9.9".parse().expect("an address")]);
        assert_eq!(answer(&bytes, 7, "a.test", A), Some(want));
    }

    #[test]
    fn a_service_is_its_hosts_and_ports_with_the_addresses_that_came_along() {
        let place = |priority: u8, weight: u8, port: u8, target: &[u8]| {
            [&[0, priority, 0, weight, 0, port][..], target].concat()
        };
        let (one, two, root) =
            (place(1, 2, 80, b"\x02H1\x04test\0"), place(2, 0, 81, b"\x02h2\x04test\0"), place(0, 0, 0, b"\0"));
        let mut bytes = response(
            "_a._tcp.x",
            Kind::Services,
            0x8180,
            &[
                (ITSELF, 33, &one),
                (ITSELF, 33, &two),
                (ITSELF, 33, &root),
                (b"\x01b\0", 33, &one),
                (b"\x02ns\0", 2, b"\0"),
                (b"\x02h1\x04TEST\0", 1, &[127, 0, 0, 1]),
                (b"\x02h3\x04test\0", 1, &[127, 0, 0, 3]),
            ],
        );
        // Four answers, one of an authority, two additional ones.
        (bytes[7], bytes[9], bytes[11]) = (4, 1, 2);
        let service = |priority, weight, port, target: &str, addresses: &[&str]| Service {
            priority,
            weight,
            port,
            target: target.into(),
            addresses: addresses.iter().map(|ip| ip.parse().expect("an address")).collect(),
        };
        let want = vec![service(1, 2, 80, "h1.test", &["127.0.0.1"]), service(2, 0, 81, "h2.test", &[])];
        let all = Answer::Found(Records { services: want.clone(), ..Records::default() });
        assert_eq!(answer(&bytes, 7, "_a._tcp.x", Kind::Services), Some(all));
        // Cut within what is additional, it says as much as it does.
        let short = answer(&bytes[..bytes.len() - 1], 7, "_a._tcp.x", Kind::Services);
        assert_eq!(short, Some(Answer::Found(Records { services: want, ..Records::default() })));
        bytes[7] = 8;
        assert_eq!(answer(&bytes, 7, "_a._tcp.x", Kind::Services), Some(Answer::Failed), "fewer records than it says");
        let short = response("_a._tcp.x", Kind::Services, 0x8180, &[(ITSELF, 33, &one[..5])]);
        assert_eq!(answer(&short, 7, "_a._tcp.x", Kind::Services), Some(Answer::Failed), "no port");
    }

    #[test]
    fn errors_are_told_apart_and_other_answers_ignored() {
        let with = |flags| answer(&response("a.test", AAAA, flags, &[]), 7, "a.test", AAAA);
        assert_eq!(with(0x8183), Some(Answer::NoSuchName));
        assert_eq!(with(0x8185), Some(Answer::Refused));
        assert_eq!(with(0x8182), Some(Answer::Failed));
        assert_eq!(with(0x8380), Some(Answer::Failed), "cut short");
        assert_eq!(with(0x8180), Some(found(vec![])));
        let bytes = response("a.test", AAAA, 0x8180, &[]);
        assert_eq!(answer(&bytes, 8, "a.test", AAAA), None, "another question's");
        assert_eq!(answer(&bytes, 7, "b.test", AAAA), None, "another name");
        assert_eq!(answer(&bytes, 7, "a.test", A), None, "another type");
    }

    #[test]
    fn names_that_cannot_be_asked_for_are_not() {
        assert_eq!(query(1, "a..b", A, 512), None);
        assert_eq!(query(1, &"x".repeat(64), A, 512), None);
        assert_eq!(query(1, "", A, 512), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), keep in 0_usize..40) {
            let mut whole = response("a.test", A, 0x8180, &[(ITSELF, 1, &[1, 2, 3, 4])]);
            whole.truncate(keep);
            whole.extend(&bytes);
            let _ = answer(&whole, 7, "a.test", A);
            let _ = answer(&bytes, 7, "a.test", A);
            let mut whole = response("_a.test", Kind::Services, 0x8180, &[(ITSELF, 33, &[0, 1, 0, 1, 0, 80, 0xc0, 0x0c])]);
            whole.truncate(keep.max(12));
            (whole[9], whole[11]) = (1, 2);
            whole.extend(&bytes);
            let _ = answer(&whole, 7, "_a.test", Kind::Services);
        }
    }
}
