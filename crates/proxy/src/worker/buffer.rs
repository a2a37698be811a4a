//! Buffers that belong to the worker: taken when there are bytes to hold, given back when they are gone, so that an
//! idle connection has none.

use std::cell::RefCell;
use tokio::io::ReadBuf;

/// Bytes being moved: a fixed block of which `start..end` is filled.
///
/// Every block has a margin on both sides of what it may be filled with, so that whatever a buffer holds, and whoever
/// filled it, can be made a chunk where it stands.
pub(crate) struct Buffer {
    block: Vec<u8>,
    start: usize,
    end: usize,
}

/// In front: the size of a chunk, which has at most two hexadecimal digits for each byte of an address, and CRLF.
pub(crate) const FRONT: usize = 2 * size_of::<usize>() + 2;

/// Behind: the CRLF that ends a chunk.
const BEHIND: usize = 2;

impl Buffer {
    fn new(size: usize) -> Self {
        Buffer { block: vec![0; FRONT + size + BEHIND], start: FRONT, end: FRONT }
    }
    /// One without room, for sending nothing but what already waits.
    pub fn none() -> Self {
        Buffer { block: Vec::new(), start: 0, end: 0 }
    }
    /// How many bytes it holds at most.
    pub fn capacity(&self) -> usize {
        self.block.len().saturating_sub(FRONT + BEHIND)
    }
    /// Where data ends at the latest.
    fn limit(&self) -> usize {
        self.block.len().saturating_sub(BEHIND)
    }
    /// Where data begins after a [`Buffer::clear`].
    fn origin(&self) -> usize {
        FRONT.min(self.block.len())
    }
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
    pub fn len(&self) -> usize {
        self.end - self.start
    }
    /// No room behind the data, though there may be some in front of it: see [`Buffer::compact`].
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }
    /// Bytes that can be put behind the data.
    pub fn room(&self) -> usize {
        self.limit().saturating_sub(self.end)
    }
    pub fn data(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }
    /// `n` bytes were written to what [`Buffer::read_buf`] lent.
    pub fn filled(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.limit());
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
        self.start = self.origin();
        self.end = self.start;
    }
    /// Moves the data to the front, so that all room is behind it.
    pub fn compact(&mut self) {
        let origin = self.origin();
        if self.start > origin {
            self.block.copy_within(self.start..self.end, origin);
            self.end -= self.start - origin;
            self.start = origin;
        }
    }
    /// Puts `before` and `behind` around the data. They have the margins; what is longer makes room for itself.
    pub fn surround(&mut self, before: &[u8], behind: &[u8]) {
        if self.start < before.len() || self.block.len() - self.end < behind.len() {
            let whole = [before, self.data(), behind].concat();
            (self.start, self.end) = (0, whole.len());
            self.block = whole;
            return;
        }
        self.start -= before.len();
        self.block[self.start..self.start + before.len()].copy_from_slice(before);
        self.block[self.end..self.end + behind.len()].copy_from_slice(behind);
        self.end += behind.len();
    }
    /// As many of `bytes` as fit; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room());
        self.block[self.end..self.end + n].copy_from_slice(&bytes[..n]);
        self.end += n;
        n
    }
    /// The room behind the data as tokio wants it, at most `limit` bytes.
    pub fn read_buf(&mut self, limit: usize) -> ReadBuf<'_> {
        let end = self.end + limit.min(self.room());
        ReadBuf::new(&mut self.block[self.end..end])
    }
}

/// The free buffers of one worker, by size: `base << class`.
pub(crate) struct Buffers {
    base: usize,
    free: RefCell<[Vec<Buffer>; CLASSES]>,
    heads: RefCell<Vec<Vec<u8>>>,
    /// Other than the rest, so that the rest may be smaller than a head.
    #[cfg(test)]
    input: Option<usize>,
}

/// 16, 32, 64, 128, 256 KiB with the usual `tune.bufsize`.
const CLASSES: usize = 5;

/// A head that was written, with a small body behind it.
const HEAD: usize = 4096;

/// Free buffers kept of each class; what a burst needed beyond that goes back to the allocator.
const KEPT: [usize; CLASSES] = [256, 32, 16, 16, 16];

