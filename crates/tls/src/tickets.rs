//! Session resumption: tickets that contain sessions, and the cache that stores them.
//!
//! A session is resumed only under the policy it was made under. The policy's digest (verification mode, authorities,
//! CRLs, ignored errors, names) is part of the derivation of every ticket key and of every cache key, so that a ticket
//! of another policy does not decrypt, and a session of another policy is not found. There is no comparison that could
//! be forgotten.

use crate::{Loader, certificate::reason};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf, rand,
};
use base64::Engine;
use penstock_config::{Diagnostics, Spanned};
use rustls::server::{ProducesTickets, StoresServerSessions};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// Identifies an authentication policy: SHA-256 over everything that decides who is let in.
pub(crate) type PolicyId = [u8; 32];

/// How long a key generated here encrypts. Long compared with the lifetime of a ticket (five minutes), short in case of
/// a breach.
const ROTATION: Duration = Duration::from_secs(12 * 3600);
/// How many keys of a `tls-ticket-keys` file are in use.
pub(crate) const KEYS: usize = 3;
const NAME_LEN: usize = 16;
const TAG_LEN: usize = 16;

/// The secrets that tickets are derived from, shared by all workers of a process, or of several processes through a
/// file.
pub(crate) struct KeyRing {
    state: Mutex<Ring>,
    lifetime: Duration,
}

struct Ring {
    /// Numbered secrets, newest last.
    secrets: Vec<(u64, Zeroizing<Vec<u8>>)>,
    /// The number of the one that encrypts.
    encrypts: u64,
    /// When generated secrets are rotated next; `None` for those of a file.
    rotate_at: Option<Instant>,
    next_number: u64,
}

impl KeyRing {
    /// Generated keys that are rotated automatically.
    pub fn rotating(lifetime: Duration) -> Arc<KeyRing> {
        let now = Instant::now();
        let secrets = vec![(0, fresh_secret())];
        let state = Ring { secrets, encrypts: 0, rotate_at: Some(now + ROTATION), next_number: 1 };
        Arc::new(KeyRing { state: Mutex::new(state), lifetime })
    }

    /// Keys of a `tls-ticket-keys` file: base64 of 48 or 80 bytes, one per line. The last three decrypt and the last
    /// but one encrypts, so that every process of a cluster can decrypt with a key before any of them encrypts with it.
    pub fn from_file(
        file: &Spanned<PathBuf>,
        lifetime: Duration,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Arc<KeyRing>> {
        let shown = file.value.display();
        let text = match loader.read(&file.value) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(e) => {
                diagnostics.error(file.span, format!("ticket keys '{shown}' cannot be read: {}", reason(&e)));
                return None;
            }
        };
        let mut keys = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match base64(line) {
                Some(key) if matches!(key.len(), 48 | 80) => keys.push(key),
                _ => {
                    diagnostics
                        .error(file.span, format!("{shown}:{}: not 48 or 80 bytes in base64", index + 1))
                        .hint("make a key with 'openssl rand -base64 80 | tr -d \"\\n\"'");
                    return None;
                }
            }
        }
        if keys.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            diagnostics.error(file.span, format!("'{shown}' mixes keys of 48 and of 80 bytes"));
            return None;
        }
        if keys.len() < KEYS {
            diagnostics
                .error(file.span, format!("'{shown}' holds {} ticket keys; at least {KEYS} are needed", keys.len()));
            return None;
        }
        let kept = keys.split_off(keys.len() - KEYS);
        let secrets: Vec<_> = (0..).zip(kept).collect();
        let state = Ring { secrets, encrypts: KEYS as u64 - 2, rotate_at: None, next_number: KEYS as u64 };
        Some(Arc::new(KeyRing { state: Mutex::new(state), lifetime }))
    }

    /// The current secrets, oldest first.
    pub fn secrets(&self) -> Vec<Zeroizing<Vec<u8>>> {
        self.lock().secrets.iter().map(|(_, secret)| secret.clone()).collect()
    }

    /// Adds the newest key of a file: the oldest is dropped, and the previously newest one encrypts. Returns false if
    /// its size differs from the others'.
    pub fn push(&self, secret: Zeroizing<Vec<u8>>) -> bool {
        let mut ring = self.lock();
        let Some((newest, last)) = ring.secrets.last() else { return false };
        if last.len() != secret.len() {
            return false;
        }
        ring.encrypts = *newest;
        let number = ring.next_number;
        ring.next_number += 1;
        ring.secrets.push((number, secret));
        ring.secrets.remove(0);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn base64(line: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    base64::engine::general_purpose::STANDARD.decode(line).ok().map(Zeroizing::new)
}

fn fresh_secret() -> Zeroizing<Vec<u8>> {
    let mut secret = Zeroizing::new(vec![0; 48]);
    rand::fill(&mut secret).expect("the system's random source answers or nothing here is safe");
    secret
}

/// Encrypts and decrypts the tickets of one policy.
pub(crate) struct Tickets {
    ring: Arc<KeyRing>,
    policy: PolicyId,
    derived: Mutex<HashMap<u64, Arc<TicketKey>>>,
}

struct TicketKey {
    name: [u8; NAME_LEN],
    aead: LessSafeKey,
}

impl TicketKey {
    fn derive(secret: &[u8], policy: &PolicyId) -> Option<TicketKey> {
        struct Length;
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                NAME_LEN + 32
            }
        }
        let mut out = Zeroizing::new([0; NAME_LEN + 32]);
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"penstock session ticket 1");
        salt.extract(secret).expand(&[policy], Length).ok()?.fill(&mut *out).ok()?;
        let (name, key) = out.split_at(NAME_LEN);
        Some(TicketKey {
            name: name.try_into().ok()?,
            aead: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?),
        })
    }
}

