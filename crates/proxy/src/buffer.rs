//! Buffers that belong to the worker: taken when there are bytes to hold, given back when they are gone, so that an
//! idle connection has none.

use std::cell::RefCell;
use tokio::io::ReadBuf;

/// Bytes being moved: a fixed block of which `start..end` is filled.
pub(crate) struct Buffer {
    block: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes at the end of the block kept free for [`Buffer::append_tail`].
    tail: usize,
}

impl Buffer {
    fn new(size: usize) -> Self {
        Buffer { block: vec![0; size], start: 0, end: 0, tail: 0 }
    }
    /// One without room, for sending nothing but what already waits.
    pub fn none() -> Self {
        Buffer { block: Vec::new(), start: 0, end: 0, tail: 0 }
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
        self.end >= self.block.len() - self.tail
    }
    /// Bytes that can be put behind the data.
    pub fn room(&self) -> usize {
        (self.block.len() - self.tail).saturating_sub(self.end)
    }
    pub fn data(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }
    /// `n` bytes were written to what [`Buffer::read_buf`] lent.
    pub fn filled(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.block.len() - self.tail);
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
        (self.start, self.end, self.tail) = (0, 0, 0);
    }
    /// Moves the data to the front, so that all room is behind it.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.block.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
    /// Leaves room around data still to come, for what [`Buffer::prepend`] and [`Buffer::append_tail`] will put there.
    pub fn reserve(&mut self, front: usize, tail: usize) {
        debug_assert!(self.is_empty());
        (self.start, self.end, self.tail) = (front, front, tail);
    }
    /// Puts `bytes` behind the data, where [`Buffer::reserve`] left room.
    pub fn append_tail(&mut self, bytes: &[u8]) {
        self.tail = 0;
        let taken = self.append(bytes);
        debug_assert_eq!(taken, bytes.len());
    }
    /// Puts `bytes` in front of the data, where [`Buffer::reserve`] left room.
    pub fn prepend(&mut self, bytes: &[u8]) {
        self.start -= bytes.len();
        self.block[self.start..self.start + bytes.len()].copy_from_slice(bytes);
    }
    /// As many of `bytes` as fit; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.block.len() - self.tail - self.end);
        self.block[self.end..self.end + n].copy_from_slice(&bytes[..n]);
        self.end += n;
        n
    }
    /// The room behind the data as tokio wants it, at most `limit` bytes.
    pub fn read_buf(&mut self, limit: usize) -> ReadBuf<'_> {
        let end = self.end + limit.min(self.block.len() - self.tail - self.end);
        ReadBuf::new(&mut self.block[self.end..end])
    }
}

/// The free buffers of one worker, by size: `base << class`.
pub(crate) struct Buffers {
    base: usize,
    free: RefCell<[Vec<Buffer>; CLASSES]>,
    heads: RefCell<Vec<Vec<u8>>>,
}

/// 16, 32, 64, 128, 256 KiB with the usual `tune.bufsize`.
const CLASSES: usize = 5;

/// A head that was written, with a small body behind it.
const HEAD: usize = 4096;

/// Free buffers kept of each class; what a burst needed beyond that goes back to the allocator.
const KEPT: [usize; CLASSES] = [256, 32, 16, 16, 16];

impl Buffers {
    pub fn new(base: usize) -> Self {
        Buffers { base, free: RefCell::default(), heads: RefCell::default() }
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
        if buffer.capacity() == 0 {
            return;
        }
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
    /// Growable memory for a message head.
    pub fn take_head(&self) -> Vec<u8> {
        self.heads.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(HEAD))
    }
    /// Takes `head` back.
    pub fn give_head(&self, mut head: Vec<u8>) {
        let mut heads = self.heads.borrow_mut();
        if (1..=4 * HEAD).contains(&head.capacity()) && heads.len() < KEPT[0] {
            head.clear();
            heads.push(head);
        }
    }
    /// Nearly all are of the first: it is looked for, not computed.
    fn class_of(&self, buffer: &Buffer) -> usize {
        (0..CLASSES).find(|class| buffer.capacity() <= self.base << class).expect("none of ours is larger")
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
    fn framing_is_put_around_the_data() {
        let buffers = Buffers::new(64);
        let mut buffer = buffers.take();
        buffer.reserve(8, 2);
        assert_eq!(buffer.append(&[b'x'; 100]), 64 - 8 - 2);
        assert!(buffer.is_full());
        buffer.prepend(b"36\r\n");
        buffer.append_tail(b"\r\n");
        assert_eq!(buffer.len(), 4 + 54 + 2);
        assert!(buffer.data().starts_with(b"36\r\nx") && buffer.data().ends_with(b"x\r\n"));
    }
}
