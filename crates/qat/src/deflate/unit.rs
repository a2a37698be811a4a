//! The device's instances for compression, and what is known of each before it is used.

use super::{
    PIECE_MAX,
    abi::{BufferList, Capabilities, SERVICES, SessionSetup, capability},
};
use crate::{
    Unavailable,
    abi::{FlatBuffer, Handle, SUCCESS, UP},
    device,
    instance::{self, Instance},
    library::{Deflate, Library},
    memory::Pinned,
};
use std::mem::size_of;

/// An instance that deflates.
pub struct Unit {
    pub instance: Instance,
    /// Bytes that the library wants for a list of one buffer.
    pub list_bytes: usize,
    /// Bytes that a piece may become.
    pub output_bytes: usize,
    /// Bytes of a session.
    pub session_bytes: usize,
    pub setup: SessionSetup,
    /// Whether it stores what it cannot compress rightly.
    pub recovers: bool,
    /// Buffers of the device's own, where it has no memory for them: freed once the library has been stopped.
    intermediate: Vec<Pinned>,
}

/// More than any device asks for.
const INTERMEDIATE_MAX: u16 = 64;

impl Unit {
    /// Finds and starts all that deflate without state and verify what they did. Those that do not are left alone.
    pub fn discover(library: &Library, calls: &Deflate) -> Result<Vec<Unit>, Unavailable> {
        let handles = device::handles(calls.count, calls.instances);
        let mut units = Vec::new();
        for handle in handles {
            let info = device::info(calls.info, handle, &SERVICES)?;
            let can = capabilities(calls, handle)?;
            let fits = [capability::STATELESS_DEFLATE, capability::VERIFY].iter().all(|place| can[*place] == 1);
            if info.polled == 0 || info.state != UP || !fits {
                continue;
            }
            let instance = Instance::new(handle, &info, instance::Capabilities::default());
            units.extend(Unit::start(library, calls, instance, &can));
        }
        Ok(units)
    }

    fn start(library: &Library, calls: &Deflate, instance: Instance, can: &Capabilities) -> Option<Unit> {
        let handle = instance.handle;
        let dynamic = can[capability::DYNAMIC_HUFFMAN] == 1;
        let mut setup = SessionSetup::new(dynamic);
        let (mut list_bytes, mut output_bytes, mut sizes, mut wanted) = (0, 0, [0, 0], 0);
        // SAFETY: calls that write the numbers they are asked for, about an instance that the library has just listed.
        let known = unsafe {
            (calls.list_size)(handle, 1, &raw mut list_bytes) == SUCCESS
                && (calls.bound)(handle, setup.huffman, PIECE_MAX as u32, &raw mut output_bytes) == SUCCESS
                && (!dynamic
                    || can[capability::INTERMEDIATE_BUFFERS] == 0
                    || (calls.intermediate_count)(handle, &raw mut wanted) == SUCCESS)
                && (calls.set_translation)(handle, library.translate) == SUCCESS
        };
        if !known || wanted > INTERMEDIATE_MAX {
            return None;
        }
        // The flush at a piece's end takes up to five bytes more, whether a library's bound has them or not.
        let output_bytes = output_bytes as usize + 64;
        let list_bytes = list_bytes as usize;
        let mut lists = Vec::new();
        let mut intermediate = Vec::new();
        for _ in 0..wanted {
            let (list, memory) = buffer_list(library, list_bytes, 2 * output_bytes)?;
            lists.push(list);
            intermediate.push(memory);
        }
        let array = if lists.is_empty() { std::ptr::null_mut() } else { lists.as_mut_ptr() };
        // SAFETY: as many lists as it asked for, in memory that stays until the library has been stopped; the array itself
        // is read during the call only.
        let started = unsafe { (calls.start_instance)(handle, wanted, array) } == SUCCESS;
        // SAFETY: it writes two numbers, from a setup that it reads.
        let sized = started
            && unsafe { (calls.session_size)(handle, &raw mut setup, &raw mut sizes[0], &raw mut sizes[1]) } == SUCCESS;
        if started && !sized {
            // SAFETY: it has just been started, and nothing was asked of it.
            unsafe { (calls.stop_instance)(handle) };
        }
        sized.then(|| Unit {
            instance,
            list_bytes,
            output_bytes,
            session_bytes: sizes[0] as usize,
            setup,
            recovers: can[capability::RECOVER] == 1,
            intermediate,
        })
    }

    /// Frees the device's buffers: the library has been stopped.
    pub fn free(&mut self, library: &Library) {
        self.intermediate.drain(..).for_each(|memory| memory.free(library));
    }
}

/// A list of one buffer of this size, all of it in one piece of pinned memory.
fn buffer_list(library: &Library, list_bytes: usize, bytes: usize) -> Option<(*mut BufferList, Pinned)> {
    const HEAD: usize = (size_of::<BufferList>() + size_of::<FlatBuffer>()).next_multiple_of(64);
    let private = list_bytes.next_multiple_of(64);
    let memory = Pinned::allocate(library, HEAD + private + bytes, -1)?;
    let at = memory.as_ptr();
    // SAFETY: within the memory just allocated, which is aligned to 64 and ours alone.
    unsafe {
        let (list, flat) = (at.cast::<BufferList>(), at.add(size_of::<BufferList>()).cast::<FlatBuffer>());
        flat.write(FlatBuffer { len: bytes as u32, data: at.add(HEAD + private) });
        let private = at.add(HEAD).cast();
        list.write(BufferList { count: 1, buffers: flat, user: std::ptr::null_mut(), private });
        Some((list, memory))
    }
}

/// What the library says an instance can do, unless it says it in another layout than ours.
fn capabilities(calls: &Deflate, handle: Handle) -> Result<Capabilities, Unavailable> {
    const UNTOUCHED: u32 = 0xA5A5_A5A5;
    const OURS: usize = size_of::<Capabilities>() / 4;
    let mut room = [UNTOUCHED; 4 * OURS];
    // SAFETY: it fills the structure, and one of a larger layout the room after it.
    let status = unsafe { (calls.capabilities)(handle, room.as_mut_ptr().cast()) };
    let (ours, beyond) = room.split_at(OURS);
    let fits = ours[OURS - 1] != UNTOUCHED
        && beyond.iter().all(|word| *word == UNTOUCHED)
        && [capability::STATELESS_DEFLATE, capability::DYNAMIC_HUFFMAN, capability::VERIFY, capability::RECOVER]
            .iter()
            .all(|place| ours[*place] <= 1);
    match ours.try_into() {
        Ok(ours) if status == SUCCESS && fits => Ok(ours),
        _ => Err(Unavailable::Layout),
    }
}
