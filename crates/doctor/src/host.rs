//! The one reader of a host: a root directory, or a recording of the files that were read from one.
//!
//! A recording is text that a person can read and mail: `== /path` and the file's lines; `== /path -> target` for a link;
//! `== /path !` for a file that may not be read; `== $ command` and its output.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// No file of interest is longer: /proc/interrupts of 512 CPUs is half of it.
const LENGTH_MAX: u64 = 4 * 1024 * 1024;

/// Directories with more names are recorded only as far as they were looked for.
const LISTED_MAX: usize = 512;

/// A file is there, but may not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Text(String),
    Link(String),
    Denied,
}

#[derive(Debug)]
enum Source {
    Directory(PathBuf),
    Recorded(BTreeMap<String, Entry>),
}

/// A machine, or what was recorded of one.
#[derive(Debug)]
pub struct Host {
    source: Source,
    seen: RefCell<BTreeMap<String, Entry>>,
    denied: RefCell<BTreeSet<String>>,
}

impl Host {
    /// The machine whose files are below this directory: `/` for this one.
    pub fn at(root: impl Into<PathBuf>) -> Host {
        Host::new(Source::Directory(root.into()))
    }

    /// The host that a recording describes.
    ///
    /// # Errors
    /// If the recording does not begin with a `== ` line.
    pub fn recorded(text: &str) -> Result<Host, String> {
        let mut entries = BTreeMap::new();
        let mut current: Option<(String, String)> = None;
        for line in text.lines() {
            let Some(head) = line.strip_prefix("== ") else {
                match &mut current {
                    Some((_, text)) => {
                        text.push_str(line);
                        text.push('\n');
                    }
                    // Notes for the reader, before the first file.
                    None if line.trim().is_empty() || line.starts_with('#') => {}
                    None => return Err(format!("not a recorded host: '{line}' stands before the first '== /path'")),
                }
                continue;
            };
            if let Some((path, text)) = current.take() {
                entries.insert(path, Entry::Text(text));
            }
            if let Some((path, target)) = head.split_once(" -> ") {
                entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
            } else if let Some(path) = head.strip_suffix(" !") {
                entries.insert(path.to_owned(), Entry::Denied);
            } else {
                current = Some((head.to_owned(), String::new()));
            }
        }
        if let Some((path, text)) = current {
            entries.insert(path, Entry::Text(text));
        }
        if entries.is_empty() {
            return Err("not a recorded host: it has no '== /path'".into());
        }
        Ok(Host::new(Source::Recorded(entries)))
    }

    fn new(source: Source) -> Host {
        Host { source, seen: RefCell::default(), denied: RefCell::default() }
    }

    /// Whether commands would run here and now: this machine, not a copy or a recording.
    pub fn is_this(&self) -> bool {
        matches!(&self.source, Source::Directory(root) if root == Path::new("/"))
    }

