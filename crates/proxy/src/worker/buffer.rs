//! Buffers that belong to the worker: taken when there are bytes to hold, given back when they are gone, so that an
//! idle connection has none.

use crate::process::memory::{Memory, NoMemory};
use std::{cell::RefCell, sync::Arc};
use tokio::io::ReadBuf;

/// Bytes being moved: a fixed block whose `start..end` is filled.
///
/// Every block has a margin before and after its usable range, so that its contents can be made a chunk in place,
/// whatever they are and wherever they come from.
pub(crate) struct Buffer {
    block: Vec<u8>,
    start: usize,
    end: usize,
}

/// The margin before: the size of a chunk, at most two hexadecimal digits per byte of an address, and CRLF.
pub(crate) const FRONT: usize = 2 * size_of::<usize>() + 2;

/// The margin after: the CRLF that ends a chunk.
const BEHIND: usize = 2;

impl Buffer {
    fn new(size: usize) -> Self {
        Buffer { block: vec![0; FRONT + size + BEHIND], start: FRONT, end: FRONT }
    }
    /// A buffer without room, for callers that only send what is already pending.
    pub fn none() -> Self {
        Buffer { block: Vec::new(), start: 0, end: 0 }
    }
    /// How many bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.block.len().saturating_sub(FRONT + BEHIND)
    }
    /// The offset at which data must end.
    fn limit(&self) -> usize {
        self.block.len().saturating_sub(BEHIND)
    }
    /// The offset at which data starts after [`Buffer::clear`].
    fn origin(&self) -> usize {
        FRONT.min(self.block.len())
    }
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
    pub fn len(&self) -> usize {
        self.end - self.start
    }
    /// Whether there is no room after the data. There may still be some before it: see [`Buffer::compact`].
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }
    /// How many bytes can be added after the data.
    pub fn room(&self) -> usize {
        self.limit().saturating_sub(self.end)
    }
    pub fn data(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }
    /// Records that `n` bytes were written to the slice that [`Buffer::read_buf`] or [`Buffer::vacant`] lent.
    pub fn filled(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.limit());
    }
    /// Drops the first `n` bytes of data.
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
    /// Moves the data to the front, so that all room is after it.
    pub fn compact(&mut self) {
        let origin = self.origin();
        if self.start > origin {
            self.block.copy_within(self.start..self.end, origin);
            self.end -= self.start - origin;
            self.start = origin;
        }
    }
    /// Puts `before` and `behind` around the data. They fit into the margins; if either is longer, room is made for it.
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
    /// Appends as many of `bytes` as fit; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room());
        self.block[self.end..self.end + n].copy_from_slice(&bytes[..n]);
        self.end += n;
        n
    }
    /// Runs `fill` on the buffer with room for at most so many bytes.
    pub fn within<R>(&mut self, room: usize, fill: impl FnOnce(&mut Buffer) -> R) -> R {
        if room >= self.room() {
            return fill(self);
        }
        let whole = self.block.len();
        self.block.truncate(self.end + room + BEHIND);
        let filled = fill(self);
        self.block.resize(whole, 0);
        filled
    }
    /// The room after the data, to be written to before [`Buffer::filled`].
    pub fn vacant(&mut self) -> &mut [u8] {
        let end = self.end + self.room();
        &mut self.block[self.end..end]
    }
    /// The room after the data, at most `limit` bytes, in the form that tokio reads into.
    pub fn read_buf(&mut self, limit: usize) -> ReadBuf<'_> {
        let end = self.end + limit.min(self.room());
        ReadBuf::new(&mut self.block[self.end..end])
    }
}

/// The free buffers of one worker, by size: those of a class have `base << class` bytes.
pub(crate) struct Buffers {
    base: usize,
    free: RefCell<[Vec<Buffer>; CLASSES]>,
    heads: RefCell<Vec<Vec<u8>>>,
    memory: Arc<Memory>,
    /// The size of input buffers if it differs from `base`, so that `base` may be smaller than a head.
    #[cfg(test)]
    input: Option<usize>,
}

/// With the default `tune.bufsize`: 16, 32, 64, 128 and 256 KiB.
const CLASSES: usize = 5;

/// Capacity for a message head and the small body that follows it.
const HEAD: usize = 4096;

/// Free buffers kept of each class; more than that, after a burst, are returned to the allocator.
const KEPT: [usize; CLASSES] = [256, 32, 16, 16, 16];

