//! Changes made at run time that outlive the process (`runtime-changes-file`): which commands they are, and which of them still
//! matter. Commands in, lines out; the file is the caller's.
//!
//! Each line of the file is a command that succeeded. Reading the lines in order gives the same [`KeptChanges`] as recording the
//! commands did; what a later command has made pointless is dropped on the way, so that [`KeptChanges::lines`] is shorter than the file.

mod events;

pub use events::{Event, digest_of};

use base64::Engine as _;
use events::Subject;
use penstock_control::{Change, Command, Found, Membership, PatternAction, PatternKind, Servers, TABLE, TlsFile, Verb};
use penstock_proxy::certificates::{TICKET_KEYS, response_key};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    hash::Hash,
};

/// A command as its client gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The words of the command.
    pub words: Vec<String>,
    /// The payload of the command, if it has one.
    pub payload: Option<Vec<u8>>,
}

impl Given {
    /// The command that staples an OCSP response, given in DER.
    pub fn of_response(der: &[u8]) -> Given {
        let words = ["set", "ssl", "ocsp-response"].map(String::from);
        let payload = base64::engine::general_purpose::STANDARD.encode(der);
        Given { words: words.into(), payload: Some(payload.into_bytes()) }
    }

    /// The command, as the table of commands understands it; `None` if this version knows no such command.
    pub fn command(&self) -> Option<Command> {
        match TABLE.find(self.words.clone(), self.payload.clone(), |_| true) {
            Found::Entry(found, mut args) => found.parse(&mut args).ok(),
            Found::Nothing => None,
        }
    }

    /// The words of the command, without those that must not be logged.
    pub fn told(&self) -> String {
        match TABLE.find(self.words.clone(), None, |_| true) {
            Found::Entry(found, _) => found.about.told(&self.words),
            Found::Nothing => "***".to_owned(),
        }
    }
}

/// What is known of the files that a configuration has read, and of its lists.
pub struct FilesRead<'a> {
    /// A digest of a file when this process read it; `None` if it did not.
    pub digest: &'a dyn Fn(&str) -> Option<String>,
    /// The file of a list that a client names by its file or its number.
    pub list: &'a dyn Fn(PatternKind, &str) -> Option<String>,
    /// The certificate that the OCSP response with this key is stapled to.
    pub stapled: &'a dyn Fn(&str) -> Option<String>,
    /// The file of ticket keys that a client names by its file or its number.
    pub ticket_keys: &'a dyn Fn(&str) -> Option<String>,
}

/// The changes that are kept.
#[derive(Debug, Default)]
pub struct KeptChanges {
    /// In the order in which they were made.
    lines: BTreeMap<u64, Line>,
    by_subject: HashMap<Subject, BTreeSet<u64>>,
    /// The changes that have a key. A list may have a million lines, each with its own.
    by_key: HashMap<(Subject, String), BTreeSet<u64>>,
    /// The length of all lines, with their ends.
    length: u64,
    next: u64,
    /// The changes of a transaction that is not committed.
    transactions: HashMap<&'static str, Vec<(String, Event)>>,
    /// The entries of versions of lists that are not committed.
    versions: HashMap<(String, u32), Vec<Event>>,
    /// Whether a line with a ticket key has been dropped since [`KeptChanges::has_dropped_keys`].
    dropped_keys: bool,
}

#[derive(Debug)]
struct Line {
    subject: Subject,
    /// What a later line with the same key replaces.
    key: Option<String>,
    event: Event,
    /// The length of its text, with the end of the line.
    length: u64,
}

impl KeptChanges {
    /// Whether a command is one that may have to be kept.
    pub fn concerns(command: &Command) -> bool {
        use penstock_control::Certificates as C;
        match command {
            Command::Certificates(command) => {
                matches!(
                    command,
                    C::Change { .. }
                        | C::AddLine { .. }
                        | C::RemoveLine { .. }
                        | C::SetResponse(_)
                        | C::UpdateResponse(_)
                        | C::AddTicketKey { .. }
                )
            }
            Command::Patterns(patterns) => !matches!(
                patterns.action,
                PatternAction::List { .. } | PatternAction::Show { .. } | PatternAction::Get(..)
            ),
            Command::Membership(command) => !matches!(command, Membership::Wait(..)),
            Command::Servers(Servers::Set(..)) => true,
            _ => false,
        }
    }

