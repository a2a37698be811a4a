//! Buffers that belong to the worker: taken when there are bytes to hold, given back when they are gone, so that an
//! idle connection has none.

use std::cell::RefCell;
use tokio::io::ReadBuf;

/// Bytes being moved: a fixed block of which `start..end` is filled.
pub(crate) struct Buffer {
    block: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn new(size: usize) -> Self {
        Buffer { block: vec![0; size], start: 0, end: 0 }
    }
    pub fn capacity(&self) -> usize {
        self.block.len()
    }
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
    pub fn len(&self) -> usize {
        self.end - self.start
    }
    /// No room behind the data, though there may be some in front of it: see [`Buffer::compact`].
    pub fn is_full(&self) -> bool {
        self.end == self.block.len()
    }
    pub fn data(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.block[self.start..self.end]
    }
    /// The room behind the data.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.block[self.end..]
    }
    /// `n` bytes were written to [`Buffer::room`].
    pub fn filled(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.block.len());
    }
    /// The first `n` bytes are dealt with.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
    /// Keeps the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        self.end = self.end.min(self.start + n);
    }
    /// Moves the data to the front, so that all room is behind it.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.block.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
    /// Leaves `n` bytes free in front of data still to come, for what [`Buffer::prepend`] will put there.
    pub fn reserve_front(&mut self, n: usize) {
        debug_assert!(self.is_empty());
        (self.start, self.end) = (n, n);
    }
    /// Puts `bytes` in front of the data, where [`Buffer::reserve_front`] left room.
    pub fn prepend(&mut self, bytes: &[u8]) {
        self.start -= bytes.len();
        self.block[self.start..self.start + bytes.len()].copy_from_slice(bytes);
    }
    /// As many of `bytes` as fit; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.block.len() - self.end);
        self.block[self.end..self.end + n].copy_from_slice(&bytes[..n]);
        self.end += n;
        n
    }
    /// The room behind the data as tokio wants it, at most `limit` bytes.
    pub fn read_buf(&mut self, limit: usize) -> ReadBuf<'_> {
        let end = self.end + limit.min(self.block.len() - self.end);
        ReadBuf::new(&mut self.block[self.end..end])
    }
}

/// The free buffers of one worker, by size: `base << class`.
pub(crate) struct Buffers {
    base: usize,
    free: RefCell<[Vec<Buffer>; CLASSES]>,
}

/// 16, 32, 64, 128, 256 KiB with the usual `tune.bufsize`.
const CLASSES: usize = 5;

/// Free buffers kept of each class; what a burst needed beyond that goes back to the allocator.
const KEPT: [usize; CLASSES] = [256, 32, 16, 16, 16];

impl Buffers {
    pub fn new(base: usize) -> Self {
        Buffers { base, free: RefCell::default() }
    }
    /// One of the smallest size, `tune.bufsize`.
    pub fn take(&self) -> Buffer {
        self.take_class(0)
    }
    fn take_class(&self, class: usize) -> Buffer {
        let free = self.free.borrow_mut()[class].pop();
        free.unwrap_or_else(|| Buffer::new(self.base << class))
    }
    /// Takes `buffer` back.
    pub fn give(&self, mut buffer: Buffer) {
        buffer.clear();
        let class = self.class_of(&buffer);
        let free = &mut self.free.borrow_mut()[class];
        if free.len() < KEPT[class] {
            free.push(buffer);
        }
    }
    /// Exchanges an empty `buffer` for one of twice its size, up to the largest: its flow keeps filling it.
    pub fn grow(&self, buffer: &mut Buffer) {
        debug_assert!(buffer.is_empty());
        let class = self.class_of(buffer);
        if class + 1 < CLASSES {
            let larger = self.take_class(class + 1);
            self.give(std::mem::replace(buffer, larger));
        }
    }
    fn class_of(&self, buffer: &Buffer) -> usize {
        (buffer.capacity() / self.base).trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_flow_doubles_its_buffer_up_to_256_kib() {
        let buffers = Buffers::new(16384);
        let mut buffer = buffers.take();
        let mut sizes = vec![buffer.capacity()];
        for _ in 0..6 {
            buffers.grow(&mut buffer);
            sizes.push(buffer.capacity());
        }
        assert_eq!(sizes, [16384, 32768, 65536, 131072, 262144, 262144, 262144]);
    }

    #[test]
    fn a_buffer_given_back_comes_out_empty() {
        let buffers = Buffers::new(1024);
        let mut buffer = buffers.take();
        assert_eq!(buffer.append(&[7; 2000]), 1024);
        assert!(buffer.is_full());
        buffers.give(buffer);
        assert!(buffers.take().is_empty());
    }

    #[test]
    fn what_is_prepended_stands_before_the_data() {
        let buffers = Buffers::new(64);
        let mut buffer = buffers.take();
        buffer.reserve_front(8);
        buffer.append(b"data");
        buffer.prepend(b"4\r\n");
        assert_eq!(buffer.data(), b"4\r\ndata");
    }
}
