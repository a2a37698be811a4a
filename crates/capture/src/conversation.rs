//! A connection as its segments: a handshake, what both sides say, and two ends.

use std::net::{IpAddr, SocketAddr};

/// The side that sends a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The side that opened the connection.
    Client,
    /// The other side.
    Server,
}

impl Speaker {
    /// The side that hears it.
    pub fn other(self) -> Speaker {
        match self {
            Speaker::Client => Speaker::Server,
            Speaker::Server => Speaker::Client,
        }
    }
}

/// The addresses of a connection, both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    client: SocketAddr,
    server: SocketAddr,
}

impl Endpoints {
    /// The ends of a connection. If only one of the addresses is of IPv6, the other is mapped to it.
    pub fn new(client: SocketAddr, server: SocketAddr) -> Self {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (client, server) = (plain(client), plain(server));
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => address,
        };
        match client.is_ipv4() == server.is_ipv4() {
            true => Endpoints { client, server },
            false => Endpoints { client: mapped(client), server: mapped(server) },
        }
    }
    /// The address of one side.
    pub fn of(&self, speaker: Speaker) -> SocketAddr {
        match speaker {
            Speaker::Client => self.client,
            Speaker::Server => self.server,
        }
    }
}

/// What a segment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEvent {
    /// The connection is opened.
    Open,
    /// Bytes are sent.
    Data,
    /// One side sends nothing more.
    End,
}

/// A step of a connection, of which [`crate::packets`] makes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedSegment {
    /// Who sends it.
    pub speaker: Speaker,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the byte that the sender expects next; for [`SegmentEvent::Open`] the first number of the other side.
    pub acknowledged: u32,
    /// What it does.
    pub event: SegmentEvent,
}

/// The sequence numbers of a connection. They count everything that is said, so that what is not written leaves a gap.
#[derive(Clone, Debug)]
pub struct CopiedConversation {
    client: u32,
    server: u32,
    client_ended: bool,
    server_ended: bool,
}

impl CopiedConversation {
    /// A connection whose first sequence numbers are these, and the segment that opens it.
    pub fn open(client: u32, server: u32) -> (Self, CopiedSegment) {
        let segment = CopiedSegment {
            speaker: Speaker::Client,
            sequence: client,
            acknowledged: server,
            event: SegmentEvent::Open,
        };
        let (client, server) = (client.wrapping_add(1), server.wrapping_add(1));
        (CopiedConversation { client, server, client_ended: false, server_ended: false }, segment)
    }
    /// Bytes that a side sends.
    pub fn data(&mut self, speaker: Speaker, length: usize) -> CopiedSegment {
        let segment = self.segment(speaker, SegmentEvent::Data);
        // Numbers are modulo 2^32 (RFC 9293 section 3.4).
        self.advance(speaker, length as u32);
        segment
    }
    /// The end of what a side sends; `None` if it has ended already.
    pub fn end(&mut self, speaker: Speaker) -> Option<CopiedSegment> {
        let ended = match speaker {
            Speaker::Client => &mut self.client_ended,
            Speaker::Server => &mut self.server_ended,
        };
        if std::mem::replace(ended, true) {
            return None;
        }
        let segment = self.segment(speaker, SegmentEvent::End);
        self.advance(speaker, 1);
        Some(segment)
    }
    /// Whether a side has ended.
    pub fn has_ended(&self, speaker: Speaker) -> bool {
        match speaker {
            Speaker::Client => self.client_ended,
            Speaker::Server => self.server_ended,
        }
    }
    fn segment(&self, speaker: Speaker, event: SegmentEvent) -> CopiedSegment {
        let (sequence, acknowledged) = match speaker {
            Speaker::Client => (self.client, self.server),
            Speaker::Server => (self.server, self.client),
        };
        CopiedSegment { speaker, sequence, acknowledged, event }
    }
    fn advance(&mut self, speaker: Speaker, by: u32) {
        let next = match speaker {
            Speaker::Client => &mut self.client,
            Speaker::Server => &mut self.server,
        };
        *next = next.wrapping_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_what_was_said_and_wrap() {
        let (mut talk, open) = CopiedConversation::open(u32::MAX - 1, 7);
        assert_eq!((open.sequence, open.acknowledged), (u32::MAX - 1, 7));
        let first = talk.data(Speaker::Client, 3);
        assert_eq!((first.sequence, first.acknowledged), (u32::MAX, 8));
        let answer = talk.data(Speaker::Server, 10);
        assert_eq!((answer.sequence, answer.acknowledged), (8, 2));
        let end = talk.end(Speaker::Client).unwrap();
        assert_eq!((end.sequence, end.acknowledged), (2, 18));
        assert_eq!(talk.end(Speaker::Client), None, "a side ends once");
        assert!(talk.has_ended(Speaker::Client) && !talk.has_ended(Speaker::Server));
        let end = talk.end(Speaker::Server).unwrap();
        assert_eq!((end.sequence, end.acknowledged), (18, 3));
    }

    #[test]
    fn addresses_of_two_families_become_one() {
        let (four, six) = ("192.0.2.1:80".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
        let ends = Endpoints::new(four, six);
        assert_eq!(ends.of(Speaker::Client), "[::ffff:192.0.2.1]:80".parse().unwrap());
        assert_eq!(ends.of(Speaker::Server), six);
        let ends = Endpoints::new("[::ffff:192.0.2.9]:5".parse().unwrap(), four);
        assert_eq!(ends.of(Speaker::Client), "192.0.2.9:5".parse().unwrap());
    }
}
