//! Compression by the device: pieces of a body become Deflate blocks (RFC 1951) that end on a flush, so that they can be joined. The
//! wrappers, the checksums and the proof that a piece is right are the caller's.
//!
//! Each piece is a request without state: nothing of it refers to another. The same invariants hold as for handshakes; a block of
//! memory takes a slot's place.

pub mod abi;
mod block;
mod unit;

use crate::{
    Refused, Tag,
    abi::{RESTARTING, RETRY, SUCCESS, Status, event},
    device::Device,
    instance::{Health, Instance},
    library::{Deflate, Library},
    memory::Pinned,
};
use block::Block;
pub(crate) use block::Layout;
use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
pub(crate) use unit::Unit;

/// The longest piece.
pub const PIECE_MAX: usize = 64 << 10;
/// Pieces of one channel that wait for an answer, at most.
const DEPTH: usize = 16;
/// Blocks of one channel, at most, those included whose piece was never answered: of 140 KiB each.
const BLOCKS_MAX: usize = 2 * DEPTH;
/// What a channel that ends waits for its last answers.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Deflated {
    /// The blocks it became. They have not been checked.
    Answered(Vec<u8>),
    /// The device could not do it; -11 where its output had no room.
    Failed(Status),
    /// No answer came in time. A later one is not reported.
    Late,
}

/// One worker's channel to the instances for compression; it stays on its thread.
pub struct Deflater {
    device: Arc<Device>,
    calls: Deflate,
    /// Its instances, by their places in the device's list, and its session with each.
    sessions: Vec<(usize, Pinned)>,
    layout: Layout,
    node: i32,
    free: Vec<Block>,
    waiting: Vec<Waiting>,
    /// Pieces that were given up and have not been answered.
    late: Vec<Block>,
    full: u64,
    here: PhantomData<*const ()>,
}

struct Waiting {
    tag: Tag,
    block: Block,
    deadline: Instant,
}

/// What the library still has of a channel that has ended.
#[derive(Default)]
pub(crate) struct Left {
    blocks: Vec<Block>,
    sessions: Vec<Pinned>,
}

impl Left {
    /// Frees everything: the library has been stopped, and answers nothing any more.
    pub fn free(self, library: &Library) {
        self.blocks.into_iter().for_each(|block| block.free(library));
        self.sessions.into_iter().for_each(|session| session.free(library));
    }
}