impl Buffers {
    pub fn new(base: usize) -> Self {
        Buffers {
            base,
            free: RefCell::default(),
            heads: RefCell::default(),
            #[cfg(test)]
            input: None,
        }
    }
    /// Those of [`Buffers::take_input`] hold `input` bytes.
    #[cfg(test)]
    pub fn with_input(base: usize, input: usize) -> Self {
        Buffers { input: Some(input), ..Buffers::new(base) }
    }
    /// How many bytes the smallest hold.
    pub fn size(&self) -> usize {
        self.base
    }
    /// One for a connection's bytes as they come: it has to hold a head, or a trailer section.
    pub fn take_input(&self) -> Buffer {
        #[cfg(test)]
        if let Some(size) = self.input {
            return Buffer::new(size);
        }
        self.take()
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
        let Some(class) = self.class_of(&buffer) else { return };
        buffer.clear();
        let free = &mut self.free.borrow_mut()[class];
        if free.len() < KEPT[class] {
            free.push(buffer);
        }
    }
    /// Exchanges an empty `buffer` for one of twice its size, up to the largest: its flow keeps filling it.
    pub fn grow(&self, buffer: &mut Buffer) {
        debug_assert!(buffer.is_empty());
        if let Some(class) = self.class_of(buffer).filter(|class| class + 1 < CLASSES) {
            let larger = self.take_class(class + 1);
            self.give(std::mem::replace(buffer, larger));
        }
    }
    /// Moves what a buffer holds to memory of its own size, and takes the rest back: for what may have to wait for long.
    pub fn shrink(&self, buffer: &mut Buffer) {
        if self.class_of(buffer).is_some() && 2 * buffer.len() <= buffer.capacity() {
            let mut small = Buffer::new(buffer.len());
            small.append(buffer.data());
            self.give(std::mem::replace(buffer, small));
        }
    }
    /// Whether it has been made smaller than those that flows begin with.
    pub fn is_shrunk(&self, buffer: &Buffer) -> bool {
        buffer.capacity() < self.base
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
    /// Nearly all are of the first: it is looked for, not computed. None for what is not of our making.
    fn class_of(&self, buffer: &Buffer) -> Option<usize> {
        (0..CLASSES).find(|class| buffer.capacity() == self.base << class)
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
    fn what_waits_takes_the_room_it_needs() {
        let buffers = Buffers::new(1024);
        let mut buffer = buffers.take();
        buffer.append(&[7; 600]);
        buffers.shrink(&mut buffer);
        assert!(!buffers.is_shrunk(&buffer));
        buffer.consume(300);
        buffers.shrink(&mut buffer);
        assert!(buffers.is_shrunk(&buffer));
        assert_eq!((buffer.capacity(), buffer.data()), (300, &[7; 300][..]));
        buffers.give(buffer);
        assert_eq!(buffers.take().capacity(), 1024, "nobody is given a small one");
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
    fn a_full_buffer_of_any_size_has_room_for_what_frames_it() {
        for size in [1, 24, 16384] {
            let buffers = Buffers::new(size);
            let mut buffer = buffers.take();
            assert_eq!(buffer.append(&vec![b'x'; size + 1]), size);
            assert!(buffer.is_full());
            buffer.surround(b"ffffffffffffffff\r\n", b"\r\n");
            assert_eq!((buffer.len(), buffer.capacity()), (FRONT + size + BEHIND, size));
            assert!(buffer.data().starts_with(b"ffffffffffffffff\r\nx") && buffer.data().ends_with(b"x\r\n"));
            buffer.clear();
            assert_eq!(buffer.room(), size);
        }
    }

    #[test]
    fn what_is_longer_than_the_margins_makes_room_for_itself() {
        let buffers = Buffers::new(4);
        let mut buffer = buffers.take();
        buffer.append(b"data");
        buffer.surround(&[b'<'; FRONT], b">>");
        buffer.surround(b"[", b"]");
        assert_eq!(buffer.data(), [b"[".as_slice(), &[b'<'; FRONT], b"data>>]"].concat());
        buffers.give(buffer);
        assert_eq!(buffers.take().capacity(), 4);
    }
}
