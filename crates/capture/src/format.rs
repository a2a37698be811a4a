//! How packets are written down: pcapng for files, pcap for streams.

/// The link type of packets that begin with their IP header (LINKTYPE_RAW).
const RAW: u32 = 101;
/// No packet is longer.
const LENGTH_MAX: u32 = 65_535;

/// A format that programs read captures in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// pcapng (draft-ietf-opsawg-pcapng), which names the interface.
    PcapNg,
    /// The older pcap (draft-ietf-opsawg-pcap), which every program reads.
    Pcap,
    /// Nothing but the packets, for a network interface; [`crate::split`] tells them from each other.
    Bare,
}

impl CaptureFormat {
    /// Appends what comes before the first packet.
    pub fn begin(self, interface: &str, out: &mut Vec<u8>) {
        match self {
            CaptureFormat::PcapNg => {
                // Section header: byte order, version 1.0, and a length of the section that is not known.
                let mut section = Vec::new();
                section.extend_from_slice(&0x1a2b_3c4du32.to_le_bytes());
                section.extend_from_slice(&[1, 0, 0, 0]);
                section.extend_from_slice(&u64::MAX.to_le_bytes());
                option(4, b"penstock", &mut section);
                option(0, &[], &mut section);
                block(0x0a0d_0d0a, &[&section], out);
                // Interface description: link type, and no limit; times are in microseconds unless it says otherwise.
                let mut described = Vec::new();
                described.extend_from_slice(&RAW.to_le_bytes());
                described.extend_from_slice(&0u32.to_le_bytes());
                option(2, interface.as_bytes(), &mut described);
                option(0, &[], &mut described);
                block(1, &[&described], out);
            }
            CaptureFormat::Pcap => {
                out.extend_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
                out.extend_from_slice(&[2, 0, 4, 0]);
                out.extend_from_slice(&[0; 8]);
                out.extend_from_slice(&LENGTH_MAX.to_le_bytes());
                out.extend_from_slice(&RAW.to_le_bytes());
            }
            CaptureFormat::Bare => {}
        }
    }
    /// Appends a packet, in two parts, with its time in microseconds since 1970.
    pub fn packet(self, unix_us: u64, headers: &[u8], payload: &[u8], out: &mut Vec<u8>) {
        let length = (headers.len() + payload.len()) as u32;
        match self {
            CaptureFormat::PcapNg => {
                let mut fixed = [0; 20];
                fixed[4..8].copy_from_slice(&((unix_us >> 32) as u32).to_le_bytes());
                fixed[8..12].copy_from_slice(&(unix_us as u32).to_le_bytes());
                fixed[12..16].copy_from_slice(&length.to_le_bytes());
                fixed[16..20].copy_from_slice(&length.to_le_bytes());
                block(6, &[&fixed, headers, payload], out);
            }
            CaptureFormat::Pcap => {
                out.extend_from_slice(&((unix_us / 1_000_000) as u32).to_le_bytes());
                out.extend_from_slice(&((unix_us % 1_000_000) as u32).to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(headers);
                out.extend_from_slice(payload);
            }
            CaptureFormat::Bare => {
                out.extend_from_slice(headers);
                out.extend_from_slice(payload);
            }
        }
    }
}

/// A block of pcapng: type, length, contents to a multiple of four bytes, and the length again.
fn block(kind: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let contents: usize = parts.iter().map(|part| part.len()).sum();
    let padding = contents.next_multiple_of(4) - contents;
    let length = (12 + contents + padding) as u32;
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(out.len() + padding, 0);
    out.extend_from_slice(&length.to_le_bytes());
}

fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_pcapng_follow_each_other_and_are_whole() {
        let mut out = Vec::new();
        CaptureFormat::PcapNg.begin("copy", &mut out);
        CaptureFormat::PcapNg.packet(0x1_0000_0002, b"abcde", b"fg", &mut out);
        let mut kinds = Vec::new();
        let mut rest = &out[..];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(rest[length - 4..length], rest[4..8], "the length stands at both ends");
            kinds.push(u32::from_le_bytes(rest[..4].try_into().unwrap()));
            if kinds.len() == 3 {
                assert_eq!(&rest[12..28], &[1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0]);
                assert_eq!(&rest[28..36], b"abcdefg\0");
            }
            rest = &rest[length..];
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6]);
    }

    #[test]
    fn a_packet_of_pcap_has_its_time_and_length() {
        let mut out = Vec::new();
        CaptureFormat::Pcap.begin("copy", &mut out);
        assert_eq!(out.len(), 24);
        CaptureFormat::Pcap.packet(3_000_004, b"ab", b"c", &mut out);
        assert_eq!(&out[24..], b"\x03\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0abc");
    }
}
