//! Pinned memory: slots, each with one request and everything the device reads and writes for it.

use crate::{
    abi::{
        EcdsaSign, FlatBuffer, GenericPointMultiply, MontgomeryMultiply, PointMultiply, RsaDecrypt, RsaPrivateKey,
        Status, WeierstrassCurve,
    },
    instance::Instance,
    library::Library,
};
use std::{
    ffi::c_void,
    mem::size_of,
    ptr::{self, NonNull},
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
};
use zeroize::Zeroize;

/// Bytes of the numbers of one request. The largest is RSA-4096: five halves of 256 bytes, input and output of 512.
pub const DATA: usize = 2560;
/// Numbers begin at multiples of this; the library asks for eight at least.
const ALIGN: usize = 64;

/// The slot has no request.
const FREE: u32 = 0;
/// The library has it, and may write to the slot at any time.
const TAKEN: u32 = 1;
/// The library has answered, and no longer uses the slot.
const ANSWERED: u32 = 2;

/// One request. It lies in pinned memory, never moves, and is reached through raw pointers only: while it is `TAKEN`, its
/// data are the device's.
#[repr(C, align(64))]
pub struct Slot {
    state: AtomicU32,
    status: AtomicI32,
    /// The instance that the request was given to: one in the device's list, which outlives every slot.
    instance: *const Instance,
    pub(crate) rsa_key: RsaPrivateKey,
    pub(crate) rsa: RsaDecrypt,
    pub(crate) ecdsa: EcdsaSign,
    pub(crate) curve: WeierstrassCurve,
    pub(crate) generic: GenericPointMultiply,
    pub(crate) point: PointMultiply,
    pub(crate) montgomery: MontgomeryMultiply,
    /// Room for the library to say whether a result is valid, which it would do if it were called synchronously.
    pub(crate) valid: u32,
    pub(crate) outputs: [FlatBuffer; 2],
    data: [u8; DATA],
}

const _: () = assert!(size_of::<Slot>() <= 4096);

/// A slot of this channel's.
#[derive(Clone, Copy)]
pub struct SlotRef(NonNull<Slot>);

impl SlotRef {
    /// Pins memory on a node, or wherever there is some.
    fn allocate(library: &Library, node: i32) -> Option<SlotRef> {
        // SAFETY: an allocator like malloc, with a node and an alignment; it may fail with null.
        let memory = unsafe { (library.allocate)(size_of::<Slot>(), node, align_of::<Slot>()) };
        let slot = NonNull::new(memory.cast::<Slot>())?;
        // SAFETY: the memory is large and aligned enough, ours alone, and all zeroes is a slot: free, without an instance,
        // its pointers null.
        unsafe { ptr::write_bytes(slot.as_ptr(), 0, 1) };
        Some(SlotRef(slot))
    }

    fn free(self, library: &Library) {
        self.wipe();
        let mut memory = self.0.as_ptr().cast::<c_void>();
        // SAFETY: it came from this library's allocator and is not used again: the caller gives up its only reference, and
        // the library has none (see `Pool::release`).
        unsafe { (library.free)(&raw mut memory) };
    }

    /// The slot's address: what a callback gets as its tag.
    pub fn as_ptr(self) -> *mut Slot {
        self.0.as_ptr()
    }

    fn state(self) -> u32 {
        // SAFETY: the slot lives as long as its pool, and this field is atomic.
        unsafe { (*self.0.as_ptr()).state.load(Ordering::Acquire) }
    }

    /// Before the library is called with it: from here on it may be answered at any time, on any thread.
    pub fn hand_over(self, instance: &Instance) {
        // SAFETY: the slot is free, so nothing else reads or writes it; the atomic store publishes the rest.
        unsafe {
            (*self.0.as_ptr()).instance = ptr::from_ref(instance);
            (*self.0.as_ptr()).state.store(TAKEN, Ordering::Release);
        }
    }

    /// The library did not take it after all.
    pub fn take_back(self) {
        self.wipe();
        // SAFETY: as in `state`.
        unsafe { (*self.0.as_ptr()).state.store(FREE, Ordering::Release) };
    }

    /// The answer, if it has come: its status, and the outputs where that is success. The slot is free and wiped then.
    pub fn collect(self) -> Option<(Status, [Vec<u8>; 2])> {
        if self.state() != ANSWERED {
            return None;
        }
        // SAFETY: answered, the slot is ours alone again. Each output is a range of its data, as `Numbers::output` made it,
        // or none.
        let answer = unsafe {
            let slot = self.0.as_ptr();
            let status = (*slot).status.load(Ordering::Relaxed);
            let outputs = (*slot).outputs;
            let read = |output: FlatBuffer| match output.data.is_null() || status != crate::abi::SUCCESS {
                true => Vec::new(),
                false => std::slice::from_raw_parts(output.data, output.len as usize).to_vec(),
            };
            (status, outputs.map(read))
        };
        self.take_back();
        Some(answer)
    }

