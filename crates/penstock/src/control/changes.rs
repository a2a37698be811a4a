//! The file of changes made at run time (`runtime-changes-file`): read by a process before it serves, and written as commands
//! succeed.
//!
//! One process owns it: the one whose mark is in its first line. A process that is being started locks the file from reading to
//! the moment it serves, and then puts its mark there, so that no change is made in the process before it that this one would not
//! know of. What a command did is in the file before the command is answered.

use crate::say::warning;
use penstock_admin::{
    command::{Executor, Facts, Piece, list_named},
    kept::{Event, FilesRead, Given, KeptChanges, digest_of},
};
use penstock_config::model::Global;
use penstock_control::{Certificates, Command, Level, PatternKind, Severity};
use penstock_proxy::{Handle, Shared, certificates::AuthorityKind};
use penstock_sys::read_at_most;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
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

/// The longest file: enough for a map of a million entries and its next version. What is in it is also in memory.
const LENGTH_MAX: u64 = 256 << 20;

/// How many lines are read or made before `between` is called, which may end the process.
const LINES_AT_ONCE: usize = 100;

/// How many changes that cannot be made any more get a warning each.
const TOLD: usize = 10;

/// The open file, and what is in it.
pub struct Changes {
    path: PathBuf,
    file: File,
    /// The file's directory, through which the file is replaced even after `chroot`.
    directory: File,
    /// The length of the file's whole lines in bytes.
    length: u64,
    /// Our first line.
    mark: String,
    /// The first line as it is if no other process has written one since; `None` if there is none.
    found: Option<Vec<u8>>,
    kept: KeptChanges,
    /// The files that the configuration has read, with their digests.
    digests: HashMap<String, String>,
    shared: Arc<Shared>,
    /// What could not be written yet.
    unwritten: String,
    /// The length from which the file is replaced if little of it still matters.
    replaced_from: u64,
    /// Whether replacing the file is not permitted.
    grows: bool,
    /// Whether the file has lines that were dropped, and must not be read again.
    is_stale: bool,
}

