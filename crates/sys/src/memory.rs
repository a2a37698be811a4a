//! The process's memory: the allocator, the limit that the system sets, and how much of it is left.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering},
};

/// Stands for no byte: allocations are handed out as they come.
const OFF: u16 = 0x100;

static FILL: AtomicU16 = AtomicU16::new(OFF);

/// Memory that is set aside, and its size.
static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
static RESERVE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, for `#[global_allocator]`. It fills what it hands out once [`poison`] was called (`-dM`), so that
/// a read of memory that was never written shows. When the system refuses memory, it releases what [`keep_reserve`] set
/// aside and tries again.
#[derive(Debug)]
pub struct Allocator;

/// From now on every allocation is filled with `byte` (HAProxy's `-dM[byte]`, 0x50 by default).
pub fn poison(byte: u8) {
    FILL.store(u16::from(byte), Ordering::Relaxed);
}

/// Sets `size` bytes aside for allocations that the system refuses; returns whether they are there, now or already.
///
/// The bytes count towards the limits that [`MemoryGauge`] looks at, but are not touched and so take no memory.
pub fn keep_reserve(size: usize) -> bool {
    if has_reserve() {
        return true;
    }
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping, which no other memory depends on.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return false;
    }
    RESERVE_SIZE.store(size, Ordering::SeqCst);
    RESERVE.store(memory, Ordering::SeqCst);
    true
}

/// Whether the reserve has not been spent.
pub fn has_reserve() -> bool {
    !RESERVE.load(Ordering::SeqCst).is_null()
}

#[cold]
fn spend_reserve() {
    let memory = RESERVE.swap(std::ptr::null_mut(), Ordering::SeqCst);
    if !memory.is_null() {
        // SAFETY: it was mapped with this size, and nobody else has taken it out of `RESERVE`.
        unsafe { libc::munmap(memory, RESERVE_SIZE.load(Ordering::SeqCst)) };
    }
}

// SAFETY: every call is passed to the system's allocator unchanged, once more if it failed; only bytes that it has just
// handed out are written.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        let mut memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            spend_reserve();
            // SAFETY: as above.
            memory = unsafe { System.alloc(layout) };
        }
        let fill = FILL.load(Ordering::Relaxed);
        if fill != OFF && !memory.is_null() {
            // SAFETY: `memory` is `layout.size()` bytes that are not shared yet.
            unsafe { memory.write_bytes(fill as u8, layout.size()) };
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        spend_reserve();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        let grown = unsafe { System.realloc(memory, layout, size) };
        if !grown.is_null() {
            return grown;
        }
        spend_reserve();
        // SAFETY: as above; a call that failed has left `memory` as it was.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Tells how much memory the system still gives to this process.
#[derive(Debug)]
pub struct MemoryGauge {
    /// /proc/self/statm, opened before a chroot.
    statm: File,
}

/// What the system limits (`RLIMIT_DATA`, `RLIMIT_AS`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// The limit.
    pub limit: u64,
    /// How much of the limit is left. The allocator may have more, see [`free_bytes`].
    pub left: u64,
}

impl MemoryGauge {
    /// To be called in the process that is to be measured, while /proc can be read.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn open() -> io::Result<MemoryGauge> {
        Ok(MemoryGauge { statm: File::open("/proc/self/statm")? })
    }

    /// Whether this process's memory has a limit.
    pub fn is_limited() -> bool {
        limits().iter().any(Option::is_some)
    }

    /// How much is left, of the limit that is closest; `None` without a limit. It may be changed at any time (prlimit(1)).
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn room(&self) -> io::Result<Option<MemoryRoom>> {
        let [data, space] = limits();
        if data.or(space).is_none() {
            return Ok(None);
        }
        let mut text = [0; 256];
        let length = self.statm.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        // proc(5): size resident shared text lib data dt. `RLIMIT_DATA` counts what `data` does, but for the main stack.
        let mut pages = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        let (Some(of_space), Some(of_data)) = (pages.next().flatten(), pages.nth(4).flatten()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm is not as expected"));
        };
        let page = rustix::param::page_size() as u64;
        let room = |(limit, pages): (Option<u64>, u64)| {
            limit.map(|limit| MemoryRoom { limit, left: limit.saturating_sub(pages * page) })
        };
        Ok([(data, of_data), (space, of_space)].into_iter().filter_map(room).min_by_key(|room| room.left))
    }
}

fn limits() -> [Option<u64>; 2] {
    use rustix::process::{Resource, getrlimit};
    [getrlimit(Resource::Data).current, getrlimit(Resource::As).current]
}

/// Bytes that the allocator has from the system and would hand out. It looks at all its free blocks for this, one arena after
/// the other: up to some milliseconds.
pub fn free_bytes() -> u64 {
    // SAFETY: it only reads the allocator's state, under the allocator's locks.
    unsafe { libc::mallinfo2() }.fordblks as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_kept_until_an_allocation_fails() {
        assert!(keep_reserve(1 << 20) && has_reserve());
        // SAFETY: the layout is not empty; and there is nothing to free, since no machine has that much.
        let memory = unsafe { Allocator.alloc(Layout::from_size_align(isize::MAX as usize - 4096, 1).unwrap()) };
        assert!(memory.is_null() && !has_reserve());
        assert!(keep_reserve(1 << 20) && keep_reserve(1 << 20));
        // SAFETY: the layout is not empty, and the memory is freed with it.
        unsafe {
            let layout = Layout::from_size_align(1 << 16, 8).unwrap();
            let memory = Allocator.alloc(layout);
            assert!(!memory.is_null() && has_reserve());
            Allocator.dealloc(memory, layout);
        }
    }

    #[test]
    fn what_is_left_is_known_where_there_is_a_limit() {
        let gauge = MemoryGauge::open().unwrap();
        assert_eq!(gauge.room().unwrap().is_some(), MemoryGauge::is_limited());
        assert!(free_bytes() > 0);
    }
}
