//! Where a tap's packets go.

use super::{files::Files, link::Link, stream::Stream};
use penstock_capture::{CaptureFormat, PACKET_MAX};
use std::{io, time::Duration};

/// How long an end that takes nothing is left alone.
const PAUSE: Duration = Duration::from_millis(5);

/// An end, open or not.
pub(super) enum End {
    Files(Files),
    Stream(Stream),
    Link(Link),
}

impl End {
    pub fn format(&self) -> CaptureFormat {
        match self {
            End::Files(_) => CaptureFormat::PcapNg,
            End::Stream(stream) => stream.format(),
            End::Link(_) => CaptureFormat::Bare,
        }
    }
    /// The longest packet that it takes.
    pub fn longest(&self) -> usize {
        match self {
            End::Files(_) | End::Stream(_) => PACKET_MAX,
            End::Link(link) => link.longest(),
        }
    }
    /// Opens it; `false` if there is no reader yet.
    pub fn open(&mut self) -> io::Result<bool> {
        match self {
            End::Files(files) => files.open().map(|()| true),
            End::Stream(stream) => stream.open(),
            End::Link(link) => link.open().map(|()| true),
        }
    }
    /// Looks whether it is open and the reader still there, as far as can be seen without writing.
    pub fn check(&mut self) -> io::Result<()> {
        let (is_open, why) = match self {
            End::Files(files) => (files.is_open(), "it is closed"),
            End::Stream(stream) => (stream.is_open(), "its reader has left"),
            End::Link(link) => return link.check(),
        };
        if is_open { Ok(()) } else { Err(io::Error::other(why)) }
    }
    /// Writes whole packets, which begin a new file if the present one is full: `head` comes before its first packet. A reader that takes
    /// nothing is waited for as long as `goes_on`.
    pub fn write(&mut self, head: &[u8], packets: &[u8], goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        match self {
            End::Files(files) => files.write(head, packets),
            End::Stream(stream) => stream.write(head, packets, goes_on),
            End::Link(link) => link.write(packets, &mut || pause(goes_on)),
        }
    }
    pub fn close(&mut self) {
        match self {
            End::Files(files) => files.close(),
            End::Stream(stream) => stream.close(),
            End::Link(link) => link.close(),
        }
    }
    /// Takes no new readers.
    pub fn stop_listening(&mut self) {
        if let End::Stream(stream) = self {
            stream.stop_listening();
        }
    }
}

/// Lets some time pass if it goes on; whether it does.
fn pause(goes_on: &mut dyn FnMut() -> bool) -> bool {
    let is_on = goes_on();
    if is_on {
        std::thread::sleep(PAUSE);
    }
    is_on
}
