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

/// What is kept beside a [`SigningKey`] for lanes.
#[derive(Default)]
pub(crate) struct Prepared {
    /// `None` inside: lanes cannot use the key (another size or public exponent), so it stays native.
    key: OnceLock<Option<LaneKey>>,
    ordered: AtomicBool,
}

impl Prepared {
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
        self.key.get_or_init(|| prepare(key));
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
            let work = move || taken.iter().for_each(|key| key.prepared.now(&key));
            thread::Builder::new().name("key-prepare".to_owned()).spawn(work).ok().map(|_| orders)
        };
        // Where no thread can be had, keys stay native.
        if let Some(orders) = WORKSHOP.get_or_init(open) {
            let _ = orders.send(key.clone());
        }
    }
}

fn prepare(key: &SigningKey) -> Option<LaneKey> {
    if let Some(scalar) = key.scalar() {
        return Some(LaneKey::Scalar(scalar));
    }
    let pkcs8 = key.rsa_pkcs8()?;
    let numbers = rsa_numbers(pkcs8.expose())?;
    let [n, e, _d, p, q, dp, dq, qinv] = numbers;
    RsaKey::new(&RsaParts { n, e, p, q, dp, dq, qinv }).ok().map(|key| LaneKey::Rsa(Box::new(key)))
}

/// The numbers of an RSA key in PKCS#8 (RFC 5208; RFC 8017, A.1.2): n, e, d, p, q, dp, dq, qinv.
pub(crate) fn rsa_numbers(pkcs8: &[u8]) -> Option<[&[u8]; 8]> {
    const INTEGER: u8 = 0x02;
    const OCTET_STRING: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    let (mut info, _) = element(pkcs8, SEQUENCE)?;
    for tag in [INTEGER, SEQUENCE] {
        info = element(info, tag)?.1;
    }
    let (private, _) = element(info, OCTET_STRING)?;
    let (numbers, _) = element(private, SEQUENCE)?;
    let (_version, mut rest) = element(numbers, INTEGER)?;
    let mut out = [&[][..]; 8];
    for number in &mut out {
        (*number, rest) = element(rest, INTEGER)?;
    }
    Some(out)
}

/// The content of the element at the start of `der`, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let fits = bytes.len() <= size_of::<u32>();
            (fits.then(|| bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))?, rest)
        }
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}
