//! Signing keys in the form that lanes compute with.

use crate::{Secret, SigningKey};
use penstock_lanes::rsa::{RsaKey, RsaParts};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

/// A key in the lanes' form.
pub(crate) enum LaneKey {
    Rsa(Box<RsaKey>),
    /// The private scalar of an elliptic curve, big-endian.
    Scalar(Secret),
}

/// What is kept beside a [`SigningKey`] for lanes: a form of the key.
#[derive(Default)]
pub(crate) struct Prepared {
    /// `None` inside: lanes cannot use the key (another size or public exponent), so it stays native.
    key: OnceLock<Option<LaneKey>>,
    ordered: AtomicBool,
}

/// Prepares the key for the engine `sw`, which would otherwise do so beside the worker at the key's first use. Takes some
/// milliseconds.
pub fn prepare(key: &SigningKey) {
    Prepared::of(key).now(key);
}

impl Prepared {
    /// The lanes' form of `key`, prepared or not.
    pub fn of(key: &SigningKey) -> &Prepared {
        key.form()
    }

    /// The key, once it has been prepared, if lanes can use it.
    pub fn get(&self) -> Option<&LaneKey> {
        self.key.get()?.as_ref()
    }

    /// The key, if it is one of RSA.
    pub fn rsa(&self) -> Option<&RsaKey> {
        match self.get()? {
            LaneKey::Rsa(key) => Some(key),
            LaneKey::Scalar(_) => None,
        }
    }

    /// Prepares the key at once, which takes some milliseconds for RSA.
    pub fn now(&self, key: &SigningKey) {
        self.key.get_or_init(|| convert(key));
    }

    /// Has the key prepared on a thread of its own while nothing waits for it: a worker's loop has no milliseconds to spare, and most of
    /// thousands of certificates are never asked for.
    pub fn soon(&self, key: &Arc<SigningKey>) {
        static WORKSHOP: OnceLock<Option<mpsc::Sender<Arc<SigningKey>>>> = OnceLock::new();
        if self.ordered.swap(true, Ordering::Relaxed) {
            return;
        }
        let open = || {
            let (orders, taken) = mpsc::channel::<Arc<SigningKey>>();
            let work = move || taken.iter().for_each(|key| prepare(&key));
            thread::Builder::new().name("key-prepare".to_owned()).spawn(work).ok().map(|_| orders)
        };
        // Where no thread can be had, keys stay native.
        if let Some(orders) = WORKSHOP.get_or_init(open) {
            let _ = orders.send(key.clone());
        }
    }
}

fn convert(key: &SigningKey) -> Option<LaneKey> {
    if let Some(scalar) = key.scalar() {
        return Some(LaneKey::Scalar(scalar));
    }
    key.with_rsa_numbers(|[n, e, _d, p, q, dp, dq, qinv]| {
        RsaKey::new(&RsaParts { n, e, p, q, dp, dq, qinv }).ok().map(|key| LaneKey::Rsa(Box::new(key)))
    })
}
