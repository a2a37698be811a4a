//! Why there is no device, in one sentence.

use crate::abi::Status;
use std::fmt;

/// What keeps the device from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// None of the libraries is there.
    NoLibrary,
    /// libqat is there, but in another generation: its name.
    Generation(String),
    /// A library is there, but does not load: its name and the loader's reason.
    Unloadable(&'static str, String),
    /// A library lacks a function.
    MissingSymbol(&'static str, &'static str),
    /// Structures do not have the layout they should.
    Layout,
    /// The library sees no device.
    NoDevice,
    /// The library did not start: its status and what it printed.
    NotStarted(Status, String),
    /// The library started, but no instance does public-key work: the number of instances.
    NoInstance(usize),
    /// No memory could be pinned.
    NoMemory,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::NoLibrary => f.write_str("neither libqat.so.4 nor libqat_s.so is installed"),
            Unavailable::Generation(name) => {
                write!(f, "libqat is of another version: {name} is there, libqat.so.4 is needed")
            }
            Unavailable::Unloadable(name, why) => write!(f, "{name} does not load: {why}"),
            Unavailable::MissingSymbol(name, symbol) => write!(f, "{name} is of another version: it lacks {symbol}"),
            Unavailable::Layout => f.write_str("libqat is of another version: its structures have another layout"),
            Unavailable::NoDevice => f.write_str("libqat sees no QuickAssist device"),
            Unavailable::NotStarted(status, said) if said.is_empty() => {
                write!(f, "libqat does not start (status {status})")
            }
            Unavailable::NotStarted(status, said) => write!(f, "libqat does not start (status {status}: {said})"),
            Unavailable::NoInstance(0) => f.write_str("the device has no instance left for this process"),
            Unavailable::NoInstance(all) => write!(f, "none of the device's {all} instances does public-key work"),
            Unavailable::NoMemory => {
                f.write_str("no memory can be pinned for the device: LimitMEMLOCK, or the user's right to /dev/vfio")
            }
        }
    }
}

impl std::error::Error for Unavailable {}
