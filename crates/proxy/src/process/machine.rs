//! The machine that the process runs on.

/// The machine's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Seconds that local time is ahead of UTC at that moment, in seconds since 1970.
pub fn local_offset(unix_s: u64) -> i32 {
    penstock_sys::local_offset(unix_s as i64)
}