impl Tickets {
    pub fn new(ring: Arc<KeyRing>, policy: PolicyId) -> Arc<Tickets> {
        Arc::new(Tickets { ring, policy, derived: Mutex::default() })
    }

    /// The keys that decrypt, newest first, and the index of the one that encrypts.
    fn keys(&self, now: Instant) -> (Vec<Arc<TicketKey>>, usize) {
        let mut ring = self.ring.lock();
        if ring.rotate_at.is_some_and(|at| now >= at) {
            let number = ring.next_number;
            ring.secrets.push((number, fresh_secret()));
            ring.next_number += 1;
            ring.encrypts = number;
            ring.rotate_at = Some(now + ROTATION);
            // The previous one still decrypts, as long as its youngest tickets last.
            let old = ring.secrets.len() - 2;
            ring.secrets.drain(..old);
        }
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        derived.retain(|number, _| ring.secrets.iter().any(|(known, _)| known == number));
        let mut keys = Vec::with_capacity(ring.secrets.len());
        let mut encrypts = 0;
        for (number, secret) in ring.secrets.iter().rev() {
            let key = match derived.get(number) {
                Some(key) => key.clone(),
                None => {
                    let Some(key) = TicketKey::derive(secret, &self.policy) else { continue };
                    derived.entry(*number).or_insert(Arc::new(key)).clone()
                }
            };
            if *number == ring.encrypts {
                encrypts = keys.len();
            }
            keys.push(key);
        }
        (keys, encrypts)
    }

    fn seal(&self, plain: &[u8], now: Instant) -> Option<Vec<u8>> {
        let (keys, encrypts) = self.keys(now);
        let key = keys.get(encrypts)?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + plain.len() + TAG_LEN);
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let (head, body) = ticket.split_at_mut(NAME_LEN + NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.aead.seal_in_place_separate_tag(nonce, Aad::from(&head[..NAME_LEN]), body).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: Instant) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let (keys, _) = self.keys(now);
        let key = keys.iter().find(|key| key.name == name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let len = key.aead.open_in_place(nonce, Aad::from(name), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }
    fn lifetime(&self) -> u32 {
        u32::try_from(self.ring.lifetime.as_secs()).unwrap_or(u32::MAX)
    }
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, Instant::now())
    }
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, Instant::now())
    }
}

