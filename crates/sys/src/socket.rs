//! Descriptors that another process opened for us.

use std::{
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
};

/// Takes over an inherited descriptor (`fd@N`). It is checked to be open, and closed when the result is dropped.
///
/// # Errors
/// `EBADF` when it is not open; `InvalidInput` for the standard streams.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a standard stream"));
    }
    // SAFETY: F_GETFD reads no memory and only fails on a closed descriptor.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and a number named in the configuration was opened by our parent for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over an inherited listening socket; the descriptor stays open for others who name it, ours is a duplicate.
///
/// # Errors
/// As [`adopt`], and `InvalidInput` for what is not a listening socket.
pub fn adopt_listener(fd: RawFd) -> io::Result<OwnedFd> {
    let inherited = adopt(fd)?;
    let listening = rustix::net::sockopt::socket_acceptconn(&inherited);
    let copy = rustix::io::fcntl_dupfd_cloexec(&inherited, 3);
    // The number stays valid: another `bind` line, or a worker of the same process, may name it as well.
    std::mem::forget(inherited);
    match listening {
        Ok(true) => Ok(copy?),
        Ok(false) => Err(io::Error::new(io::ErrorKind::InvalidInput, "is a socket that does not listen")),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a socket")),
    }
}

/// Lets the programs that this process starts inherit the descriptor.
///
/// # Errors
/// If fcntl(2) fails, with its error.
pub fn inheritable(fd: impl AsFd) -> io::Result<()> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    #[test]
    fn only_a_listening_socket_is_adopted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let adopted = super::adopt_listener(listener.as_raw_fd()).unwrap();
        assert_ne!(adopted.as_raw_fd(), listener.as_raw_fd());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(super::adopt_listener(file.as_raw_fd()).is_err());
        assert!(super::adopt_listener(1).is_err());
        assert!(super::adopt_listener(9999).is_err());
    }
}
