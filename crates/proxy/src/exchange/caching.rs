//! Looks for responses in caches, and stores those of servers, as rules ask for. The decisions themselves are in
//! `penstock_cache`.

use super::{
    ends::{Body, Fault, Source},
    state::Exchange,
};
use crate::{connection::Conn, exchange::live::Live, observe::counters::Cells, worker::buffer::Buffer};
use penstock_cache::{Cache, CacheEntry, CacheQuery, Fetch, Storing};
use penstock_config::model::{CacheId, ProxyId};
use penstock_http::{Fields, Framing};
use std::{
    sync::Arc,
    task::{Context, Poll},
};

/// What caches have to do with an exchange, once a rule has named one.
pub(crate) struct Caching {
    pub(super) query: CacheQuery,
    /// The cache that was asked.
    pub(super) cache: Arc<Cache>,
    /// The backend whose rules have asked it; `None` if those of the frontend did.
    backend: Option<ProxyId>,
    /// A stored response, and the cache that it comes from.
    found: Option<(Arc<Cache>, Arc<CacheEntry>)>,
    /// The server's response on its way into a cache.
    storing: Option<Box<Storing>>,
    /// Others wait for the server's response.
    pub(super) fetch: Option<Fetch>,
}

impl Caching {
    /// Counts a request that a cache answers, and keeps the response.
    pub(super) fn keep_answer(&mut self, conn: &Conn<'_>, entry: Arc<CacheEntry>) {
        cells(conn, self.backend).cache_hits.inc();
        self.found = Some((self.cache.clone(), entry));
    }
}

/// `cache-use`: looks for a stored response. It is sent once the other rules have let the request pass.
pub(crate) fn look_up(live: &mut Live<'_, '_>, cache: CacheId) {
    let x = &mut *live.x;
    if x.caching.as_ref().is_some_and(|caching| caching.found.is_some()) {
        return;
    }
    if live.conn.facts.origin.as_ref().is_some_and(|origin| origin.pinned.is_some()) {
        // Only this client was shown that its server does not validate.
        x.caching = None;
        return;
    }
    if live.conn.own.authenticates() {
        // What its server sends belongs to whoever logged in on the connection, though no request says so.
        x.caching = None;
        return;
    }
    let has_body = !matches!(live.client.request_framing(), Framing::None | Framing::Length(0));
    let cache = &live.worker.shared.caches[cache.0 as usize];
    let Some(query) = cache.query(&x.request, x.txn.received.method(), has_body) else {
        x.caching = None;
        return;
    };
    // Until a backend is chosen, the rules of the frontend are running.
    let backend = x.backend.filter(|backend| *backend != live.conn.frontend);
    let mut caching = Caching { query, cache: cache.clone(), backend, found: None, storing: None, fetch: None };
    if caching.query.may_answer() {
        cells(live.conn, backend).cache_lookups.inc();
        if let Some(entry) = cache.find(&caching.query, live.worker.clock.unix_s()) {
            caching.keep_answer(live.conn, entry);
        }
    }
    x.caching = Some(Box::new(caching));
}

/// The counters of the section whose rules have asked a cache.
fn cells<'a>(conn: &'a Conn<'_>, backend: Option<ProxyId>) -> &'a Cells {
    let counters = conn.worker.counters();
    backend.map_or_else(|| counters.frontend(conn.frontend), |backend| counters.backend(backend))
}

/// `cache-store`: begins to store the server's response as it is now, if that is allowed, or drops what its request has
/// changed. `framing` is that of its body.
pub(crate) fn store(live: &mut Live<'_, '_>, cache: CacheId, framing: Framing) {
    let x = &mut *live.x;
    // What comes from a cache is there already.
    let Some(caching) = x.caching.as_mut().filter(|_| x.txn.cache.is_none()) else { return };
    let cache = &live.worker.shared.caches[cache.0 as usize];
    if caching.query.has_changed(x.response.status()) {
        cache.invalidate(&caching.query);
    } else if caching.storing.is_none() && x.txn.inspection.is_none() && !live.worker.shared.memory.is_short() {
        // What HTTP/2 ends with its head has no body.
        let framing = if framing == Framing::None { Framing::Length(0) } else { framing };
        caching.storing = cache.store(&caching.query, &x.response, framing, live.worker.clock.unix_s()).map(Box::new);
    }
}

/// Those who wait for the server's response wait for its body, if it is being stored, or no longer.
pub(super) fn decided(x: &mut Exchange, now_s: u64) {
    let Some(caching) = x.caching.as_mut() else { return };
    match (caching.fetch.take(), &mut caching.storing) {
        (Some(fetch), Some(storing)) => storing.carry(fetch),
        (Some(fetch), None) => fetch.refuse(now_s),
        (None, _) => {}
    }
}

/// The response that is being stored, for whoever reads its body.
pub(super) fn storing(x: &mut Exchange) -> Option<Box<Storing>> {
    x.caching.as_mut()?.storing.take()
}

/// Whether a stored response will be sent. A message that services inspect is neither stored nor taken from a cache: they
/// decide about each anew.
pub(crate) fn is_found(x: &Exchange) -> bool {
    x.txn.inspection.is_none() && x.caching.as_ref().is_some_and(|caching| caching.found.is_some())
}

/// Takes the stored response that was found, with the cache that it comes from.
pub(super) fn take_found(x: &mut Exchange) -> Option<(Arc<Cache>, Arc<CacheEntry>)> {
    x.caching.as_mut()?.found.take()
}

/// A server's response that is stored while it is forwarded.
pub(super) struct Tee<'a> {
    source: &'a mut dyn Source,
    storing: &'a mut Option<Box<Storing>>,
}

impl<'a> Tee<'a> {
    pub fn new(source: &'a mut dyn Source, storing: &'a mut Option<Box<Storing>>) -> Tee<'a> {
        Tee { source, storing }
    }
}

impl Source for Tee<'_> {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let had = buffer.len();
        let read = self.source.poll_body(cx, buffer);
        keep(self.storing, &buffer.data()[had..]);
        match read {
            Poll::Ready(Ok(Body::End)) => complete(self.storing, &*self.source),
            Poll::Ready(Err(_)) => *self.storing = None,
            Poll::Ready(Ok(Body::More(_) | Body::Full)) | Poll::Pending => {}
        }
        read
    }
    fn trailers(&self) -> Option<&Fields> {
        self.source.trailers()
    }
}

/// Stores a part of the body, or gives the response up if there is no room for it.
pub(super) fn keep(storing: &mut Option<Box<Storing>>, bytes: &[u8]) {
    if !bytes.is_empty() && storing.as_mut().is_some_and(|storing| !storing.append(bytes)) {
        *storing = None;
    }
}

/// Makes the response available, now that its body has been read.
pub(super) fn complete(storing: &mut Option<Box<Storing>>, source: &dyn Source) {
    if let Some(storing) = storing.take() {
        storing.complete(source.trailers());
    }
}
