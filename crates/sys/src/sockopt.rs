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

/// TCP_INFO of the connection to `peer`, whose socket has had the number `socket`; `None` where that is closed, or another
/// connection's by now.
pub fn tcp_info(socket: RawFd, peer: SocketAddr) -> Option<libc::tcp_info> {
    if socket < 0 {
        return None;
    }
    // SAFETY: the number is that of any descriptor or of none: it is only asked who it is connected to, and for the option.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket) };
    let connected = SocketAddr::try_from(rustix::net::getpeername(borrowed).ok()??).ok()?;
    if (connected.ip().to_canonical(), connected.port()) != (peer.ip().to_canonical(), peer.port()) {
        return None;
    }
    // SAFETY: plain numbers, all of which may be zero.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    let room = std::ptr::from_mut(&mut info).cast();
    // SAFETY: `info` is `size` bytes long and outlives the call.
    let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, room, &raw mut size) };
    (result == 0).then_some(info)
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
