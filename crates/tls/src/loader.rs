//! Where certificates, keys and lists are read from: the disk, or a table in tests.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

/// Reads files by the paths in a configuration; called from several threads if there are many files.
pub trait Loader: Sync {
    /// The contents of the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, with the file system's reason.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The regular files of a directory, sorted by name; `None` if the path is not a directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Loader for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        penstock_sys::read_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        if !std::fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
            return Ok(None);
        }
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // Follows symbolic links, since tools that manage certificates often link to a store.
            let is_file = match entry.file_type()? {
                kind if kind.is_symlink() => std::fs::metadata(entry.path()).is_ok_and(|meta| meta.is_file()),
                kind => kind.is_file(),
            };
            if is_file {
                files.push(entry.path());
            }
        }
        files.sort();
        Ok(Some(files))
    }
}

/// The names of the files of directories. Bytes are compared: comparing paths by their components takes several times as long.
#[derive(Debug, Default)]
pub(crate) struct Folders(HashMap<OsString, HashSet<OsString>>);

impl Folders {
    /// Adds the files of one directory.
    pub fn add(&mut self, files: &[PathBuf]) {
        let folder = files.first().and_then(|file| file.parent());
        let names = files.iter().filter_map(|file| file.file_name().map(OsStr::to_owned));
        self.0.extend(folder.map(|folder| (folder.into(), names.collect())));
    }

    /// Whether it is known that there is no such file.
    fn lacks(&self, path: &Path) -> bool {
        let files = path.parent().and_then(|folder| self.0.get(folder.as_os_str()));
        files.is_some_and(|files| path.file_name().is_some_and(|name| !files.contains(name)))
    }
}

/// Knows the files of directories that have been listed, so that looking for one that does not exist takes no system
/// call. Up to five files are looked for beside each certificate.
pub(crate) struct Listed<'a> {
    pub loader: &'a dyn Loader,
    pub folders: &'a Folders,
}

impl Loader for Listed<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.folders.lacks(path) { Err(io::ErrorKind::NotFound.into()) } else { self.loader.read(path) }
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        self.loader.list(path)
    }
}

/// Files in memory, for tests and for the embedded configuration. A directory consists of all files below its path.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<PathBuf, Vec<u8>>);

impl Loader for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let files: Vec<PathBuf> = self.0.keys().filter(|file| file.parent() == Some(path)).cloned().collect();
        Ok((!files.is_empty()).then_some(files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_directory_is_not_asked_for_what_it_does_not_have() {
        let memory = Memory([("/dir/a".into(), vec![1]), ("/dir/b".into(), vec![2]), ("/c".into(), vec![3])].into());
        let mut folders = Folders::default();
        folders.add(&["/dir/a".into()]);
        folders.add(&[]);
        let listed = Listed { loader: &memory, folders: &folders };
        assert_eq!(listed.read(Path::new("/dir/a")).unwrap(), [1]);
        assert_eq!(listed.read(Path::new("/dir/b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(listed.read(Path::new("/c")).unwrap(), [3]);
    }
}
