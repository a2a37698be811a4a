//! Log targets: UDP, a unix datagram socket, a descriptor, a ring.

use super::{
    header::{Clock, Line},
    ring::Sink,
};
use penstock_config::{
    Diagnostics,
    model::{LogAddress, LogTarget, LogTransport},
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketAddrUnix, sendmmsg},
};
use std::{
    io::{IoSlice, Write as _},
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// One `log` line of the configuration.
pub(crate) struct Target {
    address: Address,
    line: LogTarget,
    sample: Option<Sample>,
    /// Whether lines of equal length may be sent as one message; cleared once that turns out not to work.
    parts: AtomicBool,
    pub dropped: AtomicU64,
    /// Whether the terminal was told that it cannot be reached.
    told: AtomicBool,
}

enum Address {
    Datagram(SocketAddrAny, Option<OwnedFd>),
    Stream(Option<Stream>),
    Ring(Arc<Sink>),
    /// An address without a meaning: its lines are lost.
    Nowhere,
}

/// A descriptor that workers share: one writes at a time, and the unwritten part of a line is written first next time.
struct Stream {
    number: i32,
    rest: Mutex<Vec<u8>>,
}

impl Target {
    /// Prepares a target; an address that cannot be resolved is added to `diagnostics`.
    pub fn new(line: &LogTarget, rings: &[Arc<Sink>], diagnostics: &mut Diagnostics) -> Self {
        let mut line = line.clone();
        let address = match &line.address {
            LogAddress::Udp(host, port) => {
                match (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut a| a.next()) {
                    Some(address) => {
                        let domain = socket2::Domain::for_address(address);
                        Address::Datagram(any(address), datagram(domain))
                    }
                    None => {
                        let finding =
                            diagnostics.error(line.span, format!("the address '{host}' of a log cannot be resolved"));
                        finding.hint("give its IP address");
                        Address::Nowhere
                    }
                }
            }
            LogAddress::Unix(path) => match SocketAddrUnix::new(path) {
                Ok(address) => Address::Datagram(address.into(), datagram(socket2::Domain::UNIX)),
                Err(_) => Address::Nowhere,
            },
            LogAddress::Fd(number) => Address::Stream(Stream::new(*number)),
            LogAddress::Ring(name) => match rings.iter().find(|ring| ring.name == *name) {
                Some(ring) => {
                    if ring.format != LogTransport::Usual {
                        line.format = ring.format;
                    }
                    Address::Ring(ring.clone())
                }
                None => Address::Nowhere,
            },
        };
        Target {
            parts: AtomicBool::new(matches!(line.address, LogAddress::Udp(..))),
            address,
            sample: line.sample.as_deref().and_then(Sample::parse),
            line,
            dropped: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }
    /// Says on the terminal, once, why no line can be sent: whoever mistyped the path of a socket would find an empty log.
    fn tell(&self, why: Errno) {
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let to = match &self.line.address {
            LogAddress::Udp(host, port) => format!("{host}:{port}"),
            LogAddress::Unix(path) => path.display().to_string(),
            // Neither is sent to by datagrams.
            LogAddress::Fd(_) | LogAddress::Ring(_) => return,
        };
        // If standard error is closed, there is no reader.
        let _ = writeln!(
            std::io::stderr(),
            "[ALERT]    ({}) : log lines for {to} are lost: {}",
            std::process::id(),
            std::io::Error::from(why)
        );
    }
    /// The number of a stream's descriptor.
    pub fn descriptor(&self) -> Option<i32> {
        match self.line.address {
            LogAddress::Fd(number) => Some(number),
            _ => None,
        }
    }
    /// The severity with which a line of `severity` is sent, or `None` if the target does not want it.
    pub fn severity(&self, severity: u8) -> Option<u8> {
        (severity <= self.line.level).then(|| severity.max(self.line.minlevel))
    }
}

/// Makes a socket that never blocks.
fn datagram(domain: socket2::Domain) -> Option<OwnedFd> {
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.nonblocking().cloexec(), None).ok()?;
    // Nothing is ever read from it, so replies need no memory.
    let _ = socket.set_recv_buffer_size(0);
    Some(socket.into())
}

fn any(address: SocketAddr) -> SocketAddrAny {
    address.into()
}

impl Stream {
    fn new(number: i32) -> Option<Stream> {
        let stream = Stream { number, rest: Mutex::default() };
        let flags = stream.with_fd(|fd| fcntl_getfl(fd))?.ok()?;
        stream.with_fd(|fd| fcntl_setfl(fd, flags | OFlags::NONBLOCK))?.ok()?;
        Some(stream)
    }
    /// Calls `use_it` with the descriptor. The standard streams are borrowed from the library; any other number was
    /// inherited, and is opened again by its name.
    fn with_fd<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        match self.number {
            1 => Some(use_it(std::io::stdout().as_fd())),
            2 => Some(use_it(std::io::stderr().as_fd())),
            number => {
                let fd = penstock_sys::adopt(number).ok()?;
                let result = use_it(fd.as_fd());
                // The descriptor belongs to the process that started us.
                let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
                Some(result)
            }
        }
    }
    /// Writes `lines` and returns whether that succeeded; if only in part, the rest of the line that was cut is written
    /// first next time.
    fn write(&self, lines: &[u8]) -> bool {
        let mut rest = self.rest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let write = |bytes: &[u8]| self.with_fd(|fd| rustix::io::write(fd, bytes)).and_then(Result::ok).unwrap_or(0);
        if !rest.is_empty() {
            let written = write(&rest);
            rest.drain(..written);
            if !rest.is_empty() {
                return false;
            }
        }
        let written = write(lines);
        if written == 0 {
            return false;
        }
        if written < lines.len() && lines[written - 1] != b'\n' {
            let end = memchr::memchr(b'\n', &lines[written..]).map_or(lines.len(), |at| written + at + 1);
            rest.extend_from_slice(&lines[written..end]);
        }
        written == lines.len()
    }
}

