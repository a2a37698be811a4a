//! One conversation, after its handshake.

use crate::{
    Control, Definition, Flaw, MESSAGE_MAX, Message, PeerUpdate, PeerVersion,
    dictionary::{Received, Sent},
    message, update, varint,
};
use std::collections::{HashMap, VecDeque};

/// Most tables that a peer may define.
pub(crate) const DEFINITIONS_MAX: usize = 1024;
/// After this long without anything to send, a heartbeat is sent; as in HAProxy.
const HEARTBEAT_MS: u64 = 3_000;
/// A peer that says nothing for this long is taken for dead; as in HAProxy.
const SILENCE_MS: u64 = 5_000;
/// Output of one call, roughly: whoever calls sends it before there is more.
const OUTPUT: usize = 64 * 1024;
/// Most entries of a table that are looked at in one call, so that a call has an end even if nothing is to be sent.
const LOOKS: usize = 4_096;

/// The tables that a section of peers shares. Tables are numbers, from 0.
pub trait PeerTables {
    /// An entry, or a handle of one.
    type Entry;
    /// The tables, as they are defined to peers; the number of the first is 1 on the wire.
    fn definitions(&self) -> &[Definition];
    /// Changes of a table that were made here after the one numbered `after`, at most `most`, and the number of the last
    /// change that was looked at.
    fn changes(&self, table: usize, after: u64, most: usize) -> (Vec<Self::Entry>, u64);
    /// The number of the newest change.
    fn newest(&self, table: usize) -> u64;
    /// All entries of a table, part by part; `None` behind the last part.
    fn part(&self, table: usize, part: usize) -> Option<Vec<Self::Entry>>;
    /// What an entry holds now; `None` if it is not to be sent.
    fn entry(&self, table: usize, entry: &Self::Entry) -> Option<PeerUpdate>;
    /// Takes over what a peer knows of an entry. The peer's definition says what the update holds.
    fn learn(&self, table: usize, definition: &Definition, update: PeerUpdate);
}

/// Who the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// Another peer.
    Remote,
    /// Our predecessor, which teaches us.
    Predecessor,
    /// Our successor, which we teach.
    Successor,
}

/// What happened in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer has sent everything it knows; `finished` if it knew everything.
    Taught {
        /// Whether the peer considers itself up to date.
        finished: bool,
    },
    /// The peer has received everything we know.
    Confirmed,
}

/// What a peer has acknowledged of each table. It outlives the session.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged(Vec<u64>);

/// A table of the peer.
#[derive(Debug)]
struct Known {
    definition: Definition,
    local: Option<usize>,
}

/// The state of a table of ours.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    remote_id: u64,
    remote_data: u64,
    acknowledged: u64,
    pushed: u64,
    got: u32,
    answered: u32,
}

/// How far sending everything has come.
#[derive(Debug)]
struct Teaching<E> {
    table: usize,
    part: usize,
    entries: VecDeque<E>,
    /// The newest changes when it began: what comes later is sent as a change.
    newest: Vec<u64>,
}

/// A session.
#[derive(Debug)]
pub struct PeerSession<E> {
    kind: SessionKind,
    version: PeerVersion,
    input: Vec<u8>,
    known: HashMap<u64, Known>,
    receiving: Option<u64>,
    sending: Option<usize>,
    shared: Vec<Shared>,
    sent: Sent,
    received: Received,
    teaching: Option<Teaching<E>>,
    /// Whether to ask for everything.
    request: bool,
    confirms: u32,
    told_everything: bool,
    last_in: u64,
    last_out: u64,
    heartbeats: (u64, u64),
}

/// A table, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedView {
    /// The peer's number of it; 0 if it has none.
    pub remote_id: u64,
    /// The data types that the peer sends.
    pub remote_data: u64,
    /// The last update of the peer that we acknowledged.
    pub last_acked: u32,
    /// The last update that we sent.
    pub last_pushed: u64,
    /// The last update that we received.
    pub last_get: u32,
    /// The last of our updates that the peer acknowledged.
    pub acknowledged: u64,
}