impl Buffers {
    pub fn new(base: usize, memory: Arc<Memory>) -> Self {
        Buffers {
            base,
            free: RefCell::default(),
            heads: RefCell::default(),
            memory,
            #[cfg(test)]
            input: None,
        }
    }
    /// Buffers without a limit.
    #[cfg(test)]
    pub fn of(base: usize) -> Self {
        Buffers::new(base, Arc::default())
    }
    /// Like [`Buffers::of`], but [`Buffers::take_input`] gives buffers of `input` bytes.
    #[cfg(test)]
    pub fn with_input(base: usize, input: usize) -> Self {
        Buffers { input: Some(input), ..Buffers::of(base) }
    }
    /// The size of the smallest buffers.
    pub fn size(&self) -> usize {
        self.base
    }
    /// Takes a buffer for a connection's input: it must be able to hold a head or a trailer section.
    ///
    /// # Errors
    /// As [`Buffers::take`].
    pub fn take_input(&self) -> Result<Buffer, NoMemory> {
        #[cfg(test)]
        if let Some(size) = self.input {
            return Ok(Buffer::new(size));
        }
        self.take()
    }
    /// Takes a buffer of the smallest size, `tune.bufsize`.
    ///
    /// # Errors
    /// If the process has no memory left for it.
    pub fn take(&self) -> Result<Buffer, NoMemory> {
        self.take_class(0).ok_or(NoMemory)
    }
    /// The buffer in `slot`, taken as by [`Buffers::take`] if there is none yet.
    ///
    /// # Errors
    /// As [`Buffers::take`].
    pub fn hold<'a>(&self, slot: &'a mut Option<Buffer>) -> Result<&'a mut Buffer, NoMemory> {
        held(slot, || self.take())
    }
    /// The buffer in `slot`, or one of up to `size` bytes, as a flow had before it waited.
    ///
    /// # Errors
    /// As [`Buffers::take`].
    pub fn hold_grown<'a>(&self, slot: &'a mut Option<Buffer>, size: usize) -> Result<&'a mut Buffer, NoMemory> {
        held(slot, || {
            let grown = (1..CLASSES).rev().find(|class| self.base << class <= size && !self.memory.is_short());
            grown.and_then(|class| self.take_class(class)).map_or_else(|| self.take(), Ok)
        })
    }
    /// The buffer in `slot`, taken as by [`Buffers::take`] if there is none yet, or only what [`Buffers::shrink`] left.
    ///
    /// # Errors
    /// As [`Buffers::take`].
    pub fn hold_whole<'a>(&self, slot: &'a mut Option<Buffer>) -> Result<&'a mut Buffer, NoMemory> {
        self.whole(slot, Buffers::take)
    }
    /// Like [`Buffers::hold_whole`], as by [`Buffers::take_input`].
    ///
    /// # Errors
    /// As [`Buffers::take`].
    pub fn hold_input<'a>(&self, slot: &'a mut Option<Buffer>) -> Result<&'a mut Buffer, NoMemory> {
        self.whole(slot, Buffers::take_input)
    }
    fn whole<'a>(
        &self,
        slot: &'a mut Option<Buffer>,
        take: fn(&Buffers) -> Result<Buffer, NoMemory>,
    ) -> Result<&'a mut Buffer, NoMemory> {
        if let Some(small) = slot.as_ref().filter(|buffer| self.is_shrunk(buffer)) {
            let mut whole = take(self)?;
            whole.append(small.data());
            *slot = Some(whole);
        }
        held(slot, || take(self))
    }
    /// Like [`Buffers::take`], for few buffers and those that hold what has been received already: takes one in any case.
    pub fn take_anyway(&self) -> Buffer {
        self.take_class(0).unwrap_or_else(|| Buffer::new(self.base))
    }
    fn take_class(&self, class: usize) -> Option<Buffer> {
        let free = self.free.borrow_mut()[class].pop();
        let size = self.base << class;
        free.or_else(|| self.memory.lends(size).then(|| Buffer::new(size)))
    }
    /// Takes `buffer` back.
    pub fn give(&self, mut buffer: Buffer) {
        let Some(class) = self.class_of(&buffer) else { return };
        buffer.clear();
        let free = &mut self.free.borrow_mut()[class];
        if free.len() < KEPT[class] {
            free.push(buffer);
        } else {
            self.memory.returned(buffer.capacity());
        }
    }
    /// Exchanges an empty `buffer` for one of twice the size, up to the largest, because its flow keeps filling it; unless
    /// memory is short.
    pub fn grow(&self, buffer: &mut Buffer) {
        debug_assert!(buffer.is_empty());
        if let Some(class) = self.class_of(buffer).filter(|class| class + 1 < CLASSES)
            && !self.memory.is_short()
            && let Some(larger) = self.take_class(class + 1)
        {
            self.give(std::mem::replace(buffer, larger));
        }
    }
    /// Moves the contents of `buffer` to an allocation of exactly their size, and takes the original back; for data
    /// that may wait long.
    pub fn shrink(&self, buffer: &mut Buffer) {
        if self.class_of(buffer).is_some() && 2 * buffer.len() <= buffer.capacity() {
            let mut small = Buffer::new(buffer.len());
            small.append(buffer.data());
            self.give(std::mem::replace(buffer, small));
        }
    }
    /// Whether the buffer is smaller than the ones that flows start with.
    pub fn is_shrunk(&self, buffer: &Buffer) -> bool {
        buffer.capacity() < self.base
    }
    /// Takes a growable buffer for a message head.
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
    /// The size class of a buffer, or `None` if it was not allocated here. Found by search, since nearly all are of the
    /// first class.
    fn class_of(&self, buffer: &Buffer) -> Option<usize> {
        (0..CLASSES).find(|class| buffer.capacity() == self.base << class)
    }
}

