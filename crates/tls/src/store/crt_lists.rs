//! crt-lists, and directories, which are treated as crt-lists without settings.

use super::{
    State, Store, StoreError,
    error::Refusal,
    lines::{Builder, Expanded, Line, Wanted},
};
use crate::{
    Memory,
    certificate::reason,
    crt_list::{self, Entry},
    loader::Folders,
    settings,
};
use penstock_config::{Diagnostics, Span, Spanned};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A crt-list or a directory, as read and as changed by commands.
#[derive(Default)]
pub(super) struct List {
    directory: bool,
    entries: Vec<Certificate>,
    /// The number of lines of the file, and of those added since.
    lines: usize,
}

/// One certificate of a list. If a line names a bundle, each member is one.
struct Certificate {
    number: u64,
    group: u64,
    path: PathBuf,
    entry: Entry,
}

/// A line of a crt-list, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The certificate's name in the store.
    pub certificate: String,
    /// 0 for a directory.
    pub line: usize,
    /// The settings in brackets, if there are any.
    pub settings: Option<String>,
    /// Names and excluded names.
    pub filters: Vec<String>,
}

/// The files of authorities and revocation lists that an entry names, each behind its word. While the process runs, they must be in the
/// store already, whether or not clients are verified: nothing is read from disk then.
fn files_of_authorities(entry: &Entry) -> impl Iterator<Item = (&'static str, &str)> {
    let conf = &entry.conf;
    let named = [("ca-file", &conf.ca_file), ("ca-verify-file", &conf.ca_verify_file), ("crl-file", &conf.crl_file)];
    named.into_iter().filter_map(|(word, file)| Some((word, file.as_ref()?.value.to_str()?)))
}

/// The name of a directory as a crt-list: without slashes at its end.
pub(super) fn directory_name(path: &Path) -> String {
    let name = path.display().to_string();
    match name.trim_end_matches('/') {
        "" => name,
        trimmed => trimmed.to_owned(),
    }
}

impl State {
    /// Stores a directory as a list of its certificates.
    pub fn directory(&mut self, name: &str, files: Vec<PathBuf>) {
        if self.lists.contains_key(name) {
            return;
        }
        let mut list = List { directory: true, ..List::default() };
        for path in files {
            let entry = Entry { file: path.clone(), ..Entry::default() };
            list.entries.push(Certificate { number: self.number(), group: self.number(), path, entry });
        }
        self.lists.insert(name.to_owned(), list);
    }

    /// The certificates that a line with this list is to present.
    pub fn wanted_of(&self, name: &str, span: Span) -> Vec<Wanted> {
        let Some(list) = self.lists.get(name) else { return Vec::new() };
        let name: Arc<str> = name.into();
        let wanted =
            |kept: &Certificate| kept.entry.wanted(kept.path.clone(), (name.clone(), kept.number), span, kept.group);
        list.entries.iter().map(wanted).collect()
    }

    /// Whether a list has an entry for this certificate.
    pub fn is_listed(&self, certificate: &str) -> bool {
        self.lists.values().any(|list| list.entries.iter().any(|kept| kept.is(certificate)))
    }
}

impl Certificate {
    fn is(&self, certificate: &str) -> bool {
        self.path.as_os_str() == certificate
    }
}

impl Builder<'_> {
    /// Reads a crt-list, unless it is in the store; returns whether it is there now.
    pub fn read_list(&mut self, name: &str, file: &Spanned<PathBuf>) -> bool {
        if self.state.lists.contains_key(name) {
            return true;
        }
        let text = match self.loader.read(&file.value) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) => {
                let why = reason(&e);
                self.diagnostics.error(file.span, format!("crt-list '{name}' cannot be read: {why}"));
                return false;
            }
        };
        let global = &self.settings.global;
        let mut list = List { lines: text.lines().count(), ..List::default() };
        for entry in crt_list::parse(&text, &file.value, global.ca_base.as_deref(), file.span, self.diagnostics) {
            let path = match &global.crt_base {
                Some(base) if !super::files::is_stored(&entry.file) => base.join(&entry.file),
                _ => entry.file.clone(),
            };
            let bundle = self.state.number();
            let (paths, one) = match self.expand(&path, file.span) {
                Expanded::Files(paths) => (paths, true),
                Expanded::Directory(_, paths) => (paths, false),
            };
            for path in paths {
                let number = self.state.number();
                let group = if one { bundle } else { number };
                list.entries.push(Certificate { number, group, path, entry: entry.clone() });
            }
        }
        self.state.lists.insert(name.to_owned(), list);
        true
    }
}

