//! Names of servers that a table remembers. Entries hold their numbers.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Maximum number of names. There are as many as servers, unless a peer invents them.
const NAMES_MAX: usize = 65_536;

/// Names, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Names(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl Names {
    /// The name with this number.
    pub fn get(&self, number: u64) -> Option<Arc<str>> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).names.get(at).cloned()
    }

    /// The number of a name, which is added if it is new; 0 if there are too many.
    pub fn number(&self, name: &str) -> u64 {
        if let Some(number) = self.0.read().unwrap_or_else(PoisonError::into_inner).numbers.get(name) {
            return *number;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known.numbers.get(name) {
            return *number;
        }
        if known.names.len() >= NAMES_MAX {
            return 0;
        }
        let name: Arc<str> = name.into();
        known.names.push(name.clone());
        let number = known.names.len() as u64;
        known.numbers.insert(name, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_and_there_is_an_end_to_them() {
        let names = Names::default();
        assert_eq!((names.number("a"), names.number("b"), names.number("a")), (1, 2, 1));
        assert_eq!(names.get(2).as_deref(), Some("b"));
        assert_eq!((names.get(0), names.get(3)), (None, None));
        for number in 0..NAMES_MAX {
            names.number(&number.to_string());
        }
        assert_eq!((names.number("one too many"), names.number("b")), (0, 2));
    }
}