    fn wipe(self) {
        // SAFETY: called on slots that are free, answered or refused only: nothing else reads or writes the data.
        unsafe { (*self.0.as_ptr()).data.zeroize() };
    }
}

/// What both callbacks do: the answer is there. The slot's owner sees it at its next turn.
///
/// # Safety
/// `tag` is a slot that was handed over and is not answered.
pub unsafe fn answered(tag: *mut c_void, status: Status) {
    let slot = tag.cast::<Slot>();
    // SAFETY: a slot outlives its request: `Pool::release` keeps every one that is taken. The instance was set before the
    // request was submitted and lies in the device's list, which outlives the library's last callback.
    unsafe {
        (*(*slot).instance).finished();
        (*slot).status.store(status, Ordering::Relaxed);
        (*slot).state.store(ANSWERED, Ordering::Release);
    }
}

/// Writes a request's numbers into a slot.
pub struct Numbers {
    slot: SlotRef,
    at: usize,
}

impl Numbers {
    /// Into a free slot.
    pub fn new(slot: SlotRef) -> Numbers {
        Numbers { slot, at: 0 }
    }

    /// A number, big-endian, with zeroes before it up to `len` bytes.
    pub fn put(&mut self, number: &[u8], len: usize) -> FlatBuffer {
        let buffer = self.output(len);
        let pad = len - number.len().min(len);
        // SAFETY: the buffer is `len` bytes of a free slot's data, zero so far; `number` cannot overlap them, since a free
        // slot's data are lent to nobody.
        unsafe { ptr::copy_nonoverlapping(number.as_ptr(), buffer.data.add(pad), len - pad) };
        buffer
    }

    /// Writes a number with its bytes reversed.
    pub fn put_reversed(&mut self, number: &[u8]) -> FlatBuffer {
        let mut reversed = zeroize::Zeroizing::new(number.to_vec());
        reversed.reverse();
        self.put(&reversed, reversed.len())
    }

    /// Room for a result.
    pub fn output(&mut self, len: usize) -> FlatBuffer {
        assert!(self.at + len <= DATA, "a request's numbers fit its slot");
        // SAFETY: within the data, as just checked; the pointer is made without a reference to them.
        let data = unsafe { (&raw mut (*self.slot.as_ptr()).data).cast::<u8>().add(self.at) };
        self.at = (self.at + len).next_multiple_of(ALIGN).min(DATA);
        FlatBuffer { len: len as u32, data }
    }
}

/// A piece of pinned memory, which is zeroed when it is allocated. It is freed only where somebody says so.
pub struct Pinned(NonNull<u8>);

// SAFETY: memory of the process, bound to no thread; what is in it is reached through raw pointers, whose users say why they may.
unsafe impl Send for Pinned {}
// SAFETY: as above: what can be done with a reference is to learn the address.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins so many bytes, aligned to 64, on a node, or wherever there are some.
    pub fn allocate(library: &Library, bytes: usize, node: i32) -> Option<Pinned> {
        // SAFETY: an allocator like malloc, with a node and an alignment; it may fail with null.
        let memory = NonNull::new(unsafe { (library.allocate)(bytes.max(1), node, ALIGN) }.cast::<u8>())?;
        // SAFETY: that many bytes, ours alone.
        unsafe { ptr::write_bytes(memory.as_ptr(), 0, bytes) };
        Some(Pinned(memory))
    }

    /// Where it is.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Frees it: the library no longer uses it.
    pub fn free(self, library: &Library) {
        let mut memory = self.0.as_ptr().cast::<c_void>();
        // SAFETY: it came from this library's allocator, and with `self` the only way to it ends.
        unsafe { (library.free)(&raw mut memory) };
    }
}

/// The slots of one channel.
#[derive(Default)]
pub struct Pool {
    slots: Vec<SlotRef>,
    /// NUMA node, or -1 for any.
    node: i32,
}

// SAFETY: slots are memory of the process, bound to no thread; a pool is used by one thread at a time.
unsafe impl Send for Pool {}

impl Pool {
    /// An empty pool on a node, if that is known.
    pub fn new(node: Option<u32>) -> Pool {
        Pool { slots: Vec::new(), node: node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1) }
    }

    /// Adds a slot; `None` if no more memory can be pinned.
    pub fn grow(&mut self, library: &Library) -> Option<SlotRef> {
        let slot = SlotRef::allocate(library, self.node)?;
        self.slots.push(slot);
        Some(slot)
    }

    /// Frees what the library has let go of; the rest stays.
    pub fn release(&mut self, library: &Library) {
        self.slots.retain(|slot| {
            let taken = slot.state() == TAKEN;
            if !taken {
                slot.free(library);
            }
            taken
        });
    }

    /// Frees everything: the library has been stopped, and answers nothing any more.
    pub fn free(&mut self, library: &Library) {
        self.slots.drain(..).for_each(|slot| slot.free(library));
    }

    /// Whether the pool has no slots left.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
