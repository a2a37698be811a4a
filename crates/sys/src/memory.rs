//! `-dM`: memory that is filled with a byte before it is handed out, so that a read of memory that was never written shows.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU16, Ordering},
};

/// No byte: allocations are handed out as they come.
const OFF: u16 = 0x100;

static FILL: AtomicU16 = AtomicU16::new(OFF);

/// The system's allocator, which fills what it hands out once [`poison`] was called. For `#[global_allocator]`.
#[derive(Debug)]
pub struct Poisonable;

/// From now on every allocation is filled with `byte` (HAProxy's `-dM[byte]`, 0x50 by default).
pub fn poison(byte: u8) {
    FILL.store(u16::from(byte), Ordering::Relaxed);
}

// SAFETY: every call is passed to the system's allocator unchanged; only bytes that it has just handed out are written.
unsafe impl GlobalAlloc for Poisonable {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        let memory = unsafe { System.alloc(layout) };
        let fill = FILL.load(Ordering::Relaxed);
        if fill != OFF && !memory.is_null() {
            // SAFETY: `memory` is `layout.size()` bytes that are not shared yet.
            unsafe { memory.write_bytes(fill as u8, layout.size()) };
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}
