//! A stored response, sent as a server's would be.

use super::{
    answer::{Answer, answer},
    caching, compress,
    ends::{Answered, Body, Counts, End, Fault, Sink, Source, Upstream},
    forward::Flow,
    service,
    timeouts::Patience,
};
use crate::{
    exchange::live::Live,
    http1::body::{VERSION, weight},
    worker::{
        buffer::Buffer,
        turn::{self, cost},
    },
};
use penstock_cache::{CacheEntry, CachedPart, is_not_modified};
use penstock_http::{Fields, Framing, RequestHead, ResponseHead, Version, push_decimal};
use penstock_rules::{By, During, Termination};
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Sends the stored response that rules have found.
pub(super) async fn deliver(live: &mut Live<'_, '_>) {
    let Some((cache, entry)) = caching::take_found(live.x) else { return };
    let worker = live.worker;
    match live.x.backend.filter(|backend| *backend != live.conn.frontend) {
        Some(backend) => {
            live.x.presence = worker.shared.backends.get(backend).map(|pool| pool.enter());
            worker.counters().backend(backend).session(worker.now_ms());
        }
        None => worker.counters().frontend(live.conn.frontend).intercepted.inc(),
    }
    service::taken_by(live.conn, live.x, "<CACHE>");
    live.x.log.termination = Termination(By::Ourselves, During::Request);
    live.x.txn.cache = Some(cache.name().clone());
    compress::choose_response(live);
    let mut stored = Stored::new(entry, worker.clock.unix_s());
    let framing = stored.begin(&live.x.request, &mut live.x.response, cache.limits().ranges);
    let mut request = Flow::new();
    request.done = true;
    live.x.times.answered = Some(worker.clock.now());
    let proxy = live.proxy();
    let patience = Patience::new(live.conn, live.x, proxy);
    // However it ends, it is over.
    let _ = answer(live, &mut Answer { upstream: &mut stored, request, framing, server: None, proxy, patience }).await;
}

/// A stored response, in the place of a server that sends it.
struct Stored {
    entry: Arc<CacheEntry>,
    age_s: u64,
    /// The next byte of the body to be sent: the index of its piece, and `at`, its offset in that.
    piece: usize,
    at: usize,
    /// How many bytes are still to be sent.
    left: u64,
    /// How what is sent is framed.
    framing: Framing,
    counts: Counts,
}

impl Stored {
    fn new(entry: Arc<CacheEntry>, now_s: u64) -> Stored {
        let (left, framing) = (entry.len(), entry.framing);
        Stored { age_s: entry.age_s(now_s), entry, piece: 0, at: 0, left, framing, counts: Counts::default() }
    }
    /// Writes the head that answers a request, with a part if `ranges` allows it; returns how the body is framed.
    fn begin(&mut self, request: &RequestHead, head: &mut ResponseHead, ranges: bool) -> Framing {
        head.clone_from(&self.entry.head);
        let is_known = is_not_modified(request, &self.entry);
        if is_known {
            head.set_status(304);
            self.framing = Framing::None;
        } else if ranges {
            self.choose_part(request, head);
        }
        let mut age = Vec::with_capacity(8);
        push_decimal(&mut age, self.age_s);
        head.fields.append(b"age", &age).expect("a name and a number");
        // As when it came from its server: HTTP/2 has no reason, and one was added for clients of HTTP/1.
        let reason = if head.version() == Version::Http2 { 0 } else { head.reason().len() };
        self.counts.received = weight(VERSION + 3 + reason, &head.fields);
        self.framing
    }
    /// Sends the part of the response that is asked for.
    fn choose_part(&mut self, request: &RequestHead, head: &mut ResponseHead) {
        let part = CachedPart::of(request, &self.entry);
        let length = self.entry.len();
        part.write_head(head, length);
        if let CachedPart::Bytes(bytes) = &part {
            (self.piece, self.at) = self.entry.place(bytes.start);
            // Pieces are passed over one by one.
            turn::spend(cost::KIB * self.piece.div_ceil(64) as u32);
        }
        if part != CachedPart::Whole {
            self.left = part.length(length);
            self.framing = Framing::Length(self.left);
        }
    }
}

impl Source for Stored {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        ready!(turn::poll_proceed(cx));
        let had = buffer.len();
        while let Some(piece) = self.entry.piece(self.piece).filter(|_| self.left > 0) {
            turn::round();
            let rest = &piece[self.at..];
            let wanted = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
            let taken = buffer.append(&rest[..wanted]);
            self.at += taken;
            self.left -= taken as u64;
            if taken < wanted {
                break;
            }
            if self.at == piece.len() {
                (self.piece, self.at) = (self.piece + 1, 0);
            }
        }
        let copied = buffer.len() - had;
        turn::spend(cost::KIB * copied.div_ceil(1024) as u32);
        self.counts.received += copied as u64;
        if self.left > 0 {
            return Poll::Ready(Ok(Body::grown(buffer, had)));
        }
        if self.framing == Framing::Chunked {
            // As a server's trailers count, and the end that they follow.
            self.counts.received += 1 + self.entry.trailers.as_ref().map_or(0, |trailers| trailers.text_len() as u64);
        }
        Poll::Ready(Ok(Body::End))
    }
    fn trailers(&self) -> Option<&Fields> {
        self.entry.trailers.as_ref()
    }
}

impl Sink for Stored {
    fn poll_send(&mut self, _: &mut Context<'_>, buffer: &mut Buffer, _: Option<End<'_>>) -> Poll<io::Result<()>> {
        buffer.clear();
        Poll::Ready(Ok(()))
    }
}

impl Upstream for Stored {
    fn request(&mut self, _: &mut RequestHead, _: Framing) {}
    fn poll_head(&mut self, _: &mut Context<'_>, _: &mut ResponseHead) -> Poll<Result<Framing, Fault>> {
        // It was read before, and there is no other.
        Poll::Ready(Err(Fault::Closed))
    }
    fn answered(&self) -> Answered {
        Answered::Head
    }
    fn is_untouched(&self) -> bool {
        false
    }
    fn tunnel(&mut self) {}
    fn counts(&self) -> Counts {
        self.counts
    }
}
