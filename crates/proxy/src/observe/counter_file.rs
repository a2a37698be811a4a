//! A file in memory in which a worker keeps its counters, so that they outlive it: the next worker adds them to its own, whether
//! this one finished or was killed.
//!
//! Counters are written here whenever they are read, before they are shown, so that no counter ever appears to decrease.

use super::{
    snapshot::Row,
    stats_file::{self, OfProcess, Past, Which},
};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The offsets at which texts are written in turn: one is complete while the other is written. Unwritten pages take no memory.
const PLACES: [u64; 2] = [1 << 12, 1 << 40];

/// The longest text that is read.
const TEXT_MAX: u64 = 1 << 30;

/// The start of the file: tells which text is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heading {
    /// How many texts have been written; this number determines the offset of the latest.
    writes: u64,
    length: u64,
    hash: u64,
}

impl Heading {
    fn read(file: &File) -> io::Result<Heading> {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0)?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Heading { writes: word(0), length: word(8), hash: word(16) })
    }
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.writes, self.length, self.hash]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
    fn place(self) -> u64 {
        PLACES[(self.writes % 2) as usize]
    }
}

/// FNV-1a: distinguishes a complete text from one that is being overwritten.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The values that counters start from.
#[derive(Debug, Default)]
pub enum Before {
    /// Zero.
    #[default]
    Nothing,
    /// The counters in a file.
    Past(Past),
    /// The counters of the previous worker, read from the file that it keeps writing while it drains.
    Worker(Predecessor),
}

/// The earlier counters, and the file in which the sums are kept.
#[derive(Debug)]
pub(crate) struct Carried(Mutex<Books>);

/// See [`Carried`].
#[derive(Debug)]
pub(crate) struct Books {
    before: Before,
    ledger: Option<Ledger>,
}

impl Carried {
    pub fn new(before: Before, ledger: Option<File>) -> Carried {
        Carried(Mutex::new(Books { before, ledger: ledger.map(Ledger::new) }))
    }

    /// Opens the books. Code that reads counters to show them does so first: of two readers, the one that read less must not be the
    /// last to write.
    pub fn open(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Adds the earlier counters, and writes the sums to the file before they are shown.
    pub fn complete(&mut self, rows: &mut [Row], process: &mut OfProcess) {
        let past = match &mut self.before {
            Before::Nothing => None,
            Before::Past(past) => Some(&*past),
            Before::Worker(predecessor) => Some(predecessor.past()),
        };
        if let Some(past) = past {
            past.add_to(rows);
            process.connections += past.of_process().connections;
            process.operators += past.of_process().operators;
        }
        if let Some(ledger) = &mut self.ledger {
            // If there is no memory for it, the next worker starts from what was written last.
            let _ = ledger.write(&stats_file::write(rows, Which::All(*process)));
        }
    }

    /// Drops the earlier counters.
    pub fn forget(&mut self) {
        self.before = Before::Nothing;
    }

    /// Whether the sums are kept for a next worker.
    pub fn are_kept(&self) -> bool {
        self.ledger.is_some()
    }
}

/// The file that a worker writes its counters to.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    writes: u64,
}

impl Ledger {
    pub fn new(file: File) -> Ledger {
        Ledger { file, writes: 0 }
    }

    /// Replaces the last text with this one.
    ///
    /// # Errors
    /// If there is no memory for it; the last text remains valid.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let heading = Heading { writes: self.writes + 1, length: text.len() as u64, hash: hash(text.as_bytes()) };
        self.file.write_all_at(text.as_bytes(), heading.place())?;
        self.file.write_all_at(&heading.to_bytes(), 0)?;
        self.writes += 1;
        Ok(())
    }
}

/// The file of the previous worker, which keeps writing to it while it drains.
#[derive(Debug)]
pub struct Predecessor {
    file: File,
    known: (Heading, Past),
}

impl Predecessor {
    /// A predecessor that writes to this file.
    pub fn new(file: File) -> Predecessor {
        Predecessor { file, known: Default::default() }
    }

    /// The counters in the last complete text.
    fn past(&mut self) -> &Past {
        // A text is overwritten only by the second one after it, so a reader that meets this finds a complete one when it
        // tries again.
        for _ in 0..3 {
            match self.newer(self.known.0) {
                Ok(Some((heading, text))) if hash(&text) == heading.hash => {
                    let text = String::from_utf8_lossy(&text);
                    self.known = (heading, Past::read(&text).0);
                    break;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        &self.known.1
    }

    fn newer(&self, known: Heading) -> io::Result<Option<(Heading, Vec<u8>)>> {
        let heading = Heading::read(&self.file)?;
        if heading == known || heading.length > TEXT_MAX {
            return Ok(None);
        }
        let mut text = vec![0; heading.length as usize];
        self.file.read_exact_at(&mut text, heading.place())?;
        Ok(Some((heading, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Ledger, Predecessor) {
        let file = File::from(rustix::fs::memfd_create("counters", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        (Ledger::new(file.try_clone().unwrap()), Predecessor::new(file))
    }

    fn text(connections: u64) -> String {
        format!("#process name,conn_tot,\nprocess,{connections},\n")
    }

    #[test]
    fn the_last_whole_text_holds() {
        let (mut ledger, mut predecessor) = pair();
        assert_eq!(*predecessor.past(), Past::default());
        for n in [1, 2, 1000, 7] {
            ledger.write(&text(n)).unwrap();
            assert_eq!(predecessor.past().of_process().connections, n);
        }
        // A writer killed while it writes the next text has not marked that one as valid yet.
        ledger.file.write_all_at(b"#process name,conn_tot,\nprocess,9", PLACES[1]).unwrap();
        assert_eq!(predecessor.past().of_process().connections, 7);
        // A text that does not match its heading is not valid either.
        let heading = Heading { writes: 5, length: 10, hash: 1 };
        ledger.file.write_all_at(&heading.to_bytes(), 0).unwrap();
        assert_eq!(predecessor.past().of_process().connections, 7);
        let heading = Heading { length: u64::MAX, ..heading };
        ledger.file.write_all_at(&heading.to_bytes(), 0).unwrap();
        assert_eq!(predecessor.past().of_process().connections, 7);
    }

    #[test]
    fn a_reader_beside_a_writer_sees_whole_texts_only() {
        let (mut ledger, mut predecessor) = pair();
        ledger.write(&text(0)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || (1..2000).for_each(|n| ledger.write(&text(n)).unwrap()));
            let mut last = 0;
            for _ in 0..2000 {
                let now = predecessor.past().of_process().connections;
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(predecessor.past().of_process().connections, 1999);
    }
}
