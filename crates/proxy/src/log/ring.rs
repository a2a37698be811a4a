//! Rings: the newest lines, in memory of a fixed size, for operators and for servers that receive them. Whoever writes
//! holds a lock for as long as its lines are copied, and waits for no reader: a reader that is too slow misses the lines
//! that newer ones have overwritten.

use penstock_config::model::{LogProto, LogTransport, Ring};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// A ring of the configuration.
pub struct Sink {
    /// The section's name.
    pub name: String,
    /// Text for operators.
    pub description: String,
    /// The format of its lines.
    pub(crate) format: LogTransport,
    maxlen: usize,
    state: Mutex<State>,
}

struct State {
    lines: Lines,
    /// Who waits for lines.
    waiting: Vec<Waker>,
    /// Whether nobody writes any more.
    closed: bool,
}

impl Sink {
    /// A ring without lines. Its memory is set aside, though not used, at once: nothing is allocated while a worker writes.
    pub fn new(ring: &Ring) -> Arc<Sink> {
        let lines = Lines::new(usize::try_from(ring.size).unwrap_or(usize::MAX));
        Arc::new(Sink {
            name: ring.name.clone(),
            description: ring.description.clone(),
            format: ring.format,
            maxlen: usize::try_from(ring.line_max()).unwrap_or(usize::MAX),
            state: Mutex::new(State { lines, waiting: Vec::new(), closed: false }),
        })
    }

