//! A fair queue: a line for each share, and the shares served in turn.

use std::collections::VecDeque;

/// The party on whose behalf something waits, so that none crowds out the others: a frontend's number.
pub type Share = u32;

/// First in, first out within a share; one from each share in turn.
#[derive(Debug)]
pub struct Fair<T> {
    shares: VecDeque<(Share, VecDeque<T>)>,
    len: usize,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Fair { shares: VecDeque::new(), len: 0 }
    }
}

impl<T> Fair<T> {
    /// Appends to the line of `share`.
    pub fn push(&mut self, share: Share, item: T) {
        self.len += 1;
        match self.shares.iter_mut().find(|(other, _)| *other == share) {
            Some((_, line)) => line.push_back(item),
            None => self.shares.push_back((share, VecDeque::from([item]))),
        }
    }

    /// Takes the first of the share whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let (share, mut line) = self.shares.pop_front()?;
        let item = line.pop_front();
        if !line.is_empty() {
            self.shares.push_back((share, line));
        }
        self.len -= 1;
        item
    }

    /// The first of every share; the oldest of all is among them.
    pub fn heads(&self) -> impl Iterator<Item = &T> {
        self.shares.iter().filter_map(|(_, line)| line.front())
    }

    /// Number of entries waiting.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_with_much_to_do_does_not_hold_up_one_with_little() {
        let mut line = Fair::default();
        for item in 0..4 {
            line.push(1, item);
        }
        line.push(2, 10);
        line.push(2, 11);
        let order: Vec<u64> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3]);
        assert!(line.is_empty() && line.heads().count() == 0);
    }
}
