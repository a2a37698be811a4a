//! Socket options that neither rustix nor socket2 sets.

use std::{
    io, mem,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

/// TCP_DEFER_ACCEPT: a connection is handed out once its first bytes are there, or after `seconds`.
///
/// # Errors
/// If setsockopt(2) fails, with its error.
pub fn set_defer_accept(socket: BorrowedFd<'_>, seconds: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// TCP_FASTOPEN on a listening socket: data in the SYN, for at most `queue` connections not yet handed out.
///
/// # Errors
/// If setsockopt(2) fails, with its error.
pub fn set_fast_open(socket: BorrowedFd<'_>, queue: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// IP_BIND_ADDRESS_NO_PORT: a port is chosen when connecting, so that many destinations can share it.
///
/// # Errors
/// If setsockopt(2) fails, with its error.
pub fn set_bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// TCP_REPAIR: closing the socket sends nothing, and the system forgets the connection.
///
/// # Errors
/// Without the capability CAP_NET_ADMIN, and for what is not TCP.
pub fn forget_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1)
}

/// Sets SO_MARK, and IP_TOS or IPV6_TCLASS, of the connection to `peer`; `None` leaves a field as it is. What is not TCP or UDP has none.
///
/// # Errors
/// If setsockopt(2) fails: a mark needs the capability CAP_NET_ADMIN.
pub fn mark_packets(socket: BorrowedFd<'_>, peer: SocketAddr, mark: Option<u32>, tos: Option<u8>) -> io::Result<()> {
    let set_tos = tos.map_or(Ok(()), |tos| match peer.ip().to_canonical().is_ipv4() {
        true => set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, tos.into()),
        false => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into()),
    });
    let set_mark = mark.map_or(Ok(()), |mark| set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed()));
    set_tos.and(set_mark)
}

/// [`mark_packets`] for the connection whose socket has had the number `socket`; does nothing where that is closed, or another connection's by
/// now.
///
/// # Errors
/// As [`mark_packets`].
pub fn mark_packets_of(socket: RawFd, peer: SocketAddr, mark: Option<u32>, tos: Option<u8>) -> io::Result<()> {
    connected(socket, peer).map_or(Ok(()), |socket| mark_packets(socket, peer, mark, tos))
}

/// The descriptor with the number `socket`, if it is that of a connection to `peer`.
fn connected(socket: RawFd, peer: SocketAddr) -> Option<BorrowedFd<'static>> {
    if socket < 0 {
        return None;
    }
    // SAFETY: the number is that of any descriptor or of none. It is only asked who it is connected to and, within the callers of this
    // function, for or with an option of that connection; none of them keeps it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket) };
    let connected = SocketAddr::try_from(rustix::net::getpeername(borrowed).ok()??).ok()?;
    ((connected.ip().to_canonical(), connected.port()) == (peer.ip().to_canonical(), peer.port())).then_some(borrowed)
}

/// TCP_INFO of the connection to `peer`, whose socket has had the number `socket`; `None` where that is closed, or another
/// connection's by now.
pub fn tcp_info(socket: RawFd, peer: SocketAddr) -> Option<libc::tcp_info> {
    let _ = connected(socket, peer)?;
    // SAFETY: plain numbers, all of which may be zero.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    let room = std::ptr::from_mut(&mut info).cast();
    // SAFETY: `info` is `size` bytes long and outlives the call.
    let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, room, &raw mut size) };
    (result == 0).then_some(info)
}

/// SO_NETNS_COOKIE: the number of the network namespace that the socket belongs to; `None` before Linux 5.14.
pub fn namespace_of(socket: BorrowedFd<'_>) -> Option<u64> {
    let (mut cookie, mut size) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let room = std::ptr::from_mut(&mut cookie).cast();
    // SAFETY: `cookie` is `size` bytes long and outlives the call; the descriptor is open while it is borrowed.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, room, &raw mut size) };
    (result == 0).then_some(cookie)
}

/// SIOCOUTQ: how many bytes the system holds that the peer has not acknowledged; on a unix socket, not read.
///
/// # Errors
/// If ioctl(2) fails, with its error.
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` is what this request writes; the descriptor is open while it is borrowed.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(usize::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` outlives the call and is `size` bytes long; the descriptor is open while it is borrowed.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&value).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