    /// A file's text without the white space around it; `None` when there is none, or it may not be read.
    pub fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok().flatten()
    }

    /// A file's text without the white space around it, with an error where the file may not be read.
    ///
    /// # Errors
    /// The file exists, but may not be read.
    pub fn read(&self, path: &str) -> Result<Option<String>, Denied> {
        let entry = match &self.source {
            Source::Recorded(entries) => entries.get(path).cloned(),
            Source::Directory(root) => match read_bounded(&below(root, path)) {
                Ok(text) => Some(Entry::Text(text)),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Some(Entry::Denied),
                Err(_) => None,
            },
        };
        self.note(path, entry.as_ref());
        match entry {
            Some(Entry::Text(text)) => Ok(Some(text.trim().to_owned())),
            Some(Entry::Denied) => {
                self.denied.borrow_mut().insert(path.to_owned());
                Err(Denied)
            }
            Some(Entry::Link(_)) | None => Ok(None),
        }
    }

    fn note(&self, path: &str, entry: Option<&Entry>) {
        if let Some(entry) = entry {
            self.seen.borrow_mut().insert(path.to_owned(), entry.clone());
        }
    }

    /// A file that holds one number, decimal or with 0x in front.
    pub fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// A setting of /proc/sys by its dotted name.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        self.text(&format!("/proc/sys/{}", name.replace('.', "/")))
    }

    /// The names in a directory, sorted; empty when there is none.
    pub fn list(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<String> = match &self.source {
            Source::Recorded(entries) => {
                let inside = |path: &String| {
                    let rest = path.strip_prefix(directory)?.strip_prefix('/')?;
                    Some(rest.split('/').next()?.to_owned()).filter(|name| !name.is_empty())
                };
                entries.keys().filter_map(inside).collect()
            }
            Source::Directory(root) => {
                let entries = std::fs::read_dir(below(root, directory)).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
        };
        names.sort();
        names.dedup();
        // That they are there is part of a recording, but not every file of a directory of libraries.
        if names.len() <= LISTED_MAX {
            names.iter().for_each(|name| self.is_there(&format!("{directory}/{name}")));
        }
        names
    }

    /// The last name in a directory that begins with `prefix`.
    pub fn find(&self, directory: &str, prefix: &str) -> Option<String> {
        let found = self.list(directory).into_iter().rfind(|name| name.starts_with(prefix))?;
        self.is_there(&format!("{directory}/{found}"));
        Some(found)
    }

    /// Records that something exists, without its contents.
    fn is_there(&self, path: &str) {
        self.seen.borrow_mut().entry(path.to_owned()).or_insert_with(|| Entry::Text(String::new()));
    }

    /// The last part of a link's target; `None` if there is no link at `path`.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = match &self.source {
            Source::Recorded(entries) => match entries.get(path)? {
                Entry::Link(target) => target.clone(),
                _ => return None,
            },
            Source::Directory(root) => std::fs::read_link(below(root, path)).ok()?.to_str()?.to_owned(),
        };
        self.note(path, Some(&Entry::Link(target.clone())));
        target.trim_end_matches('/').rsplit('/').next().map(str::to_owned)
    }

    /// Whether there is anything at this path.
    pub fn exists(&self, path: &str) -> bool {
        let there = match &self.source {
            Source::Recorded(entries) => {
                let below = format!("{path}/");
                entries.contains_key(path)
                    || entries.range(below.clone()..).next().is_some_and(|(k, _)| k.starts_with(&below))
            }
            Source::Directory(root) => below(root, path).symlink_metadata().is_ok(),
        };
        if there {
            self.is_there(path);
        }
        there
    }

    /// What a program says on standard output; only on this very machine, or as recorded.
    pub fn command(&self, line: &str) -> Option<String> {
        let key = format!("$ {line}");
        let output = match &self.source {
            Source::Recorded(entries) => match entries.get(&key)? {
                Entry::Text(text) => text.clone(),
                _ => return None,
            },
            Source::Directory(_) if self.is_this() => {
                let mut words = line.split(' ');
                let mut command = Command::new(words.next()?);
                let output = command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
                if !output.status.success() {
                    return None;
                }
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            Source::Directory(_) => return None,
        };
        self.note(&key, Some(&Entry::Text(output.clone())));
        Some(output)
    }

    /// What was there and could not be read so far.
    pub fn denied(&self) -> Vec<String> {
        self.denied.borrow().iter().cloned().collect()
    }

    /// A recording of everything read so far. It holds no private keys: certificates are read elsewhere.
    pub fn record(&self) -> String {
        let mut out =
            String::from("# A host as 'penstock doctor --record' saw it; 'penstock doctor --host FILE' examines it.\n");
        for (path, entry) in self.seen.borrow().iter() {
            match entry {
                Entry::Text(text) => {
                    // A line of the file that looks like a head would begin another file.
                    let text = text.trim_end().replace("\n== ", "\n = ");
                    out.push_str(&format!("== {path}\n{text}\n"));
                }
                Entry::Link(target) => out.push_str(&format!("== {path} -> {target}\n")),
                Entry::Denied => out.push_str(&format!("== {path} !\n")),
            }
        }
        out
    }
}

/// A path of the host below our root.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn read_bounded(path: &Path) -> io::Result<String> {
    use std::io::Read;
    // A pipe or a device would be waited for; nothing of a host's description is one.
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "# a note\n== /proc/a\n one \ntwo\n== /sys/l -> ../../x/name\n== /sys/no !\n== /sys/d/n\n0x1f\n== $ lspci -n\nout\n";

    fn check(host: &Host) {
        assert_eq!(host.text("/proc/a").as_deref(), Some("one \ntwo"));
        assert_eq!(host.link("/sys/l").as_deref(), Some("name"));
        assert_eq!(host.read("/sys/none"), Ok(None));
        assert_eq!(host.number("/sys/d/n"), Some(31));
        assert_eq!(host.list("/sys/d"), ["n"]);
        assert_eq!(host.list("/nothing"), [""; 0]);
        assert!(host.exists("/sys/d") && !host.exists("/sys/dd"));
        assert_eq!(host.number("/proc/a"), None);
    }

    #[test]
    fn a_recording_and_a_directory_are_read_alike_and_a_recording_can_be_made_of_both() {
        let recorded = Host::recorded(SMALL).unwrap();
        check(&recorded);
        assert_eq!(recorded.read("/sys/no"), Err(Denied));
        assert_eq!(recorded.denied(), ["/sys/no"]);
        assert_eq!(recorded.command("lspci -n").as_deref(), Some("out\n"));
        let again = Host::recorded(&recorded.record()).unwrap();
        check(&again);
        assert_eq!(again.read("/sys/no"), Err(Denied));

        let root = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys/d"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::fs::write(root.path().join("proc/a"), "one \ntwo\n").unwrap();
        std::fs::write(root.path().join("sys/d/n"), "0x1f\n").unwrap();
        std::os::unix::fs::symlink("../../x/name", root.path().join("sys/l")).unwrap();
        let directory = Host::at(root.path());
        check(&directory);
        assert!(!directory.is_this() && directory.command("true").is_none());
        check(&Host::recorded(&directory.record()).unwrap());
    }

    #[test]
    fn what_is_no_recording_is_said() {
        assert!(Host::recorded("").is_err());
        assert!(Host::recorded("hello\n== /proc/a\n").unwrap_err().contains("'hello'"));
        assert!(Host::recorded("\u{0}\u{1}").is_err());
    }
}
