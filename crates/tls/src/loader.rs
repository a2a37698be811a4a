//! Where certificates, keys and lists are read from: the disk, or a test's table.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::{Path, PathBuf},
};

/// Reads files by the path a configuration names, from several threads where there are many.
pub trait Loader: Sync {
    /// The file's bytes.
    ///
    /// # Errors
    /// As the file system has it.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The plain files of a directory in the order of their names; `None` where the path is no directory.
    ///
    /// # Errors
    /// It is a directory that cannot be read.
    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Loader for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        if !std::fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
            return Ok(None);
        }
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // Follows links, as certificates managed by tools are often links into a store.
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

/// Files of directories that have been listed: who asks for one that is not there is told so without a system call. A certificate
/// looks for up to five files beside it.
pub(crate) struct Listed<'a> {
    pub loader: &'a dyn Loader,
    /// The files of each directory.
    pub files: &'a BTreeMap<PathBuf, HashSet<PathBuf>>,
}

impl Loader for Listed<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.parent().and_then(|folder| self.files.get(folder)) {
            Some(files) if !files.contains(path) => Err(io::ErrorKind::NotFound.into()),
            _ => self.loader.read(path),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        self.loader.list(path)
    }
}

/// Files held in memory, for tests and for the embedded configuration. A directory is every file below its path.
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
        let files = BTreeMap::from([(PathBuf::from("/dir"), HashSet::from([PathBuf::from("/dir/a")]))]);
        let listed = Listed { loader: &memory, files: &files };
        assert_eq!(listed.read(Path::new("/dir/a")).unwrap(), [1]);
        assert_eq!(listed.read(Path::new("/dir/b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(listed.read(Path::new("/c")).unwrap(), [3]);
    }
}
