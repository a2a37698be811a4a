//! Network interfaces that packets are sent to as they are (packet(7)).

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// A socket that sends packets to network interfaces. It does not block.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// A network interface, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    index: u32,
    /// The longest packet that it takes, in bytes from the IP header on.
    pub mtu: usize,
}

impl PacketSocket {
    /// Opens a socket in the network namespace of the calling thread; it receives nothing.
    ///
    /// # Errors
    /// Without the capability CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(Self(socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?))
    }
    /// The interface of this name.
    ///
    /// # Errors
    /// If there is none, or it is down.
    pub fn interface(&self, name: &str) -> io::Result<Interface> {
        let index = netdevice::name_to_index(&self.0, name)?;
        let flags = self.ask(name, libc::SIOCGIFFLAGS as _)?;
        // SAFETY: the call has filled in this member.
        let is_up = i32::from(unsafe { flags.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0;
        if !is_up {
            return Err(rustix::io::Errno::NETDOWN.into());
        }
        // SAFETY: as above.
        let mtu = unsafe { self.ask(name, libc::SIOCGIFMTU as _)?.ifr_ifru.ifru_mtu };
        Ok(Interface { index, mtu: usize::try_from(mtu).unwrap_or(0) })
    }
    /// Sends one packet of IPv4 or IPv6, whole, to the station with this address on the interface.
    ///
    /// # Errors
    /// `WouldBlock` while there is no room for it; any other means that the interface has gone, is down, or does not take packets of that size.
    pub fn send(&self, interface: Interface, to: [u8; 6], packet: &[u8]) -> io::Result<()> {
        let protocol =
            if packet.first().is_some_and(|byte| byte >> 4 == 6) { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        // SAFETY: plain numbers, all of which may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = interface.index.cast_signed();
        address.sll_halen = to.len() as u8;
        address.sll_addr[..to.len()].copy_from_slice(&to);
        let size = size_of_val(&address) as libc::socklen_t;
        let address = std::ptr::from_ref(&address).cast();
        // SAFETY: both pointers are valid for the lengths beside them while the call lasts.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, address, size) };
        match usize::try_from(sent) {
            Ok(_) => Ok(()),
            Err(_) => match io::Error::last_os_error() {
                // The queue of the interface is full.
                e if e.raw_os_error() == Some(libc::ENOBUFS) => Err(io::ErrorKind::WouldBlock.into()),
                e => Err(e),
            },
        }
    }
    fn ask(&self, name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
        let mut request = request(name)?;
        // SAFETY: the descriptor is open, and the kernel reads and writes an ifreq, which `request` is.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
    }
}

/// A request about the interface of this name (netdevice(7)).
///
/// # Errors
/// If no interface can have the name.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the structure is valid when zeroed.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // A zero must stay at the end.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a device has 1 to 15 bytes"));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_takes_packets() {
        let Ok(socket) = PacketSocket::open() else {
            eprintln!("left out: sockets of packets need CAP_NET_RAW");
            return;
        };
        let loopback = socket.interface("lo").unwrap();
        assert!(loopback.mtu >= 1_280);
        // IPv4 for an experimental protocol (253), to be discarded by whoever gets it.
        let mut packet = [0; 20];
        (packet[0], packet[3], packet[9]) = (0x45, 20, 253);
        socket.send(loopback, [2, 0, 0, 0, 0, 1], &packet).unwrap();
        let long = vec![0x45; loopback.mtu + 1];
        assert!(socket.send(loopback, [2, 0, 0, 0, 0, 1], &long).is_err());
        assert!(socket.interface("no-such-device").is_err());
        assert!(socket.interface("sixteen-letters-").is_err());
    }
}
