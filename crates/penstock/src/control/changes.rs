//! The file of changes made at run time (`runtime-changes-file`): read by a process before it serves, and written as commands
//! succeed.
//!
//! One process owns it: the one whose mark is in its first line. A process that is being started locks the file from reading to
//! the moment it serves, and then puts its mark there, so that no change is made in the process before it that this one would not
//! know of. What a command did is in the file before the command is answered.

use crate::say::warning;
use penstock_admin::{
    command::{Executor, Facts, Piece, list_named},
    kept::{Event, FilesRead, Given, Kept, digest_of},
};
use penstock_config::model::Global;
use penstock_control::{Command, Level, PatternKind, Severity};
use penstock_proxy::{Handle, Shared, certificates::AuthorityKind};
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long a command waits while another process reads the file, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The file is written anew when it is this much, and four times as long as what still matters.
const WASTE: u64 = 1 << 20;

/// The length of the first line, which is always the same.
const MARK: usize = 64;

/// The open file, and what is in it.
pub struct Changes {
    path: PathBuf,
    file: File,
    /// Its directory, through which it is replaced even after `chroot`.
    directory: File,
    /// The length of its whole lines.
    length: u64,
    /// Our first line.
    mark: String,
    kept: Kept,
    /// The files that the configuration has read, with their digests.
    digests: HashMap<String, String>,
    shared: Arc<Shared>,
    /// Whether replacing the file has failed.
    grows: bool,
    /// Whether the file has lines that were dropped, and must not be read again.
    is_stale: bool,
}