/// Sessions stored here, for clients without tickets and for `no-tls-tickets`. One per process (`tune.ssl.cachesize`).
pub(crate) struct SessionCache {
    state: Mutex<Cached>,
    lookups: AtomicU64,
    misses: AtomicU64,
    size: usize,
    lifetime: Duration,
}

#[derive(Default)]
struct Cached {
    sessions: HashMap<Vec<u8>, (Zeroizing<Vec<u8>>, Instant)>,
    /// Keys in the order of insertion: the oldest is evicted, and expires, first.
    order: VecDeque<Vec<u8>>,
}

impl SessionCache {
    pub fn new(size: usize, lifetime: Duration) -> Arc<SessionCache> {
        let (lookups, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(SessionCache { state: Mutex::default(), lookups, misses, size, lifetime })
    }

    /// How often a session was looked for, and how often there was none.
    pub fn lookups(&self) -> (u64, u64) {
        (self.lookups.load(Relaxed), self.misses.load(Relaxed))
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>, now: Instant) -> bool {
        if self.size == 0 {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Cached { sessions, order } = &mut *state;
        while let Some(oldest) = order.front() {
            let stale = sessions.get(oldest).is_none_or(|(_, until)| *until <= now);
            if !stale && sessions.len() < self.size && order.len() < 2 * self.size {
                break;
            }
            sessions.remove(oldest);
            order.pop_front();
        }
        order.push_back(key.clone());
        sessions.insert(key, (Zeroizing::new(value), now + self.lifetime));
        true
    }

    fn get(&self, key: &[u8], remove: bool, now: Instant) -> Option<Vec<u8>> {
        let found = self.find(key, remove, now);
        self.lookups.fetch_add(1, Relaxed);
        if found.is_none() {
            self.misses.fetch_add(1, Relaxed);
        }
        found
    }

    fn find(&self, key: &[u8], remove: bool, now: Instant) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, until) = state.sessions.get(key)?;
        let found = (*until > now).then(|| value.to_vec());
        if remove {
            state.sessions.remove(key);
        }
        found
    }
}

/// The sessions of one policy in the cache.
pub(crate) struct PolicySessions {
    pub cache: Arc<SessionCache>,
    pub policy: PolicyId,
}

impl PolicySessions {
    fn key(&self, id: &[u8]) -> Vec<u8> {
        [&self.policy, id].concat()
    }
}

impl fmt::Debug for PolicySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicySessions")
    }
}

