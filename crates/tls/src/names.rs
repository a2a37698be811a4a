//! Finds the certificates for a name. Pure.
//!
//! The table consists of shards that copies share, so that a change to one of fifty thousand names copies only a few
//! hundred.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

/// Something that can be found by a name.
pub(crate) trait Candidate {
    /// The candidate's place among those for the same name: the lowest is preferred.
    fn order(&self) -> u64;
    /// Whether the candidate is excluded for this name when found by a wildcard.
    fn excludes(&self, name: &str) -> bool;
}

/// Names and wildcards, each with its candidates in order.
#[derive(Debug)]
pub(crate) struct Names<T> {
    shards: Vec<Arc<Shard<T>>>,
    hasher: RandomState,
    names: usize,
}

/// The key of a wildcard is what follows the star, including the dot; no name starts with a dot.
type Shard<T> = HashMap<Box<str>, Vec<Arc<T>>>;

/// Average number of names per shard beyond which shards are split.
const SHARD: usize = 64;

impl<T> Default for Names<T> {
    fn default() -> Self {
        Names { shards: vec![Arc::default()], hasher: RandomState::new(), names: 0 }
    }
}

impl<T> Clone for Names<T> {
    fn clone(&self) -> Self {
        Names { shards: self.shards.clone(), hasher: self.hasher.clone(), names: self.names }
    }
}

impl<T: Candidate> Names<T> {
    /// Adds `candidate` for `pattern`: a name, or one whose first label is a star.
    pub fn add(&mut self, pattern: &str, candidate: &Arc<T>) {
        let key = key(pattern);
        let shard = self.shard(&key);
        let shard = Arc::make_mut(&mut self.shards[shard]);
        let known = shard.len();
        let list = shard.entry(key).or_default();
        let at = list.partition_point(|other| other.order() < candidate.order());
        match list.get_mut(at) {
            Some(same) if same.order() == candidate.order() => *same = candidate.clone(),
            _ => list.insert(at, candidate.clone()),
        }
        self.names += shard.len() - known;
        if self.names > 2 * SHARD * self.shards.len() {
            self.grow();
        }
    }

    /// Removes the candidate with this order from `pattern`.
    pub fn remove(&mut self, pattern: &str, order: u64) {
        let key = key(pattern);
        let shard = self.shard(&key);
        let has = |list: &Vec<Arc<T>>| list.iter().any(|other| other.order() == order);
        // A shard is copied only if something is removed from it.
        if !self.shards[shard].get(&key).is_some_and(has) {
            return;
        }
        let shard = Arc::make_mut(&mut self.shards[shard]);
        let Some(list) = shard.get_mut(&key) else { return };
        list.retain(|other| other.order() != order);
        if list.is_empty() {
            shard.remove(&key);
            self.names -= 1;
        }
    }

    /// The candidates for `name`, in lower case: those of the name itself, else those of the wildcard one label up.
    pub fn find(&self, name: &str) -> Cow<'_, [Arc<T>]> {
        // A name that starts with a dot would match the key of a wildcard.
        if name.starts_with('.') {
            return Cow::Borrowed(&[]);
        }
        if let Some(list) = self.list(name) {
            return Cow::Borrowed(list);
        }
        let Some(list) = name.find('.').and_then(|dot| self.list(&name[dot..])) else { return Cow::Borrowed(&[]) };
        if list.iter().any(|candidate| candidate.excludes(name)) {
            return Cow::Owned(list.iter().filter(|candidate| !candidate.excludes(name)).cloned().collect());
        }
        Cow::Borrowed(list)
    }

    /// Every name and wildcard, sorted, with its candidates.
    pub fn all(&self) -> Vec<(String, &[Arc<T>])> {
        let pattern = |key: &str| if key.starts_with('.') { format!("*{key}") } else { key.to_owned() };
        let all = self.shards.iter().flat_map(|shard| shard.iter());
        let mut all: Vec<_> = all.map(|(key, list)| (pattern(key), list.as_slice())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn list(&self, key: &str) -> Option<&[Arc<T>]> {
        self.shards[self.shard(key)].get(key).map(Vec::as_slice)
    }

    fn shard(&self, key: &str) -> usize {
        // The number of shards is a power of two.
        self.hasher.hash_one(key) as usize & (self.shards.len() - 1)
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.shards);
        self.shards = (0..old.len() * 4).map(|_| Arc::default()).collect();
        for shard in old {
            let shard = Arc::try_unwrap(shard).unwrap_or_else(|shared| HashMap::clone(&shared));
            for (key, list) in shard {
                let shard = self.shard(&key);
                Arc::make_mut(&mut self.shards[shard]).insert(key, list);
            }
        }
    }
}

fn key(pattern: &str) -> Box<str> {
    let pattern = pattern.to_ascii_lowercase();
    pattern.strip_prefix('*').unwrap_or(&pattern).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Numbered(u64, &'static str);

    impl Candidate for Numbered {
        fn order(&self) -> u64 {
            self.0
        }
        fn excludes(&self, name: &str) -> bool {
            self.1 == name
        }
    }

    fn orders(names: &Names<Numbered>, name: &str) -> Vec<u64> {
        names.find(name).iter().map(|candidate| candidate.0).collect()
    }

    #[test]
    fn a_name_beats_a_wildcard_and_a_wildcard_covers_one_label() {
        let mut names = Names::default();
        names.add("*.Example.org", &Arc::new(Numbered(0, "secret.example.org")));
        names.add("www.example.org", &Arc::new(Numbered(2, "")));
        names.add("www.example.org", &Arc::new(Numbered(1, "")));
        assert_eq!(orders(&names, "www.example.org"), [1, 2]);
        assert_eq!(orders(&names, "mail.example.org"), [0]);
        for none in ["a.b.example.org", "example.org", "secret.example.org", ".example.org", ""] {
            assert_eq!(orders(&names, none), [0u64; 0], "{none}");
        }
    }

    #[test]
    fn a_copy_is_not_touched_by_what_happens_to_the_other() {
        let mut names = Names::default();
        for order in 0..5000 {
            names.add(&format!("{order}.test"), &Arc::new(Numbered(order, "")));
        }
        assert!(names.shards.len() > 16, "{} shards", names.shards.len());
        let before = names.clone();
        names.remove("7.test", 7);
        names.remove("8.test", 7);
        names.add("new.test", &Arc::new(Numbered(1, "")));
        names.add("9.test", &Arc::new(Numbered(9, "replaced")));
        assert_eq!(orders(&names, "7.test"), [0u64; 0]);
        assert_eq!(orders(&names, "8.test"), [8]);
        assert!(names.find("9.test")[0].excludes("replaced"));
        assert_eq!(orders(&before, "7.test"), [7]);
        assert_eq!(orders(&before, "new.test"), [0u64; 0]);
        assert!(!before.find("9.test")[0].excludes("replaced"));
        let shared = before.shards.iter().zip(&names.shards).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert!(shared + 3 >= names.shards.len(), "at most three shards were copied");
    }
}
