//! Places that come and go: a slot is used again by whoever comes next, under a new generation, so that an [`ServerId`] that
//! was kept never finds a stranger.

/// One of the servers of a backend: its slot, and which of those that have had the slot it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    /// Its place in tables.
    pub slot: u32,
    /// How many had the slot before it.
    pub generation: u32,
}

impl ServerId {
    /// The one that the configuration put in that place.
    pub fn configured(place: usize) -> ServerId {
        ServerId { slot: place as u32, generation: 0 }
    }

    /// Its slot, to index with.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Values in slots, and the order in which they came.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    slots: Vec<Entry<T>>,
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// Of the value that is there, or else of the next.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { slots: Vec::new(), order: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Where the next value would go.
    pub fn next(&self) -> ServerId {
        let free = self.slots.iter().position(|entry| entry.value.is_none());
        let slot = free.unwrap_or(self.slots.len());
        ServerId { slot: slot as u32, generation: self.slots.get(slot).map_or(0, |entry| entry.generation) }
    }

    /// Takes the first free slot; the value is the last in order.
    pub fn insert(&mut self, value: T) -> ServerId {
        let id = self.next();
        if id.index() == self.slots.len() {
            self.slots.push(Entry { generation: 0, value: None });
        }
        self.slots[id.index()].value = Some(value);
        self.order.push(id.slot);
        id
    }

    /// Frees the slot, if it is still that value's.
    pub fn remove(&mut self, id: ServerId) -> Option<T> {
        let entry = self.slots.get_mut(id.index()).filter(|entry| entry.generation == id.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.order.retain(|&slot| slot != id.slot);
        Some(value)
    }

    /// The value of that identifier, if it is still there.
    pub fn get(&self, id: ServerId) -> Option<&T> {
        self.slots.get(id.index()).filter(|entry| entry.generation == id.generation)?.value.as_ref()
    }

    /// Who has that slot now.
    pub fn at(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot)?.value.as_ref()
    }

    /// All values in the order they came.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.order
            .iter()
            .map(|&slot| self.slots[slot as usize].value.as_ref().expect("only what is there has an order"))
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many slots there are, free ones included.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever comes and goes: each identifier finds its own value until that is removed and none afterwards, the order
        /// is that of arrival, and there are never more slots than values at once.
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