    /// Records a command that has succeeded; returns what is to be added to the file.
    pub fn record(&mut self, command: &Command, given: Given, files: &FilesRead<'_>) -> Vec<Event> {
        match command {
            Command::Certificates(command) => self.tls(command, given, files),
            Command::Patterns(patterns) => self.patterns(patterns.kind, &patterns.action, given, files),
            Command::Membership(command) => self.membership(command, given),
            Command::Servers(Servers::Set(server, Ok(change))) => self.server(server, change, given),
            _ => Vec::new(),
        }
    }

    /// Records a line of the file.
    pub fn read(&mut self, event: Event, files: &FilesRead<'_>) {
        match event.given.command() {
            // Its certificate may be one that an earlier line brings.
            Some(Command::Certificates(penstock_control::Certificates::SetResponse(response))) => {
                if let Some(key) = response_key(&response) {
                    self.push(Subject::Response(key), Some("response".into()), event);
                }
            }
            Some(command) => drop(self.record(&command, event.given, files)),
            None => {}
        }
    }

    /// Whether ticket keys were dropped since this was last asked. They must not stay in the file: old tickets could be decrypted.
    pub fn has_dropped_keys(&mut self) -> bool {
        std::mem::take(&mut self.dropped_keys)
    }

    /// The lines that still matter, in order.
    pub fn lines(&self) -> impl Iterator<Item = &Event> {
        self.lines.values().map(|line| &line.event)
    }

    /// The length of their text, with the ends of the lines.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Carries out each line, in order, and drops those for which that fails.
    pub fn retain(&mut self, mut carry_out: impl FnMut(&Event) -> bool) {
        let failed: Vec<u64> =
            self.lines.iter().filter(|(_, line)| !carry_out(&line.event)).map(|(at, _)| *at).collect();
        failed.into_iter().for_each(|at| self.remove(at));
    }

    /// Drops what has been set in transactions and versions that were never committed.
    pub fn drop_unfinished(&mut self) {
        self.transactions.clear();
        self.versions.clear();
    }

    fn tls(&mut self, command: &penstock_control::Certificates, given: Given, files: &FilesRead<'_>) -> Vec<Event> {
        use penstock_control::Certificates as C;
        match command {
            C::Change { kind, file, verb } => self.file(*kind, file, verb, given, files),
            C::AddLine { list, line } => {
                let certificate = line.split_whitespace().next().map(str::to_owned);
                let event = Event::of_file(given, list, files);
                self.append(Subject::List(list.clone()), certificate, event)
            }
            C::RemoveLine { list, certificate, line } => {
                let subject = Subject::List(list.clone());
                let added = self.last_of(&subject, certificate).filter(|_| line.is_none());
                let event = Event::of_file(given, list, files);
                match added {
                    Some(at) => {
                        self.remove(at);
                        vec![event]
                    }
                    None => self.push(subject, None, event),
                }
            }
            C::SetResponse(response) => {
                let Some(key) = response_key(response) else { return Vec::new() };
                let Some(certificate) = (files.stapled)(&key) else { return Vec::new() };
                let event = Event::of_file(given, &format!("{certificate}.ocsp"), files);
                self.push(Subject::Response(key), Some("response".into()), event)
            }
            C::AddTicketKey { which, key } => {
                let Some(file) = (files.ticket_keys)(which) else { return Vec::new() };
                let words = ["set", "ssl", "tls-key", &file, key].map(String::from).into();
                let event = Event::of_file(Given { words, payload: None }, &file, files);
                let subject = Subject::TicketKeys(file);
                let events = self.append(subject.clone(), None, event);
                let keys = &self.by_subject[&subject];
                if let Some(oldest) = keys.first().copied().filter(|_| keys.len() > TICKET_KEYS) {
                    self.remove(oldest);
                    self.dropped_keys = true;
                }
                events
            }
            _ => Vec::new(),
        }
    }

