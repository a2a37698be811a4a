//! Where certificates, keys and lists are read from: the disk, or a test's table.

use std::{
    collections::BTreeMap,
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
            let path = entry?.path();
            // Follows links, as certificates managed by tools are often links into a store.
            if std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
                files.push(path);
            }
        }
        files.sort();
        Ok(Some(files))
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
