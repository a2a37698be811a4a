//! A byte stream under a script's control: plain or TLS, at either end, able to half-close and to reset.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use socket2::SockRef;

use crate::Failure;

/// One end of a connection.
pub enum Wire {
    /// TCP in the clear.
    Plain(TcpStream),
    /// A unix stream socket.
    Unix(UnixStream),
    /// TLS, client's end.
    TlsClient(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// TLS, server's end.
    TlsServer(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Wire {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Wire::Plain(s) => Some(s),
            Wire::Unix(_) => None,
            Wire::TlsClient(s) => Some(&s.sock),
            Wire::TlsServer(s) => Some(&s.sock),
        }
    }

    /// Bounds each read.
    pub fn set_read_timeout(&self, patience: Duration) -> io::Result<()> {
        match self {
            Wire::Unix(s) => s.set_read_timeout(Some(patience)),
            _ => self.tcp().expect("only unix has no TCP socket").set_read_timeout(Some(patience)),
        }
    }

    /// Says that nothing more will be sent; reading goes on. TLS says so with a close_notify first.
    pub fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Wire::TlsClient(s) => {
                s.conn.send_close_notify();
                s.flush()?;
            }
            Wire::TlsServer(s) => {
                s.conn.send_close_notify();
                s.flush()?;
            }
            _ => {}
        }
        match self {
            Wire::Unix(s) => s.shutdown(Shutdown::Write),
            _ => self.tcp().expect("only unix has no TCP socket").shutdown(Shutdown::Write),
        }
    }

    /// Closes so that the peer receives a RST: linger of zero discards what is unsent.
    pub fn reset(self) {
        if let Some(socket) = self.tcp() {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }

    /// Closes without a RST: what the peer still sends is read until it closes too, for at most two seconds. A socket
    /// closed with bytes unread resets the connection, and whether the peer then sees the last bytes sent is a race.
    pub fn close(mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        let _ = self.shutdown();
        let begun = Instant::now();
        let mut buffer = vec![0; 64 * 1024];
        while let Some(left) = PATIENCE.checked_sub(begun.elapsed()).filter(|l| !l.is_zero()) {
            let _ = match &self {
                Wire::Unix(s) => s.set_read_timeout(Some(left)),
                _ => self.tcp().expect("only unix has no TCP socket").set_read_timeout(Some(left)),
            };
            if !matches!(self.read(&mut buffer), Ok(1..)) {
                return;
            }
        }
    }

    /// Reads until the peer ends, an error, or the read timeout. Says how it ended.
    pub fn read_to_end(&mut self, into: &mut Vec<u8>) -> Ending {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => return Ending::Closed,
                Ok(n) => into.extend_from_slice(&buffer[..n]),
                Err(e) => return Ending::of(&e),
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(s) => s.read(buffer),
            Wire::Unix(s) => s.read(buffer),
            Wire::TlsClient(s) => s.read(buffer),
            Wire::TlsServer(s) => s.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(s) => s.write(bytes),
            Wire::Unix(s) => s.write(bytes),
            Wire::TlsClient(s) => s.write(bytes),
            Wire::TlsServer(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(s) => s.flush(),
            Wire::Unix(s) => s.flush(),
            Wire::TlsClient(s) => s.flush(),
            Wire::TlsServer(s) => s.flush(),
        }
    }
}

/// How the receiving side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A clean end of stream.
    Closed,
    /// A RST, or a TLS stream cut without its close_notify.
    Broken,
    /// Nothing came within the read timeout: the connection is still open.
    Open,
}

impl Ending {
    /// The ending that a read error means.
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ending::Open,
            _ => Ending::Broken,
        }
    }

    /// As a transcript says it.
    pub fn word(self) -> &'static str {
        match self {
            Ending::Closed => "closed",
            Ending::Broken => "broken",
            Ending::Open => "open",
        }
    }
}

/// One line of a connection script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `send TEXT`: with the escapes of [`unescape`].
    Send(Vec<u8>),
    /// `fill N`: sends N bytes of the letter x.
    Fill(usize),
    /// `recv N`: waits for that many bytes and writes them down.
    Receive(usize),
    /// `recv head`: waits for the end of an HTTP head and writes it down.
    ReceiveHead,
    /// `recv end`: reads to the end and writes down what came and how it ended.
    ReceiveEnd,
    /// `count end`: the same for streams too large to write down.
    CountEnd,
    /// `sleep MS`.
    Sleep(u64),
    /// `shutdown`: half-close.
    Shutdown,
    /// `reset`: RST.
    Reset,
    /// `close`.
    Close,
    /// `echo`: returns what comes until the peer half-closes, then ends.
    Echo,
}

impl Verb {
    /// Reads one script line.
    pub fn parse(line: &str) -> Result<Self, Failure> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |what: &str| rest.parse().map_err(|_| format!("{what} needs a number: {line}"));
        Ok(match (verb, rest) {
            ("send", _) => Verb::Send(unescape(rest)?),
            ("fill", _) => Verb::Fill(number("fill")?),
            ("recv", "head") => Verb::ReceiveHead,
            ("recv", "end") => Verb::ReceiveEnd,
            ("count", "end") => Verb::CountEnd,
            ("recv", _) => Verb::Receive(number("recv")?),
            ("sleep", _) => Verb::Sleep(number("sleep")? as u64),
            ("shutdown", "") => Verb::Shutdown,
            ("reset", "") => Verb::Reset,
            ("close", "") => Verb::Close,
            ("echo", "") => Verb::Echo,
            _ => return Err(format!("not a step of a connection script: {line}")),
        })
    }

    /// Reads a whole script; empty lines and comments are left out.
    pub fn script(text: &str) -> Result<Vec<Self>, Failure> {
        text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).map(Self::parse).collect()
    }
}

