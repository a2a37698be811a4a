//! A hash table with cheap copies: two copies share all but the few nodes in which they differ.
//!
//! Every worker reads a set of patterns without a lock, so a change makes a new set beside the old one. With a plain
//! hash table that would copy a million entries for one; here it copies the path to one leaf (some 60 pointers and up
//! to [`LEAF`] items). A node that is not shared is changed in place, so that filling a table copies nothing.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
};

/// Children of a node.
const FANOUT: usize = 1 << BITS;
const BITS: u32 = 4;
/// Items in a leaf before it is split, and so how many hashes one lookup compares at most. Only items with the same
/// hash, which are copies of one key, can exceed it.
pub(super) const LEAF: usize = 16;

/// Items found by a hash.
#[derive(Debug)]
pub(super) struct Trie<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
enum Node<T> {
    Empty,
    Leaf(Arc<Vec<(u64, T)>>),
    Inner(Arc<[Node<T>; FANOUT]>),
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Empty => Node::Empty,
            Node::Leaf(items) => Node::Leaf(Arc::clone(items)),
            Node::Inner(children) => Node::Inner(Arc::clone(children)),
        }
    }
}

impl<T> Clone for Trie<T> {
    fn clone(&self) -> Self {
        Trie { root: self.root.clone(), len: self.len }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Trie { root: Node::Empty, len: 0 }
    }
}

/// The hash of a key. Its secret differs from process to process, since clients may choose the keys that rules add.
pub(super) fn hash(key: &[u8]) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one(key)
}

impl<T: Clone> Trie<T> {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All items, if they are so few that comparing them costs less than hashing.
    pub(super) fn few(&self) -> Option<&[(u64, T)]> {
        match &self.root {
            Node::Empty => Some(&[]),
            Node::Leaf(items) if items.len() <= LEAF / 2 => Some(items),
            _ => None,
        }
    }

    /// Items with this hash, in the order in which they were added.
    pub(super) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &T> {
        let mut node = &self.root;
        let mut shift = 0;
        let items: &[(u64, T)] = loop {
            match node {
                Node::Empty => break &[],
                Node::Leaf(items) => break items,
                Node::Inner(children) => {
                    node = &children[slot(hash, shift)];
                    shift += BITS;
                }
            }
        };
        items.iter().filter(move |(known, _)| *known == hash).map(|(_, item)| item)
    }

    /// Adds an item after those with the same hash.
    pub(super) fn insert(&mut self, hash: u64, item: T) {
        self.root.insert(hash, item, 0);
        self.len += 1;
    }

    /// A table with these items, made node by node: for a million items that takes a fraction of the time of as many
    /// [`Trie::insert`]s, and leaves have no room to spare.
    pub(super) fn of(mut items: Vec<(u64, T)>) -> Trie<T> {
        // The items of one node, whose hashes agree in the bits on the way to it, then stand together.
        items.sort_by_key(|(hash, _)| hash.reverse_bits());
        let len = items.len();
        Trie { root: Node::of(&mut items.into_iter(), len, 0), len }
    }

    /// Removes the items with a hash for which `gone` holds; returns how many.
    pub(super) fn remove(&mut self, hash: u64, gone: impl Fn(&T) -> bool) -> usize {
        let removed = self.root.remove(hash, &gone, 0);
        self.len -= removed;
        removed
    }

    /// Changes the items with a hash.
    pub(super) fn update(&mut self, hash: u64, change: impl FnMut(&mut T)) {
        self.root.update(hash, change, 0);
    }
}

fn slot(hash: u64, shift: u32) -> usize {
    (hash >> shift) as usize % FANOUT
}

impl<T: Clone> Node<T> {
    /// A node of the next `len` items, which are sorted as [`Trie::of`] sorts them.
    fn of(items: &mut std::vec::IntoIter<(u64, T)>, len: usize, shift: u32) -> Node<T> {
        if len == 0 {
            return Node::Empty;
        }
        let own = &items.as_slice()[..len];
        if len <= LEAF || shift >= u64::BITS || own.iter().all(|(known, _)| *known == own[0].0) {
            return Node::Leaf(Arc::new(items.take(len).collect()));
        }
        let mut counts = [0; FANOUT];
        own.iter().for_each(|(hash, _)| counts[slot(*hash, shift)] += 1);
        let mut children = [const { Node::Empty }; FANOUT];
        for at in 0..FANOUT {
            // The lowest bit of a slot counts most in that order.
            let slot = at.reverse_bits() >> (usize::BITS - BITS);
            children[slot] = Node::of(items, counts[slot], shift + BITS);
        }
        Node::Inner(Arc::new(children))
    }

