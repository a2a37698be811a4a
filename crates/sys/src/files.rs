//! Files that may have no end.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// How much is read of what is no regular file, such as a pipe or a device.
const STREAM_MAX: u64 = 64 << 20;

/// Reads a whole file, of any size. What is no regular file may have no end, and is read up to 64 MiB.
///
/// # Errors
/// If it cannot be read, or is no regular file and longer than that.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let bytes_max = if file.metadata()?.is_file() { u64::MAX - 1 } else { STREAM_MAX };
    read_at_most(&file, bytes_max)
}

/// Reads the rest of a file.
///
/// # Errors
/// If it cannot be read, or is longer than `bytes_max`: then no more than that is read, and nothing of a file whose length is known.
pub fn read_at_most(mut file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let too_large =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {} MiB", bytes_max >> 20));
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve(usize::try_from(length).unwrap_or(usize::MAX))?;
    let read = file.by_ref().take(bytes_max + 1).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_an_end_is_given_up() {
        assert_eq!(read_file(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_file(Path::new("/dev/null")).unwrap(), b"");
        assert!(read_file(Path::new("/")).is_err());
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(read_file(&here).unwrap(), std::fs::read(&here).unwrap());
    }
}