    fn file(&mut self, kind: TlsFile, file: &str, verb: &Verb, given: Given, files: &FilesRead<'_>) -> Vec<Event> {
        let kind = match kind {
            TlsFile::Certificate => "certificate",
            TlsFile::Ca => "CA file",
            TlsFile::Crl => "CRL file",
        };
        let subject = Subject::Tls(kind, file.to_owned());
        let event = Event::of_file(given, file, files);
        match verb {
            Verb::New => self.push(subject, Some("new".into()), event),
            Verb::Set(_) | Verb::Add(_) => {
                let parts = self.transactions.entry(kind).or_default();
                if matches!(verb, Verb::Set(_)) {
                    parts.retain(|(part, _)| part != file);
                }
                parts.push((file.to_owned(), event));
                Vec::new()
            }
            Verb::Abort => {
                self.transactions.remove(kind);
                Vec::new()
            }
            Verb::Commit => {
                let mut events = Vec::new();
                for (part, event) in self.transactions.remove(kind).unwrap_or_default() {
                    let is_added = event.given.words.first().is_some_and(|word| word == "add");
                    let key = format!("content of {part}");
                    events.extend(match is_added {
                        true => self.append(subject.clone(), Some(key), event),
                        false => self.push(subject.clone(), Some(key), event),
                    });
                }
                events.extend(self.push(subject, Some("commit".into()), event));
                events
            }
            Verb::Delete => {
                let was_new =
                    self.newest(&subject, |event| event.given.words.first().is_some_and(|word| word == "new"));
                self.clear(&subject);
                match was_new {
                    Some(_) => vec![event],
                    None => self.push(subject, None, event),
                }
            }
        }
    }

    fn patterns(
        &mut self,
        kind: PatternKind,
        action: &PatternAction,
        given: Given,
        files: &FilesRead<'_>,
    ) -> Vec<Event> {
        let (name, version) = match action {
            PatternAction::Add(of, _) | PatternAction::Clear(of) => (&of.name, of.version),
            PatternAction::Set(name, penstock_control::PatternKey::Pattern(_), _)
            | PatternAction::Delete(name, penstock_control::PatternKey::Pattern(_)) => (name, None),
            PatternAction::Commit(version, name) => (name, Some(*version)),
            // An entry's number is another one in the next process.
            _ => return Vec::new(),
        };
        let Some(file) = (files.list)(kind, name) else { return Vec::new() };
        let subject = Subject::Patterns(file.clone());
        let word = if kind == PatternKind::Map { "map" } else { "acl" };
        // The command without a version, and with the file's name.
        let rest = given.words.iter().skip(3 + usize::from(version.is_some())).cloned();
        let words = [given.words[0].clone(), word.into(), file.clone()].into_iter().chain(rest).collect();
        let key = given.words.get(3).cloned();
        let event = Event::of_file(Given { words, payload: given.payload }, &file, files);
        match (action, version) {
            (PatternAction::Add(..), Some(version)) => {
                self.versions.entry((file, version)).or_default().push(event);
                Vec::new()
            }
            (PatternAction::Clear(_), Some(version)) => {
                self.versions.remove(&(file, version));
                Vec::new()
            }
            (PatternAction::Commit(..), Some(version)) => {
                let added = self.versions.remove(&(file.clone(), version)).unwrap_or_default();
                // Versions before the committed one are gone.
                self.versions.retain(|(of, older), _| *of != file || *older > version);
                self.clear(&subject);
                let words = vec!["clear".into(), word.into(), file.clone()];
                let cleared = Event::of_file(Given { words, payload: None }, &file, files);
                let events = std::iter::once(cleared).chain(added);
                events.flat_map(|event| self.append(subject.clone(), None, event)).collect()
            }
            (PatternAction::Clear(_), None) => {
                self.clear(&subject);
                self.append(subject, None, event)
            }
            // What was added or set before is removed with it; what the file has under the key is, too.
            (PatternAction::Delete(..), None) => self.push(subject, key, event),
            (PatternAction::Set(..), None) => {
                let is_set = |event: &Event| event.given.words[0] == "set" && event.given.words.get(3) == key.as_ref();
                let last = key.as_deref().and_then(|key| self.last_of(&subject, key));
                let last = last.filter(|at| is_set(&self.lines[at].event));
                last.into_iter().for_each(|at| self.remove(at));
                self.append(subject, key, event)
            }
            (_, _) => self.append(subject, key.filter(|_| event.given.payload.is_none()), event),
        }
    }

