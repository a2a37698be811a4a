//! Pinned memory for one piece: what the library reads and writes for it, the piece, and what it becomes.

use super::{
    PIECE_MAX,
    abi::{BufferList, DeflateOperation, FLUSH_FULL, Results},
};
use crate::{
    abi::{FAIL, FlatBuffer, SUCCESS, Status},
    instance::Instance,
    library::Library,
    memory::Pinned,
};
use std::{
    ffi::c_void,
    mem::size_of,
    ptr::{self, null_mut},
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
};

const FREE: u32 = 0;
/// The library has it, and may write to the block at any time.
const TAKEN: u32 = 1;
const ANSWERED: u32 = 2;

/// The beginning of a block. It never moves, and is reached through raw pointers only: while it is `TAKEN`, all but the two atomics
/// is the library's.
#[repr(C, align(64))]
pub struct Head {
    state: AtomicU32,
    status: AtomicI32,
    /// The instance that it was given to: one in the device's list, which outlives every block.
    instance: *const Instance,
    pub results: Results,
    pub operation: DeflateOperation,
    /// Source and destination.
    pub lists: [BufferList; 2],
    flats: [FlatBuffer; 2],
}

/// Where in a block things are: the largest that any of the device's instances asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    pub list_bytes: usize,
    pub output_bytes: usize,
}

impl Layout {
    fn private(self, place: usize) -> usize {
        size_of::<Head>() + place * self.list_bytes.next_multiple_of(64)
    }
    fn input(self) -> usize {
        self.private(2)
    }
    fn output(self) -> usize {
        self.input() + PIECE_MAX.next_multiple_of(64)
    }
    fn all(self) -> usize {
        self.output() + self.output_bytes
    }
}

/// A block of one channel's.
pub struct Block {
    memory: Pinned,
    layout: Layout,
    /// Bytes of the piece that is in it.
    len: usize,
}

impl Block {
    /// Pins memory on a node, or wherever there is some.
    pub fn allocate(library: &Library, layout: Layout, node: i32) -> Option<Block> {
        // All zeroes is a block: free, without an instance, its pointers null.
        Some(Block { memory: Pinned::allocate(library, layout.all(), node)?, layout, len: 0 })
    }

    /// Frees it: the library does not have it.
    pub fn free(self, library: &Library) {
        self.wipe();
        self.memory.free(library);
    }

    /// What the library is given, and gives back with its answer.
    pub fn head(&self) -> *mut Head {
        self.memory.as_ptr().cast()
    }

    pub fn is_taken(&self) -> bool {
        self.state().load(Ordering::Acquire) == TAKEN
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: the block lives as long as its memory, and nobody has a reference to more of it than this atomic.
        unsafe { &(*self.head()).state }
    }

    /// Lays a piece out in a free block.
    pub fn write(&mut self, piece: &[u8]) {
        assert!(piece.len() <= PIECE_MAX && !self.is_taken(), "a piece fits a free block");
        self.len = piece.len();
        let (at, head, layout) = (self.memory.as_ptr(), self.head(), self.layout);
        // SAFETY: free, the block is ours alone; all places are within its memory, as `Layout` has it.
        unsafe {
            ptr::copy_nonoverlapping(piece.as_ptr(), at.add(layout.input()), piece.len());
            let input = FlatBuffer { len: piece.len() as u32, data: at.add(layout.input()) };
            let output = FlatBuffer { len: layout.output_bytes as u32, data: at.add(layout.output()) };
            (*head).flats = [input, output];
            for place in [0, 1] {
                let buffers = &raw mut (*head).flats[place];
                let private = at.add(layout.private(place)).cast();
                (*head).lists[place] = BufferList { count: 1, buffers, user: null_mut(), private };
            }
            (*head).results = Results { status: 0, produced: 0, consumed: 0, checksum: 0, ended: 0, uncompressed: 0 };
        }
    }

    /// Before the library is called with it: from here on it may be answered at any time, on any thread.
    pub fn hand_over(&self, instance: &Instance, recovers: bool) {
        let head = self.head();
        // SAFETY: free, the block is ours alone; the atomic store publishes the rest.
        unsafe {
            let (flush, recover) = (FLUSH_FULL, u32::from(recovers));
            (*head).operation =
                DeflateOperation { flush, verify: 1, recover, integrity: [0; 3], skip: [[0; 4]; 2], crc: null_mut() };
            (*head).instance = ptr::from_ref(instance);
        }
        self.state().store(TAKEN, Ordering::Release);
    }

    /// The library did not take it after all, or has let go of it: it is wiped, and free.
    pub fn take_back(&self) {
        self.wipe();
        self.state().store(FREE, Ordering::Release);
    }

    /// The answer, if it has come: what the piece became, or a status. The block is free and wiped then.
    pub fn collect(&self) -> Option<Result<Vec<u8>, Status>> {
        if self.state().load(Ordering::Acquire) != ANSWERED {
            return None;
        }
        let head = self.head();
        // SAFETY: answered, the block is ours alone again.
        let (status, results) = unsafe { ((*head).status.load(Ordering::Relaxed), (*head).results) };
        let produced = results.produced as usize;
        let answer = match (status, results.status) {
            (SUCCESS, 0) if results.consumed as usize == self.len && produced <= self.layout.output_bytes => {
                // SAFETY: within the room for the output, as just checked, every byte of which has been written once.
                let bytes =
                    unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.layout.output()), produced) };
                Ok(bytes.to_vec())
            }
            (SUCCESS, 0) => Err(FAIL),
            (SUCCESS, why) => Err(why),
            (status, 0) => Err(status),
            (_, why) => Err(why),
        };
        self.take_back();
        Some(answer)
    }

    /// Overwrites a piece and what it became: they are somebody's.
    fn wipe(&self) {
        let (at, layout) = (self.memory.as_ptr(), self.layout);
        // SAFETY: called on blocks that are free, answered or refused only: nothing else reads or writes them.
        unsafe { ptr::write_bytes(at.add(layout.input()), 0, layout.all() - layout.input()) };
    }
}

/// What the library calls: the answer is there. The block's owner sees it at its next turn.
pub unsafe extern "C" fn answered(tag: *mut c_void, status: Status) {
    let head = tag.cast::<Head>();
    // SAFETY: the tag is a block that was handed over and is answered once; a block outlives its request, since one that is taken
    // is kept until the library has been stopped, and its instance lies in the device's list, which outlives that.
    unsafe {
        (*(*head).instance).finished();
        (*head).status.store(status, Ordering::Relaxed);
        (*head).state.store(ANSWERED, Ordering::Release);
    }
}
