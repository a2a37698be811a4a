//! Other processes that listen: identifies them, and takes their sockets over when told to (`-sf`, `-st`).
//!
//! A socket of another process is copied with pidfd_getfd(2), which the system permits to processes that may trace that
//! one: root with CAP_SYS_PTRACE, or the same user if `kernel.yama.ptrace_scope` is 0 and the process has not changed
//! its user. Otherwise `-x` takes over, which only needs access to the stats socket.

use rustix::{
    net::sockopt::socket_peercred,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsStr,
    fs, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
};

/// TCP_LISTEN in /proc/net/tcp, and __SO_ACCEPTCON in /proc/net/unix.
const TCP_LISTENS: &str = "0A";
const UNIX_ACCEPTS: u32 = 1 << 16;

/// Copies of the listening sockets of these processes and their children; a socket that several share is copied once.
///
/// # Errors
///
/// A sentence for each process whose sockets cannot be copied.
pub fn sockets_of(pids: &[i32]) -> (Vec<OwnedFd>, Vec<String>) {
    let (mut sockets, mut refused, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let family = pids.iter().flat_map(|&pid| std::iter::once(pid).chain(children(pid)));
    for pid in family.collect::<Vec<_>>() {
        if let Err(e) = take(pid, &mut seen, &mut sockets)
            && e.kind() != io::ErrorKind::NotFound
        {
            refused.push(format!(
                "cannot take the listening sockets of process {pid} over ({e}): connections waiting in them may be lost"
            ));
        }
    }
    (sockets, refused)
}

fn take(pid: i32, seen: &mut HashSet<u64>, sockets: &mut Vec<OwnedFd>) -> io::Result<()> {
    let process = Path::new("/proc").join(pid.to_string());
    // An address in another network namespace is a different address.
    if fs::read_link(process.join("ns/net"))? != fs::read_link("/proc/self/ns/net")? {
        return Ok(());
    }
    let listening = listening();
    let handle = pidfd_open(Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    for entry in fs::read_dir(process.join("fd"))?.flatten() {
        let Some(inode) = fs::read_link(entry.path()).ok().and_then(|link| socket(link.as_os_str())) else { continue };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| listening.contains_key(&inode) && !seen.contains(&inode)) {
            match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
                Ok(socket) => {
                    sockets.push(socket);
                    seen.insert(inode);
                }
                // It was closed meanwhile.
                Err(rustix::io::Errno::BADF) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

/// The process that listens on a TCP port or a unix socket, such as `1234 (haproxy)`.
pub fn owner(address: &str) -> Option<(i32, String)> {
    let pid = if address.starts_with('/') {
        socket_peercred(UnixStream::connect(address).ok()?).ok()?.pid.as_raw_nonzero().get()
    } else {
        let port = address.rsplit(':').next()?.parse().ok()?;
        let inodes: Vec<u64> =
            listening().into_iter().filter(|(_, found)| *found == Some(port)).map(|(inode, _)| inode).collect();
        let holds = |pid: &i32| {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
            links.any(|link| socket(link.as_os_str()).is_some_and(|inode| inodes.contains(&inode)))
        };
        processes().find(holds)?
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim_end().to_owned()))
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The children of this process.
fn children(pid: i32) -> Vec<i32> {
    let parent = |child: &i32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        // The name before it may contain anything.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
    };
    processes().filter(|child| parent(child) == Some(pid)).collect()
}

/// The inode in `socket:[123]`.
fn socket(link: &OsStr) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The listening sockets of this network namespace: their inodes, and their ports if they have one.
fn listening() -> BTreeMap<u64, Option<u16>> {
    let read = |name: &str| fs::read_to_string(Path::new("/proc/self/net").join(name)).unwrap_or_default();
    let mut found = BTreeMap::new();
    for table in [read("tcp"), read("tcp6")] {
        found.extend(table.lines().filter_map(tcp_line).map(|(inode, port)| (inode, Some(port))));
    }
    found.extend(read("unix").lines().filter_map(unix_line).map(|inode| (inode, None)));
    found
}

fn tcp_line(line: &str) -> Option<(u64, u16)> {
    let mut fields = line.split_whitespace().skip(1);
    let port = u16::from_str_radix(fields.next()?.rsplit(':').next()?, 16).ok()?;
    let listens = fields.nth(1)? == TCP_LISTENS;
    let inode = fields.nth(5)?.parse().ok()?;
    listens.then_some((inode, port))
}

fn unix_line(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace().skip(3);
    let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(2)?.parse().ok()?;
    (flags & UNIX_ACCEPTS != 0).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::fd::AsRawFd};

    #[test]
    fn a_listening_socket_is_found_with_its_port_and_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inode =
            socket(fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap().as_os_str()).unwrap();
        assert_eq!(listening().get(&inode), Some(&Some(address.port())));
        assert_eq!(owner(&address.to_string()).unwrap().0, std::process::id() as i32);
        let connected = std::net::TcpStream::connect(address).unwrap();
        let inode =
            socket(fs::read_link(format!("/proc/self/fd/{}", connected.as_raw_fd())).unwrap().as_os_str()).unwrap();
        assert_eq!(listening().get(&inode), None);
    }

    #[test]
    fn sockets_are_copied_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _same = listener.try_clone().unwrap();
        let (sockets, refused) = sockets_of(&[std::process::id() as i32]);
        assert_eq!(refused, [""; 0]);
        let port = |socket: &OwnedFd| {
            rustix::net::getsockname(socket).ok().and_then(|a| std::net::SocketAddr::try_from(a).ok())
        };
        assert_eq!(sockets.iter().filter(|socket| port(socket) == Some(listener.local_addr().unwrap())).count(), 1);
    }

    #[test]
    fn lines_of_the_system_are_understood() {
        let tcp = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0";
        assert_eq!(tcp_line(tcp), Some((4242, 0x1f90)));
        assert_eq!(tcp_line(&tcp.replace(" 0A ", " 01 ")), None);
        assert_eq!(unix_line("0000000000000000: 00000002 00000000 00010000 0001 01 777 /run/a"), Some(777));
        assert_eq!(unix_line("0000000000000000: 00000003 00000000 00000000 0001 03 778"), None);
        assert!(tcp_line("").is_none() && unix_line("Num RefCount Protocol Flags Type St Inode Path").is_none());
    }
}