impl Deflater {
    /// A channel to these instances; `None` if none of them starts a session.
    pub(crate) fn new(device: Arc<Device>, places: Vec<usize>, node: Option<u32>) -> Option<Deflater> {
        let calls = device.library.deflate?;
        let node = node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1);
        let mut sessions = Vec::new();
        for place in places {
            let unit = &device.units[place];
            let Some(session) = Pinned::allocate(&device.library, unit.session_bytes, node) else { continue };
            let mut setup = unit.setup;
            let (handle, context) = (unit.instance.handle, std::ptr::null_mut());
            // SAFETY: the instance has been started; the session's memory has the size it asked for and stays until the
            // session has been removed or the library stopped. Without state there is no context.
            let status = unsafe {
                (calls.init_session)(handle, session.as_ptr().cast(), &raw mut setup, context, block::answered)
            };
            if status == SUCCESS {
                unit.instance.workers.fetch_add(1, Ordering::Relaxed);
                sessions.push((place, session));
            } else {
                session.free(&device.library);
            }
        }
        let layout = device.units.iter().fold(Layout::default(), |most, unit| Layout {
            list_bytes: most.list_bytes.max(unit.list_bytes),
            output_bytes: most.output_bytes.max(unit.output_bytes),
        });
        (!sessions.is_empty()).then(|| Deflater {
            device,
            calls,
            sessions,
            layout,
            node,
            free: Vec::new(),
            waiting: Vec::new(),
            late: Vec::new(),
            full: 0,
            here: PhantomData,
        })
    }

    /// Pieces that wait for their answer.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// How many more pieces could be submitted, as far as this channel knows.
    pub fn room(&self) -> usize {
        let blocks = (BLOCKS_MAX - self.late.len()).min(DEPTH);
        if self.is_up() { blocks.saturating_sub(self.waiting.len()) } else { 0 }
    }

    /// Whether one of its instances takes requests. Where none does, the library is asked for news.
    pub fn is_up(&self) -> bool {
        let up = || self.mine().any(|instance| instance.health() == Health::Up);
        up() || {
            self.device.poll_events(Instant::now());
            up()
        }
    }

    /// Times a ring was full.
    pub fn times_full(&self) -> u64 {
        self.full
    }

    /// The device that the channel leads to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn mine(&self) -> impl Iterator<Item = &Instance> {
        self.sessions.iter().map(|(place, _)| &self.device.units[*place].instance)
    }

    /// Gives a piece of at most [`PIECE_MAX`] bytes to the least busy instance. It is answered, or late, in a later
    /// [`Deflater::poll`].
    ///
    /// # Errors
    /// Why it was not taken; then nothing of it is left.
    pub fn submit(&mut self, piece: &[u8], tag: Tag, deadline: Instant) -> Result<(), Refused> {
        if piece.is_empty() || piece.len() > PIECE_MAX {
            return Err(Refused::Failed(crate::abi::FAIL));
        }
        if self.waiting.len() >= DEPTH {
            return Err(Refused::Full);
        }
        if self.waiting.is_empty() && !self.late.is_empty() {
            // Nobody polls where nothing is waited for, and what is late takes room until it has been collected.
            self.collect_late();
        }
        let units = &self.device.units;
        let mut order: Vec<&(usize, Pinned)> =
            self.sessions.iter().filter(|(place, _)| units[*place].instance.health() == Health::Up).collect();
        if order.is_empty() {
            return Err(Refused::Down);
        }
        order.sort_by_key(|(place, _)| units[*place].instance.depth());
        let mut block = match self.free.pop() {
            Some(block) => block,
            None if self.waiting.len() + self.late.len() >= BLOCKS_MAX => return Err(Refused::Full),
            None => Block::allocate(&self.device.library, self.layout, self.node).ok_or(Refused::Full)?,
        };
        block.write(piece);
        let mut refused = Refused::Down;
        for (place, session) in order {
            let unit = &units[*place];
            // Before the call: its answer may come on another thread before it returns.
            unit.instance.begun();
            block.hand_over(&unit.instance, unit.recovers);
            let head = block.head();
            // SAFETY: the block has been laid out and handed over; everything in it stays where it is until the callback. The
            // session is this thread's, and of this instance, which has been started.
            let status = unsafe {
                let [source, target] = [&raw mut (*head).lists[0], &raw mut (*head).lists[1]];
                let (operation, results) = (&raw mut (*head).operation, &raw mut (*head).results);
                let session = session.as_ptr().cast();
                (self.calls.compress)(unit.instance.handle, session, source, target, operation, results, head.cast())
            };
            refused = match status {
                SUCCESS => {
                    self.waiting.push(Waiting { tag, block, deadline });
                    return Ok(());
                }
                RETRY => Refused::Full,
                RESTARTING => {
                    unit.instance.heard(event::RESTARTING);
                    Refused::Down
                }
                status => Refused::Failed(status),
            };
            unit.instance.finished();
        }
        block.take_back();
        self.free.push(block);
        self.full += u64::from(refused == Refused::Full);
        Err(refused)
    }

    /// Lets the library collect what its devices have answered, and reports what became of this channel's pieces.
    pub fn poll(&mut self, now: Instant, mut tell: impl FnMut(Tag, Deflated)) {
        self.device.poll_events(now);
        self.poll_instances();
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if let Some(answer) = waiting.block.collect() {
                let waiting = self.waiting.swap_remove(at);
                self.free.push(waiting.block);
                tell(waiting.tag, answer.map_or_else(Deflated::Failed, Deflated::Answered));
            } else if now >= waiting.deadline {
                let waiting = self.waiting.swap_remove(at);
                self.late.push(waiting.block);
                tell(waiting.tag, Deflated::Late);
            } else {
                at += 1;
            }
        }
        self.free_answered();
    }

    fn poll_instances(&self) {
        for instance in self.mine().filter(|instance| instance.depth() > 0) {
            instance.polling(|handle| {
                // SAFETY: the instance has been started, and no other thread polls it. No quota: a ring is short.
                unsafe { (self.calls.poll)(handle, 0) };
            });
        }
    }

    /// Frees the blocks of pieces that have been answered after all.
    fn free_answered(&mut self) {
        let answered = self.late.extract_if(.., |block| block.collect().is_some());
        self.free.extend(answered);
    }

    fn collect_late(&mut self) {
        self.poll_instances();
        self.free_answered();
    }

    /// Gives up every piece in progress: none of them is reported any more.
    pub fn abandon(&mut self) {
        self.late.extend(self.waiting.drain(..).map(|waiting| waiting.block));
    }
}

impl Drop for Deflater {
    /// Waits a while for its part of the rings to empty. What is unanswered by then, and sessions that are in use because of it, go
    /// to the device.
    fn drop(&mut self) {
        self.abandon();
        let until = Instant::now() + LAST_ANSWERS;
        while !self.late.is_empty() && self.is_up() && Instant::now() < until {
            self.poll(Instant::now(), |_, _| {});
            std::thread::sleep(Duration::from_micros(50));
        }
        let library = &self.device.library;
        let mut left = Left::default();
        for (place, session) in self.sessions.drain(..) {
            let instance = &self.device.units[place].instance;
            instance.workers.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: a session of this instance's. With requests in progress it is refused, and stays.
            match unsafe { (self.calls.remove_session)(instance.handle, session.as_ptr().cast()) } {
                SUCCESS => session.free(library),
                _ => left.sessions.push(session),
            }
        }
        for block in self.free.drain(..).chain(self.late.drain(..)) {
            if block.is_taken() { left.blocks.push(block) } else { block.free(library) }
        }
        self.device.adopt_deflater(left);
    }
}
