//! Packets of IPv4 or IPv6 with TCP, made of the segments of a conversation.

use crate::conversation::{CopiedSegment, Endpoints, SegmentEvent, Speaker};
use std::net::IpAddr;

/// The longest packet in a capture, in bytes: the size of a jumbo frame, which programs that shorten packets leave whole (Zeek does so
/// after 9,216).
pub const PACKET_MAX: usize = 9_000;

/// The shortest limit that packets can be made for, in bytes: every link of IPv6 takes packets of that size (RFC 8200 section 5).
pub const PACKET_LEAST: usize = 1_280;

const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
/// Maximum segment size (4 bytes) and window scale (3), padded.
const OPEN_OPTIONS: usize = 8;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Makes the packets of a segment, whose bytes are `data`; each has at most `longest` bytes ([`PACKET_LEAST`] to [`PACKET_MAX`]), and is
/// given to `emit` as headers and payload.
///
/// Whatever a side sends is acknowledged at once, since some programs look only at what has been.
pub fn packets(
    ends: &Endpoints,
    segment: &CopiedSegment,
    data: &[u8],
    longest: usize,
    mut emit: impl FnMut(&[u8], &[u8]),
) {
    let CopiedSegment { speaker, sequence, acknowledged, event } = *segment;
    let other = speaker.other();
    let payload_max = longest.clamp(PACKET_LEAST, PACKET_MAX) - IPV6 - TCP;
    let mut send = |by: Speaker, flags: u8, sequence: u32, acknowledged: u32, payload: &[u8]| {
        let packet = Packet { by, flags, sequence, acknowledged, payload_max: payload_max as u16 };
        let (headers, length) = packet.headers(ends, payload);
        emit(&headers[..length], payload);
    };
    match event {
        SegmentEvent::Open => {
            let (first, second) = (sequence.wrapping_add(1), acknowledged.wrapping_add(1));
            send(speaker, SYN, sequence, 0, &[]);
            send(other, SYN | ACK, acknowledged, first, &[]);
            send(speaker, ACK, first, second, &[]);
        }
        SegmentEvent::Data => {
            let mut next = sequence;
            let mut chunks = data.chunks(payload_max).peekable();
            while let Some(chunk) = chunks.next() {
                let flags = if chunks.peek().is_some() { ACK } else { ACK | PSH };
                send(speaker, flags, next, acknowledged, chunk);
                next = next.wrapping_add(chunk.len() as u32);
            }
            if !data.is_empty() {
                send(other, ACK, acknowledged, next, &[]);
            }
        }
        SegmentEvent::End => {
            send(speaker, FIN | ACK, sequence, acknowledged, &[]);
            send(other, ACK, acknowledged, sequence.wrapping_add(1), &[]);
        }
    }
}

struct Packet {
    by: Speaker,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload_max: u16,
}

type Headers = [u8; IPV6 + TCP + OPEN_OPTIONS];

impl Packet {
    /// The headers of IP and TCP before a payload, and their length.
    fn headers(&self, ends: &Endpoints, payload: &[u8]) -> (Headers, usize) {
        let (from, to) = (ends.of(self.by), ends.of(self.by.other()));
        let mut bytes: Headers = [0; IPV6 + TCP + OPEN_OPTIONS];
        let opens = self.flags & SYN != 0;
        let tcp_length = TCP + if opens { OPEN_OPTIONS } else { 0 };
        let segment_length = tcp_length + payload.len();
        let mut sum = Sum::default();
        let at = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes[0] = 0x45;
                bytes[2..4].copy_from_slice(&((IPV4 + segment_length) as u16).to_be_bytes());
                // Don't fragment: then the identification may be 0 (RFC 6864).
                bytes[6] = 0x40;
                (bytes[8], bytes[9]) = (64, 6);
                bytes[12..16].copy_from_slice(&from.octets());
                bytes[16..20].copy_from_slice(&to.octets());
                let mut own = Sum::default();
                own.add(&bytes[..IPV4]);
                bytes[10..12].copy_from_slice(&own.checksum());
                sum.add(&bytes[12..20]);
                IPV4
            }
            (from, to) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&(segment_length as u16).to_be_bytes());
                (bytes[6], bytes[7]) = (6, 64);
                bytes[8..24].copy_from_slice(&octets(from));
                bytes[24..40].copy_from_slice(&octets(to));
                sum.add(&bytes[8..40]);
                IPV6
            }
        };
        // The rest of the pseudo header: protocol and length.
        sum.add(&[0, 6]);
        sum.add(&(segment_length as u16).to_be_bytes());
        let tcp = &mut bytes[at..at + tcp_length];
        tcp[0..2].copy_from_slice(&from.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        tcp[12] = ((tcp_length / 4) << 4) as u8;
        tcp[13] = self.flags;
        tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        if opens {
            let [high, low] = self.payload_max.to_be_bytes();
            // With a scale of 8 the window is 16 MB, which no segment fills.
            tcp[20..28].copy_from_slice(&[2, 4, high, low, 3, 3, 8, 0]);
        }
        sum.add(tcp);
        sum.add(payload);
        tcp[16..18].copy_from_slice(&sum.checksum());
        (bytes, at + tcp_length)
    }
}

