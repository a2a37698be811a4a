//! Userlists: the users that `http_auth` accepts, and the groups they are in.

use crate::crypt::Hash;
use aws_lc_rs::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use penstock_config::{Diagnostics, Word, model};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// A userlist, ready to check passwords.
#[derive(Debug)]
pub struct Userlist {
    /// The userlist's name.
    pub name: String,
    users: HashMap<String, User>,
    /// Keyed digests of the users and passwords that a slow hash has accepted; the key is a secret of this process.
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

/// Logins remembered per list. Browsers repeat the login with each request, and a check of 5000 rounds takes some 2 ms.
const REMEMBERED: usize = 4096;

impl Userlist {
    /// Parses the hashes of a userlist.
    pub fn new(list: &model::Userlist, diagnostics: &mut Diagnostics) -> Userlist {
        let mut users = HashMap::new();
        // A user without a password can never log in.
        for user in list.users.iter().filter(|user| !user.password.is_empty()) {
            let hash = if user.insecure {
                Hash::Clear(user.password.clone().into_bytes())
            } else {
                match Hash::parse(&user.password) {
                    Ok(hash) => hash,
                    Err(reason) => {
                        diagnostics.error(user.span, format!("password of user '{}': {reason}", user.name));
                        continue;
                    }
                }
            };
            let mut groups: Vec<String> = user.groups.iter().map(|group| group.text.clone()).collect();
            let is_member = |members: &[Word]| members.iter().any(|member| member.text == user.name);
            groups.extend(list.groups.iter().filter(|(_, members)| is_member(members)).map(|(g, _)| g.clone()));
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

    /// Whether a user of this list has this password; a [`Claim`] if finding out takes long.
    fn ask(self: &Arc<Self>, user: &[u8], password: &[u8]) -> Result<bool, Claim> {
        let Some(known) = std::str::from_utf8(user).ok().and_then(|name| self.users.get(name)) else {
            return Ok(false);
        };
        if !known.hash.is_slow() {
            // This check is quick, so it is never given up.
            return Ok(known.hash.check(password, &|| false).unwrap_or(false));
        }
        let mut mac = hmac::Context::with_key(&self.secret);
        mac.update(user);
        mac.update(&[0]);
        mac.update(password);
        let mut digest = [0; 32];
        digest.copy_from_slice(mac.sign().as_ref());
        if self.accepted().digests.contains_key(&digest) {
            return Ok(true);
        }
        Err(Claim { list: Arc::clone(self), hash: known.hash.clone(), password: password.to_vec(), digest })
    }

    fn remember(&self, digest: [u8; 32]) {
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

    /// The groups of a user.
    pub fn groups(&self, user: &[u8]) -> &[String] {
        std::str::from_utf8(user).ok().and_then(|name| self.users.get(name)).map_or(&[], |user| &user.groups)
    }

    fn accepted(&self) -> std::sync::MutexGuard<'_, Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A password to be checked, which may take long.
#[derive(Debug)]
pub struct Claim {
    list: Arc<Userlist>,
    hash: Hash,
    password: Vec<u8>,
    digest: [u8; 32],
}

impl Claim {
    /// Checks it; `None` if the check was given up.
    pub fn check(self, given_up: &dyn Fn() -> bool) -> Option<Known> {
        let right = self.hash.check(&self.password, given_up)?;
        if right {
            self.list.remember(self.digest);
        }
        Some(Known { digest: self.digest, right })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.password.fill(0);
    }
}

/// The result of a [`Claim`].
#[derive(Clone, Copy, Debug)]
pub struct Known {
    digest: [u8; 32],
    right: bool,
}

/// The passwords that rules have asked about for one request. Digests are keyed by list, so that one list's result is
/// never used for another.
#[derive(Debug, Default)]
pub struct Logins {
    known: Vec<Known>,
    claim: RefCell<Option<Claim>>,
}

impl Logins {
    /// Whether a user has a password; `None` if that has to be checked first: see [`Logins::take_claim`].
    pub(crate) fn ask(&self, list: &Arc<Userlist>, user: &[u8], password: &[u8]) -> Option<bool> {
        match list.ask(user, password) {
            Ok(right) => Some(right),
            Err(claim) => {
                let known = self.known.iter().find(|known| known.digest == claim.digest);
                if known.is_none() {
                    *self.claim.borrow_mut() = Some(claim);
                }
                known.map(|known| known.right)
            }
        }
    }
    /// Whether an evaluation has asked for a password that has to be checked first.
    pub fn has_claim(&self) -> bool {
        self.claim.borrow().is_some()
    }
    /// Takes the password to be checked.
    pub fn take_claim(&mut self) -> Option<Claim> {
        self.claim.get_mut().take()
    }
    /// Stores the result of a check.
    pub fn learn(&mut self, known: Known) {
        self.known.push(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Userlist {
        let word = |text: &str| Word { text: text.into(), ..Word::default() };
        let user = |name: &str, password: &str, insecure, groups: &[&str]| model::User {
            name: name.into(),
            password: password.into(),
            insecure,
            groups: groups.iter().map(|g| word(g)).collect(),
            ..Default::default()
        };
        let mut config = model::Userlist {
            name: "u".into(),
            users: vec![
                user("tiger", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", false, &["cats"]),
                user("clear", "s3cret", true, &[]),
                user("none", "", false, &[]),
            ],
            ..Default::default()
        };
        config.groups.insert("all".into(), vec![word("tiger"), word("clear")]);
        let mut diagnostics = Diagnostics::default();
        let list = Userlist::new(&config, &mut diagnostics);
        assert!(!diagnostics.has_errors());
        list
    }

    #[test]
    fn logins_and_groups() {
        let (list, logins) = (Arc::new(list()), Logins::default());
        assert_eq!(logins.ask(&list, b"clear", b"s3cret"), Some(true));
        assert_eq!(logins.ask(&list, b"clear", b"s3cre"), Some(false));
        assert_eq!(logins.ask(&list, b"none", b""), Some(false));
        assert_eq!(logins.ask(&list, b"nobody", b""), Some(false));
        assert!(!logins.has_claim());
        assert_eq!(list.groups(b"tiger"), ["cats", "all"]);
    }

    #[test]
    fn a_slow_hash_is_never_computed_by_who_asks_and_remembered_only_when_it_was_right() {
        let (list, mut logins) = (Arc::new(list()), Logins::default());
        assert_eq!(logins.ask(&list, b"tiger", b"wrong"), None);
        let known = logins.take_claim().unwrap().check(&|| false).unwrap();
        logins.learn(known);
        assert_eq!(logins.ask(&list, b"tiger", b"wrong"), Some(false));
        assert_eq!(list.accepted().digests.len(), 0);
        assert_eq!(Logins::default().ask(&list, b"tiger", b"wrong"), None, "nobody remembers for another request");
        assert_eq!(logins.ask(&list, b"tiger", b"Hello world!"), None);
        logins.take_claim().unwrap().check(&|| false).unwrap();
        for _ in 0..3 {
            assert_eq!(Logins::default().ask(&list, b"tiger", b"Hello world!"), Some(true));
        }
        assert_eq!(list.accepted().digests.len(), 1);
        assert_eq!(logins.ask(&list, b"clear", b"Hello world!"), Some(false), "the digest holds the user's name");
        assert!(!logins.has_claim());
    }

    #[test]
    fn a_check_that_is_given_up_is_no_answer() {
        let (list, mut logins) = (Arc::new(list()), Logins::default());
        assert_eq!(logins.ask(&list, b"tiger", b"Hello world!"), None);
        assert!(logins.take_claim().unwrap().check(&|| true).is_none());
        assert_eq!(logins.ask(&list, b"tiger", b"Hello world!"), None);
    }
}
