//! Socket options that neither rustix nor socket2 sets.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// TCP_DEFER_ACCEPT: a connection is handed out once its first bytes are there, or after `seconds`.
pub fn set_defer_accept(socket: BorrowedFd<'_>, seconds: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// TCP_FASTOPEN on a listening socket: data in the SYN, for at most `queue` connections not yet handed out.
pub fn set_fast_open(socket: BorrowedFd<'_>, queue: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// IP_BIND_ADDRESS_NO_PORT: a port is chosen when connecting, so that many destinations can share it.
pub fn set_bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` outlives the call and is `size` bytes long; the descriptor is open while it is borrowed.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&value).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