impl Changes {
    /// Opens, locks and reads the file that the configuration names; to be called before privileges are given up.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn open(global: &Global, shared: &Arc<Shared>, between: &dyn Fn()) -> Result<Option<Changes>, String> {
        let Some(path) = &global.runtime_changes_file else { return Ok(None) };
        let path = &path.value;
        let failed =
            |what: &str, e: io::Error| format!("cannot {what} the runtime-changes-file '{}': {e}", path.display());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = File::open(parent).map_err(|e| failed("open", e))?;
        let mut options = std::fs::OpenOptions::new();
        // A FIFO without a reader, or a device, is not waited for.
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(|e| failed("open", e))?;
        check(&file).map_err(|why| format!("the runtime-changes-file '{}' {why}", path.display()))?;
        lock_patiently(&file).map_err(|e| failed("lock", e))?;
        let bytes = read_at_most(&file, LENGTH_MAX).map_err(|e| failed("read", e))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("# penstock runtime changes 1, {:010} {:020}", std::process::id(), now.as_nanos());
        let mut changes = Changes {
            path: path.clone(),
            file,
            directory,
            length: 0,
            mark: format!("{mark:<width$}\n", width = MARK - 1),
            found: None,
            kept: KeptChanges::default(),
            digests: digests(shared),
            shared: shared.clone(),
            unwritten: String::new(),
            replaced_from: WASTE,
            grows: false,
            is_stale: false,
        };
        changes.read(&bytes, between)?;
        Ok(Some(changes))
    }

    /// Takes what the file says. Changes to a file that is another one by now are dropped: what is on disk counts more.
    fn read(&mut self, bytes: &[u8], between: &dyn Fn()) -> Result<(), String> {
        let shown = self.path.display().to_string();
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.length = whole as u64;
        // A process that was killed at its start may have left the beginning of the first line, or room for it.
        let is_begun = |(&byte, ours): (&u8, u8)| byte == 0 || byte.is_ascii_digit() || byte == ours;
        if whole == 0 && bytes.len() <= MARK && bytes.iter().zip(self.mark.bytes()).all(is_begun) {
            return Ok(());
        }
        let lines: Vec<&[u8]> = bytes[..whole].split_inclusive(|&byte| byte == b'\n').collect();
        if !lines.first().is_some_and(|line| line.starts_with(b"# penstock runtime changes 1,")) {
            return Err(format!(
                "the runtime-changes-file '{shown}' is something else: it does not begin as such a file does"
            ));
        }
        // There must be room for ours.
        self.is_stale |= lines[0].len() != MARK;
        let (mut newer, mut unread) = (BTreeSet::new(), 0);
        let mut kept = std::mem::take(&mut self.kept);
        for (at, line) in lines.iter().enumerate().skip(1) {
            if at.is_multiple_of(LINES_AT_ONCE) {
                between();
            }
            match Event::parse(&String::from_utf8_lossy(line)) {
                None => unread += 1,
                // The process was killed while it wrote them, before it answered the command.
                Some((_, more)) if more >= lines.len() - at => {
                    self.length = lines[..at].iter().map(|line| line.len() as u64).sum();
                    break;
                }
                Some((event, _)) => match &event.file {
                    Some((file, digest)) if *digest != self.digests.get(file).cloned() => {
                        newer.insert(file.clone());
                    }
                    _ => self.with_files(|files| kept.read(event, files)),
                },
            }
        }
        kept.drop_unfinished();
        self.is_stale |= kept.has_dropped_keys() || !newer.is_empty();
        self.kept = kept;
        let torn = bytes.len() as u64 - self.length;
        if torn > 0 {
            // A process was killed before it had answered the command, or another program has cut the file.
            warning(format!(
                "the runtime-changes-file '{shown}' ends within a change, which is not made: its last {torn} bytes are dropped"
            ));
        }
        for file in newer {
            warning(format!("'{file}' has changed since it was changed at run time: those changes are dropped"));
        }
        if unread > 0 {
            warning(format!("{unread} lines of the runtime-changes-file '{shown}' cannot be read and are passed over"));
        }
        Ok(())
    }

    /// Warns of a process that still uses the file, and is not one that this process is to replace.
    pub fn warn_of_owner(&self) {
        let Some(line) = self.first_line() else { return };
        let owner = String::from_utf8_lossy(&line)
            .split([',', ' '])
            .find_map(|word| word.parse::<u32>().ok().filter(|_| word.len() == 10));
        if let Some(owner) = owner.filter(|owner| *owner != std::process::id() && self.is_open_in(*owner)) {
            warning(format!(
                "process {owner} uses the runtime-changes-file '{}' as well, and can change nothing at run time once this one serves: give \
                 each service a file of its own",
                self.path.display()
            ));
        }
    }

    /// Whether a process has the file open, as far as this process may know.
    fn is_open_in(&self, process: u32) -> bool {
        let Ok(ours) = self.file.metadata() else { return false };
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let mut open = descriptors.filter_map(|entry| std::fs::metadata(entry.path()).ok());
        open.any(|file| (file.dev(), file.ino()) == (ours.dev(), ours.ino()))
    }

    /// Makes the changes in a process that does not serve yet. Those that cannot be made any more are dropped.
    pub fn make(&mut self, handle: &Handle, between: &dyn Fn()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(e) => return warning(format!("the changes of the runtime-changes-file are not made: {e}")),
        };
        let executor = Executor { handle: handle.clone(), facts: Facts::default() };
        let (mut dropped, mut made) = (0, 0_usize);
        self.kept.retain(|event| {
            made += 1;
            if made.is_multiple_of(LINES_AT_ONCE) {
                between();
            }
            let Some(command) = event.given.command() else { return true };
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
            let Some(sentence) = refused else { return true };
            dropped += 1;
            if dropped <= TOLD {
                let (command, why) = (event.given.told(), sentence.trim_end());
                warning(format!("a change of the runtime-changes-file is dropped: '{command}': {why}"));
            }
            false
        });
        self.is_stale |= dropped > 0;
        if dropped > TOLD {
            warning(format!("{} more changes of the runtime-changes-file are dropped", dropped - TOLD));
        }
    }

    /// Makes this process the owner of the file; from now on others may lock it.
    pub fn take_over(&mut self) {
        let is_wasteful = self.length > 2 * (self.kept.length() + MARK as u64) + WASTE / 16;
        let is_new = (self.is_stale || is_wasteful) && self.replace();
        if self.is_stale && !is_new {
            // Not as safe as a new file if the machine fails meanwhile, but what was dropped must not come back.
            let text = self.text();
            if self.file.write_all_at(text.as_bytes(), 0).is_ok() {
                self.length = text.len() as u64;
            }
        }
        self.length = self.length.max(MARK as u64);
        if let Err(e) = self.sign() {
            warning(format!("no change can be made at run time: cannot write '{}': {e}", self.path.display()));
        }
        self.unlock();
    }

    /// Puts our mark in the first line.
    fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        // Room for the first line, which another process will have used if it differs later.
        self.found = self.first_line();
        self.file.write_all_at(self.mark.as_bytes(), 0)?;
        self.found = Some(self.mark.clone().into_bytes());
        Ok(())
    }

    fn first_line(&self) -> Option<Vec<u8>> {
        let mut line = vec![0; MARK];
        self.file.read_exact_at(&mut line, 0).ok().map(|()| line)
    }

    /// Waits until no other process reads the file, and locks it, for the time of a command.
    ///
    /// # Errors
    /// If another process has taken over, or the file cannot be written, as a sentence.
    pub async fn begin(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < end => tokio::time::sleep(LOOK).await,
                Err(e) => return Err(format!("The file of runtime changes cannot be locked: {e}")),
            }
        }
        if self.is_cut() && self.replace() {
            warning(format!(
                "another program has cut the runtime-changes-file '{}': it is written again, with all changes of this process",
                self.path.display()
            ));
        }
        let is_theirs = self.first_line() != self.found;
        let refused = match self.found.as_deref() == Some(self.mark.as_bytes()) {
            _ if self.is_cut() => format!("Nothing is changed: another program has cut '{}'.", self.path.display()),
            _ if is_theirs => {
                "Another process has taken over, which would not know of this change: send it there.".to_owned()
            }
            _ if self.is_elsewhere() => {
                format!("Nothing is changed: '{}' is gone, or is another file by now.", self.path.display())
            }
            true => return Ok(()),
            // There was no room for the first line when this process began to serve.
            false => match self.sign() {
                Ok(()) => return Ok(()),
                Err(e) => format!("Nothing is changed: '{}' cannot be written: {e}.", self.path.display()),
            },
        };
        self.unlock();
        Err(refused)
    }

    /// Whether our file has lost lines. A process that takes over writes its mark, and cuts nothing that it has read.
    fn is_cut(&self) -> bool {
        let is_ours = self.first_line().is_none_or(|line| Some(line) == self.found);
        self.found.as_deref() == Some(self.mark.as_bytes())
            && is_ours
            && self.file.metadata().is_ok_and(|facts| facts.len() < self.length)
            && !self.is_elsewhere()
    }

    /// Whether the next process would not read this file, but another one or none.
    fn is_elsewhere(&self) -> bool {
        let Some(name) = self.path.file_name() else { return true };
        match (statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW), fstat(&self.file)) {
            // What it leads to may be out of reach after `chroot`.
            (Ok(there), _) if FileType::from_raw_mode(there.st_mode) == FileType::Symlink => false,
            (Ok(there), Ok(ours)) => (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino),
            (Err(Errno::NOENT), _) => true,
            // The directory may be closed to `user`.
            _ => false,
        }
    }

    /// Writes what a command did, if it is to be kept.
    ///
    /// # Errors
    /// Why it could not be written, as a sentence.
    pub fn record(&mut self, command: &Command, given: Given) -> Result<(), String> {
        if let Command::Certificates(Certificates::UpdateResponse(certificate)) = command {
            // What the responder has answered is kept, not that it was asked.
            let Ok(view) = self.shared.certificates.response(certificate) else { return Ok(()) };
            let given = Given::of_response(&view.der);
            return given.command().map_or(Ok(()), |command| self.record(&command, given));
        }
        let mut kept = std::mem::take(&mut self.kept);
        let events = self.with_files(|files| kept.record(command, given, files));
        self.kept = kept;
        if events.is_empty() {
            return Ok(());
        }
        let failed = |path: &Path, why: &dyn fmt::Display| {
            format!("The change is made, but not kept: '{}' {why}.", path.display())
        };
        let text = std::mem::take(&mut self.unwritten) + &Event::lines(&events);
        if self.length + text.len() as u64 > LENGTH_MAX {
            // What is in the new file includes this change.
            return match self.kept.length() + MARK as u64 <= LENGTH_MAX && !self.grows && self.replace() {
                true => Ok(()),
                false => Err(failed(&self.path, &format_args!("would be longer than {} MiB", LENGTH_MAX >> 20))),
            };
        }
        if let Err(e) = self.file.write_all_at(text.as_bytes(), self.length) {
            let _ = self.file.set_len(self.length);
            self.unwritten = text;
            return Err(failed(
                &self.path,
                &format_args!("cannot be written: {e}; it is tried again with the next change"),
            ));
        }
        self.length += text.len() as u64;
        let is_wasteful = self.length > self.replaced_from && self.length > 4 * self.kept.length();
        if (is_wasteful || self.kept.has_dropped_keys()) && !self.grows {
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

    /// Writes a new file in place of this one. Where that is not permitted, the old one grows, and `false` is returned.
    fn replace(&mut self) -> bool {
        let Some(name) = self.path.file_name() else { return false };
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
            Ok(file) => {
                (self.file, self.length, self.replaced_from) = (file, text.len() as u64, WASTE);
                self.unwritten.clear();
                true
            }
            Err(e) => {
                let _ = unlinkat(&self.directory, &other, AtFlags::empty());
                // A disk that is full may have room later.
                self.grows = !matches!(Errno::from_io_error(&e), Some(Errno::NOSPC | Errno::DQUOT | Errno::IO));
                self.replaced_from = 2 * self.length.max(WASTE);
                let path = self.path.display();
                warning(format!("the runtime-changes-file '{path}' grows: it cannot be replaced: {e}"));
                false
            }
        }
    }

    fn with_files<T>(&self, act: impl FnOnce(&FilesRead<'_>) -> T) -> T {
        let digest = |file: &str| self.digests.get(file).cloned();
        let list = |kind: PatternKind, name: &str| {
            let found = list_named(&self.shared.program.references, kind, name);
            found.map(|list| list.name().to_owned()).filter(|name| !name.is_empty())
        };
        let store = &self.shared.certificates;
        let stapled = |key: &str| store.response(key).ok().map(|view| view.certificate);
        let ticket_keys = |which: &str| {
            let id = which.strip_prefix('#').and_then(|id| id.parse().ok());
            store.ticket_keys().into_iter().find(|keys| keys.file == which || id == Some(keys.id)).map(|keys| keys.file)
        };
        act(&FilesRead { digest: &digest, list: &list, stapled: &stapled, ticket_keys: &ticket_keys })
    }
}

/// Why a file is not one that changes can be kept in.
fn check(file: &File) -> Result<(), String> {
    let facts = file.metadata().map_err(|e| format!("cannot be looked at: {e}"))?;
    if !facts.is_file() {
        return Err("is not a regular file".into());
    }
    match facts.mode() & 0o7777 {
        mode if mode & 0o007 != 0 => {
            Err(format!("is open to everybody (mode {mode:04o}), and private keys are written to it: chmod o= it"))
        }
        _ => Ok(()),
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
    let certificates = store.certificates().names;
    let beside = |name: &String| ["key", "ocsp", "issuer"].map(|part| format!("{name}.{part}"));
    let parts: Vec<String> = certificates.iter().flat_map(beside).collect();
    let tickets = store.ticket_keys().into_iter().map(|keys| keys.file);
    let names = certificates.into_iter().chain(parts).chain(store.crt_lists()).chain(tickets);
    let names: BTreeSet<String> = names.chain(authorities.map(|file| file.name)).chain(lists).collect();
    let hash = |name: String| {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&name).ok()?;
        // What comes out of a pipe cannot be read twice.
        let is_file = file.metadata().is_ok_and(|facts| facts.is_file());
        let bytes = is_file.then(|| read_at_most(&file, u64::MAX - 1))?.ok()?;
        Some((name, digest_of(&bytes)))
    };
    names.into_iter().filter_map(hash).collect()
}
