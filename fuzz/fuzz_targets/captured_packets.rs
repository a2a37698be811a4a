//! The packets of any conversation hold what was said, in order, none longer than it may be, and can be told from each other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_capture::{
    CaptureFormat, CopiedConversation, Endpoints, PACKET_LEAST, PACKET_MAX, Speaker, packets, split,
};
use std::net::{IpAddr, SocketAddr};

/// A packet's sender's port and the bytes that it carries.
fn read(packet: &[u8]) -> (u16, &[u8]) {
    let at = if packet[0] >> 4 == 6 { 40 } else { 20 };
    let payload = at + usize::from(packet[at + 12] >> 4) * 4;
    (u16::from_be_bytes([packet[at], packet[at + 1]]), &packet[payload..])
}

fuzz_target!(|input: ((IpAddr, IpAddr), (u32, u32), u16, Vec<(bool, bool, &[u8])>)| {
    let ((client, server), (first, second), longest, steps) = input;
    let ends = Endpoints::new(SocketAddr::new(client, 1), SocketAddr::new(server, 2));
    let (mut talk, open) = CopiedConversation::open(first, second);
    let mut segments = vec![(open, &[][..])];
    let mut said = [Vec::new(), Vec::new()];
    for (by_client, ends_it, data) in steps {
        let (speaker, side) = if by_client { (Speaker::Client, 0) } else { (Speaker::Server, 1) };
        if talk.has_ended(speaker) {
            assert!(talk.end(speaker).is_none());
        } else if ends_it {
            segments.push((talk.end(speaker).expect("it has not ended"), &[]));
        } else {
            segments.push((talk.data(speaker, data.len()), data));
            said[side].extend_from_slice(data);
        }
    }
    let longest = usize::from(longest);
    let mut heard = [Vec::new(), Vec::new()];
    for (segment, data) in segments {
        let mut bare = Vec::new();
        let mut list = Vec::new();
        packets(&ends, &segment, data, longest, |headers, payload| {
            CaptureFormat::Bare.packet(0, headers, payload, &mut bare);
            list.push([headers, payload].concat());
        });
        assert!(split(&bare).eq(list.iter().map(Vec::as_slice)));
        for packet in &list {
            assert!(packet.len() <= longest.clamp(PACKET_LEAST, PACKET_MAX));
            let (port, payload) = read(packet);
            heard[usize::from(port - 1)].extend_from_slice(payload);
        }
    }
    assert_eq!(heard, said);
});
