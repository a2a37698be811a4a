//! Passes listening sockets from one process to the next, over a unix socket. It speaks HAProxy's protocol
//! (`_getsocks`), so that either program can take over from the other: the number of sockets, then batches of
//! descriptors with a record for each. Every batch is acknowledged, which bounds how many are in flight.

use super::namespaces::Namespaces;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::SockRef;
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

/// The command that asks a stats socket for its process's listening sockets.
const REQUEST: &[u8] = b"_getsocks\n";

/// Most sockets that are accepted: 64 threads on a thousand ports.
const SOCKETS_MAX: usize = 1 << 16;

/// Descriptors per message; the kernel allows 253, HAProxy 252.
const BATCH: usize = 252;

/// The smallest record: the name of a network namespace and that of an interface, each after its length, and four
/// unused bytes. Everything else about a socket is read from the socket itself; HAProxy takes the interface from here.
const RECORD_MIN: usize = 1 + 1 + 4;
const RECORD_MAX: usize = RECORD_MIN + 2 * u8::MAX as usize;

/// How long an old process may take for each step.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How long a process that asks may take for each step: this process waits for it when it is asked to end.
const QUESTION_PATIENCE: Duration = Duration::from_secs(1);

/// Asks the process behind a stats socket for its listening sockets.
///
/// # Errors
///
/// If it cannot be reached, does not answer in time, or answers something else.
pub fn ask(path: &Path) -> io::Result<Vec<OwnedFd>> {
    let mut stream = UnixStream::connect(path)?;
    be_patient(&stream, ANSWER_PATIENCE)?;
    stream.write_all(REQUEST)?;
    take(&stream)
}

/// Sends copies of the sockets to a client of a stats socket that has asked for them.
///
/// # Errors
///
/// If the client is gone, or too slow.
pub fn answer(stream: &UnixStream, sockets: &[OwnedFd], namespaces: &Namespaces) -> io::Result<()> {
    be_patient(stream, QUESTION_PATIENCE)?;
    give(stream, sockets, namespaces)
}

fn be_patient(stream: &UnixStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// Sends copies of the sockets, with the names of their namespaces as far as those are known: HAProxy goes by them.
///
/// # Errors
///
/// If the peer is gone, or does not acknowledge.
pub fn give(mut stream: &UnixStream, sockets: &[impl AsFd], namespaces: &Namespaces) -> io::Result<()> {
    let count = i32::try_from(sockets.len()).map_err(|_| invalid("more sockets than can be counted".into()))?;
    stream.write_all(&count.to_ne_bytes())?;
    for batch in sockets.chunks(BATCH) {
        let descriptors: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        let records: Vec<u8> = descriptors.iter().flat_map(|socket| record(socket, namespaces)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(stream, &[IoSlice::new(&records)], &mut control, SendFlags::NOSIGNAL)
        })?;
        // The descriptors were sent with the first byte.
        stream.write_all(&records[sent..])?;
        stream.read_exact(&mut [0; size_of::<i32>()])?;
    }
    Ok(())
}

/// Receives what [`give`] sends.
///
/// # Errors
///
/// If the peer is gone, or sends something other than it announced.
pub fn take(mut stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut count = [0; size_of::<i32>()];
    stream.read_exact(&mut count)?;
    let announced = i32::from_ne_bytes(count);
    let count = usize::try_from(announced).ok().filter(|&count| count <= SOCKETS_MAX);
    let count =
        count.ok_or_else(|| invalid(format!("{announced} sockets were announced, {SOCKETS_MAX} are the most")))?;
    let mut sockets = Vec::new();
    let mut records = Vec::new();
    let mut bytes = vec![0; BATCH * RECORD_MAX];
    while sockets.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                sockets.extend(descriptors);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(invalid(
                "there are not enough descriptors for the sockets: raise the limit (ulimit -n)".into(),
            ));
        }
        if received.bytes == 0 || sockets.len() > count {
            return Err(invalid(format!("{count} sockets were announced, and {} came", sockets.len())));
        }
        records.extend_from_slice(&bytes[..received.bytes]);
        if records.len() > count * RECORD_MAX {
            return Err(invalid("the sockets come with more text than they can have".into()));
        }
        let acknowledged = stream.write_all(&(sockets.len() as i32).to_ne_bytes());
        // HAProxy closes the connection without waiting for the last acknowledgement.
        if sockets.len() < count {
            acknowledged?;
        }
    }
    recognisable(sockets, &records)
}

