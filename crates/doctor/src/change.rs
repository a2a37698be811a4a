//! Applying fixes, with a journal that undoes them: every value and file is written down before it is touched.

use crate::{Change, Finding};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const SYSCTLS: &str = "/etc/sysctl.d/90-penstock.conf";
const UDEV: &str = "/etc/udev/rules.d/90-penstock.rules";
const HEAD: &str = "# Written by penstock; 'penstock doctor --undo' or 'penstock lab-setup --undo' takes it back.";

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The path, as the host names it.
    pub path: String,
    /// The text to write.
    pub text: String,
    /// Whether the path is a value of /proc or /sys, which exists and is written in place, and not a file, which may be new.
    pub is_value: bool,
}

/// The host on which changes are made, and the journal that takes them back.
#[derive(Clone, Debug)]
pub struct Changes {
    root: PathBuf,
    journal: String,
}

impl Changes {
    /// Changes on the host whose files are below `root`; the journal is a path of that host.
    pub fn new(root: impl Into<PathBuf>, journal: &str) -> Changes {
        Changes { root: root.into(), journal: journal.into() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The writes that the fixes of these findings take; what only a person can do is left out.
    pub fn steps(&self, findings: &[Finding]) -> Vec<Step> {
        self.steps_of(findings.iter().flat_map(|finding| &finding.fix))
    }

    /// The writes of these changes: values first, then the files that restore them after a reboot.
    pub fn steps_of<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut files: Vec<Step> = Vec::new();
        let mut sysctls = BTreeMap::new();
        let mut rules = Vec::new();
        let mut services: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Sysctl { name, value } => {
                    let path = format!("/proc/sys/{}", name.replace('.', "/"));
                    steps.retain(|step: &Step| step.path != path);
                    steps.push(Step { path, text: value.clone(), is_value: true });
                    sysctls.insert(name.clone(), value.clone());
                }
                Change::Value { path, value, udev } => {
                    steps.push(Step { path: path.clone(), text: value.clone(), is_value: true });
                    rules.extend(udev.clone());
                }
                Change::Service { unit, setting } => services.entry(unit).or_default().push(setting),
                Change::File { path, text } => {
                    files.push(Step { path: path.clone(), text: text.clone(), is_value: false });
                }
                Change::ByHand(_) => {}
            }
        }
        if !sysctls.is_empty() {
            // Settings of an earlier run stay.
            for line in self.lines(SYSCTLS) {
                if let Some((name, value)) = line.split_once('=') {
                    sysctls.entry(name.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
                }
            }
            let lines: String = sysctls.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
            files.push(Step { path: SYSCTLS.into(), text: format!("{HEAD}\n{lines}"), is_value: false });
        }
        if !rules.is_empty() {
            let mut all = self.lines(UDEV);
            all.extend(rules.into_iter().filter(|rule| !self.lines(UDEV).contains(rule)));
            files.push(Step { path: UDEV.into(), text: format!("{HEAD}\n{}\n", all.join("\n")), is_value: false });
        }
        for (unit, settings) in services {
            let path = format!("/etc/systemd/system/{unit}.d/90-penstock.conf");
            files.push(Step { path, text: format!("{HEAD}\n[Service]\n{}\n", settings.join("\n")), is_value: false });
        }
        steps.extend(files);
        steps
    }