impl<E> PeerSession<E> {
    /// A session whose handshake has succeeded. A successor is taught everything, without being asked.
    pub fn new<T: PeerTables<Entry = E>>(
        kind: SessionKind,
        version: PeerVersion,
        progress: &Acknowledged,
        tables: &T,
        now: u64,
    ) -> Self {
        let count = tables.definitions().len();
        let acknowledged = |table| progress.0.get(table).copied().unwrap_or(0);
        let shared = (0..count).map(|table| Shared {
            acknowledged: acknowledged(table),
            pushed: acknowledged(table),
            ..Shared::default()
        });
        let mut session = PeerSession {
            kind,
            version,
            input: Vec::new(),
            known: HashMap::new(),
            receiving: None,
            sending: None,
            shared: shared.collect(),
            sent: Sent::default(),
            received: Received::default(),
            teaching: None,
            request: false,
            confirms: 0,
            told_everything: false,
            last_in: now,
            last_out: now,
            heartbeats: (0, 0),
        };
        if kind == SessionKind::Successor {
            session.teach(tables);
        }
        session
    }

    /// Who the peer is.
    pub fn kind(&self) -> SessionKind {
        self.kind
    }

    /// Asks the peer for everything it knows.
    pub fn ask(&mut self) {
        self.request = true;
    }

    /// What the peer has acknowledged.
    pub fn progress(&self) -> Acknowledged {
        Acknowledged(self.shared.iter().map(|shared| shared.acknowledged).collect())
    }

    /// Milliseconds until [`PeerSession::produce`] has a heartbeat to send, or the peer is dead.
    pub fn left(&self, now: u64) -> u64 {
        (self.last_out + HEARTBEAT_MS).min(self.last_in + SILENCE_MS).saturating_sub(now)
    }

    /// Whether the peer has said nothing for too long.
    pub fn is_dead(&self, now: u64) -> bool {
        now >= self.last_in + SILENCE_MS
    }

    /// Heartbeats sent and received.
    pub fn heartbeats(&self) -> (u64, u64) {
        self.heartbeats
    }

    /// The tables, as operators see them.
    pub fn tables(&self) -> impl Iterator<Item = SharedView> {
        self.shared.iter().map(|shared| SharedView {
            remote_id: shared.remote_id,
            remote_data: shared.remote_data,
            last_acked: shared.answered,
            last_pushed: shared.pushed,
            last_get: shared.got,
            acknowledged: shared.acknowledged,
        })
    }

    /// Names sent, and names received, each with its number.
    pub fn names(&self) -> [Vec<(usize, String)>; 2] {
        let owned = |(at, name): (usize, &str)| (at, name.to_owned());
        [self.sent.names().map(owned).collect(), self.received.names().map(owned).collect()]
    }

    /// Takes bytes from the peer, and learns what they say.
    ///
    /// # Errors
    ///
    /// If the peer broke the protocol: [`Flaw::farewell`] is then sent, and the connection closed.
    pub fn input<T: PeerTables<Entry = E>>(
        &mut self,
        bytes: &[u8],
        tables: &T,
        now: u64,
    ) -> Result<Vec<PeerEvent>, Flaw> {
        let mut events = Vec::new();
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        while let Some(message) = Message::read(&mut rest)? {
            self.last_in = now;
            events.extend(self.message(message, tables)?);
        }
        let used = input.len() - rest.len();
        input.drain(..used);
        debug_assert!(input.len() <= MESSAGE_MAX + 16, "an unfinished message is bounded");
        self.input = input;
        Ok(events)
    }

