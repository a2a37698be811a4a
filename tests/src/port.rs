//! Ports that no other process on the machine takes between choosing them and the proxy binding them.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// A loopback port kept by a bound socket that never listens. `SO_REUSEPORT` is set after the bind, so the choice is
/// exclusive, and yet the proxy, which sets it too, may bind the same port.
pub struct Reserved {
    /// Where the proxy shall listen.
    pub address: SocketAddr,
    hold: Socket,
}

impl Reserved {
    /// Takes a free port of 127.0.0.1.
    pub fn loopback() -> std::io::Result<Self> {
        let hold = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        hold.bind(&SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = hold.local_addr()?.as_socket().expect("an IPv4 socket has an IPv4 address");
        hold.set_reuse_port(true)?;
        Ok(Self { address, hold })
    }

    /// The socket that keeps the port.
    pub fn into_socket(self) -> Socket {
        self.hold
    }

    /// Lets connections pile up unaccepted: once the queue of one is full, the kernel drops further SYNs, which is
    /// how a server that does not answer looks.
    pub fn into_black_hole(self) -> std::io::Result<BlackHole> {
        self.hold.listen(0)?;
        let mut fill = Vec::new();
        for _ in 0..2 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            // EINPROGRESS is the expected outcome; the connection only has to occupy the queue.
            let _ = socket.connect(&self.address.into());
            fill.push(socket);
        }
        Ok(BlackHole { address: self.address, _hold: self.hold, _fill: fill })
    }
}

/// A port where connecting neither succeeds nor fails.
pub struct BlackHole {
    /// Where it is.
    pub address: SocketAddr,
    _hold: Socket,
    _fill: Vec<Socket>,
}

/// Whether some process listens on this TCP port: connecting would leave a log line.
pub fn is_listening(port: u16) -> bool {
    listening().contains(&port)
}

/// The TCP ports that some process listens on, asked of the kernel.
pub fn listening() -> HashSet<u16> {
    diagnosed().unwrap_or_else(|_| tabled())
}

/// By `sock_diag(7)`, which walks listening sockets alone.
fn diagnosed() -> std::io::Result<HashSet<u16>> {
    const NETLINK: i32 = 16;
    const SOCK_DIAG: i32 = 4;
    const DONE: u16 = 3;
    const BY_FAMILY: u16 = 20;
    let mut socket = Socket::new(Domain::from(NETLINK), Type::RAW, Some(Protocol::from(SOCK_DIAG)))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut ports = HashSet::new();
    for family in [2, 10] {
        // A header (length, type, REQUEST and DUMP, sequence, sender), then family, TCP, and the states: LISTEN is 10.
        let mut request = Vec::new();
        request.extend(72_u32.to_ne_bytes());
        request.extend(BY_FAMILY.to_ne_bytes());
        request.extend(0x301_u16.to_ne_bytes());
        request.extend([0; 8]);
        request.extend([family, 6, 0, 0]);
        request.extend((1_u32 << 10).to_ne_bytes());
        request.resize(72, 0);
        socket.write_all(&request)?;
        let mut buffer = vec![0; 65536];
        'answers: loop {
            let length = socket.read(&mut buffer)?;
            let mut rest = &buffer[..length];
            while let [a, b, c, d, e, f, ..] = rest {
                let (length, kind) = (u32::from_ne_bytes([*a, *b, *c, *d]) as usize, u16::from_ne_bytes([*e, *f]));
                match (kind, rest.get(20..22)) {
                    (DONE, _) => break 'answers,
                    (BY_FAMILY, Some(port)) => ports.insert(u16::from_be_bytes([port[0], port[1]])),
                    _ => return Err(std::io::ErrorKind::InvalidData.into()),
                };
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
    Ok(ports)
}

/// By the kernel's table of all sockets, where it answers no such questions.
fn tabled() -> HashSet<u16> {
    let listening = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        // 0A is TCP_LISTEN.
        let port = local.rsplit(':').next().and_then(|p| u16::from_str_radix(p, 16).ok());
        port.filter(|_| words.nth(1) == Some("0A"))
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|t| std::fs::read_to_string(t).unwrap_or_default());
    tables.iter().flat_map(|text| text.lines().filter_map(listening)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_ask_see_who_listens() {
        let reserved = Reserved::loopback().expect("loopback has free ports");
        let port = reserved.address.port();
        assert!(!diagnosed().expect("Linux has sock_diag").contains(&port) && !tabled().contains(&port));
        reserved.hold.listen(1).expect("the port is ours");
        assert!(diagnosed().expect("Linux has sock_diag").contains(&port) && tabled().contains(&port));
    }
}
