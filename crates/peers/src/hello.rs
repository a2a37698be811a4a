//! The handshake: three lines of whoever connects, and a status line in answer.

use crate::Flaw;

/// The versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerVersion {
    /// 2.0: an entry's age is never told.
    V20,
    /// 2.1.
    V21,
}

/// The first three lines of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that the peer speaks.
    pub version: PeerVersion,
    /// The name of the peer that the hello is for.
    pub to: String,
    /// The name of the peer that says hello.
    pub from: String,
    /// The process id of the peer that says hello.
    pub pid: u64,
}

/// The answer to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum HelloStatus {
    /// The session is open.
    Ok = 200,
    /// Busy: the peer may try again later.
    TryAgain = 300,
    /// The lines are not a handshake.
    Protocol = 501,
    /// The version is not supported.
    Version = 502,
    /// The peer wants to talk to someone else.
    NotMe = 503,
    /// The peer is not known here.
    Unknown = 504,
}

impl HelloStatus {
    const ALL: [HelloStatus; 6] = [
        HelloStatus::Ok,
        HelloStatus::TryAgain,
        HelloStatus::Protocol,
        HelloStatus::Version,
        HelloStatus::NotMe,
        HelloStatus::Unknown,
    ];
}

/// Longest line of a handshake, as in HAProxy.
const LINE_MAX: usize = 256;

impl Hello {
    /// Appends the three lines.
    pub fn write(&self, out: &mut Vec<u8>) {
        let minor = match self.version {
            PeerVersion::V20 => 0,
            PeerVersion::V21 => 1,
        };
        out.extend(format!("HAProxyS 2.{minor}\n{}\n{} {} 1\n", self.to, self.from, self.pid).bytes());
    }
}

/// Reads the lines of a handshake, of which it keeps no more than they may have.
#[derive(Debug, Default)]
pub struct HelloReader {
    lines: Vec<String>,
    line: Vec<u8>,
}

impl HelloReader {
    /// Consumes `input` up to the end of the third line; returns the handshake once it is complete.
    ///
    /// # Errors
    ///
    /// If the lines are not a handshake or ask for an unknown version: the status to answer with.
    pub fn input(&mut self, input: &mut &[u8]) -> Result<Option<Hello>, HelloStatus> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            if byte != b'\n' {
                self.line.push(byte);
                if self.line.len() >= LINE_MAX {
                    return Err(HelloStatus::Protocol);
                }
                continue;
            }
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| HelloStatus::Protocol)?;
            if self.lines.is_empty() {
                version(&line)?;
            }
            self.lines.push(line);
            if self.lines.len() == 3 {
                return self.finish().map(Some);
            }
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Hello, HelloStatus> {
        let lines = std::mem::take(&mut self.lines);
        let [first, to, last] = &lines[..] else { return Err(HelloStatus::Protocol) };
        let mut words = last.split(' ');
        let (Some(from), Some(pid)) = (words.next().filter(|name| !name.is_empty()), words.next()) else {
            return Err(HelloStatus::Protocol);
        };
        let pid = pid.parse().map_err(|_| HelloStatus::Protocol)?;
        Ok(Hello { version: version(first)?, to: to.clone(), from: from.to_owned(), pid })
    }
}

fn version(line: &str) -> Result<PeerVersion, HelloStatus> {
    match line.strip_prefix("HAProxyS ").ok_or(HelloStatus::Protocol)? {
        "2.0" => Ok(PeerVersion::V20),
        "2.1" => Ok(PeerVersion::V21),
        _ => Err(HelloStatus::Version),
    }
}

/// Appends a status line.
pub fn write_status(status: HelloStatus, out: &mut Vec<u8>) {
    out.extend(format!("{}\n", status as u16).bytes());
}

/// Takes a status line off `input`; `None` while it is incomplete.
///
/// # Errors
///
/// If it is not a status of the protocol.
pub fn read_status(input: &mut &[u8]) -> Result<Option<HelloStatus>, Flaw> {
    let Some(line) = input.get(..4) else {
        let started = input.iter().all(u8::is_ascii_digit);
        return if started { Ok(None) } else { Err(Flaw::Hello) };
    };
    let code = std::str::from_utf8(&line[..3]).ok().filter(|_| line[3] == b'\n').and_then(|code| code.parse().ok());
    let status = HelloStatus::ALL.into_iter().find(|status| Some(*status as u16) == code);
    *input = &input[4..];
    status.map(Some).ok_or(Flaw::Hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_hello_is_read_however_it_is_cut() {
        let bytes = b"HAProxyS 2.1\nA\nB 7574 1\n\0\0";
        for cut in 0..bytes.len() {
            let mut reader = HelloReader::default();
            let (mut first, mut second) = bytes.split_at(cut);
            let hello = match reader.input(&mut first).unwrap() {
                Some(hello) => hello,
                None => reader.input(&mut second).unwrap().unwrap(),
            };
            let expected = Hello { version: PeerVersion::V21, to: "A".into(), from: "B".into(), pid: 7574 };
            assert_eq!(hello, expected, "cut at {cut}");
            let mut out = Vec::new();
            expected.write(&mut out);
            assert_eq!(out, &bytes[..out.len()]);
            assert_eq!(first.len() + second.len(), if cut >= out.len() { bytes.len() - out.len() } else { 2 });
        }
    }

    #[test]
    fn what_is_no_handshake_is_refused_with_its_status() {
        let status = |text: &[u8]| HelloReader::default().input(&mut &text[..]).unwrap_err();
        assert_eq!(status(b"GET / HTTP/1.1\r\n"), HelloStatus::Protocol);
        assert_eq!(status(b"HAProxyS 3.0\n"), HelloStatus::Version);
        assert_eq!(status(b"HAProxyS 2.1\nA\nB\n"), HelloStatus::Protocol);
        assert_eq!(status(b"HAProxyS 2.1\nA\nB x 1\n"), HelloStatus::Protocol);
        assert_eq!(status(&[b'x'; 300]), HelloStatus::Protocol);
        assert_eq!(status(b"HAProxyS 2.1\n\xff\n"), HelloStatus::Protocol);
    }

    #[test]
    fn statuses_are_the_six_of_the_specification() {
        for status in HelloStatus::ALL {
            let mut out = Vec::new();
            write_status(status, &mut out);
            for cut in 0..out.len() {
                assert_eq!(read_status(&mut &out[..cut]), Ok(None));
            }
            assert_eq!(read_status(&mut &out[..]), Ok(Some(status)));
        }
        for wrong in [&b"2x"[..], b"999\n", b"200 ", b"GET /"] {
            assert_eq!(read_status(&mut &wrong[..]), Err(Flaw::Hello));
        }
    }
}