fn held(slot: &mut Option<Buffer>, take: impl FnOnce() -> Result<Buffer, NoMemory>) -> Result<&mut Buffer, NoMemory> {
    Ok(match slot {
        Some(buffer) => buffer,
        none => none.insert(take()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_flow_doubles_its_buffer_up_to_256_kib() {
        let buffers = Buffers::of(16384);
        let mut buffer = buffers.take_anyway();
        let mut sizes = vec![buffer.capacity()];
        for _ in 0..6 {
            buffers.grow(&mut buffer);
            sizes.push(buffer.capacity());
        }
        assert_eq!(sizes, [16384, 32768, 65536, 131072, 262144, 262144, 262144]);
    }

    #[test]
    fn a_flow_that_waited_goes_on_with_as_large_a_buffer() {
        let buffers = Buffers::of(1024);
        for (had, size) in [(0, 1024), (10, 1024), (4096, 4096), (5000, 4096), (1 << 30, 16384)] {
            let mut slot = None;
            let held = buffers.hold_grown(&mut slot, had);
            assert_eq!(held.map(|buffer| buffer.capacity()).ok(), Some(size));
        }
    }

    #[test]
    fn what_waits_takes_the_room_it_needs() {
        let buffers = Buffers::of(1024);
        let mut buffer = buffers.take_anyway();
        buffer.append(&[7; 600]);
        buffers.shrink(&mut buffer);
        assert!(!buffers.is_shrunk(&buffer));
        buffer.consume(300);
        buffers.shrink(&mut buffer);
        assert!(buffers.is_shrunk(&buffer));
        assert_eq!((buffer.capacity(), buffer.data()), (300, &[7; 300][..]));
        let mut slot = Some(buffer);
        let input = buffers.hold_input(&mut slot).unwrap();
        assert_eq!((input.capacity(), input.data()), (1024, &[7; 300][..]), "more can be read after it");
        let mut small = Buffer::new(10);
        small.append(b"x");
        buffers.give(small);
        assert_eq!(buffers.take_anyway().capacity(), 1024, "nobody is given a small one");
    }

    #[test]
    fn a_buffer_given_back_comes_out_empty() {
        let buffers = Buffers::of(1024);
        let mut buffer = buffers.take_anyway();
        assert_eq!(buffer.append(&[7; 2000]), 1024);
        assert!(buffer.is_full());
        buffers.give(buffer);
        assert!(buffers.take_anyway().is_empty());
    }

    #[test]
    fn a_full_buffer_of_any_size_has_room_for_what_frames_it() {
        for size in [1, 24, 16384] {
            let buffers = Buffers::of(size);
            let mut buffer = buffers.take_anyway();
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
        let buffers = Buffers::of(4);
        let mut buffer = buffers.take_anyway();
        buffer.append(b"data");
        buffer.surround(&[b'<'; FRONT], b">>");
        buffer.surround(b"[", b"]");
        assert_eq!(buffer.data(), [b"[".as_slice(), &[b'<'; FRONT], b"data>>]"].concat());
        buffers.give(buffer);
        assert_eq!(buffers.take_anyway().capacity(), 4);
    }
}