/// The record of a socket.
fn record(socket: &BorrowedFd<'_>, namespaces: &Namespaces) -> Vec<u8> {
    // What the file system names is shorter (NAME_MAX is 255).
    let namespace = namespaces.name_of(socket).unwrap_or_default().as_bytes();
    let namespace = &namespace[..namespace.len().min(u8::MAX.into())];
    // Only sockets of the network have an interface.
    let interface = SockRef::from(socket).device().ok().flatten().unwrap_or_default();
    let length = u8::try_from(interface.len()).expect("IFNAMSIZ is 16");
    [&[namespace.len() as u8], namespace, &[length], &interface[..], &[0; 4]].concat()
}

/// Keeps the sockets whose network namespace the kernel tells, or that belong to this one, and closes the others.
fn recognisable(sockets: Vec<OwnedFd>, mut records: &[u8]) -> io::Result<Vec<OwnedFd>> {
    let mut kept = Vec::with_capacity(sockets.len());
    for socket in sockets {
        let namespace = text(&mut records);
        let interface = text(&mut records);
        let (Some(namespace), Some(_), Some((_, rest))) = (namespace, interface, records.split_at_checked(4)) else {
            return Err(invalid("the sockets came without what describes them".into()));
        };
        records = rest;
        if namespace.is_empty() || penstock_sys::namespace_of(socket.as_fd()).is_some() {
            kept.push(socket);
        }
    }
    Ok(kept)
}

/// Reads a text that follows its length.
fn text<'a>(records: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = records.split_first()?;
    let (text, rest) = rest.split_at_checked(length.into())?;
    *records = rest;
    Some(text)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::fd::AsRawFd, thread};

    fn listener() -> OwnedFd {
        TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    /// Runs [`take`] on what a peer sends: a count, then the bytes of `records` with `sockets` descriptors.
    fn taken(count: i32, sockets: usize, records: &[u8]) -> Result<usize, String> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&count.to_ne_bytes()).unwrap();
        let listener = listener();
        let sockets = vec![listener.as_fd(); sockets];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(&ours, &[IoSlice::new(records)], &mut control, SendFlags::empty()).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        take(&theirs).map(|sockets| sockets.len()).map_err(|e| e.to_string())
    }

    #[test]
    fn sockets_arrive_as_they_are_however_many() {
        for count in [0, 1, BATCH, BATCH + 48] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let listener = listener();
            let sockets: Vec<_> = (0..count).map(|_| listener.as_fd()).collect();
            let given = thread::scope(|scope| {
                let given = scope.spawn(|| give(&ours, &sockets, &Namespaces::default()));
                let taken = take(&theirs).unwrap();
                assert_eq!(taken.len(), count);
                for socket in taken {
                    assert_ne!(socket.as_raw_fd(), listener.as_raw_fd());
                    assert!(rustix::io::fcntl_getfd(&socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
                    let address = |socket| rustix::net::getsockname(socket).unwrap();
                    assert_eq!(address(socket.as_fd()), address(listener.as_fd()));
                }
                given.join().unwrap()
            });
            given.unwrap();
        }
    }

    #[test]
    fn a_peer_may_leave_without_the_last_acknowledgement() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&1i32.to_ne_bytes()).unwrap();
        let listener = listener();
        let sockets = [listener.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(&ours, &[IoSlice::new(&[0; 6])], &mut control, SendFlags::empty()).unwrap();
        drop(ours);
        assert_eq!(take(&theirs).unwrap().len(), 1);
    }

    #[test]
    fn what_was_not_announced_is_not_taken() {
        assert_eq!(taken(2, 2, &[0; 12]), Ok(2));
        let elsewhere = b"\x02ns\x00____\x00\x04eth0____";
        assert_eq!(taken(2, 2, elsewhere), Ok(2), "one in another namespace is known by the number of that");
        for (count, sockets, records, why) in [
            (-1, 1, &[0; 6][..], "-1 sockets were announced, 65536 are the most"),
            (1 << 17, 1, &[0; 6], "131072 sockets were announced"),
            (1, 2, &[0; 12], "1 sockets were announced, and 2 came"),
            (3, 2, &[0; 12], "3 sockets were announced, and 2 came"),
            (2, 2, &[0; 7], "without what describes them"),
            (1, 1, b"\xff____", "without what describes them"),
        ] {
            let refused = taken(count, sockets, records).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_peer_that_leaves_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(take(&ours).is_err());
        assert!(give(&ours, &[listener()], &Namespaces::default()).is_err());
    }
}
