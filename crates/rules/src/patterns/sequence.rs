//! A sequence of items with increasing numbers, with cheap copies like those of [`super::trie::Trie`].

use std::sync::Arc;

const FANOUT: usize = 1 << BITS;
const BITS: u32 = 5;

/// Items by increasing numbers. Numbers may be missing; those before the first cost nothing.
#[derive(Debug)]
pub(super) struct Sequence<T> {
    root: Option<Node<T>>,
    /// The number of the first item that was put.
    first: u64,
    /// Levels of nodes.
    height: u32,
    len: usize,
}

#[derive(Debug)]
enum Node<T> {
    Items(Arc<[Option<T>; FANOUT]>),
    Inner(Arc<[Option<Node<T>>; FANOUT]>),
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Items(items) => Node::Items(Arc::clone(items)),
            Node::Inner(children) => Node::Inner(Arc::clone(children)),
        }
    }
}

impl<T> Clone for Sequence<T> {
    fn clone(&self) -> Self {
        Sequence { root: self.root.clone(), ..*self }
    }
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Sequence { root: None, first: 0, height: 0, len: 0 }
    }
}

impl<T: Clone> Sequence<T> {
    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts an item at a number, replacing any item there. The number must not be before the first one put.
    pub(super) fn put(&mut self, number: u64, item: T) {
        if self.root.is_none() {
            *self = Sequence { first: number, ..Sequence::default() };
        }
        let Some(at) = number.checked_sub(self.first) else { return };
        while self.height == 0 || at.checked_shr(BITS * self.height).is_some_and(|rest| rest > 0) {
            let below = self.root.take();
            self.root = Some(if self.height == 0 {
                Node::Items(Arc::new([const { None }; FANOUT]))
            } else {
                let mut children = [const { None }; FANOUT];
                children[0] = below;
                Node::Inner(Arc::new(children))
            });
            self.height += 1;
        }
        if let Some(root) = &mut self.root
            && root.put(at, self.height, item)
        {
            self.len += 1;
        }
    }

    /// The item with a number.
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let at = number.checked_sub(self.first)?;
        if at.checked_shr(BITS * self.height).is_some_and(|rest| rest > 0) {
            return None;
        }
        let mut node = self.root.as_ref()?;
        let mut height = self.height;
        loop {
            height -= 1;
            match node {
                Node::Items(items) => return items[slot(at, height)].as_ref(),
                Node::Inner(children) => node = children[slot(at, height)].as_ref()?,
            }
        }
    }

    /// Removes the item with a number; returns whether there was one.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        if self.get(number).is_none() {
            return false;
        }
        let at = number - self.first;
        self.len -= 1;
        if self.root.as_mut().is_some_and(|root| root.remove(at, self.height)) {
            self.root = None;
        }
        true
    }

    /// Calls `each` for items from a number on, in order, until it returns false.
    pub(super) fn visit<'s>(&'s self, from: u64, each: &mut dyn FnMut(u64, &'s T) -> bool) {
        let from = from.saturating_sub(self.first);
        if let Some(root) = &self.root
            && from.checked_shr(BITS * self.height).is_none_or(|rest| rest == 0)
        {
            root.visit(from, self.height, self.first, each);
        }
    }
}

fn slot(at: u64, height: u32) -> usize {
    (at >> (BITS * height)) as usize % FANOUT
}

impl<T: Clone> Node<T> {
    fn new(height: u32) -> Self {
        match height {
            1 => Node::Items(Arc::new([const { None }; FANOUT])),
            _ => Node::Inner(Arc::new([const { None }; FANOUT])),
        }
    }

    /// Returns whether the number was free.
    fn put(&mut self, at: u64, height: u32, item: T) -> bool {
        let place = slot(at, height - 1);
        match self {
            Node::Items(items) => Arc::make_mut(items)[place].replace(item).is_none(),
            Node::Inner(children) => {
                Arc::make_mut(children)[place].get_or_insert_with(|| Node::new(height - 1)).put(at, height - 1, item)
            }
        }
    }

    /// Returns whether nothing is left.
    fn remove(&mut self, at: u64, height: u32) -> bool {
        let place = slot(at, height - 1);
        match self {
            Node::Items(items) => {
                let items = Arc::make_mut(items);
                items[place] = None;
                items.iter().all(Option::is_none)
            }
            Node::Inner(children) => {
                let children = Arc::make_mut(children);
                if children[place].as_mut().is_some_and(|child| child.remove(at, height - 1)) {
                    children[place] = None;
                }
                children.iter().all(Option::is_none)
            }
        }
    }

    /// Returns whether to go on. `from` counts from the first number of this node, which is `base`.
    fn visit<'s>(&'s self, from: u64, height: u32, base: u64, each: &mut dyn FnMut(u64, &'s T) -> bool) -> bool {
        let step = 1_u64 << (BITS * (height - 1));
        let begin = (from / step) as usize;
        for place in begin..FANOUT {
            let base = base + place as u64 * step;
            let go_on = match self {
                Node::Items(items) => items[place].as_ref().is_none_or(|item| each(base, item)),
                Node::Inner(children) => children[place].as_ref().is_none_or(|child| {
                    child.visit(if place == begin { from % step } else { 0 }, height - 1, base, each)
                }),
            };
            if !go_on {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_sorted_table_holds(
            first in 0_u64..1 << 40,
            steps in proptest::collection::vec((0_u8..4, 0_u64..3000), 1..300)
        ) {
            let mut sequence = Sequence::default();
            let mut model = BTreeMap::new();
            sequence.put(first, 0);
            model.insert(first, 0);
            for (at, (what, number)) in steps.into_iter().enumerate() {
                let number = first + number;
                if what < 3 {
                    if model.is_empty() { continue }
                    sequence.put(number, at);
                    model.insert(number, at);
                } else if number != first {
                    prop_assert_eq!(sequence.remove(number), model.remove(&number).is_some());
                }
                prop_assert_eq!(sequence.len(), model.len());
                prop_assert_eq!(sequence.get(number), model.get(&number));
                let mut seen = Vec::new();
                sequence.visit(number, &mut |number, item| { seen.push((number, *item)); seen.len() < 9 });
                let expected: Vec<_> = model.range(number..).map(|(n, i)| (*n, *i)).take(9).collect();
                prop_assert_eq!(seen, expected);
            }
        }
    }

    #[test]
    fn an_empty_one_begins_again_where_it_is_filled_next() {
        let mut sequence = Sequence::default();
        sequence.put(3, 'a');
        assert!(sequence.remove(3) && !sequence.remove(3));
        sequence.put(1 << 50, 'b');
        assert_eq!((sequence.len(), sequence.get(1 << 50), sequence.get(3)), (1, Some(&'b'), None));
    }
}
