//! A network interface: the packets of the copy are sent there, as a switch sends those of a mirrored port.

use penstock_capture::{PACKET_LEAST, PACKET_MAX, split};
use penstock_sys::{Interface, PacketSocket};
use std::io;

pub(super) struct Link {
    name: String,
    to: [u8; 6],
    /// Opened with privileges that the process has no more when it serves.
    socket: PacketSocket,
    open: Option<Interface>,
}

impl Link {
    pub fn new(name: &str, to: [u8; 6]) -> io::Result<Self> {
        let socket = PacketSocket::open()?;
        let mut link = Link { name: name.to_owned(), to, socket, open: None };
        link.open()?;
        Ok(link)
    }
    pub fn open(&mut self) -> io::Result<()> {
        let interface = self.socket.interface(&self.name)?;
        if interface.mtu < PACKET_LEAST {
            let mtu = interface.mtu;
            return Err(io::Error::other(format!("its MTU is {mtu}, and {PACKET_LEAST} is the least that is needed")));
        }
        self.open = Some(interface);
        Ok(())
    }
    /// The longest packet that the interface takes.
    pub fn longest(&self) -> usize {
        self.open.map_or(PACKET_LEAST, |interface| interface.mtu.min(PACKET_MAX))
    }
    /// Whether the interface is what it was.
    pub fn check(&self) -> io::Result<()> {
        let now = self.socket.interface(&self.name)?;
        match self.open {
            Some(then) if then == now => Ok(()),
            Some(_) => Err(io::Error::other("the interface has changed")),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
    /// Sends packets; while the interface has no room for one, `waits` decides whether it is tried again.
    pub fn write(&mut self, packets: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let Some(interface) = self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        for packet in split(packets) {
            while let Err(e) = self.socket.send(interface, self.to, packet) {
                match e.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock if waits() => {}
                    // If the interface has changed, that is why.
                    _ => return self.check().and(Err(e)),
                }
            }
        }
        Ok(())
    }
    pub fn close(&mut self) {
        self.open = None;
    }
}
