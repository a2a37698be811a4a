//! The operations of one class that wait, a line for each share, served in turn.

use super::OpId;
use std::collections::VecDeque;

/// Whom an operation is for, where several must not crowd each other out: a frontend's number.
pub type Share = u32;

/// First in, first out within a share; one from each share in turn.
#[derive(Default)]
pub(super) struct Line {
    shares: VecDeque<(Share, VecDeque<OpId>)>,
    len: usize,
}

impl Line {
    pub fn push(&mut self, share: Share, id: OpId) {
        self.len += 1;
        match self.shares.iter_mut().find(|(other, _)| *other == share) {
            Some((_, line)) => line.push_back(id),
            None => self.shares.push_back((share, VecDeque::from([id]))),
        }
    }

    /// The next, from the share whose turn it is.
    pub fn pop(&mut self) -> Option<OpId> {
        let (share, mut line) = self.shares.pop_front()?;
        let id = line.pop_front();
        if !line.is_empty() {
            self.shares.push_back((share, line));
        }
        self.len -= 1;
        id
    }

    /// The heads of all shares: the oldest is among them.
    pub fn heads(&self) -> impl Iterator<Item = OpId> {
        self.shares.iter().filter_map(|(_, line)| line.front().copied())
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_with_much_to_do_does_not_hold_up_one_with_little() {
        let id = |serial| OpId { index: 0, serial };
        let mut line = Line::default();
        for serial in 0..4 {
            line.push(1, id(serial));
        }
        line.push(2, id(10));
        line.push(2, id(11));
        let order: Vec<u64> = std::iter::from_fn(|| line.pop()).map(|id| id.serial).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3]);
        assert_eq!(line.len(), 0);
        assert_eq!(line.heads().count(), 0);
    }
}
