//! The places of proxies in a configuration, and tables with an entry for each proxy.

use std::ops::{Index, IndexMut};

/// The place of a `frontend`, `backend` or `listen` in [`Config::proxies`](super::Config::proxies).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyId(pub u32);

impl ProxyId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value for each proxy, in the order in which the configuration has them. Only a [`ProxyId`] is an index.
#[derive(Clone, Debug)]
pub struct PerProxy<T>(Vec<T>);

impl<T> PerProxy<T> {
    /// The number of proxies.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no proxies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value for a proxy, `None` if no proxy has this place.
    pub fn get(&self, id: ProxyId) -> Option<&T> {
        self.0.get(id.index())
    }

    /// The first proxy whose value fits.
    pub fn position(&self, fits: impl Fn(&T) -> bool) -> Option<ProxyId> {
        self.entries().find_map(|(id, value)| fits(value).then_some(id))
    }

    /// The values in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// The places in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = ProxyId> + ExactSizeIterator + use<T> {
        (0..self.0.len()).map(|place| ProxyId(place as u32))
    }

    /// The places with their values, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (ProxyId, &T)> + ExactSizeIterator {
        self.ids().zip(self)
    }
}

impl<T> Default for PerProxy<T> {
    fn default() -> Self {
        PerProxy(Vec::new())
    }
}

impl<T> Index<ProxyId> for PerProxy<T> {
    type Output = T;
    fn index(&self, id: ProxyId) -> &T {
        &self.0[id.index()]
    }
}

impl<T> IndexMut<ProxyId> for PerProxy<T> {
    fn index_mut(&mut self, id: ProxyId) -> &mut T {
        &mut self.0[id.index()]
    }
}

impl<T> FromIterator<T> for PerProxy<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        PerProxy(values.into_iter().collect())
    }
}

impl<T> From<Vec<T>> for PerProxy<T> {
    fn from(values: Vec<T>) -> Self {
        PerProxy(values)
    }
}

impl<T> IntoIterator for PerProxy<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a PerProxy<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut PerProxy<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}