    fn message<T: PeerTables<Entry = E>>(
        &mut self,
        message: Message<'_>,
        tables: &T,
    ) -> Result<Option<PeerEvent>, Flaw> {
        match message {
            Message::Control(Control::Request) => {
                // One that asks again while it is taught gets what it is getting.
                if self.teaching.is_none() {
                    self.teach(tables);
                }
            }
            Message::Control(control @ (Control::Finished | Control::Partial)) => {
                self.confirms = self.confirms.saturating_add(1);
                return Ok(Some(PeerEvent::Taught { finished: control == Control::Finished }));
            }
            Message::Control(Control::Confirm) => {
                return Ok(std::mem::take(&mut self.told_everything).then_some(PeerEvent::Confirmed));
            }
            Message::Control(Control::Heartbeat) => self.heartbeats.1 += 1,
            Message::Error => return Err(Flaw::Reported),
            Message::Define(content) => self.define(Definition::read(content)?, tables)?,
            Message::Switch(mut content) => {
                let id = varint::take(&mut content)?;
                self.known.get(&id).ok_or(Flaw::NoTable)?;
                self.receiving = Some(id);
            }
            Message::Update { numbered, timed, content } => self.update(numbered, timed, content, tables)?,
            Message::Acknowledge(mut content) => {
                let id = varint::take(&mut content)?;
                let number = varint::word(&mut content)?;
                let table = id.checked_sub(1).and_then(|table| self.shared.get_mut(usize::try_from(table).ok()?));
                if let Some(shared) = table {
                    let position = nearest(shared.pushed, number);
                    // One that we have not sent yet cannot be acknowledged.
                    shared.acknowledged = position.min(shared.pushed);
                }
            }
            Message::Unknown => {}
        }
        Ok(None)
    }

    fn define<T: PeerTables>(&mut self, definition: Definition, tables: &T) -> Result<(), Flaw> {
        let id = definition.id;
        if self.known.len() >= DEFINITIONS_MAX && !self.known.contains_key(&id) {
            return Err(Flaw::Definitions);
        }
        self.receiving = Some(id);
        if self.known.get(&id).is_some_and(|known| known.definition == definition) {
            return Ok(());
        }
        let local = tables.definitions().iter().position(|own| own.accepts(&definition));
        if let Some(table) = local {
            self.shared[table].remote_id = id;
            self.shared[table].remote_data =
                definition.columns.iter().fold(0, |bits, column| bits | 1 << column.number);
        }
        self.known.insert(id, Known { definition, local });
        Ok(())
    }

    fn update<T: PeerTables>(&mut self, numbered: bool, timed: bool, content: &[u8], tables: &T) -> Result<(), Flaw> {
        let known = self.receiving.and_then(|id| self.known.get(&id)).ok_or(Flaw::NoTable)?;
        let (number, entry) = update::read(&known.definition, numbered, timed, content, &mut self.received)?;
        let Some(table) = known.local else { return Ok(()) };
        let shared = &mut self.shared[table];
        shared.got = number.unwrap_or(shared.got.wrapping_add(1));
        tables.learn(table, &known.definition, entry);
        Ok(())
    }

    fn teach<T: PeerTables<Entry = E>>(&mut self, tables: &T) {
        let newest = (0..self.shared.len()).map(|table| tables.newest(table)).collect();
        self.teaching = Some(Teaching { table: 0, part: 0, entries: VecDeque::new(), newest });
    }

