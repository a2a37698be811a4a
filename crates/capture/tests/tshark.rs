//! The real tshark reassembles conversations to the bytes that were said, and finds nothing wrong with their packets.

use penstock_capture::{CaptureFormat, CopiedConversation, CopiedSegment, Endpoints, PACKET_MAX, Speaker, packets};
use std::{path::Path, process::Command};

struct Written {
    format: CaptureFormat,
    bytes: Vec<u8>,
    unix_us: u64,
}

impl Written {
    fn begin(format: CaptureFormat) -> Self {
        let mut bytes = Vec::new();
        format.begin("copy", &mut bytes);
        Written { format, bytes, unix_us: 1_700_000_000_000_000 }
    }
    fn add(&mut self, ends: &Endpoints, segment: &CopiedSegment, data: &[u8]) {
        packets(ends, segment, data, PACKET_MAX, |headers, payload| {
            self.unix_us += 10;
            self.format.packet(self.unix_us, headers, payload, &mut self.bytes);
        });
    }
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(arguments);
    let output = command.output().expect("tshark can be run (scripts/packages.sh test)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What both sides of a stream said, as tshark has put it together.
fn followed(file: &Path, stream: usize) -> (Vec<u8>, Vec<u8>) {
    let text = tshark(file, &["-q", "-z", &format!("follow,tcp,raw,{stream}")]);
    let (mut client, mut server) = (Vec::new(), Vec::new());
    let hex = |line: &str| line.trim().bytes().all(|byte| byte.is_ascii_hexdigit()) && !line.trim().is_empty();
    for line in text.lines().filter(|line| hex(line)) {
        let side = if line.starts_with('\t') { &mut server } else { &mut client };
        let digits = line.trim();
        side.extend((0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()));
    }
    (client, server)
}

fn ends(port: u16, six: bool) -> Endpoints {
    match six {
        false => Endpoints::new(format!("192.0.2.1:{port}").parse().unwrap(), "198.51.100.2:9000".parse().unwrap()),
        true => Endpoints::new(format!("[2001:db8::1]:{port}").parse().unwrap(), "[2001:db8::2]:9000".parse().unwrap()),
    }
}

#[test]
fn tshark_puts_conversations_together_and_finds_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    for format in [CaptureFormat::PcapNg, CaptureFormat::Pcap] {
        let mut written = Written::begin(format);
        let asked: Vec<u8> = (0..30_000u32).map(|at| (at * 7 % 253) as u8).collect();
        let answered: Vec<u8> = (0..100_000u32).map(|at| (at * 11 % 241) as u8).collect();
        // Two at a time, one of each family, and a third over the addresses and ports of the first.
        for (port, seed) in [(40_000, 1), (40_000, 0x8000_0000u32)] {
            let mut talks: Vec<_> = [false, true]
                .map(|six| {
                    let (talk, open) = CopiedConversation::open(seed, seed.wrapping_mul(3));
                    written.add(&ends(port, six), &open, &[]);
                    (ends(port, six), talk)
                })
                .into();
            for piece in asked.chunks(12_345) {
                for (ends, talk) in &mut talks {
                    let segment = talk.data(Speaker::Client, piece.len());
                    written.add(ends, &segment, piece);
                }
            }
            for piece in answered.chunks(17_001) {
                for (ends, talk) in &mut talks {
                    let segment = talk.data(Speaker::Server, piece.len());
                    written.add(ends, &segment, piece);
                }
            }
            for (ends, talk) in &mut talks {
                for speaker in [Speaker::Server, Speaker::Client] {
                    let segment = talk.end(speaker).unwrap();
                    written.add(ends, &segment, &[]);
                }
            }
        }
        let file = folder.path().join("copy");
        std::fs::write(&file, &written.bytes).unwrap();
        for stream in 0..4 {
            let (client, server) = followed(&file, stream);
            assert!(client == asked && server == answered, "stream {stream} of {format:?}");
        }
        assert_eq!(followed(&file, 4), (Vec::new(), Vec::new()), "there are four");
        let checked = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y"];
        let faults = "tcp.checksum.status == 0 || ip.checksum.status == 0 || _ws.malformed || \
            (tcp.analysis.flags && !tcp.analysis.reused_ports)";
        assert_eq!(tshark(&file, &[&checked[..], &[faults]].concat()), "");
        let sums = tshark(&file, &[&checked[..], &["tcp.checksum.status == 1"]].concat()).lines().count();
        let all = tshark(&file, &[]).lines().count();
        assert!(all > 50 && sums == all, "{sums} of {all} checksums are right");
    }
}

#[test]
fn what_was_not_written_is_a_gap_and_the_rest_is_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = Written::begin(CaptureFormat::PcapNg);
    let ends = ends(40_001, false);
    let (mut talk, open) = CopiedConversation::open(5, 6);
    written.add(&ends, &open, &[]);
    let first = talk.data(Speaker::Client, 5);
    written.add(&ends, &first, b"first");
    talk.data(Speaker::Client, 1_000);
    let last = talk.data(Speaker::Client, 4);
    written.add(&ends, &last, b"last");
    for speaker in [Speaker::Client, Speaker::Server] {
        let end = talk.end(speaker).unwrap();
        written.add(&ends, &end, &[]);
    }
    let file = folder.path().join("copy");
    std::fs::write(&file, &written.bytes).unwrap();
    let lost = tshark(&file, &["-Y", "tcp.analysis.lost_segment", "-T", "fields", "-e", "tcp.payload"]);
    assert_eq!(lost.trim(), "6c617374", "the gap is noticed before 'last'");
    let (client, _) = followed(&file, 0);
    assert!(client.starts_with(b"first") && client.ends_with(b"last"));
    assert!(String::from_utf8_lossy(&client).contains("1000 bytes missing"), "{}", String::from_utf8_lossy(&client));
}