/// The packets in bytes that hold nothing else, one after the other: their own headers say how long they are.
pub fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = |at: usize| Some(usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
        let length = match bytes.first()? >> 4 {
            6 => length(4)? + IPV6,
            _ => length(2)?,
        };
        let (packet, rest) = bytes.split_at_checked(length.max(1))?;
        bytes = rest;
        Some(packet)
    })
}

/// The Internet checksum (RFC 1071). Everything but the last piece has an even length.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            self.0 += u64::from(u32::from_be_bytes(word.try_into().expect("four bytes")));
        }
        let rest = words.remainder();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_be_bytes(last));
    }
    fn checksum(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::CopiedConversation;
    use proptest::prelude::*;

    /// Checks what it may be checked by; returns the TCP header's offset.
    fn check(packet: &[u8]) -> usize {
        let (at, mut sum) = match packet[0] >> 4 {
            4 => {
                let mut own = Sum::default();
                own.add(&packet[..IPV4]);
                assert_eq!(own.checksum(), [0, 0], "the header's own checksum");
                assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
                let mut sum = Sum::default();
                sum.add(&packet[12..20]);
                (IPV4, sum)
            }
            6 => {
                assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - IPV6);
                let mut sum = Sum::default();
                sum.add(&packet[8..40]);
                (IPV6, sum)
            }
            other => panic!("version {other}"),
        };
        sum.add(&[0, 6]);
        sum.add(&((packet.len() - at) as u16).to_be_bytes());
        sum.add(&packet[at..]);
        assert_eq!(sum.checksum(), [0, 0], "the checksum of TCP");
        at
    }

    fn all(ends: &Endpoints, segment: CopiedSegment, data: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let mut list = Vec::new();
        packets(ends, &segment, data, longest, |headers, payload| list.push([headers, payload].concat()));
        let together = list.concat();
        assert!(split(&together).eq(list.iter()), "they can be told from each other");
        list
    }

    fn ends(six: bool) -> Endpoints {
        match six {
            false => Endpoints::new("192.0.2.1:40000".parse().unwrap(), "198.51.100.2:80".parse().unwrap()),
            true => Endpoints::new("[2001:db8::1]:40000".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap()),
        }
    }

    #[test]
    fn the_sum_is_that_of_the_rfc() {
        // RFC 1071 section 3: the sum is 0xddf2.
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.checksum(), (!0xddf2u16).to_be_bytes());
    }

    #[test]
    fn a_connection_opens_with_three_packets_and_ends_with_an_acknowledged_fin() {
        for six in [false, true] {
            let (mut talk, open) = CopiedConversation::open(100, 200);
            let flags = |list: &[Vec<u8>]| list.iter().map(|packet| packet[check(packet) + 13]).collect::<Vec<_>>();
            assert_eq!(flags(&all(&ends(six), open, &[], PACKET_MAX)), [SYN, SYN | ACK, ACK]);
            let end = talk.end(Speaker::Server).unwrap();
            assert_eq!(flags(&all(&ends(six), end, &[], PACKET_MAX)), [FIN | ACK, ACK]);
        }
    }

    proptest! {
        #[test]
        fn bytes_are_cut_into_packets_and_acknowledged(
            length in 0usize..40_000, six: bool, first: u32, longest in PACKET_LEAST..=PACKET_MAX
        ) {
            let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (mut talk, _) = CopiedConversation::open(first, 1);
            let segment = talk.data(Speaker::Client, length);
            let list = all(&ends(six), segment, &data, longest);
            let mut said = Vec::new();
            for packet in &list {
                prop_assert!(packet.len() <= longest);
                let at = check(packet);
                let payload = &packet[at + TCP..];
                if payload.is_empty() {
                    continue;
                }
                let number = u32::from_be_bytes(packet[at + 4..at + 8].try_into().unwrap());
                prop_assert_eq!(number, first.wrapping_add(1).wrapping_add(said.len() as u32));
                said.extend_from_slice(payload);
            }
            prop_assert_eq!(said, data);
            prop_assert_eq!(list.len(), length.div_ceil(longest - IPV6 - TCP) + usize::from(length > 0));
        }
    }
}
