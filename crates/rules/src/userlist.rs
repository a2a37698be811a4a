//! Userlists: who may pass `http_auth`, and which groups they are in.

use crate::crypt::Hash;
use aws_lc_rs::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use penstock_config::{Diagnostics, model};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

/// A userlist, ready to check with.
#[derive(Debug)]
pub struct Userlist {
    /// Its name.
    pub name: String,
    users: HashMap<String, User>,
    /// Digests of user and password, keyed with a secret of this process, that a slow hash has accepted.
    accepted: Mutex<Accepted>,
    secret: hmac::Key,
}

#[derive(Debug)]
struct User {
    hash: Hash,
    groups: Vec<String>,
}

#[derive(Debug, Default)]
struct Accepted {
    digests: HashMap<[u8; 32], ()>,
    order: VecDeque<[u8; 32]>,
}

/// Logins remembered a list. Each request of a browser repeats its login; a check of 5000 rounds is some 2 ms.
const REMEMBERED: usize = 4096;

impl Userlist {
    /// Reads the hashes of a userlist.
    pub fn new(list: &model::Userlist, diagnostics: &mut Diagnostics) -> Userlist {
        let mut users = HashMap::new();
        for user in &list.users {
            let hash = if user.insecure {
                Hash::Clear(user.password.clone().into_bytes())
            } else {
                match Hash::parse(&user.password) {
                    Ok(hash) => hash,
                    Err(reason) => {
                        diagnostics.error(user.span, format!("password of user `{}`: {reason}", user.name));
                        continue;
                    }
                }
            };
            let mut groups = user.groups.clone();
            groups
                .extend(list.groups.iter().filter(|(_, members)| members.contains(&user.name)).map(|(g, _)| g.clone()));
            users.insert(user.name.clone(), User { hash, groups });
        }
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system has random bytes");
        Userlist {
            name: list.name.clone(),
            users,
            accepted: Mutex::default(),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        }
    }

    /// Whether a user of this list has this password.
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let Some(known) = std::str::from_utf8(user).ok().and_then(|name| self.users.get(name)) else { return false };
        if !known.hash.is_slow() {
            return known.hash.check(password);
        }
        let mut mac = hmac::Context::with_key(&self.secret);
        mac.update(user);
        mac.update(&[0]);
        mac.update(password);
        let mut digest = [0; 32];
        digest.copy_from_slice(mac.sign().as_ref());
        if self.accepted().digests.contains_key(&digest) {
            return true;
        }
        // Not under the lock: this is the slow part.
        let right = known.hash.check(password);
        if right {
            let mut accepted = self.accepted();
            if accepted.digests.insert(digest, ()).is_none() {
                accepted.order.push_back(digest);
            }
            if accepted.order.len() > REMEMBERED
                && let Some(oldest) = accepted.order.pop_front()
            {
                accepted.digests.remove(&oldest);
            }
        }
        right
    }

    /// The groups of a user.
    pub fn groups(&self, user: &[u8]) -> &[String] {
        std::str::from_utf8(user).ok().and_then(|name| self.users.get(name)).map_or(&[], |user| &user.groups)
    }

    fn accepted(&self) -> std::sync::MutexGuard<'_, Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Userlist {
        let user = |name: &str, password: &str, insecure, groups: &[&str]| model::User {
            name: name.into(),
            password: password.into(),
            insecure,
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Default::default()
        };
        let mut config = model::Userlist {
            name: "u".into(),
            users: vec![
                user("tiger", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", false, &["cats"]),
                user("clear", "s3cret", true, &[]),
            ],
            ..Default::default()
        };
        config.groups.insert("all".into(), vec!["tiger".into(), "clear".into()]);
        let mut diagnostics = Diagnostics::default();
        let list = Userlist::new(&config, &mut diagnostics);
        assert!(!diagnostics.has_errors());
        list
    }

    #[test]
    fn logins_and_groups() {
        let list = list();
        assert!(list.check(b"clear", b"s3cret") && !list.check(b"clear", b"s3cre"));
        assert!(!list.check(b"nobody", b""));
        assert_eq!(list.groups(b"tiger"), ["cats", "all"]);
    }

    #[test]
    fn a_slow_hash_is_remembered_only_when_it_was_right() {
        let list = list();
        assert!(!list.check(b"tiger", b"wrong"));
        assert_eq!(list.accepted().digests.len(), 0);
        for _ in 0..3 {
            assert!(list.check(b"tiger", b"Hello world!"));
        }
        assert_eq!(list.accepted().digests.len(), 1);
        assert!(!list.check(b"clear", b"Hello world!"), "the digest holds the user's name");
    }
}
