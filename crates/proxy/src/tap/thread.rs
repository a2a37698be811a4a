//! The thread of a tap: makes packets of what waits, and writes them.

use super::{
    end::End,
    queue::{Entry, Queue},
    taps::TapState,
};
use penstock_capture::packets;
use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How often the thread looks whether its reader is still there, or a new one has come.
const LOOK: Duration = Duration::from_millis(100);
/// How long the last packets may take at the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long an end that failed is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// Packets are written in pieces of about this size.
const PIECE: usize = 32 << 10;

/// What the process tells all taps.
#[derive(Default)]
pub(super) struct Orders {
    pub drains: AtomicBool,
}

pub(super) struct Writer {
    pub name: Arc<str>,
    pub target: String,
    pub end: End,
    /// What comes before the first packet.
    pub head: Vec<u8>,
    pub queue: Arc<Queue>,
    pub state: Arc<Mutex<TapState>>,
    pub orders: Arc<Orders>,
}

impl Writer {
    /// Runs until the queue is over.
    pub fn run(mut self, tell: &dyn Fn(u8, String)) {
        let mut retry: Option<Instant> = None;
        let mut told = false;
        let mut last = None;
        loop {
            if self.orders.drains.load(Relaxed) {
                self.end.stop_listening();
            }
            if self.queue.is_over() {
                last.get_or_insert_with(|| Instant::now() + FAREWELL);
            }
            let is_begun = self.queue.reader().is_some();
            if !is_begun && last.is_some() {
                return;
            }
            let result = match is_begun {
                true => self.write(last),
                // What has failed is left alone for a while.
                false if retry.is_none_or(|at| Instant::now() >= at) => self.begin(),
                false => Ok(()),
            };
            match result {
                Ok(()) if self.queue.reader().is_some() => {
                    if std::mem::take(&mut told) {
                        tell(5, format!("The copy for service {} goes on ({})", self.name, self.target));
                    }
                }
                Ok(()) => {}
                Err(e) => {
                    self.end.close();
                    self.queue.lose();
                    self.set(TapState::Failed(e.to_string()));
                    retry = Some(Instant::now() + RETRY);
                    if !std::mem::replace(&mut told, true) {
                        tell(4, format!("The copy for service {} is interrupted ({}): {e}", self.name, self.target));
                    }
                }
            }
            if last.is_some() && self.queue.used() == 0 {
                return;
            }
            if self.queue.reader().is_none() && last.is_none() {
                std::thread::sleep(LOOK);
            }
        }
    }
    /// Opens the end if somebody reads.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.end.check().is_err() && !self.end.open()? {
            self.set(TapState::Waiting);
            return Ok(());
        }
        self.end.write(&self.head, &[], &mut || false)?;
        self.queue.begin();
        self.set(TapState::Writing);
        Ok(())
    }
    /// Writes what waits.
    fn write(&mut self, last: Option<Instant>) -> io::Result<()> {
        let entries = self.queue.take(if last.is_some() { Duration::ZERO } else { LOOK });
        if entries.is_empty() {
            return self.end.check();
        }
        let mut patience = Patience(last);
        let (format, longest) = (self.end.format(), self.end.longest());
        let (mut out, mut pending) = (Vec::new(), Vec::<Entry>::new());
        let mut failed = None;
        let mut entries = entries.into_iter().peekable();
        let mut count = 0;
        while let Some(entry) = entries.next() {
            // What was added while a reader was lost is not for the next one.
            if failed.is_none() && self.queue.reader() == Some(entry.reader) {
                packets(&entry.ends, &entry.segment, &entry.data, longest, |headers, payload| {
                    count += 1;
                    format.packet(entry.unix_us, headers, payload, &mut out);
                });
                pending.push(entry);
            } else {
                self.queue.done(&entry, false);
            }
            if pending.is_empty() || (out.len() < PIECE && entries.peek().is_some()) {
                continue;
            }
            let written = self.end.write(&self.head, &out, &mut || patience.goes_on(&self.queue));
            pending.drain(..).for_each(|entry| self.queue.done(&entry, written.is_ok()));
            self.queue.counts.packets.fetch_add(if written.is_ok() { count } else { 0 }, Relaxed);
            failed = written.err();
            out.clear();
            count = 0;
        }
        failed.map_or(Ok(()), Err)
    }
    fn set(&self, state: TapState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// How long a reader that takes nothing is waited for: as long as the process serves.
struct Patience(Option<Instant>);

impl Patience {
    fn goes_on(&mut self, queue: &Queue) -> bool {
        if self.0.is_none() && queue.is_over() {
            self.0 = Some(Instant::now() + FAREWELL);
        }
        self.0.is_none_or(|end| Instant::now() < end)
    }
}