    /// The lines of one of our own files, without comments.
    fn lines(&self, path: &str) -> Vec<String> {
        let text = fs::read_to_string(self.at(path)).unwrap_or_default();
        text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned).collect()
    }

    /// Makes the writes, in order. If one fails, those that this call has made are taken back.
    ///
    /// # Errors
    /// A sentence: which write failed, why, and that nothing has changed.
    pub fn apply(&self, steps: &[Step]) -> Result<(), String> {
        let mut journal = self.read_journal()?;
        let before = journal.len();
        for step in steps {
            let path = self.at(&step.path);
            let old = match fs::read(&path) {
                Ok(bytes) => Some(
                    String::from_utf8(bytes).map_err(|_| format!("{} is not text; nothing was changed", step.path))?,
                ),
                Err(e) if e.kind() == io::ErrorKind::NotFound && !step.is_value => None,
                Err(e) => return Err(self.back(&journal, before, step, &e)),
            };
            journal.push(json!({ "path": step.path, "is_value": step.is_value, "before": old, "after": step.text }));
            // The journal is on disk before the write: a crash in between is undone as well.
            if let Err(e) = self.write_journal(&journal) {
                journal.pop();
                let journal_itself = Step { path: self.journal.clone(), ..step.clone() };
                return Err(self.back(&journal, before, &journal_itself, &e));
            }
            if let Err(e) = write(&path, &step.text, step.is_value) {
                journal.pop();
                return Err(self.back(&journal, before, step, &e));
            }
        }
        Ok(())
    }

    /// Takes back everything after the first `kept` entries; returns the sentence that says why.
    fn back(&self, journal: &[Value], kept: usize, step: &Step, why: &io::Error) -> String {
        let mut sentence = format!("cannot write {}: {why}", step.path);
        if why.kind() == io::ErrorKind::PermissionDenied || why.raw_os_error() == Some(30) {
            sentence.push_str(" (it takes root, and a container often may not at all)");
        }
        let failed: Vec<String> = journal[kept..].iter().rev().filter_map(|entry| self.revert(entry).err()).collect();
        let rest = if kept == 0 { self.forget() } else { self.write_journal(&journal[..kept]) };
        match (failed.is_empty(), rest) {
            (true, Ok(())) => sentence + "; nothing was changed",
            _ => format!("{sentence}; not everything could be taken back: {}", failed.join(", ")),
        }
    }

    /// Whether there is anything to undo.
    pub fn has_journal(&self) -> bool {
        self.at(&self.journal).exists()
    }

    /// Restores what was there before the first change, last change first. A value that someone else has changed since is left
    /// alone, unless `force`; each write is reported.
    ///
    /// # Errors
    /// There is no journal, or it cannot be read; or what could not be put back.
    pub fn undo(&self, force: bool) -> Result<Vec<String>, String> {
        if !self.has_journal() {
            return Err(format!("there is nothing to undo: {} is not there", self.journal));
        }
        let journal = self.read_journal()?;
        let mut told = Vec::new();
        let mut left = Vec::new();
        let mut failed = Vec::new();
        for entry in journal.iter().rev() {
            let path = entry["path"].as_str().unwrap_or_default();
            let now = fs::read_to_string(self.at(path)).ok();
            let ours = now.as_deref().map(words) == entry["after"].as_str().map(words);
            if !ours && !force {
                left.push(format!("{path}: changed since by someone else, left as it is"));
                continue;
            }
            match self.revert(entry) {
                Ok(()) => told.push(match entry["before"].as_str() {
                    Some(before) if entry["is_value"] == true => format!("{path}: {} again", words(before).join(" ")),
                    Some(_) => format!("{path}: as it was"),
                    None => format!("{path}: removed"),
                }),
                Err(why) => failed.push(why),
            }
        }
        if !failed.is_empty() {
            return Err(format!("not everything could be put back: {}", failed.join("; ")));
        }
        self.forget().map_err(|e| format!("cannot remove {}: {e}", self.journal))?;
        told.extend(left);
        Ok(told)
    }

    fn revert(&self, entry: &Value) -> Result<(), String> {
        let path = entry["path"].as_str().unwrap_or_default();
        let at = self.at(path);
        let done = match entry["before"].as_str() {
            Some(before) => write(&at, before, entry["is_value"] == true),
            None => fs::remove_file(&at).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }),
        };
        done.map_err(|e| format!("{path}: {e}"))
    }

    fn read_journal(&self) -> Result<Vec<Value>, String> {
        let broken = |why: &dyn std::fmt::Display| format!("the journal {} cannot be used: {why}", self.journal);
        match fs::read_to_string(self.at(&self.journal)) {
            Ok(text) => match serde_json::from_str(&text).map_err(|e| broken(&e))? {
                Value::Array(entries) => Ok(entries),
                _ => Err(broken(&"not a list")),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(broken(&e)),
        }
    }

    fn write_journal(&self, entries: &[Value]) -> io::Result<()> {
        let text = format!("{:#}\n", Value::Array(entries.to_vec()));
        write(&self.at(&self.journal), &text, false)
    }

    fn forget(&self) -> io::Result<()> {
        match fs::remove_file(self.at(&self.journal)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// The kernel returns tabs in place of spaces, and ends the text with a line feed.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn write(path: &Path, text: &str, is_value: bool) -> io::Result<()> {
    if is_value {
        // One write(2), into the existing file: /sys takes a value whole or not at all.
        return fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    // Whole or not at all: written beside, then put in place.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".penstock-new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: &str = "/var/lib/penstock/doctor.json";

    fn host() -> (tempfile::TempDir, Changes) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in
            [("proc/sys/net/core/somaxconn", "128\n"), ("sys/q/state", "up\n"), ("sys/q/services", "sym\n")]
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let changes = Changes::new(root.path(), JOURNAL);
        (root, changes)
    }

    fn value(path: &str, value: &str) -> Change {
        Change::Value { path: path.into(), value: value.into(), udev: None }
    }

    fn sysctl(value: &str) -> Change {
        Change::Sysctl { name: "net.core.somaxconn".into(), value: value.into() }
    }

    fn read(root: &tempfile::TempDir, path: &str) -> Option<String> {
        fs::read_to_string(root.path().join(path)).ok()
    }

    #[test]
    fn what_is_applied_twice_is_undone_to_what_was_there_first() {
        let (root, changes) = host();
        changes.apply(&changes.steps_of(&[sysctl("4096")])).unwrap();
        changes
            .apply(&changes.steps_of(&[
                sysctl("8192"),
                Change::Service { unit: "p.service".into(), setting: "LimitNOFILE=9".into() },
            ]))
            .unwrap();
        assert_eq!(read(&root, "proc/sys/net/core/somaxconn").as_deref(), Some("8192"));
        assert!(read(&root, "etc/sysctl.d/90-penstock.conf").unwrap().ends_with("net.core.somaxconn = 8192\n"));
        assert!(
            read(&root, "etc/systemd/system/p.service.d/90-penstock.conf")
                .unwrap()
                .ends_with("[Service]\nLimitNOFILE=9\n")
        );
        let told = changes.undo(false).unwrap();
        assert_eq!(read(&root, "proc/sys/net/core/somaxconn").as_deref(), Some("128\n"));
        assert!(read(&root, "etc/sysctl.d/90-penstock.conf").is_none() && !changes.has_journal(), "{told:?}");
        assert!(changes.undo(false).unwrap_err().contains("nothing to undo"));
    }

    /// Services are written while the device is down, forwards and backwards.
    #[test]
    fn steps_on_one_path_are_taken_back_in_reverse() {
        let (root, changes) = host();
        let fix = [value("/sys/q/state", "down"), value("/sys/q/services", "sym;asym"), value("/sys/q/state", "up")];
        changes.apply(&changes.steps_of(&fix)).unwrap();
        assert_eq!(read(&root, "sys/q/services").as_deref(), Some("sym;asym"));
        let told = changes.undo(false).unwrap();
        assert_eq!(told, ["/sys/q/state: down again", "/sys/q/services: sym again", "/sys/q/state: up again"]);
        assert_eq!(read(&root, "sys/q/services").as_deref(), Some("sym\n"));
    }

    #[test]
    fn what_fails_leaves_nothing_behind() {
        let (root, changes) = host();
        let why = changes.apply(&changes.steps_of(&[sysctl("4096"), value("/sys/none/x", "1")])).unwrap_err();
        assert!(why.contains("cannot write /sys/none/x") && why.ends_with("nothing was changed"), "{why}");
        assert_eq!(read(&root, "proc/sys/net/core/somaxconn").as_deref(), Some("128\n"));
        assert!(!changes.has_journal());
    }

    #[test]
    fn what_someone_else_has_changed_since_is_left_unless_forced() {
        let (root, changes) = host();
        changes.apply(&changes.steps_of(&[value("/sys/q/state", "down")])).unwrap();
        fs::write(root.path().join("sys/q/state"), "restarting\n").unwrap();
        assert!(changes.undo(false).unwrap()[0].contains("someone else"));
        changes.apply(&changes.steps_of(&[value("/sys/q/state", "down")])).unwrap();
        fs::write(root.path().join("sys/q/state"), "up\n").unwrap();
        changes.undo(true).unwrap();
        assert_eq!(read(&root, "sys/q/state").as_deref(), Some("restarting\n"));
    }

    #[test]
    fn a_broken_journal_is_said_and_not_written_over() {
        let (root, changes) = host();
        fs::create_dir_all(root.path().join("var/lib/penstock")).unwrap();
        fs::write(root.path().join("var/lib/penstock/doctor.json"), "{").unwrap();
        assert!(changes.apply(&changes.steps_of(&[sysctl("1")])).unwrap_err().contains("cannot be used"));
        assert!(changes.undo(false).unwrap_err().contains("cannot be used"));
        assert_eq!(read(&root, "proc/sys/net/core/somaxconn").as_deref(), Some("128\n"));
    }
}