/// Plays a script on a connection and writes down what was received, one line each.
pub fn play(mut wire: Wire, script: &[Verb], note: &mut dyn FnMut(String)) {
    for verb in script {
        match verb {
            Verb::Send(bytes) => {
                if let Err(e) = wire.write_all(bytes).and_then(|()| wire.flush()) {
                    note(format!("send failed: {}", Ending::of(&e).word()));
                }
            }
            Verb::Fill(count) => {
                let block = vec![b'x'; 64 * 1024];
                let mut left = *count;
                while left > 0 {
                    let n = left.min(block.len());
                    if wire.write_all(&block[..n]).is_err() {
                        note("send failed".to_owned());
                        break;
                    }
                    left -= n;
                }
                let _ = wire.flush();
            }
            Verb::Receive(count) => {
                let mut got = vec![0; *count];
                let mut filled = 0;
                let mut ending = None;
                while filled < *count && ending.is_none() {
                    match wire.read(&mut got[filled..]) {
                        Ok(0) => ending = Some(Ending::Closed),
                        Ok(n) => filled += n,
                        Err(e) => ending = Some(Ending::of(&e)),
                    }
                }
                note(format!("recv {}{}", quote(&canonical(&got[..filled])), ending.map_or("", |_| " and no more")));
            }
            Verb::ReceiveHead => {
                let (mut got, mut byte) = (Vec::new(), [0]);
                while !got.ends_with(b"\r\n\r\n") && matches!(wire.read(&mut byte), Ok(1)) {
                    got.push(byte[0]);
                }
                note(format!("recv {}", quote(&canonical(&got))));
            }
            Verb::ReceiveEnd | Verb::CountEnd => {
                let mut got = Vec::new();
                let ending = wire.read_to_end(&mut got).word();
                if *verb == Verb::CountEnd {
                    note(format!("recv {} bytes, {ending}", got.len()));
                } else {
                    note(format!("recv {}, {ending}", quote(&canonical(&got))));
                }
            }
            Verb::Sleep(milliseconds) => std::thread::sleep(Duration::from_millis(*milliseconds)),
            Verb::Shutdown => {
                let _ = wire.shutdown();
            }
            Verb::Reset => return wire.reset(),
            Verb::Close => return wire.close(),
            Verb::Echo => {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(n @ 1..) = wire.read(&mut buffer) {
                    if wire.write_all(&buffer[..n]).and_then(|()| wire.flush()).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// `\r \n \t \0 \\ \xHH` become the bytes they name.
pub fn unescape(text: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b's') => b' ',
            Some(b'x') => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).map_err(|_| format!("\\x needs two digits: {text}"))?
            }
            _ => return Err(format!("unknown escape in: {text}")),
        });
    }
    Ok(bytes)
}

/// Bytes as a transcript shows them: printable in quotes with escapes, or only their number and a checksum when long.
pub fn quote(bytes: &[u8]) -> String {
    const SHOWN: usize = 600;
    if bytes.len() > SHOWN {
        return format!("{} bytes, checksum {:016x}", bytes.len(), checksum(bytes));
    }
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\\' => text.extend(['\\', byte as char]),
            0x20..=0x7e => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

/// A response head with its names in lower case and its fields sorted by name, as transcripts of `[request]` have them.
fn canonical(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let (Some(end), true) = (end, bytes.starts_with(b"HTTP/1.")) else { return bytes.to_vec() };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let mut done = lines.next().unwrap_or_default().to_owned();
    let mut fields: Vec<String> = lines
        .map(|l| match l.split_once(':') {
            Some((n, v)) if n.eq_ignore_ascii_case("connection") => format!("connection:{}", v.to_ascii_lowercase()),
            Some((n, v)) => format!("{}:{v}", n.to_ascii_lowercase()),
            None => l.to_owned(),
        })
        .collect();
    fields.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
    for field in fields {
        done.push_str("\r\n");
        done.push_str(&field);
    }
    [done.as_bytes(), &bytes[end..]].concat()
}

/// FNV-1a, 64 bits: enough to notice a body that arrives changed.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_read_and_escapes_become_bytes() {
        assert_eq!(
            Verb::script("# first\nsend a\\r\\n\\x00b\n\nrecv 3\nrecv end\nreset\n"),
            Ok(vec![Verb::Send(b"a\r\n\0b".to_vec()), Verb::Receive(3), Verb::ReceiveEnd, Verb::Reset])
        );
        assert!(Verb::parse("sned x").is_err());
        assert!(Verb::parse("send \\q").is_err());
    }

    #[test]
    fn quoting_shows_every_byte_or_a_checksum() {
        assert_eq!(quote(b"a\"\r\n\x01"), "\"a\\\"\\r\\n\\x01\"");
        assert!(quote(&[b'x'; 1000]).starts_with("1000 bytes, checksum "));
    }
}