    fn membership(&mut self, command: &Membership, given: Given) -> Vec<Event> {
        let event = Event { given, file: None };
        match command {
            Membership::Add(backend, name, _) => {
                self.push(Subject::Server(format!("{backend}/{name}")), Some("add".into()), event)
            }
            Membership::Remove(backend, name) => {
                let name = format!("{backend}/{name}");
                let subject = Subject::Server(name.clone());
                if self.clear(&subject) {
                    return vec![event];
                }
                // Only a server in maintenance can be removed.
                let words = ["set", "server", &name, "state", "maint"].map(String::from).into();
                let maintenance = Event { given: Given { words, payload: None }, file: None };
                let mut events = self.append(subject.clone(), None, maintenance);
                events.extend(self.append(subject, None, event));
                events
            }
            Membership::Wait(..) => Vec::new(),
        }
    }

    /// Settings of servers that were added at run time. For the others there is `server-state-file`.
    fn server(&mut self, server: &str, change: &Change, given: Given) -> Vec<Event> {
        let subject = Subject::Server(server.to_owned());
        if self.by_subject.get(&subject).is_none_or(BTreeSet::is_empty) {
            return Vec::new();
        }
        let key = match change {
            Change::Ready | Change::Drain | Change::Maint => "state",
            Change::Weight(_) => "weight",
            Change::MaxConn(_) => "maxconn",
            Change::Checked(_) => "checked",
            Change::AgentAsked(_) => "agent",
            Change::Address { port: Some(_), .. } => "addr and port",
            Change::Address { port: None, .. } => "addr",
            Change::Fqdn(_) => "fqdn",
            Change::CheckPort(_) => "check-port",
            Change::CheckAddress(..) => "check-addr",
            Change::AgentAddress(..) => "agent-addr",
            Change::AgentPort(_) => "agent-port",
            Change::AgentSend(_) => "agent-send",
            Change::Tls(_) => "ssl",
            // The results of checks, and what has happened once.
            Change::Health(_) | Change::Agent(_) | Change::ShutdownSessions => return Vec::new(),
        };
        self.push(subject, Some(key.into()), Event { given, file: None })
    }

    /// Adds a line, which replaces those with the same key.
    fn push(&mut self, subject: Subject, key: Option<String>, event: Event) -> Vec<Event> {
        if let Some(key) = &key {
            let old = self.by_key.get(&(subject.clone(), key.clone())).cloned();
            old.into_iter().flatten().for_each(|at| self.remove(at));
        }
        self.append(subject, key, event)
    }

    /// Adds a line.
    fn append(&mut self, subject: Subject, key: Option<String>, event: Event) -> Vec<Event> {
        let at = self.next;
        self.next += 1;
        self.by_subject.entry(subject.clone()).or_default().insert(at);
        if let Some(key) = &key {
            self.by_key.entry((subject.clone(), key.clone())).or_default().insert(at);
        }
        let length = event.line().len() as u64 + 1;
        self.length += length;
        self.lines.insert(at, Line { subject, key, event: event.clone(), length });
        vec![event]
    }

    fn newest(&self, subject: &Subject, wanted: impl Fn(&Event) -> bool) -> Option<u64> {
        let lines = self.by_subject.get(subject)?;
        lines.iter().rev().find(|at| self.lines.get(at).is_some_and(|line| wanted(&line.event))).copied()
    }

    fn last_of(&self, subject: &Subject, key: &str) -> Option<u64> {
        self.by_key.get(&(subject.clone(), key.to_owned()))?.last().copied()
    }

    fn remove(&mut self, at: u64) {
        let Some(Line { subject, key, length, .. }) = self.lines.remove(&at) else { return };
        self.length -= length;
        if let Some(key) = key {
            take_out(&mut self.by_key, (subject.clone(), key), at);
        }
        take_out(&mut self.by_subject, subject, at);
    }

    /// Drops all lines about something; returns whether there were any.
    fn clear(&mut self, subject: &Subject) -> bool {
        let lines = self.by_subject.get(subject).cloned().unwrap_or_default();
        lines.iter().for_each(|at| self.remove(*at));
        !lines.is_empty()
    }
}

/// Removes a number from one of several sets, and the set with its last one.
fn take_out<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<u64>>, key: K, at: u64) {
    if let Entry::Occupied(mut set) = sets.entry(key) {
        set.get_mut().remove(&at);
        if set.get().is_empty() {
            set.remove();
        }
    }
}

#[cfg(test)]
mod tests;