    /// Adds lines, each of which ends with a line feed.
    pub(crate) fn write<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) {
        let mut state = self.lock();
        for line in lines {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            state.lines.push(&line[..line.len().min(self.maxlen)]);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Tells readers that there will be no more lines.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes of lines that a reader takes at once, if more than one line.
const PORTION: usize = 16 << 10;

/// Reads the lines of a ring, framed for a stream.
pub struct Reader {
    sink: Arc<Sink>,
    framing: LogProto,
    /// The place of the first line that has not been taken as a whole.
    place: u64,
    /// Lines that have been read, with their framing, of which so many bytes have been taken.
    portion: Vec<u8>,
    taken: usize,
    /// The end of each line in `portion`, and the place behind it.
    ends: VecDeque<(usize, u64)>,
    /// Who was last told to wait, for whom nobody needs to write once this is dropped.
    waker: Option<Waker>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Lines, which [`Reader::pending`] returns.
    Lines,
    /// Nothing so far.
    Nothing,
    /// There will be no more lines.
    End,
}

impl Reader {
    /// Reads from the oldest line on, or from the next that is written.
    pub fn new(sink: Arc<Sink>, framing: LogProto, only_new: bool) -> Reader {
        let place = if only_new { sink.lock().lines.end() } else { 0 };
        Reader { sink, framing, place, portion: Vec::new(), taken: 0, ends: VecDeque::new(), waker: None }
    }

    /// Reads some lines, if none are pending. With a context, `Nothing` means that it is woken once there are lines.
    pub fn read(&mut self, cx: Option<&mut Context<'_>>) -> Found {
        if !self.pending().is_empty() {
            return Found::Lines;
        }
        self.portion.clear();
        self.taken = 0;
        let mut state = self.sink.lock();
        let mut place = self.place;
        while self.portion.len() < PORTION
            && let Some((line, next)) = state.lines.at(place)
        {
            let length = line[0].len() + line[1].len();
            if self.framing == LogProto::OctetCount {
                penstock_http::push_decimal(&mut self.portion, length as u64);
                self.portion.push(b' ');
            }
            line.iter().for_each(|part| self.portion.extend_from_slice(part));
            if self.framing == LogProto::Legacy {
                self.portion.push(b'\n');
            }
            place = next;
            self.ends.push_back((self.portion.len(), place));
        }
        if !self.portion.is_empty() {
            return Found::Lines;
        }
        if state.closed {
            return Found::End;
        }
        if let Some(cx) = cx
            && !state.waiting.iter().any(|waker| waker.will_wake(cx.waker()))
        {
            state.waiting.push(cx.waker().clone());
            self.waker = Some(cx.waker().clone());
        }
        Found::Nothing
    }

    /// Waits for lines; `false` when there will be none.
    pub(crate) async fn wait(&mut self) -> bool {
        std::future::poll_fn(|cx| match self.read(Some(cx)) {
            Found::Lines => Poll::Ready(true),
            Found::End => Poll::Ready(false),
            Found::Nothing => Poll::Pending,
        })
        .await
    }

    /// The bytes that have been read and not taken.
    pub fn pending(&self) -> &[u8] {
        &self.portion[self.taken..]
    }

    /// Notes that so many pending bytes have been taken.
    pub fn take(&mut self, count: usize) {
        self.taken += count;
        while let Some((_, place)) = self.ends.front().filter(|(end, _)| *end <= self.taken) {
            self.place = *place;
            self.ends.pop_front();
        }
    }

    /// Begins again with the first line that has not been taken as a whole: its first bytes went to a connection that ended.
    pub(crate) fn rewind(&mut self) {
        self.portion.clear();
        self.ends.clear();
        self.taken = 0;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.sink.lock().waiting.retain(|waiting| !waiting.will_wake(waker));
        }
    }
}

/// The lines themselves, the oldest first: each behind its length, in one buffer that does not grow.
struct Lines {
    bytes: VecDeque<u8>,
    size: usize,
    /// How many bytes were there before the first of `bytes`.
    start: u64,
}

/// Bytes that say how long a line is.
const HEAD: usize = Ring::LINE_OVERHEAD as usize;

impl Lines {
    fn new(size: usize) -> Lines {
        Lines { bytes: VecDeque::with_capacity(size), size, start: 0 }
    }

    /// Adds a line in the place of the oldest ones. One that is longer than the whole ring is not kept.
    fn push(&mut self, line: &[u8]) {
        let Ok(length) = u32::try_from(line.len()) else { return };
        if HEAD + line.len() > self.size {
            return;
        }
        while self.bytes.len() + HEAD + line.len() > self.size {
            let gone = HEAD + self.length(0);
            self.bytes.drain(..gone);
            self.start += gone as u64;
        }
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(line);
    }

    /// The line at a place, or the oldest one if newer ones have overwritten that, and the place behind it.
    fn at(&self, place: u64) -> Option<([&[u8]; 2], u64)> {
        let at = place.saturating_sub(self.start) as usize;
        if at >= self.bytes.len() {
            return None;
        }
        let (from, length) = (at + HEAD, self.length(at));
        Some((self.part(from, from + length), self.start + (from + length) as u64))
    }

    /// The place behind the newest line.
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The length of the line whose length stands at `at`.
    fn length(&self, at: usize) -> usize {
        let mut head = [0; HEAD];
        head.iter_mut().zip(self.bytes.range(at..at + HEAD)).for_each(|(to, from)| *to = *from);
        u32::from_ne_bytes(head) as usize
    }

    fn part(&self, from: usize, to: usize) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        let split = first.len();
        [&first[from.min(split)..to.min(split)], &second[from.saturating_sub(split)..to.saturating_sub(split)]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::Span;

    fn ring(size: u64, maxlen: Option<u64>) -> Arc<Sink> {
        let maxlen = maxlen.map(|value| penstock_config::Spanned { value, span: Span::default() });
        Sink::new(&Ring { maxlen, ..Ring::new("r".into(), size, Span::default()) })
    }

    fn everything(sink: &Arc<Sink>, framing: LogProto) -> String {
        let mut reader = Reader::new(sink.clone(), framing, false);
        let mut all = Vec::new();
        while reader.read(None) == Found::Lines {
            all.extend_from_slice(reader.pending());
            reader.take(reader.pending().len());
        }
        String::from_utf8(all).unwrap()
    }

    fn write(sink: &Sink, lines: &[&str]) {
        sink.write(lines.iter().map(|line| line.as_bytes()));
    }

    #[test]
    fn lines_are_framed_as_rfc_6587_says() {
        let sink = ring(100, None);
        write(&sink, &["one\n", "", "three\n"]);
        assert_eq!(everything(&sink, LogProto::Legacy), "one\n\nthree\n");
        assert_eq!(everything(&sink, LogProto::OctetCount), "3 one0 5 three");
    }

    #[test]
    fn the_oldest_lines_go_and_no_byte_more_than_the_size_is_used() {
        for size in 1..60 {
            let sink = ring(size, None);
            let mut kept: VecDeque<String> = VecDeque::new();
            for number in 0..40usize {
                let line = "x".repeat(number * 7 % 11);
                write(&sink, &[&line]);
                kept.push_back(line[..line.len().min((size as usize).saturating_sub(HEAD))].to_owned());
                while kept.iter().map(|line| line.len() + HEAD).sum::<usize>() > size as usize {
                    kept.pop_front();
                }
                let expected: String = kept.iter().map(|line| format!("{line}\n")).collect();
                assert_eq!(everything(&sink, LogProto::Legacy), expected, "size {size}, line {number}");
                let lines = &sink.lock().lines;
                assert!(lines.bytes.len() <= size as usize && lines.bytes.capacity() < 2 * size as usize + 16);
            }
        }
    }

    #[test]
    fn a_line_is_cut_to_maxlen() {
        let sink = ring(100, Some(3));
        write(&sink, &["abcdef\n", "ab\n"]);
        assert_eq!(everything(&sink, LogProto::Legacy), "abc\nab\n");
    }

    #[test]
    fn a_reader_that_is_overtaken_goes_on_with_the_oldest_line() {
        let sink = ring(3 * (HEAD as u64 + 1), None);
        write(&sink, &["a", "b", "c"]);
        let mut reader = Reader::new(sink.clone(), LogProto::Legacy, false);
        assert_eq!(reader.read(None), Found::Lines);
        reader.take(2);
        reader.rewind();
        write(&sink, &["d", "e", "f", "g"]);
        assert_eq!(reader.read(None), Found::Lines);
        assert_eq!(reader.pending(), b"e\nf\ng\n");
    }

    #[test]
    fn a_line_of_which_a_connection_took_a_part_is_read_again_whole() {
        let sink = ring(100, None);
        write(&sink, &["abc", "def"]);
        for taken in 0..=8 {
            let mut reader = Reader::new(sink.clone(), LogProto::Legacy, false);
            assert_eq!(reader.read(None), Found::Lines);
            reader.take(taken);
            reader.rewind();
            let left = match reader.read(None) {
                Found::Lines => reader.pending(),
                _ => b"",
            };
            assert_eq!(left, &b"abc\ndef\n"[taken / 4 * 4..], "{taken}");
        }
    }

    #[tokio::test]
    async fn a_reader_of_what_is_new_waits_for_it_and_ends_with_the_ring() {
        let sink = ring(100, None);
        write(&sink, &["old"]);
        let mut reader = Reader::new(sink.clone(), LogProto::Legacy, true);
        assert_eq!(reader.read(None), Found::Nothing);
        let writer = sink.clone();
        let thread = std::thread::spawn(move || write(&writer, &["new"]));
        assert!(reader.wait().await);
        assert_eq!(reader.pending(), b"new\n");
        reader.take(4);
        thread.join().unwrap();
        sink.close();
        assert!(!reader.wait().await);
    }
}