impl Changes {
    /// Opens, locks and reads the file that the configuration names; to be called before privileges are given up.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn open(global: &Global, shared: &Arc<Shared>) -> Result<Option<Changes>, String> {
        let Some(path) = &global.runtime_changes_file else { return Ok(None) };
        let path = &path.value;
        let failed =
            |what: &str, e: io::Error| format!("cannot {what} the runtime-changes-file '{}': {e}", path.display());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = File::open(parent).map_err(|e| failed("open", e))?;
        let file =
            std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|e| failed("open", e))?;
        lock_patiently(&file).map_err(|e| failed("lock", e))?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut &file, &mut bytes).map_err(|e| failed("read", e))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("# penstock runtime changes 1, {:010} {:020}", std::process::id(), now.as_nanos());
        let mut changes = Changes {
            path: path.clone(),
            file,
            directory,
            length: 0,
            mark: format!("{mark:<width$}\n", width = MARK - 1),
            kept: Kept::default(),
            digests: digests(shared),
            shared: shared.clone(),
            grows: false,
            is_stale: false,
        };
        changes.read(&bytes)?;
        Ok(Some(changes))
    }

    /// Takes what the file says. Changes to a file that is another one by now are dropped: what is on disk counts more.
    fn read(&mut self, bytes: &[u8]) -> Result<(), String> {
        let shown = self.path.display().to_string();
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.length = whole as u64;
        if whole == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut lines = text.lines();
        if !lines.next().unwrap_or_default().starts_with("# penstock runtime changes 1,") {
            return Err(format!(
                "the runtime-changes-file '{shown}' is something else: it does not begin as such a file does"
            ));
        }
        let (mut newer, mut unread) = (BTreeSet::new(), 0);
        let mut kept = std::mem::take(&mut self.kept);
        for line in lines {
            match Event::parse(line) {
                None => unread += 1,
                Some(event) => match &event.file {
                    Some((file, digest)) if *digest != self.digests.get(file).cloned() => {
                        newer.insert(file.clone());
                    }
                    _ => self.with_files(|files| kept.read(event, files)),
                },
            }
        }
        kept.drop_unfinished();
        self.kept = kept;
        self.is_stale |= !newer.is_empty();
        for file in newer {
            warning(format!("'{file}' has changed since it was changed at run time: those changes are dropped"));
        }
        if unread > 0 {
            warning(format!("{unread} lines of the runtime-changes-file '{shown}' cannot be read and are passed over"));
        }
        Ok(())
    }

    /// Makes the changes in a process that does not serve yet. Those that cannot be made any more are dropped.
    pub fn make(&mut self, handle: &Handle) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(e) => return warning(format!("the changes of the runtime-changes-file are not made: {e}")),
        };
        let executor = Executor { handle: handle.clone(), facts: Facts::default() };
        let events: Vec<Event> = self.kept.lines().cloned().collect();
        for event in events {
            let Some(command) = event.given.command() else { continue };
            let refused = runtime.block_on(async {
                let mut answer = executor.execute(command, Level::Admin);
                let mut refused = None;
                while let Some(piece) = answer.next().await {
                    if let Piece::Say(severity, sentence) = piece
                        && severity as u8 <= Severity::Error as u8
                    {
                        refused.get_or_insert(sentence);
                    }
                }
                refused
            });
            if let Some(sentence) = refused {
                let command = event.given.told();
                warning(format!(
                    "a change of the runtime-changes-file is dropped: '{command}': {}",
                    sentence.trim_end()
                ));
                self.kept.forget(&event);
                self.is_stale = true;
            }
        }
    }

    /// Makes this process the owner of the file; from now on others may lock it.
    pub fn take_over(&mut self) {
        let text = self.text();
        if self.is_stale || self.length > 2 * text.len() as u64 + WASTE / 16 {
            self.replace();
        }
        if self.is_stale && self.grows {
            // Not as safe as a new file if the machine fails meanwhile, but what was dropped must not come back.
            let _ = self.file.write_all_at(text.as_bytes(), 0);
            self.length = text.len() as u64;
        }
        let taken = self
            .file
            .set_len(self.length.max(MARK as u64))
            .and_then(|()| self.file.write_all_at(self.mark.as_bytes(), 0));
        self.length = self.length.max(MARK as u64);
        if let Err(e) = taken {
            warning(format!("changes made at run time are not kept: cannot write '{}': {e}", self.path.display()));
        }
        self.unlock();
    }

    /// Waits until no other process reads the file, and locks it, for the time of a command.
    ///
    /// # Errors
    /// If another process has taken over, as a sentence.
    pub async fn begin(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < end => tokio::time::sleep(LOOK).await,
                Err(e) => return Err(format!("The file of runtime changes cannot be locked: {e}")),
            }
        }
        let mut mark = [0; MARK];
        let is_ours = self.file.read_exact_at(&mut mark, 0).is_ok() && mark == *self.mark.as_bytes();
        if is_ours && fstat(&self.file).is_ok_and(|facts| facts.st_nlink > 0) {
            return Ok(());
        }
        self.unlock();
        Err("Another process has taken over, which would not know of this change: send it there.".into())
    }

    /// Writes what a command did, if it is to be kept.
    ///
    /// # Errors
    /// Why it could not be written, as a sentence.
    pub fn record(&mut self, command: &Command, given: Given) -> Result<(), String> {
        let mut kept = std::mem::take(&mut self.kept);
        let events = self.with_files(|files| kept.record(command, given, files));
        self.kept = kept;
        if events.is_empty() {
            return Ok(());
        }
        let text = events.iter().map(|event| event.line() + "\n").collect::<String>();
        let written = self.file.write_all_at(text.as_bytes(), self.length);
        written.map_err(|e| {
            format!("The change is made, but not kept: '{}' cannot be written: {e}", self.path.display())
        })?;
        self.length += text.len() as u64;
        // The text is made only if the file is long enough for it to matter.
        if self.length > WASTE && !self.grows && self.length > 4 * self.text().len() as u64 {
            self.replace();
        }
        Ok(())
    }

    /// Lets other processes lock the file.
    pub fn unlock(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// What the file would say if it was written now.
    fn text(&self) -> String {
        let mut text = self.mark.clone();
        for event in self.kept.lines() {
            text.push_str(&event.line());
            text.push('\n');
        }
        text
    }

    /// Writes a new file in place of this one. Where that is not permitted, the old one grows.
    fn replace(&mut self) {
        let Some(name) = self.path.file_name() else { return };
        let mut other = name.to_owned();
        other.push(".new");
        let text = self.text();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // One that a process has left when it died.
        let _ = unlinkat(&self.directory, &other, AtFlags::empty());
        let made =
            openat(&self.directory, &other, flags, Mode::from(0o600)).map_err(io::Error::from).and_then(|file| {
                let file = File::from(file);
                flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                file.write_all_at(text.as_bytes(), 0)?;
                file.sync_all()?;
                // Another process may have put its own file there.
                let (there, ours) = (statat(&self.directory, name, AtFlags::empty())?, fstat(&self.file)?);
                if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) {
                    return Err(io::Error::other("it is another process's"));
                }
                renameat(&self.directory, &other, &self.directory, name)?;
                Ok(file)
            });
        match made {
            Ok(file) => (self.file, self.length) = (file, text.len() as u64),
            Err(e) => {
                let _ = unlinkat(&self.directory, &other, AtFlags::empty());
                self.grows = true;
                warning(format!(
                    "the runtime-changes-file '{}' grows: it cannot be replaced: {e}",
                    self.path.display()
                ));
            }
        }
    }

    fn with_files<T>(&self, act: impl FnOnce(&FilesRead<'_>) -> T) -> T {
        let digest = |file: &str| self.digests.get(file).cloned();
        let list = |kind: PatternKind, name: &str| {
            let found = list_named(&self.shared.program.references, kind, name);
            found.map(|list| list.name().to_owned()).filter(|name| !name.is_empty())
        };
        act(&FilesRead { digest: &digest, list: &list })
    }
}

/// A process that reads or writes the file does not take long.
fn lock_patiently(file: &File) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOOK),
            result => return result.map_err(Into::into),
        }
    }
}

/// Digests of the files that can be changed at run time, as they are now.
fn digests(shared: &Shared) -> HashMap<String, String> {
    let store = &shared.certificates;
    let authorities = [AuthorityKind::Ca, AuthorityKind::Crl].into_iter().flat_map(|kind| store.authorities(kind).1);
    let lists = shared.program.references.iter().map(|list| list.name().to_owned());
    let names = store.certificates().names.into_iter().chain(store.crt_lists());
    let names: BTreeSet<String> = names.chain(authorities.map(|file| file.name)).chain(lists).collect();
    let hash = |name: String| std::fs::read(&name).ok().map(|bytes| (name, digest_of(&bytes)));
    names.into_iter().filter_map(hash).collect()
}