    fn insert(&mut self, hash: u64, item: T, shift: u32) {
        match self {
            Node::Empty => *self = Node::Leaf(Arc::new(vec![(hash, item)])),
            Node::Leaf(items) => {
                let alike = || items.iter().all(|(known, _)| *known == hash);
                if items.len() < LEAF || shift >= u64::BITS || alike() {
                    Arc::make_mut(items).push((hash, item));
                    return;
                }
                let mut children = [const { Node::Empty }; FANOUT];
                for (known, item) in items.iter() {
                    children[slot(*known, shift)].insert(*known, item.clone(), shift + BITS);
                }
                children[slot(hash, shift)].insert(hash, item, shift + BITS);
                *self = Node::Inner(Arc::new(children));
            }
            Node::Inner(children) => {
                Arc::make_mut(children)[slot(hash, shift)].insert(hash, item, shift + BITS);
            }
        }
    }

    fn remove(&mut self, hash: u64, gone: &impl Fn(&T) -> bool, shift: u32) -> usize {
        match self {
            Node::Empty => 0,
            Node::Leaf(items) => {
                let found = items.iter().filter(|(known, item)| *known == hash && gone(item)).count();
                if found == items.len() {
                    *self = Node::Empty;
                } else if found > 0 {
                    Arc::make_mut(items).retain(|(known, item)| *known != hash || !gone(item));
                }
                found
            }
            Node::Inner(children) => {
                let found = Arc::make_mut(children)[slot(hash, shift)].remove(hash, gone, shift + BITS);
                if found > 0 && children.iter().all(|child| matches!(child, Node::Empty)) {
                    *self = Node::Empty;
                }
                found
            }
        }
    }

    fn update(&mut self, hash: u64, mut change: impl FnMut(&mut T), shift: u32) {
        match self {
            Node::Empty => {}
            Node::Leaf(items) => {
                let items = Arc::make_mut(items).iter_mut();
                items.filter(|(known, _)| *known == hash).for_each(|(_, item)| change(item));
            }
            Node::Inner(children) => {
                Arc::make_mut(children)[slot(hash, shift)].update(hash, change, shift + BITS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Hashes that collide in their lower bits, as those of many keys do.
    fn spread(key: u64) -> u64 {
        if key.is_multiple_of(3) { key << 60 } else { hash(&key.to_be_bytes()) }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_table_holds_and_copies_keep_what_they_had(
            steps in proptest::collection::vec((0_u8..4, 0_u64..200), 1..400)
        ) {
            let mut trie = Trie::default();
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut kept = Vec::new();
            for (at, (what, key)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 if !model.contains_key(&key) => {
                        trie.insert(spread(key), (key, at as u64));
                        model.insert(key, at as u64);
                    }
                    2 => {
                        let removed = trie.remove(spread(key), |item| item.0 == key);
                        prop_assert_eq!(removed == 1, model.remove(&key).is_some());
                    }
                    3 => {
                        trie.update(spread(key), |item| if item.0 == key { item.1 = 7 });
                        if let Some(value) = model.get_mut(&key) { *value = 7; }
                    }
                    _ => kept.push((trie.clone(), model.clone())),
                }
            }
            kept.push((trie, model));
            for (trie, model) in kept {
                prop_assert_eq!(trie.len(), model.len());
                for key in 0..200 {
                    let found = trie.with_hash(spread(key)).find(|item| item.0 == key).map(|item| item.1);
                    prop_assert_eq!(found, model.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn a_table_made_at_once_is_one_filled_bit_by_bit() {
        for len in [0, 1, LEAF as u64, LEAF as u64 + 1, 100, 5000] {
            let items: Vec<_> = (0..len).map(|key| (spread(key), key)).chain((0..30).map(|n| (5, n))).collect();
            let mut made = Trie::of(items.clone());
            let mut filled = Trie::default();
            items.iter().for_each(|(hash, key)| filled.insert(*hash, *key));
            made.insert(spread(len), len);
            filled.insert(spread(len), len);
            assert_eq!(made.remove(spread(0), |key| *key == 0), filled.remove(spread(0), |key| *key == 0));
            assert_eq!(made.len(), filled.len());
            for hash in items.iter().map(|(hash, _)| *hash).chain([spread(len), 77]) {
                assert!(made.with_hash(hash).eq(filled.with_hash(hash)), "{len} {hash}");
            }
        }
    }

    #[test]
    fn copies_of_one_key_keep_their_order() {
        let mut trie = Trie::default();
        for n in 0..100 {
            trie.insert(5, n);
            trie.insert(hash(&[n]), n);
        }
        assert!(trie.with_hash(5).copied().eq(0..100));
        assert_eq!(trie.remove(5, |n| n % 2 == 0), 50);
        assert!(trie.with_hash(5).copied().eq((0..100).filter(|n| n % 2 == 1)));
    }
}
