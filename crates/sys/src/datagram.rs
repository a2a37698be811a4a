//! Many datagrams through the network stack at once.

use rustix::net::SocketAddrAny;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The most datagrams that [`send_segments`] makes in one call.
pub const SEGMENTS_MAX: usize = 64;

/// Sends `bytes` to `to` as UDP datagrams of `segment` bytes each; the last may be shorter. They pass the network stack as one and
/// are separated at its end (`UDP_SEGMENT`, udp(7), Linux 4.18). Never blocks.
///
/// # Errors
/// What sendmsg(2) says: `EINVAL` and `EIO` where the kernel or the route cannot do it, and nothing was sent then.
pub fn send_segments(socket: impl AsFd, to: &SocketAddrAny, bytes: &[u8], segment: u16) -> io::Result<()> {
    /// One control message of two bytes, with the alignment of its header.
    #[repr(C)]
    union Control {
        _align: libc::cmsghdr,
        bytes: [u8; 32],
    }
    let mut control = Control { bytes: [0; 32] };
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid msghdr; the address and the part outlive the call, which only reads through them.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.addr_len();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn every_segment_arrives_as_a_datagram_of_its_own() {
        let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let to = receiver.local_addr().unwrap().into();
        send_segments(&sender, &to, b"onetwosixte", 3).unwrap();
        let mut bytes = [0; 64];
        for expected in ["one", "two", "six", "te"] {
            let len = receiver.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], expected.as_bytes());
        }
    }

    #[test]
    fn what_cannot_be_parted_is_an_error() {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = sender.local_addr().unwrap().into();
        assert!(send_segments(&sender, &to, &[0; 2 * SEGMENTS_MAX * 2 + 2], 1).is_err());
    }
}
