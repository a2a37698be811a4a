//! Names of servers that a table remembers. Entries hold their numbers.

use std::sync::{Arc, PoisonError, RwLock};

/// Most names: there are as many as servers, unless a peer makes them up.
const NAMES_MAX: usize = 65_536;

/// Names, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Names(RwLock<Vec<Arc<str>>>);

impl Names {
    /// The name with this number.
    pub fn get(&self, number: u64) -> Option<Arc<str>> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }

    /// The number of a name, which is added if it is new; 0 if there are too many.
    pub fn number(&self, name: &str) -> u64 {
        let find = |names: &[Arc<str>]| names.iter().position(|known| **known == *name).map(|at| at as u64 + 1);
        if let Some(number) = find(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return number;
        }
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = find(&names) {
            return number;
        }
        if names.len() >= NAMES_MAX {
            return 0;
        }
        names.push(name.into());
        names.len() as u64
    }
}