impl StoresServerSessions for PolicySessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache.put(self.key(&key), value, Instant::now())
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key), false, Instant::now())
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key), true, Instant::now())
    }
    fn can_cache(&self) -> bool {
        self.cache.size > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    const LIFE: Duration = Duration::from_secs(300);

    fn key_file(keys: &[u8], len: usize) -> (Memory, Spanned<PathBuf>) {
        let encode = |fill: &u8| base64::engine::general_purpose::STANDARD.encode(vec![*fill; len]) + "\n";
        let text: String = keys.iter().map(encode).collect();
        let files = Memory([(PathBuf::from("/keys"), text.into_bytes())].into());
        (files, Spanned { value: "/keys".into(), ..Spanned::default() })
    }

    #[test]
    fn a_ticket_opens_under_its_own_policy_only() {
        let ring = KeyRing::rotating(LIFE);
        let (none, required) = (Tickets::new(ring.clone(), [1; 32]), Tickets::new(ring, [2; 32]));
        let now = Instant::now();
        let ticket = none.seal(b"session", now).unwrap();
        assert_eq!(none.open(&ticket, now).unwrap(), b"session");
        assert_eq!(required.open(&ticket, now), None);
        let mut bent = ticket.clone();
        *bent.last_mut().unwrap() ^= 1;
        assert_eq!(none.open(&bent, now), None);
        assert_eq!(none.open(&ticket[..20], now), None);
    }

    #[test]
    fn keys_rotate_and_the_one_before_still_opens() {
        let tickets = Tickets::new(KeyRing::rotating(LIFE), [0; 32]);
        let start = Instant::now();
        let first = tickets.seal(b"a", start).unwrap();
        let later = start + ROTATION + LIFE;
        let second = tickets.seal(b"b", later).unwrap();
        assert_ne!(first[..NAME_LEN], second[..NAME_LEN]);
        assert!(tickets.open(&first, later).is_some());
        assert!(tickets.open(&first, later + ROTATION).is_none());
    }

    #[test]
    fn a_key_file_is_shared_and_rotated_as_haproxys() {
        for len in [48, 80] {
            let open = |keys: &[u8]| {
                let (files, path) = key_file(keys, len);
                let mut diagnostics = Diagnostics::default();
                let ring = KeyRing::from_file(&path, LIFE, &files, &mut diagnostics);
                assert!(diagnostics.list.is_empty(), "{diagnostics:?}");
                Tickets::new(ring.unwrap(), [7; 32])
            };
            let (old, new) = (open(&[1, 2, 3]), open(&[1, 2, 3, 4]));
            let now = Instant::now();
            // The old process encrypts with 2, the new one with 3: each can open the other's tickets.
            assert_eq!(new.open(&old.seal(b"x", now).unwrap(), now).unwrap(), b"x");
            assert_eq!(old.open(&new.seal(b"y", now).unwrap(), now).unwrap(), b"y");
            assert!(open(&[3, 4, 5]).open(&old.seal(b"x", now).unwrap(), now).is_none());
        }
    }

    #[test]
    fn a_key_set_at_run_time_is_the_newest_and_the_one_before_it_encrypts() {
        let (files, path) = key_file(&[1, 2, 3], 48);
        let ring = KeyRing::from_file(&path, LIFE, &files, &mut Diagnostics::default()).unwrap();
        let (tickets, now) = (Tickets::new(ring.clone(), [7; 32]), Instant::now());
        let before = tickets.seal(b"by 2", now).unwrap();
        assert!(!ring.push(Zeroizing::new(vec![4; 80])), "of another size");
        assert!(ring.push(Zeroizing::new(vec![4; 48])));
        let fills: Vec<u8> = ring.secrets().iter().map(|secret| secret[0]).collect();
        assert_eq!(fills, [2, 3, 4]);
        let after = tickets.seal(b"by 3", now).unwrap();
        assert_ne!(before[..NAME_LEN], after[..NAME_LEN]);
        assert!(tickets.open(&before, now).is_some() && tickets.open(&after, now).is_some());
        assert!(ring.push(Zeroizing::new(vec![5; 48])));
        assert!(tickets.open(&before, now).is_none(), "its key is forgotten");
    }

    #[test]
    fn a_bad_key_file_is_its_own_sentence() {
        for (files, expected) in [
            (key_file(&[1, 2], 48).0, "holds 2 ticket keys"),
            (key_file(&[1, 2, 3], 32).0, "not 48 or 80 bytes"),
            (Memory::default(), "it does not exist"),
        ] {
            let mut diagnostics = Diagnostics::default();
            let path = key_file(&[], 48).1;
            assert!(KeyRing::from_file(&path, LIFE, &files, &mut diagnostics).is_none());
            assert!(diagnostics.list[0].message.contains(expected), "{diagnostics:?}");
        }
    }

    #[test]
    fn the_cache_is_bounded_and_forgets() {
        let cache = SessionCache::new(3, LIFE);
        let now = Instant::now();
        for key in 0..5u8 {
            assert!(cache.put(vec![key], vec![key], now));
        }
        assert_eq!(cache.get(&[1], false, now), None);
        assert_eq!(cache.get(&[4], false, now), Some(vec![4]));
        assert_eq!(cache.get(&[4], true, now), Some(vec![4]));
        assert_eq!(cache.get(&[4], false, now), None);
        assert_eq!(cache.get(&[3], false, now + LIFE), None);
        assert!(!SessionCache::new(0, LIFE).put(vec![1], vec![1], now));
    }
}
