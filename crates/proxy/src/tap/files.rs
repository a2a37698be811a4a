//! Files of a tap: each has the time of its beginning in its name, so that names tell their order, and processes that write at the same
//! time, as during a reload, write to different ones.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

pub(super) struct Files {
    path: PathBuf,
    rotate: u64,
    keep: usize,
    open: Option<Open>,
}

/// The file that is written to.
struct Open {
    file: File,
    path: PathBuf,
    /// Bytes of whole packets, and of the head before them.
    size: u64,
}

impl Files {
    pub fn new(path: &Path, rotate: u64, keep: u32) -> Self {
        Files { path: path.to_owned(), rotate, keep: keep as usize, open: None }
    }
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
    pub fn close(&mut self) {
        self.open = None;
    }
    /// Begins a file.
    pub fn open(&mut self) -> io::Result<()> {
        self.open = None;
        let mut now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let (file, path) = loop {
            let path = self.named(&stamp(now));
            // What clients sent in confidence is for the user of the process alone.
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => now += 1,
                opened => break (opened?, path),
            }
        };
        self.open = Some(Open { file, path, size: 0 });
        Ok(())
    }
    /// Writes packets; a file in which they find no room has been the last one's successor by then. The oldest files are
    /// removed once a new one has packets: on a full disk no copy is lost for one that cannot be written.
    pub fn write(&mut self, head: &[u8], packets: &[u8]) -> io::Result<()> {
        let head_bytes = head.len() as u64;
        if let Some(Open { size, .. }) = self.open
            && size > head_bytes
            && size + packets.len() as u64 > self.rotate
        {
            self.open()?;
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        let is_new = open.size == 0;
        let head = if is_new { head } else { &[] };
        if let Err(e) = open.file.write_all(head).and_then(|()| open.file.write_all(packets)) {
            // Readers stumble over half a packet. What cannot be undone is left.
            let _ = if is_new { fs::remove_file(&open.path) } else { open.file.set_len(open.size) };
            self.close();
            return Err(e);
        }
        open.size += (head.len() + packets.len()) as u64;
        if is_new {
            self.tidy();
        }
        Ok(())
    }
    fn named(&self, stamp: &str) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut name = format!("{stem}-{stamp}");
        if let Some(extension) = self.path.extension() {
            name = format!("{name}.{}", extension.to_string_lossy());
        }
        self.path.with_file_name(name)
    }
    /// Removes the oldest files beyond the number that is kept. One that cannot be removed is tried again next time.
    fn tidy(&self) {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let Ok(entries) = fs::read_dir(folder) else { return };
        let sample = self.named(&stamp(0));
        let sample = sample.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let at = sample.len() - self.path.extension().map_or(0, |extension| extension.len() + 1);
        let (before, after) = (&sample[..at - stamp(0).len()], &sample[at..]);
        let is_ours = |name: &str| {
            let inner = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            inner.is_some_and(is_stamp)
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut ours: Vec<String> = names.filter(|name| is_ours(name)).collect();
        ours.sort_unstable();
        for name in &ours[..ours.len().saturating_sub(self.keep)] {
            let _ = fs::remove_file(folder.join(name));
        }
    }
}

/// A moment in UTC, as names have it: `20261127T174500.000123Z`.
fn stamp(unix_us: u64) -> String {
    let mut second = Vec::new();
    penstock_rules::time::format((unix_us / 1_000_000) as i64, 0, b"%Y%m%dT%H%M%S", &mut second);
    format!("{}.{:06}Z", String::from_utf8_lossy(&second), unix_us % 1_000_000)
}

fn is_stamp(text: &str) -> bool {
    let sample = "00000000T000000.000000Z";
    text.len() == sample.len()
        && text.bytes().zip(sample.bytes()).all(|(byte, kind)| match kind {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_time_in_order() {
        assert_eq!(stamp(0), "19700101T000000.000000Z");
        assert_eq!(stamp(951_782_399_000_001), "20000228T235959.000001Z");
        assert_eq!(stamp(951_782_400_000_000), "20000229T000000.000000Z");
        assert_eq!(stamp(1_795_801_500_000_123), "20261127T174500.000123Z");
        assert!(is_stamp(&stamp(5)) && !is_stamp("20261127T174500.00012Z") && !is_stamp("2026112aT174500.000123Z"));
    }

    #[test]
    fn a_file_that_cannot_be_written_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy-20200101T000000.000000Z.pcapng");
        fs::write(&copy, b"a copy").unwrap();
        let mut files = Files::new(&folder.path().join("copy.pcapng"), 100, 1);
        for _ in 0..3 {
            files.open().unwrap();
            // As a full disk: whatever is written fails.
            files.open.as_mut().unwrap().file = File::options().write(true).open("/dev/full").unwrap();
            assert!(files.write(b"head", b"packets").is_err());
        }
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [copy]);
    }

    #[test]
    fn a_full_file_is_followed_by_another_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        for other in ["copy.pcapng", "copy-old.pcapng", "copy-20200101T000000.000000Z.txt"] {
            fs::write(folder.path().join(other), b"not ours").unwrap();
        }
        let mut files = Files::new(&folder.path().join("copy.pcapng"), 100, 3);
        files.open().unwrap();
        for number in 0..6u8 {
            files.write(b"head", &[number; 60]).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let ours: Vec<_> =
            names.iter().filter_map(|name| name.to_str()).filter(|name| name.contains("Z.pcapng")).collect();
        assert_eq!((names.len(), ours.len()), (6, 3));
        for (name, number) in ours.iter().zip(3u8..) {
            let content = fs::read(folder.path().join(name)).unwrap();
            assert_eq!(content, [&b"head"[..], &[number; 60]].concat(), "{name}");
        }
    }
}