/// One worker's lines for one target.
pub(crate) struct Outlet {
    pub target: Arc<Target>,
    lines: Vec<u8>,
    /// The offset at which each line in `lines` ends.
    ends: Vec<u32>,
}

/// Lines sent by one system call.
const BATCH: usize = 32;

/// The most bytes in a message that the kernel splits into datagrams: it has a UDP header until then, so it must fit
/// into one datagram.
const PARTED_MAX: usize = 60_000;

/// The most bytes that a worker holds for a target within one turn.
const HELD_MAX: usize = 256 * 1024;

impl Outlet {
    pub fn new(target: Arc<Target>) -> Self {
        Outlet { target, lines: Vec::new(), ends: Vec::new() }
    }
    pub fn add(&mut self, clock: &Clock, line: Line<'_>) {
        if self.target.sample.as_ref().is_some_and(|sample| !sample.take()) {
            return;
        }
        let conf = &self.target.line;
        line.write(clock, conf.format, conf.facility, conf.len as usize, &mut self.lines);
        self.ends.push(self.lines.len() as u32);
        if self.lines.len() > HELD_MAX {
            self.flush();
        }
    }
    pub fn flush(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let lost = match &self.target.address {
            Address::Datagram(address, Some(socket)) => self.send_datagrams(address, socket),
            Address::Stream(Some(stream)) if stream.write(&self.lines) => 0,
            Address::Ring(ring) => {
                ring.write((0..self.ends.len()).map(|index| &self.lines[self.line(index)]));
                0
            }
            _ => self.ends.len(),
        };
        if lost > 0 {
            self.target.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        }
        self.lines.clear();
        self.ends.clear();
    }
    /// Sends every line as a datagram; returns how many were lost.
    fn send_datagrams(&self, address: &SocketAddrAny, socket: &OwnedFd) -> usize {
        let (mut lost, mut sent) = (0, 0);
        while sent < self.ends.len() {
            let run = if self.target.parts.load(Ordering::Relaxed) { self.run_of_equals(sent) } else { 1 };
            if run > 1 {
                match self.send_parted(address, socket, sent..sent + run) {
                    Ok(failed) => {
                        lost += failed;
                        sent += run;
                        continue;
                    }
                    Err(CannotPart) => self.target.parts.store(false, Ordering::Relaxed),
                }
            }
            let single = self.singles(sent);
            lost += self.send_each(address, socket, sent..sent + single);
            sent += single;
        }
        lost
    }
    /// The position of a line.
    fn line(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        start..self.ends[index] as usize
    }
    /// How many lines from `first` on have the same length, and so can be sent as parts of one message. Lines of one
    /// turn often differ only in their digits.
    fn run_of_equals(&self, first: usize) -> usize {
        let len = self.line(first).len();
        let most = penstock_sys::SEGMENTS_MAX.min(PARTED_MAX / len.max(1)).min(self.ends.len() - first);
        (1..most).find(|after| self.line(first + after).len() != len).unwrap_or(most).max(1)
    }
    /// How many lines from `first` on are sent one by one, up to a batch.
    fn singles(&self, first: usize) -> usize {
        let most = BATCH.min(self.ends.len() - first);
        let parts = self.target.parts.load(Ordering::Relaxed);
        (1..most).find(|after| parts && self.run_of_equals(first + after) > 1).unwrap_or(most)
    }
    /// Sends lines of equal length as one message that the kernel splits into datagrams; returns how many were lost.
    fn send_parted(
        &self,
        address: &SocketAddrAny,
        socket: &OwnedFd,
        lines: std::ops::Range<usize>,
    ) -> Result<usize, CannotPart> {
        let bytes = &self.lines[self.line(lines.start).start..self.line(lines.end - 1).end];
        let segment = u16::try_from(bytes.len() / lines.len()).map_err(|_| CannotPart)?;
        loop {
            match penstock_sys::send_segments(socket, address, bytes, segment) {
                Ok(()) => return Ok(0),
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::INTR) => {}
                    // This error concerns an earlier datagram that had no receiver.
                    Some(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOBUFS) => return Ok(lines.len()),
                    _ => return Err(CannotPart),
                },
            }
        }
    }
    /// Sends up to [`BATCH`] lines, each as a message; returns how many were lost.
    fn send_each(&self, address: &SocketAddrAny, socket: &OwnedFd, lines: std::ops::Range<usize>) -> usize {
        let mut slices = [IoSlice::new(&[]); BATCH];
        for (slice, index) in slices.iter_mut().zip(lines.clone()) {
            *slice = IoSlice::new(&self.lines[self.line(index)]);
        }
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] = Default::default();
        let mut messages: smallvec::SmallVec<[MMsgHdr<'_>; BATCH]> = slices[..lines.len()]
            .iter()
            .zip(&mut controls)
            .map(|(slice, control)| MMsgHdr::new_with_addr(address, std::slice::from_ref(slice), control))
            .collect();
        let (mut sent, mut lost) = (0, 0);
        while sent < messages.len() {
            match sendmmsg(socket, &mut messages[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                // The first of them cannot be sent (too long, no listener); the next ones may be different.
                Err(why @ (Errno::MSGSIZE | Errno::CONNREFUSED)) => {
                    if why == Errno::CONNREFUSED {
                        self.target.tell(why);
                    }
                    sent += 1;
                    lost += 1;
                }
                Err(why) => {
                    if !matches!(why, Errno::AGAIN | Errno::NOBUFS) {
                        self.target.tell(why);
                    }
                    lost += messages.len() - sent;
                    break;
                }
            }
        }
        lost
    }
}

/// The kernel, or the route to a target, cannot split messages.
struct CannotPart;

/// `sample RANGES:SIZE`: of every SIZE lines, those whose position, counted from 1, is in the ranges.
struct Sample {
    ranges: Vec<(u32, u32)>,
    size: u32,
    next: AtomicU32,
}

impl Sample {
    fn parse(text: &str) -> Option<Sample> {
        let (ranges, size) = text.split_once(':')?;
        let ranges = ranges
            .split(',')
            .map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some((first.parse().ok()?, last.parse().ok()?))
            })
            .collect::<Option<_>>()?;
        let size = size.parse().ok().filter(|&size| size > 0)?;
        Some(Sample { ranges, size, next: AtomicU32::new(0) })
    }
    fn take(&self) -> bool {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.size + 1;
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_the_places_it_names() {
        let sample = Sample::parse("1,3-4:5").unwrap();
        let taken: Vec<_> = (0..10).map(|_| sample.take()).collect();
        assert_eq!(taken, [true, false, true, true, false, true, false, true, true, false]);
        assert!(Sample::parse("1:0").is_none() && Sample::parse("x:2").is_none());
    }
}
