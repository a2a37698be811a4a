//! Reusable slots: a freed slot is reused under a new generation, so that a stored [`ServerId`] never finds a different
//! server.

use super::ServerId;

/// Values in slots, and the order in which they were added.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    slots: Vec<Entry<T>>,
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// The generation of the value in the slot, or else of the next one.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { slots: Vec::new(), order: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// The id that the next value would get.
    pub fn next(&self) -> ServerId {
        let free = self.slots.iter().position(|entry| entry.value.is_none());
        let slot = free.unwrap_or(self.slots.len());
        ServerId { slot: slot as u32, generation: self.slots.get(slot).map_or(0, |entry| entry.generation) }
    }

    /// Puts a value in the first free slot; it comes last in order.
    pub fn insert(&mut self, value: T) -> ServerId {
        let id = self.next();
        if id.index() == self.slots.len() {
            self.slots.push(Entry { generation: 0, value: None });
        }
        self.slots[id.index()].value = Some(value);
        self.order.push(id.slot);
        id
    }

    /// Frees the slot, if it still holds that value.
    pub fn remove(&mut self, id: ServerId) -> Option<T> {
        let entry = self.slots.get_mut(id.index()).filter(|entry| entry.generation == id.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.order.retain(|&slot| slot != id.slot);
        Some(value)
    }

    /// The value with that id, if it still exists.
    pub fn get(&self, id: ServerId) -> Option<&T> {
        self.slots.get(id.index()).filter(|entry| entry.generation == id.generation)?.value.as_ref()
    }

    /// The value in that slot.
    pub fn at(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot)?.value.as_ref()
    }

    /// All values in the order in which they were added.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.order
            .iter()
            .map(|&slot| self.slots[slot as usize].value.as_ref().expect("only what is there has an order"))
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The number of slots, including free ones.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After any sequence of changes, each id finds its own value until that is removed and none afterwards, the
        /// order is that of insertion, and there are never more slots than values at one time.
        #[test]
        fn an_identifier_finds_its_own_value_or_none(steps in prop::collection::vec((any::<bool>(), 0_usize..20), 0..200)) {
            let mut slots = Slots::default();
            let (mut alive, mut gone, mut most) = (Vec::new(), Vec::new(), 0);
            for (value, (add, which)) in steps.into_iter().enumerate() {
                if add || alive.is_empty() {
                    let next = slots.next();
                    let id = slots.insert(value);
                    prop_assert_eq!(id, next);
                    alive.push((id, value));
                } else {
                    let (id, value) = alive.remove(which % alive.len());
                    prop_assert_eq!(slots.remove(id), Some(value));
                    prop_assert_eq!(slots.remove(id), None);
                    gone.push(id);
                }
                most = most.max(alive.len());
                prop_assert!(alive.iter().all(|(id, value)| slots.get(*id) == Some(value)));
                prop_assert!(alive.iter().all(|(id, value)| slots.at(id.index()) == Some(value)));
                prop_assert!(gone.iter().all(|id| slots.get(*id).is_none()));
                prop_assert!(slots.iter().copied().eq(alive.iter().map(|(_, value)| *value)));
                prop_assert_eq!((slots.len(), slots.capacity()), (alive.len(), most));
            }
        }
    }
}