impl Store {
    /// The names of all crt-lists and directories.
    pub fn crt_lists(&self) -> Vec<String> {
        self.state().lists.keys().cloned().collect()
    }

    /// The lines of a list.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn crt_list(&self, name: &str) -> Result<Vec<ListedEntry>, StoreError> {
        let state = self.state();
        let list = state.lists.get(&directory_name(Path::new(name)));
        let list = list.ok_or_else(|| StoreError::new(Refusal::Unknown, "didn't find the specified filename"))?;
        let shown = |kept: &Certificate| ListedEntry {
            certificate: kept.path.display().to_string(),
            line: kept.entry.line,
            settings: kept.entry.shown_conf.clone(),
            filters: kept.entry.shown_filters.clone(),
        };
        Ok(list.entries.iter().map(shown).collect())
    }

    /// Adds a line (a certificate of the store, optionally with settings and filters) to a list, and so to every `bind`
    /// line that has the list; returns the certificate's name, and the number of these lines.
    ///
    /// # Errors
    ///
    /// If there is no such list or certificate, or the line is invalid or cannot be used.
    pub fn add_to_crt_list(&self, name: &str, line: &str) -> Result<(String, usize), StoreError> {
        let refuse = |refusal, text: String| Err(StoreError::new(refusal, format!("Can't edit the crt-list: {text}")));
        let (settings, state) = (self.settings(), &mut *self.state());
        let name = directory_name(Path::new(name));
        let entry = match crt_list::entry(line.trim(), settings.global.ca_base.as_deref(), Span::default()) {
            Ok(entry) => entry,
            Err(what) => return refuse(Refusal::BadInput, format!("parsing [CLI:1]: {what}")),
        };
        let path = entry.file.clone();
        let certificate = path.display().to_string();
        if certificate.is_empty() {
            let text = "'add ssl crtlist' should contain the certificate name in the payload".to_owned();
            return refuse(Refusal::BadInput, text);
        }
        let Some(list) = state.lists.get(&name) else {
            return refuse(Refusal::Unknown, format!("crt-list '{name}' does not exist!"));
        };
        if list.directory && !certificate.starts_with(&format!("{name}/")) {
            let text =
                format!("'{name}' is a directory, certificate path '{certificate}' must contain the directory path");
            return refuse(Refusal::BadInput, text);
        }
        match state.certificates.get(&certificate) {
            None => return refuse(Refusal::Unknown, format!("certificate '{certificate}' does not exist!")),
            Some(slot) if slot.certificate.is_none() => {
                return refuse(Refusal::Incomplete, format!("certificate '{certificate}' is empty!"));
            }
            Some(_) => {}
        }
        if let Some((word, file)) =
            files_of_authorities(&entry).find(|(_, file)| !state.authorities.contains_key(*file))
        {
            return refuse(Refusal::Unknown, format!("'{word}' : unable to load {file}"));
        }
        let entry = Entry { line: list.lines + 1, ..entry };
        let kept = Certificate { number: state.number(), group: state.number(), path, entry };

        let mut lines = std::mem::take(&mut state.lines);
        let mut diagnostics = Diagnostics::default();
        let mut builder = Builder {
            settings,
            state: &mut *state,
            loader: &Memory::default(),
            diagnostics: &mut diagnostics,
            read: HashMap::new(),
            folders: Folders::default(),
        };
        let list_name: Arc<str> = name.as_str().into();
        let has_list = |line: &Line| line.lists.iter().any(|list| **list == *list_name);
        // Settings may work on one line and not on another, so all of them are tried before anything changes.
        let possible = lines.iter_mut().filter(|line| has_list(line)).all(|line| {
            let conf = settings::over(&kept.entry.conf, &line.tls.conf);
            builder.shape(line, &conf, Span::default()).is_some()
        });
        let mut added = Vec::new();
        if possible {
            for (index, line) in lines.iter_mut().enumerate().filter(|(_, line)| has_list(line)) {
                let span = line.span;
                let want = kept.entry.wanted(kept.path.clone(), (list_name.clone(), kept.number), span, kept.group);
                let mut table = crate::context::Table::clone(&line.live.load());
                let Some(order) = builder.present(line, &mut table, want) else { continue };
                table.defaults = line.defaults();
                line.publish(table);
                added.push((index, order));
            }
        }
        state.lines = lines;
        if !possible {
            return refuse(Refusal::BadInput, super::complaint(&diagnostics).unwrap_or_default());
        }
        let instances = added.len();
        if let Some(slot) = state.certificates.get_mut(&certificate) {
            slot.instances.extend(added);
        }
        if let Some(list) = state.lists.get_mut(&name) {
            list.lines += 1;
            list.entries.push(kept);
        }
        Ok((certificate, instances))
    }

    /// Removes the line of a certificate from a list; if there are several, the one with this number.
    ///
    /// # Errors
    ///
    /// If there is no such list, certificate or line, or it is the default certificate of a `bind` line.
    pub fn remove_from_crt_list(&self, name: &str, certificate: &str, line: Option<usize>) -> Result<(), StoreError> {
        let refuse = |refusal, text: String| Err(StoreError::new(refusal, format!("Can't delete the entry: {text}")));
        let state = &mut *self.state();
        let name = directory_name(Path::new(name));
        let Some(list) = state.lists.get(&name) else {
            return refuse(Refusal::Unknown, format!("crt-list '{name}' does not exist!"));
        };
        if !state.certificates.contains_key(certificate) {
            return refuse(Refusal::Unknown, format!("certificate '{certificate}' does not exist!"));
        }
        let found: Vec<(u64, usize)> = list
            .entries
            .iter()
            .filter(|kept| kept.is(certificate))
            .map(|kept| (kept.number, kept.entry.line))
            .collect();
        let numbers = || found.iter().map(|(_, line)| line.to_string()).collect::<Vec<_>>().join(", ");
        let number = match (line.filter(|line| *line > 0), &found[..]) {
            (_, []) => {
                let text = format!("certificate '{certificate}' can't be found in crt-list '{name}'!");
                return refuse(Refusal::Unknown, text);
            }
            (None, [(number, _)]) => *number,
            (None, _) => {
                let text = format!(
                    "found the certificate '{certificate}' in several entries, please specify a line number preceded by \
                     colons ({})!",
                    numbers()
                );
                return refuse(Refusal::BadIndex, text);
            }
            (Some(wanted), found) => match found.iter().find(|(_, line)| *line == wanted) {
                Some((number, _)) => *number,
                None => {
                    let text = format!(
                        "found a certificate '{certificate}' but the line number is incorrect, please specify a correct \
                         line number preceded by colons ({})!",
                        numbers()
                    );
                    return refuse(Refusal::BadIndex, text);
                }
            },
        };
        let of_entry = |line: &Line| -> Vec<u64> {
            let own = |entry: &Option<(Arc<str>, u64)>| entry.as_ref().is_some_and(|(_, of)| *of == number);
            line.instances.iter().filter(|(_, instance)| own(&instance.entry)).map(|(order, _)| *order).collect()
        };
        let default_of = |line: &&Line| {
            let first = line.instances.keys().next();
            first.is_some_and(|first| of_entry(line).contains(first))
        };
        let defaults: Vec<&str> = state.lines.iter().filter(default_of).map(|line| line.place.as_str()).collect();
        if !defaults.is_empty() {
            let places: String = defaults.iter().map(|place| format!("\n\t- {place}")).collect();
            let text = format!(
                "certificate '{certificate}' cannot be deleted, it is used as default certificate by the following \
                 frontends:{places}"
            );
            return refuse(Refusal::InUse, text);
        }
        for (index, line) in state.lines.iter_mut().enumerate() {
            for order in of_entry(line) {
                line.remove(order);
                if let Some(slot) = state.certificates.get_mut(certificate) {
                    slot.instances.retain(|of| *of != (index, order));
                }
            }
        }
        if let Some(list) = state.lists.get_mut(&name) {
            list.entries.retain(|kept| kept.number != number);
        }
        Ok(())
    }
}
