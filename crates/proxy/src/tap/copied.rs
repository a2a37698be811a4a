//! The copy of one connection, or of one exchange: what both sides say is given to the taps whose turn it is.

use super::queue::Queue;
use penstock_capture::{CopiedConversation, Endpoints, Speaker};
use penstock_http::{Fields, write_last_chunk};
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// A tap that a copy is made for.
pub(crate) struct Due {
    pub queue: Arc<Queue>,
    /// The server's port in the copy, if it is not the real one.
    pub port: Option<u16>,
}

/// A copy in progress. It ends when the last reference to it is gone, whatever has happened to the traffic.
pub(crate) struct Copied {
    copies: Vec<One>,
    talk: RefCell<CopiedConversation>,
    /// Whether the client's and the server's bytes are in chunks.
    chunked: [Cell<bool>; 2],
}

/// The copy for one tap.
struct One {
    queue: Arc<Queue>,
    reader: u64,
    ends: Arc<Endpoints>,
}

impl Copied {
    /// Begins copies between these addresses; `None` if nobody reads any of them.
    pub fn begin(client: SocketAddr, server: SocketAddr, due: impl Iterator<Item = Due>) -> Option<Rc<Copied>> {
        let (talk, open) = CopiedConversation::open(fastrand::u32(..), fastrand::u32(..));
        let begun = due.filter_map(|Due { queue, port }| {
            let mut to = server;
            to.set_port(port.unwrap_or(server.port()));
            let ends = Arc::new(Endpoints::new(client, to));
            let reader = queue.reader().filter(|reader| queue.add(*reader, &ends, open, &[]));
            let count = if reader.is_some() { &queue.counts.begun } else { &queue.counts.missed };
            count.fetch_add(1, Relaxed);
            Some(One { reader: reader?, queue, ends })
        });
        let copies: Vec<One> = begun.collect();
        let chunked = [Cell::new(false), Cell::new(false)];
        (!copies.is_empty()).then(|| Rc::new(Copied { copies, talk: RefCell::new(talk), chunked }))
    }
    /// A message's head; whether its body comes in chunks.
    pub fn head(&self, by: Speaker, head: &[u8], chunked: bool) {
        self.chunked[by as usize].set(chunked);
        self.say(by, &[head]);
    }
    fn say(&self, by: Speaker, parts: &[&[u8]]) {
        let mut talk = self.talk.borrow_mut();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length == 0 || talk.has_ended(by) {
            return;
        }
        let segment = talk.data(by, length);
        for copy in &self.copies {
            copy.queue.add(copy.reader, &copy.ends, segment, parts);
        }
    }
    fn end(&self, by: Speaker) {
        let Some(segment) = self.talk.borrow_mut().end(by) else { return };
        for copy in &self.copies {
            copy.queue.add(copy.reader, &copy.ends, segment, &[]);
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.end(Speaker::Server);
        self.end(Speaker::Client);
    }
}

/// The copy of one direction, which a flow gives what it reads.
pub(crate) struct Copying {
    to: Rc<Copied>,
    by: Speaker,
    /// Whether the end of the flow is the end of what this side says.
    is_stream: bool,
}

impl Copying {
    /// A message's body, whose head the copy has.
    pub fn body(to: &Option<Rc<Copied>>, by: Speaker) -> Option<Box<Copying>> {
        to.as_ref().map(|to| Box::new(Copying { to: to.clone(), by, is_stream: false }))
    }
    /// A stream of bytes.
    pub fn stream(to: &Option<Rc<Copied>>, by: Speaker) -> Option<Box<Copying>> {
        let to = to.as_ref()?;
        to.chunked[by as usize].set(false);
        Some(Box::new(Copying { to: to.clone(), by, is_stream: true }))
    }
    fn is_chunked(&self) -> bool {
        self.to.chunked[self.by as usize].get()
    }
    pub fn data(&self, bytes: &[u8]) {
        match self.is_chunked() && !bytes.is_empty() {
            true => self.to.say(self.by, &[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"]),
            false => self.to.say(self.by, &[bytes]),
        }
    }
    /// The end of the body, with its trailers, or of the stream.
    pub fn end(&self, trailers: Option<&Fields>) {
        if self.is_chunked() {
            let mut last = Vec::new();
            write_last_chunk(trailers.unwrap_or(&Fields::default()), &mut last);
            self.to.say(self.by, &[&last]);
        }
        if self.is_stream {
            self.to.end(self.by);
        }
    }
}
