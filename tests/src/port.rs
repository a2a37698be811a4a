//! Ports that nobody else on the machine takes between choosing them and the proxy binding them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

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

/// Whether some process listens on this TCP port, read from the kernel's table: connecting would leave a log line.
pub fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        std::fs::read_to_string(table).is_ok_and(|text| {
            text.lines().skip(1).any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().unwrap_or_default();
                let state = words.nth(1).unwrap_or_default();
                // 0A is TCP_LISTEN.
                state == "0A" && local.rsplit(':').next().and_then(|p| u16::from_str_radix(p, 16).ok()) == Some(port)
            })
        })
    })
}