    /// Appends what is to be sent now, at most `most` entries, and returns whether there is more. To be called once all output of the last
    /// call is on its way. `up_to_date` says whether this process knows everything.
    pub fn produce<T: PeerTables<Entry = E>>(
        &mut self,
        tables: &T,
        most: usize,
        up_to_date: bool,
        now: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        let from = out.len();
        if std::mem::take(&mut self.request) {
            out.extend(Control::Request.bytes());
        }
        let confirms = self.confirms.min(64);
        self.confirms -= confirms;
        (0..confirms).for_each(|_| out.extend(Control::Confirm.bytes()));
        for (table, shared) in self.shared.iter_mut().enumerate() {
            if shared.got != shared.answered {
                shared.answered = shared.got;
                let mut content = Vec::new();
                varint::write(table as u64 + 1, &mut content);
                content.extend(shared.got.to_be_bytes());
                message::write(message::ACKNOWLEDGE, &content, out);
            }
        }
        let more = match self.teaching {
            Some(_) => {
                self.lesson(tables, most, up_to_date, from, out);
                true
            }
            None => self.changes(tables, most, from, out),
        };
        if out.len() == from && now >= self.last_out + HEARTBEAT_MS {
            out.extend(Control::Heartbeat.bytes());
            self.heartbeats.0 += 1;
        }
        if out.len() > from {
            self.last_out = now;
        }
        more || self.confirms > 0
    }

    /// Appends the next entries of everything.
    fn lesson<T: PeerTables<Entry = E>>(
        &mut self,
        tables: &T,
        most: usize,
        up_to_date: bool,
        from: usize,
        out: &mut Vec<u8>,
    ) {
        let Some(mut teaching) = self.teaching.take() else { return };
        let (mut looked, mut written) = (0, 0);
        while looked < LOOKS && written < most && out.len() - from < OUTPUT {
            looked += 1;
            if teaching.table == self.shared.len() {
                for (shared, newest) in self.shared.iter_mut().zip(&teaching.newest) {
                    shared.pushed = shared.pushed.max(*newest);
                }
                self.told_everything = true;
                let last = if up_to_date { Control::Finished } else { Control::Partial };
                out.extend(last.bytes());
                return;
            }
            let (table, newest) = (teaching.table, teaching.newest[teaching.table]);
            if let Some(entry) = teaching.entries.pop_front() {
                if let Some(update) = tables.entry(table, &entry) {
                    self.write(tables, table, newest, &update, out);
                    written += 1;
                }
                continue;
            }
            match tables.part(table, teaching.part) {
                Some(entries) => {
                    teaching.entries = entries.into();
                    teaching.part += 1;
                }
                None => {
                    // Peers learn of an empty table as well.
                    self.introduce(tables, table, out);
                    (teaching.table, teaching.part) = (table + 1, 0);
                }
            }
        }
        self.teaching = Some(teaching);
    }

    /// Appends the next changes; returns whether there may be more.
    fn changes<T: PeerTables<Entry = E>>(&mut self, tables: &T, most: usize, from: usize, out: &mut Vec<u8>) -> bool {
        let mut left = most;
        for table in 0..self.shared.len() {
            if left == 0 || out.len() - from >= OUTPUT {
                return true;
            }
            let (entries, reached) = tables.changes(table, self.shared[table].pushed, left);
            left -= entries.len().min(left);
            for entry in &entries {
                if let Some(update) = tables.entry(table, entry) {
                    self.write(tables, table, reached, &update, out);
                }
            }
            self.shared[table].pushed = reached;
        }
        left == 0
    }

    /// Appends the definition of a table, unless the last update belongs to it.
    fn introduce<T: PeerTables>(&mut self, tables: &T, table: usize, out: &mut Vec<u8>) {
        if self.sending != Some(table) {
            tables.definitions()[table].write(out);
            self.sending = Some(table);
        }
    }

    fn write<T: PeerTables>(&mut self, tables: &T, table: usize, number: u64, entry: &PeerUpdate, out: &mut Vec<u8>) {
        self.introduce(tables, table, out);
        let timed = self.version == PeerVersion::V21;
        update::write(&tables.definitions()[table], number as u32, timed, entry, &mut self.sent, out);
    }
}

/// The position that ends in these 32 bits, and is not behind `pushed` by more than they can tell.
fn nearest(pushed: u64, low: u32) -> u64 {
    pushed - u64::from((pushed as u32).wrapping_sub(low)).min(pushed)
}

#[cfg(test)]
mod tests;
