//! TUN devices: a network interface whose packets a program reads and writes.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// Makes a device of this name in the network namespace of the calling thread; it goes when the descriptor is closed. Each
/// read is one IP packet, and so is each write.
///
/// # Errors
///
/// If the name is too long or taken, the kernel has no TUN, or the caller lacks CAP_NET_ADMIN.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = crate::interface::request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel reads and writes an ifreq, which `request` is.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(file.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_name_is_refused() {
        for name in ["", "sixteen-letters-"] {
            let refused = open(name);
            // Where there is no /dev/net/tun, that is said first.
            assert!(refused.is_err(), "{name}");
        }
    }
}
