//! The certificates made by this process, and those being made.

use super::{Forgeries, Name};
use crate::context::Context;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::OnceCell;

/// The certificates made by this process: `tune.ssl.ssl-ctx-cache-size`.
pub(crate) struct Kept {
    state: Mutex<State>,
    size: usize,
    made: AtomicU64,
    found: AtomicU64,
    refused: AtomicU64,
}

/// What a certificate was made for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Name(Name),
    /// The digest of what it mirrors.
    Server([u8; 32]),
}

/// With the number of its forge.
pub(super) type Of = (u64, Key);

/// The most recently used certificates, and those that are being signed.
#[derive(Default)]
struct State {
    entries: HashMap<Of, Entry>,
    /// The keys by their last use.
    order: BTreeMap<u64, Of>,
    uses: u64,
    signing: HashMap<Of, Arc<OnceCell<Arc<Context>>>>,
}

struct Entry {
    context: Arc<Context>,
    /// The entry's key in `State::order`: greater is more recent.
    used: u64,
    /// When another is made: half-way to its end, so that clients never see it expire.
    until: i64,
}

/// What is known of a certificate.
pub(super) enum Look<'k> {
    Known(Arc<Context>),
    New(Signing<'k>),
}

/// A certificate that is being signed, for as long as somebody waits for it.
pub(super) struct Signing<'k> {
    kept: &'k Kept,
    of: Of,
    cell: Option<Arc<OnceCell<Arc<Context>>>>,
}

impl Kept {
    pub fn new(size: usize) -> Arc<Kept> {
        let (made, found, refused) = Default::default();
        Arc::new(Kept { state: Mutex::default(), size, made, found, refused })
    }

    pub fn counts(&self) -> Forgeries {
        Forgeries { made: self.made.load(Relaxed), kept: self.found.load(Relaxed), refused: self.refused.load(Relaxed) }
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn find(&self, of: &Of, now: i64) -> Option<Arc<Context>> {
        let found = self.state().find(of, now)?;
        self.found.fetch_add(1, Relaxed);
        Some(found)
    }

    /// The certificate, or the right to have it signed, which those who ask meanwhile share.
    pub(super) fn look(&self, of: Of, now: i64) -> Look<'_> {
        let mut state = self.state();
        if let Some(found) = state.find(&of, now) {
            self.found.fetch_add(1, Relaxed);
            return Look::Known(found);
        }
        let cell = Some(state.signing.entry(of.clone()).or_default().clone());
        Look::New(Signing { kept: self, of, cell })
    }

    fn keep(&self, of: Of, context: Arc<Context>, until: i64) {
        self.made.fetch_add(1, Relaxed);
        if self.size > 0 {
            self.state().keep(of, context, until, self.size);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signing<'_> {
    /// Waits for the certificate. One of those who wait has it signed; if that fails or is given up, the next does.
    pub async fn result<F>(self, sign: impl FnOnce() -> F) -> Option<Arc<Context>>
    where
        F: Future<Output = Option<(Arc<Context>, i64)>>,
    {
        let cell = self.cell.as_ref()?;
        let mut signed_here = false;
        let signed = cell
            .get_or_try_init(|| {
                signed_here = true;
                let signing = sign();
                async {
                    let (context, until) = signing.await.ok_or(())?;
                    self.kept.keep(self.of.clone(), context.clone(), until);
                    Ok::<_, ()>(context)
                }
            })
            .await;
        let context = signed.ok()?.clone();
        if !signed_here {
            self.kept.found.fetch_add(1, Relaxed);
        }
        Some(context)
    }
}

impl Drop for Signing<'_> {
    fn drop(&mut self) {
        let mut state = self.kept.state();
        drop(self.cell.take());
        // Only the table itself still has it. Others come by it under the lock that is held here.
        if state.signing.get(&self.of).is_some_and(|cell| Arc::strong_count(cell) == 1) {
            state.signing.remove(&self.of);
        }
    }
}

impl State {
    fn find(&mut self, of: &Of, now: i64) -> Option<Arc<Context>> {
        let State { entries, order, uses, .. } = self;
        let entry = entries.get_mut(of).filter(|entry| now < entry.until)?;
        *uses += 1;
        if let Some(of) = order.remove(&entry.used) {
            order.insert(*uses, of);
        }
        entry.used = *uses;
        Some(entry.context.clone())
    }

    fn keep(&mut self, of: Of, context: Arc<Context>, until: i64, size: usize) {
        self.uses += 1;
        let used = self.uses;
        if let Some(old) = self.entries.insert(of.clone(), Entry { context, used, until }) {
            self.order.remove(&old.used);
        }
        self.order.insert(used, of);
        while self.entries.len() > size {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}
