//! The name this program was started under. Started as `haproxy`, through a link, its processes, log lines and messages
//! appear as haproxy's.

use std::{ffi::OsStr, path::Path, sync::LazyLock};

/// The names that this process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Penstock,
    Haproxy,
}

/// The name of this process.
pub static NAME: LazyLock<Name> = LazyLock::new(|| Name::of(std::env::args_os().next().as_deref()));

impl Name {
    fn of(argument: Option<&OsStr>) -> Name {
        match argument.and_then(|path| Path::new(path).file_name()) {
            Some(name) if name == "haproxy" => Name::Haproxy,
            _ => Name::Penstock,
        }
    }

    /// The name as it is typed.
    pub fn command(self) -> &'static str {
        match self {
            Name::Penstock => "penstock",
            Name::Haproxy => "haproxy",
        }
    }

    /// The name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Name::Penstock => "penstock",
            Name::Haproxy => "HAProxy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_link() {
        for (argument, name) in [
            (Some("haproxy"), Name::Haproxy),
            (Some("/usr/sbin/haproxy"), Name::Haproxy),
            (Some("penstock"), Name::Penstock),
            (Some("/opt/haproxy/penstock"), Name::Penstock),
            (Some("haproxy-2"), Name::Penstock),
            (None, Name::Penstock),
        ] {
            assert_eq!(Name::of(argument.map(OsStr::new)), name);
        }
    }
}
