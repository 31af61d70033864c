//! How many there are of each kind.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// How often each key was counted. A key of which nothing is left takes no memory.
#[derive(Clone, Debug)]
pub struct Tally<K>(BTreeMap<K, u64>);

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Tally(BTreeMap::new())
    }
}

impl<K: Ord> Tally<K> {
    /// Counts one more.
    pub fn add(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Counts one less, if there is one.
    pub fn take_off<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count<Q: Ord + ?Sized>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// The keys in this range of which there are any, ascending.
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl Iterator<Item = &K> {
        self.0.range(keys).map(|(key, _)| key)
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_off_as_often_as_it_was_added_is_forgotten() {
        let mut tally = Tally::default();
        ["b", "a", "b"].into_iter().for_each(|key| tally.add(key));
        assert_eq!(["a", "b", "c"].map(|key| tally.count(key)), [1, 2, 0]);
        tally.take_off("b");
        tally.take_off("a");
        tally.take_off("a");
        tally.take_off("c");
        assert_eq!(tally.range("a"..).copied().collect::<Vec<_>>(), ["b"]);
        assert_eq!((tally.count("b"), tally.is_empty()), (1, false));
        tally.take_off("b");
        assert!(tally.is_empty());
    }
}
