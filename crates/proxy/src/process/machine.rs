//! The machine that the process runs on.

/// The machine's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
