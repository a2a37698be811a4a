//! Reads files that an earlier process has left.

use penstock_sys::read_at_most;
use rustix::fs::{Mode, OFlags};
use std::{fs::File, io, path::Path};

/// The largest file that is read: a line for each of some 400,000 servers.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a file that another process may be writing, and whose name may lead to something else: neither a FIFO nor a device without an end
/// may keep the process from starting.
///
/// # Errors
/// If it cannot be read, or is longer than 64 MiB.
pub fn read_saved(path: &Path) -> io::Result<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let bytes = read_at_most(&File::from(file), BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_or_no_writer_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(read_saved(&path).unwrap(), "1\n");
        assert_eq!(read_saved(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read_saved(&fifo).unwrap(), "");
        assert!(read_saved(folder.path()).is_err());
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(10 << 30).unwrap();
        assert_eq!(read_saved(&sparse).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
